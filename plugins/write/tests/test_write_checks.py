"""The numbered checks of Write."""

from __future__ import annotations

import json
import os
import stat

import pytest
from pegboard.rules import lint, parse_rule


async def read(bench, name, **more):
    return await bench.call("Read", {"file_path": str(bench.folder / name), **more}, id=f"read-{name}-{more}")


async def write(bench, name, content):
    return await bench.call("Write", {"file_path": str(bench.folder / name), "content": content}, id=f"write-{name}")


async def edit(bench, name, old, new):
    given = {"file_path": str(bench.folder / name), "old_string": old, "new_string": new}
    return await bench.call("Edit", given, id=f"edit-{old}")


@pytest.fixture
def bench(peg_session):
    return peg_session(mode="acceptEdits")


async def test_write_1_new_path_in_a_missing_folder(bench):
    async with bench:
        outcome = await write(bench, "a/b/c.txt", "hi\n")
        assert outcome.data["type"] == "create"
        assert (bench.folder / "a/b/c.txt").read_text() == "hi\n"
        wanted = [str(bench.folder / name) for name in ("a", "a/b", "a/b/c.txt")]
        assert [effect.target for effect in outcome.effects] == wanted


async def test_write_2_existing_unread_file(bench):
    async with bench:
        (bench.folder / "a.txt").write_text("mine\n")
        outcome = await write(bench, "a.txt", "theirs\n")
        assert (outcome.code, outcome.status) == ("not_read", "not_started")
        assert (bench.folder / "a.txt").read_text() == "mine\n"


async def test_write_3_a_range_is_enough_for_edit_only(bench):
    async with bench:
        (bench.folder / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 21)))
        await read(bench, "a.txt", offset=1, limit=10)
        refused = await write(bench, "a.txt", "x\n")
        assert refused.code == "not_read" and "1-10" in refused.text
        assert not (await edit(bench, "a.txt", "line 5\n", "five\n")).is_error
        assert (await write(bench, "a.txt", "x\n")).code == "not_read"


async def test_write_4_changed_outside(bench):
    async with bench:
        path = bench.folder / "a.txt"
        path.write_text("one\n")
        await read(bench, "a.txt")
        path.write_text("two\n")
        for _ in range(2):
            assert (await write(bench, "a.txt", "three\n")).code == "stale"
        assert path.read_text() == "two\n"


async def test_write_5_read_deny_covers_new_files(peg_session):
    bench = peg_session(allow=["Edit"], deny=["Read(secret/**)"])
    async with bench:
        outcome = await write(bench, "secret/new.txt", "x")
        assert outcome.code == "denied_by_rule"
        assert not (bench.folder / "secret").exists()


async def test_write_6_a_rule_named_after_write_is_never_consulted(peg_session):
    bench = peg_session(allow=["Write(docs/**)"])
    async with bench:
        outcome = await write(bench, "docs/a.txt", "x")
        assert outcome.code == "no_user"
        rule = parse_rule("Write(docs/**)", effect="allow", scope="user")
        tools = [found.manifest for found in bench.session.tools().values()]
        problems = lint([rule], tools)
        assert any(problem.fix == "Edit(docs/**)" for problem in problems), problems


async def test_write_7_mode_bits_are_kept(bench):
    async with bench:
        path = bench.folder / "run.sh"
        path.write_text("#!/bin/sh\necho 1\n")
        path.chmod(0o2755)
        await read(bench, "run.sh")
        assert not (await write(bench, "run.sh", "#!/bin/sh\necho 2\n")).is_error
        assert stat.S_IMODE(path.stat().st_mode) == 0o2755


async def test_write_8_write_then_edit(bench):
    async with bench:
        await write(bench, "a.txt", "one\n")
        assert not (await edit(bench, "a.txt", "one", "two")).is_error
        assert (bench.folder / "a.txt").read_text() == "two\n"


@pytest.mark.parametrize(
    "before, content, after",
    [
        (b"\xef\xbb\xbfa\r\n", "é\nb\n", "\ufeffé\r\nb\r\n".encode()),
        (b"a\r\nb\n", "x\n", b"x\n"),
        (b"a\r\n", "x\r\ny\n", b"x\r\ny\n"),
        ("\ufeffa\n".encode("utf-16-le"), "é\n", "\ufeffé\n".encode("utf-16-le")),
        (b"", "x\n", b"x\n"),
        ("# 中文字符\n".encode("gbk"), "# 汉字\n", "# 汉字\n".encode("gbk")),
    ],
)
async def test_a_replaced_file_keeps_its_form(bench, before, content, after):
    async with bench:
        (bench.folder / "a.txt").write_bytes(before)
        await read(bench, "a.txt")
        outcome = await write(bench, "a.txt", content)
        assert not outcome.is_error, outcome.text
        assert (bench.folder / "a.txt").read_bytes() == after


async def test_new_files_are_verbatim(bench):
    async with bench:
        await write(bench, "a.txt", "a\r\nb\n\ufeffc")
        assert (bench.folder / "a.txt").read_bytes() == "a\r\nb\n\ufeffc".encode()


async def test_notebook_content_must_parse(bench):
    async with bench:
        assert (await write(bench, "n.ipynb", "{}")).code == "invalid_input"
        book = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        assert not (await write(bench, "n.ipynb", json.dumps(book))).is_error


async def test_too_much_content(bench):
    async with bench:
        assert (await write(bench, "a.txt", "é" * 5_000_001)).code == "too_large"
        assert not (await write(bench, "a.txt", "x" * 10_000_000)).is_error


async def test_link_to_a_file_is_written_through(bench):
    async with bench:
        (bench.folder / "real").mkdir()
        (bench.folder / "real/x").write_text("1\n")
        (bench.folder / "x").symlink_to("real/x")
        await read(bench, "x")
        outcome = await write(bench, "x", "2\n")
        assert [effect.target for effect in outcome.effects] == [str(bench.folder / "real/x")]
        assert (bench.folder / "x").is_symlink() and (bench.folder / "real/x").read_text() == "2\n"


async def test_dangling_link_makes_its_target(bench):
    async with bench:
        (bench.folder / "x").symlink_to("target.txt")
        assert not (await write(bench, "x", "1\n")).is_error
        assert (bench.folder / "x").is_symlink() and (bench.folder / "target.txt").read_text() == "1\n"


async def test_file_that_appears_meanwhile_is_stale(bench, monkeypatch):
    async with bench:
        real = os.link

        def late(*args, **named):
            (bench.folder / "a.txt").write_text("theirs\n")
            return real(*args, **named)

        monkeypatch.setattr(os, "link", late)
        outcome = await write(bench, "a.txt", "mine\n")
        assert (outcome.code, outcome.status, outcome.effects) == ("stale", "not_started", [])
        assert (bench.folder / "a.txt").read_text() == "theirs\n"
        assert os.listdir(bench.folder) == ["a.txt"]


async def test_a_name_that_looks_the_same_is_told(bench):
    async with bench:
        (bench.folder / "e\u0301.txt").write_text("old\n")
        outcome = await write(bench, "\u00e9.txt", "new\n")
        assert "differs only in Unicode form" in outcome.text
