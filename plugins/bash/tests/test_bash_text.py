"""Output as a model reads it: pure functions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard_bash import codes
from pegboard_bash.reading import reading_of
from pegboard_bash.text import readable, shown
from pegboard_shell.judge import accesses
from pegboard_tasks.sink import HEAD, Sink


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("a\r\nb\r\n", "a\nb\n"),
        ("\rone\rtwo\nnext", "two\nnext"),
        ("50%\r100%\r\n", "100%\n"),
        ("done\r", "done"),
        ("\x1b[31mred\x1b[0m \x1b[1;2Hx", "red x"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
        ("\x1bP1;2q...\x1b\\c\x1b(B", "c"),
        ("abc\b\bd\b\b\b\bz", "z"),
        ("a\0b\x07c\x85", "a\ufffdb\ufffdc\ufffd"),
        ("tab\there", "tab\there"),
        ("\x1b", "\ufffd"),
    ],
)
def test_readable(raw, text):
    assert readable(raw) == text


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab\r\n\b\x1b[]0m;\x07\0é€", max_size=60))
def test_readable_is_settled_and_safe(raw):
    text = readable(raw)
    assert readable(text) == text
    assert not any(char < " " and char not in "\n\t" for char in text)
    assert text.count("\n") <= raw.count("\n")


def filled(*pieces: bytes) -> Sink:
    sink = Sink(Path("/nowhere/o.txt"))
    for piece in pieces:
        sink.feed(piece)
    return sink


def test_short_output_is_shown_whole():
    assert shown(filled(b"\n  \n  first\n", b"last \n\n"), 100) == ("  first\nlast", False)
    assert shown(filled(), 100) == ("", False)


def test_long_output_shows_both_ends_on_line_bounds():
    text, cut = shown(filled(b"".join(b"line %04d\n" % number for number in range(1000))), 500)
    assert cut and len(text) <= 500
    assert text.startswith("line 0000\n") and text.endswith("line 0999")
    assert all(len(line) == 9 for line in text.splitlines() if line.startswith("line"))
    assert "of 9,999 characters left out" in text


def test_one_long_line_shows_both_ends():
    text, cut = shown(filled(b"a" * 5000 + b"z" * 5000), 1000)
    assert cut and text.startswith("aaa") and text.endswith("zzz") and len(text) <= 1000


def test_what_memory_does_not_hold_is_counted(tmp_path):
    sink = Sink(tmp_path / "o.txt")
    for number in range(100_000):
        sink.feed(b"%07d\n" % number)
    text, cut = shown(sink, 1000)
    assert cut and sink.total > 2 * HEAD and "of 800,000 bytes left out" in text
    assert text.startswith("0000000\n") and text.endswith("0099999") and "\ufffd" not in text


def test_progress_does_not_use_up_the_result():
    frames = b"".join(b"\rprogress %d/20000" % number for number in range(20_000))
    assert shown(filled(frames, b"\ndone\n"), 1000) == ("progress 19999/20000\ndone", False)


def test_codes():
    assert codes.answer(1, "grep") == "No matches found" and codes.answer(2, "grep") is None
    assert codes.answer(1, "git diff") and codes.answer(1, "ls") is None
    assert "SIGKILL" in codes.killed_by(137) and codes.killed_by(128 + 64) and codes.killed_by(1) == ""


@pytest.mark.parametrize(
    ("command", "last", "moves", "stops", "git"),
    [
        ("npm test", "npm", False, False, None),
        ("cd x && grep a b", "grep", True, False, None),
        ("git -C sub --no-pager diff", "git diff", False, True, None),
        ("git add . && git commit -m x && git push", "git push", False, True, "commit, push"),
        ("sh -c 'sleep 5'; echo", "echo", False, True, None),
        ("timeout 5 rg x | head", "head", False, False, None),
        ("A=1", "", False, False, None),
    ],
)
def test_reading(command, last, moves, stops, git):
    reading = reading_of(accesses(command, cwd="/tmp", home="/root", roots=("/tmp",)))
    assert (reading.last, reading.moves, reading.stops_late, reading.git) == (last, moves, stops, git)
