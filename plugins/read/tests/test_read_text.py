"""Text in every form: encodings, line ends, ranges, limits, and files that are no files."""

from __future__ import annotations

import os
import random
import socket
import tracemalloc

import pytest
from pegboard.testing.effects import Watch

from .conftest import read, view_of


@pytest.mark.parametrize(
    "raw, lines, said",
    [
        ("\ufeffhé\r\nx\r\n".encode("utf-16-le"), ["hé", "x"], "UTF-16 LE"),
        ("\ufeffhé\nx".encode("utf-16-be"), ["hé", "x"], "UTF-16 BE"),
        ("\ufeffhé\n".encode(), ["hé"], "UTF-8 with a byte order mark"),
        ("# 测试编码识别的注释\n".encode("gbk"), ["# 测试编码识别的注释"], "GBK"),
        ("コメントです\n".encode("cp932"), ["コメントです"], "Shift-JIS"),
        ("caf\xe9 au lait\n".encode("latin-1"), ["café au lait"], "guess"),
        (b"a\rb\r", ["a", "b"], ""),
        (b"a\r\nb\n\nc", ["a", "b", "", "c"], ""),
        ("a\u2028b\x0bc\x85\n".encode(), ["a\u2028b\x0bc\x85"], ""),
        (b"\n", [""], ""),
    ],
)
async def test_lines_are_those_of_the_file(bench, raw, lines, said):
    async with bench:
        (bench.folder / "a.txt").write_bytes(raw)
        outcome = await read(bench, "a.txt")
        assert outcome.data["file"]["content"].split("\n") == lines
        assert outcome.text.startswith("\n".join(f"{n}\t{line}" for n, line in enumerate(lines, 1)))
        assert said in outcome.text and "\ufeff" not in outcome.text
        assert (await view_of(bench, "a.txt")).view == "full"


@pytest.mark.parametrize(
    "raw", ["naïve größe".encode() + b"\xff\n", b"\x81\x82\x83\xff\xfe\x90\x01 text\n" + b"x" * 200]
)
async def test_what_cannot_be_decoded_is_a_partial_view(bench, raw):
    async with bench:
        (bench.folder / "a.txt").write_bytes(raw)
        outcome = await read(bench, "a.txt")
        assert not outcome.is_error and "\ufffd" in outcome.text and "PARTIAL view" in outcome.text
        given = {"file_path": str(bench.folder / "a.txt"), "old_string": "x", "new_string": "y"}
        refused = await bench.call("Edit", given, id="edit")
        assert refused.code == "not_read" and "UTF-8" in refused.text
        assert (bench.folder / "a.txt").read_bytes() == raw


@pytest.mark.parametrize(
    "raw", [b"\x7fELF\x02\0\0", b"a\0b", random.Random(7).randbytes(4096) + b"\0", b"\x1f\x8b\x08\0"]
)
async def test_binary_data_is_refused_by_content(bench, raw):
    async with bench:
        (bench.folder / "a.txt").write_bytes(raw)
        assert (await read(bench, "a.txt")).code == "precondition_failed"


@pytest.mark.parametrize("size", [511, 999, 1023, 2047, 4095, 8191, 65535])
async def test_characters_on_any_boundary(bench, size):
    async with bench:
        (bench.folder / "a.md").write_bytes(b"a" * size + "ç\nx\n".encode())
        outcome = await read(bench, "a.md")
        assert not outcome.is_error and outcome.text.split("\n")[1] == "2\tx"


async def test_ranges(bench):
    async with bench:
        (bench.folder / "a.txt").write_text("".join(f"{number}\n" for number in range(1, 11)))
        some = await read(bench, "a.txt", offset=3, limit=2)
        assert some.text.startswith("3\t3\n4\t4\n\n[Lines 3-4 of 10")
        view = await view_of(bench, "a.txt")
        assert (view.view, view.ranges) == ("range", ((3, 4),))
        rest = await read(bench, "a.txt", offset=9, limit=100)
        assert rest.text == "9\t9\n10\t10"
        assert (await view_of(bench, "a.txt")).ranges == ((3, 4), (9, 10))
        await read(bench, "a.txt", offset=1, limit=10)
        assert (await view_of(bench, "a.txt")).view == "full"
        await read(bench, "a.txt", offset=2, limit=1)
        assert (await view_of(bench, "a.txt")).view == "full", "a narrow look undid a wide one"


async def test_a_range_over_the_cap_is_refused(peg_session):
    bench = peg_session(settings={"read.max_tokens": 1000})
    async with bench:
        (bench.folder / "a.txt").write_text("".join(f"line number {number}\n" for number in range(1000)))
        whole = await read(bench, "a.txt")
        assert "PARTIAL view" in whole.text and whole.data["file"]["truncatedByTokenCap"]
        shown = whole.data["file"]["numLines"]
        refused = await read(bench, "a.txt", limit=900)
        assert refused.code == "too_large" and f"limit {shown}" in refused.text and "Grep" in refused.text
        assert not (await read(bench, "a.txt", limit=shown)).is_error


async def test_long_lines_are_cut_with_a_mark(bench):
    async with bench:
        (bench.folder / "a.txt").write_text("x" * 1999 + "e\u0301" * 10 + "\nend\n")
        outcome = await read(bench, "a.txt")
        first, second = outcome.text.split("\n")[:2]
        assert first.startswith("1\t" + "x" * 1999 + " … [line cut: 1,999 of 2,019") and second == "2\tend"
        view = await view_of(bench, "a.txt")
        assert (view.view, view.ranges) == ("range", ((2, 2),))
        edit = {"file_path": str(bench.folder / "a.txt"), "old_string": "end", "new_string": "END"}
        assert not (await bench.call("Edit", edit, id="edit")).is_error
        write = {"file_path": str(bench.folder / "a.txt"), "content": "new"}
        assert (await bench.call("Write", write, id="write")).code == "not_read"


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/stdin", "/proc/self/fd/0", "/dev/fd/0", "/proc/self/environ"])
async def test_what_belongs_to_a_process_or_a_device(peg_session, name):
    bench = peg_session(allow=["Read(//**)"])
    async with bench:
        (bench.folder / "link").symlink_to(name)
        for path in (name, str(bench.folder / "link")):
            outcome = await bench.call("Read", {"file_path": path}, id=path)
            assert outcome.code == "precondition_failed", outcome.text


async def test_folder_socket_and_loop(bench):
    async with bench:
        listener = socket.socket(socket.AF_UNIX)
        before = os.getcwd()
        os.chdir(bench.folder)
        try:
            listener.bind("sock")
        finally:
            os.chdir(before)
        (bench.folder / "loop").symlink_to("loop")
        (bench.folder / "dead").symlink_to("nowhere")
        assert "socket" in (await read(bench, "sock")).text
        assert "shell command" in (await read(bench, ".")).text
        assert (await read(bench, "dead")).code == "not_found"
        assert (await read(bench, "loop")).code == "precondition_failed"
        listener.close()


async def test_names_that_look_the_same(bench):
    async with bench:
        (bench.folder / "e\u0301cran.txt").write_text("nfd\n")
        (bench.folder / "it’s.txt").write_text("curly\n")
        (bench.folder / "Screenshot at 9.41\u202fPM.txt").write_text("blank\n")
        for typed, content in (
            ("\u00e9cran.txt", "nfd"),
            ("it's.txt", "curly"),
            ("Screenshot at 9.41 PM.txt", "blank"),
        ):
            outcome = await read(bench, typed)
            assert outcome.text.startswith(f"1\t{content}\n\n[There is no file of exactly this name"), outcome.text
        (bench.folder / "it's.txt").write_text("straight\n")
        assert (await read(bench, "it's.txt")).text == "1\tstraight"
        assert (await read(bench, "it’s.txt", offset=1)).text == "1\tcurly"
        (bench.folder / "a’.txt").write_text("1")
        (bench.folder / "a‘.txt").write_text("2")
        both = await read(bench, "a'.txt")
        assert both.code == "not_found" and "a’.txt" in both.text and "a‘.txt" in both.text


async def test_denied_names_are_not_listed(peg_session):
    bench = peg_session(deny=["Read(./secret.txt)"])
    async with bench:
        (bench.folder / "secret.txt").write_text("x")
        (bench.folder / "secrets.txt").write_text("x")
        outcome = await read(bench, "secret.tx")
        assert outcome.code == "not_found" and "'secrets.txt'" in outcome.text and "'secret.txt'" not in outcome.text


async def test_a_file_that_changes_while_it_is_read(bench, monkeypatch):
    async with bench:
        path = bench.folder / "a.txt"
        path.write_text("one\n")
        real, count = os.read, 0

        def racing(handle, size):
            nonlocal count
            data = real(handle, size)
            if data == b"one\n":
                count += 1
                if count == 2:
                    path.write_text("two and more\n")
            return data

        monkeypatch.setattr(os, "read", racing)
        outcome = await read(bench, "a.txt")
        assert not outcome.is_error and "changed while it was being read" in outcome.text
        assert (await view_of(bench, "a.txt")).view == "partial"


class Huge:
    """A file of 5 GB that is mostly a hole, behind a million real lines."""

    def __init__(self, path):
        with open(path, "wb") as file:
            for _ in range(20):
                file.write(b"".join(b"line\n" for _ in range(1_000_000)))
            file.truncate(5 * 1024**3)


async def test_a_huge_file_is_not_loaded(bench):
    async with bench:
        Huge(bench.folder / "huge.log")
        tracemalloc.start()
        try:
            first = await read(bench, "huge.log")
            some = await read(bench, "huge.log", offset=19_000_000, limit=5)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert "PARTIAL view" in first.text and "2000\tline" in first.text and first.data["file"]["totalLines"] is None
        assert some.text.startswith("19000000\tline\n") and some.data["file"]["numLines"] == 5
        assert peak < 50 * 1024 * 1024
        assert (await view_of(bench, "huge.log")).view == "partial"


async def test_a_range_of_a_large_file_counts_for_edit(bench):
    async with bench:
        path = bench.folder / "large.txt"
        path.write_text("".join(f"number {number}\n" for number in range(1, 1_000_001)))
        outcome = await read(bench, "large.txt", offset=500_000, limit=2)
        assert outcome.text.startswith("500000\tnumber 500000\n500001\tnumber 500001\n")
        assert outcome.data["file"]["totalLines"] == 1_000_000
        edit = {"file_path": str(path), "old_string": "number 500000\n", "new_string": "changed\n"}
        assert not (await bench.call("Edit", edit, id="edit")).is_error
        past = await read(bench, "large.txt", offset=2_000_000)
        assert "1000000 lines" in past.text
        refused = await read(bench, "large.txt", limit=500_000)
        assert refused.code == "too_large"


@pytest.mark.parametrize("mark, encoding", [(b"", "utf-8"), (b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le")])
async def test_large_files_in_other_forms(bench, mark, encoding):
    async with bench:
        text = "".join(f"größe 日本 {number}\r\n" for number in range(600_000))
        (bench.folder / "a.txt").write_bytes(mark + text.encode(encoding))
        outcome = await read(bench, "a.txt", offset=400_000, limit=1)
        assert outcome.text.split("\n")[0] == "400000\tgröße 日本 399999"
        assert outcome.data["file"]["totalLines"] == 600_000
        assert (await view_of(bench, "a.txt")).view == "range"


async def test_one_endless_line(bench):
    async with bench:
        (bench.folder / "a.js").write_bytes(b"x" * (12 * 1024 * 1024) + b"\ny\n")
        outcome = await read(bench, "a.js")
        assert "line cut" in outcome.text and "2\ty" in outcome.text
        assert (await view_of(bench, "a.js")).view == "range"


async def test_reading_opens_nothing_for_writing(bench):
    async with bench:
        (bench.folder / "a.txt").write_text("x\n")
        with Watch() as watch:
            await read(bench, "a.txt")
        assert not watch.below(bench.folder)
