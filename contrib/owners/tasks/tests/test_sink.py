"""Output: both ends in memory, all of it up to a cap on disk, text whole at every cut."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard_tasks import sink as module
from pegboard_tasks.sink import Sink, decoded


@pytest.fixture
def small(monkeypatch, tmp_path) -> Sink:
    monkeypatch.setattr(module, "HEAD", 10)
    monkeypatch.setattr(module, "TAIL", 10)
    return Sink(tmp_path / "new" / "o.txt", cap=50, most=1000)


def test_little_output_makes_no_file(small):
    small.feed(b"0123456789")
    small.feed(b"abc")
    assert small.whole() == b"0123456789abc" and not small.filed and not small.path.parent.exists()
    small.close()
    assert not small.filed


def test_a_file_can_be_asked_for_also_afterwards(small):
    small.feed(b"little")
    small.close()
    small.open()
    small.close()
    assert small.filed and small.path.read_bytes() == b"little" and not small.capped
    assert os.stat(small.path).st_mode & 0o777 == 0o600


def test_more_than_memory_goes_to_the_file(small):
    for _ in range(4):
        small.feed(b"0123456789")
    assert small.whole() is None and small.filed
    assert small.first(5) == b"01234" and small.last(4) == b"6789"
    small.close()
    assert small.path.read_bytes() == b"0123456789" * 4


def test_the_file_stops_at_its_cap_and_ends_with_the_last_words(small):
    for number in range(30):
        small.feed(b"%08d\n" % number)
    assert small.capped and small.total == 270 and not small.over
    small.close()
    text = small.path.read_bytes()
    assert text.startswith(b"00000000\n00000001\n") and b"Output limit reached: 50 bytes" in text
    assert text.endswith(b"00000029\n") and b"of 270 bytes:]" in text


def test_too_much_is_noticed(small):
    small.feed(b"x" * 1001)
    assert small.over


def test_a_disk_that_takes_nothing_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    sink = Sink(tmp_path / "file" / "o.txt")
    sink.feed(b"x")
    sink.open()
    sink.close()
    assert not sink.filed and sink.fault and sink.whole() == b"x"


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path):
    (tmp_path / "o.txt").symlink_to(tmp_path / "elsewhere")
    sink = Sink(tmp_path / "o.txt")
    sink.feed(b"x")
    sink.open()
    assert not sink.filed and not (tmp_path / "elsewhere").exists()


def test_memory_stays_bounded(tmp_path):
    sink = Sink(tmp_path / "o.txt", cap=1_000_000)
    for _ in range(200):
        sink.feed(b"x" * 65536)
    sink.close()
    assert len(sink._head) + len(sink._tail) <= 3 * module.TAIL
    assert sink.path.stat().st_size < 1_000_000 + 2 * module.TAIL


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40), st.integers(0, 200), st.integers(0, 200))
def test_cut_text_holds_no_half_characters(text, first, last):
    raw = text.encode("utf-8", "replace")
    begin, end = sorted((min(first, len(raw)), min(last, len(raw))))
    assert "\ufffd" not in decoded(raw[begin:end], start=False, end=False).replace("\ufffd" * text.count("\ufffd"), "")
    assert decoded(raw) == raw.decode()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=12))
def test_bytes_come_out_as_they_went_in(pieces):
    sink = Sink(Path("/nowhere/o.txt"))
    for piece in pieces:
        sink.feed(piece)
    whole = b"".join(pieces)
    assert sink.whole() == whole and sink.first(7) == whole[:7] and sink.last(7) == whole[-7:]
