"""The numbered checks of Edit."""

from __future__ import annotations

import os

import pytest
from pegboard.hooks import hook
from pegboard.testing.effects import changed, tree
from pegboard_files import FileHistory

from .conftest import edit, given, read


async def test_edit_1_unread_file(bench):
    async with bench:
        (bench.folder / "a.txt").write_text("one\n")
        outcome = await edit(bench, "a.txt", "one", "two")
        assert (outcome.code, outcome.status) == ("not_read", "not_started")
        assert "Read" in outcome.text
        assert (bench.folder / "a.txt").read_text() == "one\n"


async def test_edit_2_changed_outside(bench):
    async with bench:
        path = bench.folder / "a.txt"
        path.write_text("one\ntwo\n")
        await read(bench, "a.txt")
        path.write_text("one\n2\n")
        outcome = await edit(bench, "a.txt", "one", "1")
        assert outcome.code == "stale"
        assert "2\t-two" in outcome.text and "2\t+2" in outcome.text
        assert path.read_text() == "one\n2\n"
        assert not (await edit(bench, "a.txt", "one", "1")).is_error, "the shown difference is enough for one retry"
        assert path.read_text() == "1\n2\n"


async def test_edit_2_a_long_difference_needs_a_new_read(bench):
    async with bench:
        path = bench.folder / "a.txt"
        path.write_text("".join(f"{number}\n" for number in range(200)))
        await read(bench, "a.txt")
        path.write_text("".join(f"{number}x\n" for number in range(200)))
        for _ in range(2):
            outcome = await edit(bench, "a.txt", "7x\n", "7\n")
            assert outcome.code == "stale" and "Read it again" in outcome.text


async def test_edit_3_two_matches(bench):
    async with bench:
        path = bench.folder / "a.txt"
        path.write_text("v\nw\nv\n")
        await read(bench, "a.txt")
        outcome = await edit(bench, "a.txt", "v", "V")
        assert outcome.code == "ambiguous" and "2 times" in outcome.text and "1, 3" in outcome.text
        assert not (await edit(bench, "a.txt", "v", "V", replace_all=True)).is_error
        assert path.read_text() == "V\nw\nV\n"


async def test_edit_3_overlapping_matches_are_ambiguous(bench):
    async with bench:
        (bench.folder / "a.txt").write_text("aaa\n")
        await read(bench, "a.txt")
        assert (await edit(bench, "a.txt", "aa", "b")).code == "ambiguous"
        assert not (await edit(bench, "a.txt", "aa", "b", replace_all=True)).is_error
        assert (bench.folder / "a.txt").read_text() == "ba\n"


async def test_edit_4_crlf_and_byte_order_mark(bench):
    async with bench:
        path = bench.folder / "a.txt"
        path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
        await read(bench, "a.txt")
        assert not (await edit(bench, "a.txt", "one\ntwo", "one\n2\n2b")).is_error
        assert path.read_bytes() == b"\xef\xbb\xbfone\r\n2\r\n2b\r\nthree\r\n"


async def test_edit_5_read_deny_covers_edit(peg_session):
    bench = peg_session(allow=["Edit"], deny=["Read(secret/**)"])
    async with bench:
        (bench.folder / "secret").mkdir()
        (bench.folder / "secret" / "a.txt").write_text("one\n")
        for name, old in (("secret/a.txt", "one"), ("secret/new.txt", "")):
            outcome = await edit(bench, name, old, "two")
            assert outcome.code == "denied_by_rule", name
        assert (bench.folder / "secret" / "a.txt").read_text() == "one\n"
        assert not (bench.folder / "secret" / "new.txt").exists()


async def test_edit_6_two_edits_of_one_message(bench):
    async with bench:
        (bench.folder / "a.txt").write_text("one\n")
        await read(bench, "a.txt")
        inputs = [given(bench, "a.txt", "one", "two"), given(bench, "a.txt", "two", "three")]
        outcomes = await bench.calls([("Edit", item) for item in inputs])
        assert not any(outcome.is_error for outcome in outcomes)
        assert (bench.folder / "a.txt").read_text() == "three\n"


class Crashing:
    """A hook that fails after the call."""

    @hook
    async def peg_after_call(self, call, outcome, ctx):
        raise RuntimeError("no more tea")


async def test_edit_7_a_hook_crashes_after_the_edit(peg_session):
    bench = peg_session(mode="acceptEdits", hooks=[Crashing()])
    async with bench:
        (bench.folder / "a.txt").write_text("one\n")
        await read(bench, "a.txt")
        outcome = await edit(bench, "a.txt", "one", "two")
        assert (bench.folder / "a.txt").read_text() == "two\n"
        assert outcome.status != "not_started"
        assert "no more tea" in outcome.text and "Edited" in outcome.text


async def test_edit_8_folder_that_cannot_be_written(bench, monkeypatch):
    async with bench:
        folder = bench.folder / "fixed"
        folder.mkdir()
        (folder / "a.txt").write_text("one\n")
        await read(bench, "fixed/a.txt")
        before = tree(bench.folder)
        if os.geteuid() == 0:  # root may write anywhere, so the system's answer is given by hand
            real = os.open

            def refused(path, flags, *args, **named):
                if flags & os.O_CREAT and str(path).startswith(".peg-"):
                    raise PermissionError(13, "Permission denied", path)
                return real(path, flags, *args, **named)

            monkeypatch.setattr(os, "open", refused)
        else:
            folder.chmod(0o555)
        outcome = await edit(bench, "fixed/a.txt", "one", "two")
        monkeypatch.undo()
        folder.chmod(0o755)
        assert (outcome.code, outcome.status) == ("io_error", "not_started")
        assert "ermission denied" in outcome.text
        assert not changed(before, tree(bench.folder))


async def test_edit_9_rewind(bench):
    async with bench:
        path = bench.folder / "a.txt"
        path.write_text("one\n")
        history = await bench.session.owners.get(FileHistory, bench.session.place("main"))
        mark = await history.mark()
        await read(bench, "a.txt")
        await edit(bench, "a.txt", "one", "two")
        await edit(bench, "a.txt", "two", "three")
        assert await history.rewind(mark) == []
        assert path.read_text() == "one\n"
        assert await history.rewind(history.undo) == []
        assert path.read_text() == "three\n"


@pytest.mark.parametrize("mode", ["default", "acceptEdits"])
async def test_edit_10_link_to_a_file_outside(peg_session, mode):
    bench = peg_session(mode=mode, allow=["Edit(./link)", "Read"])
    async with bench:
        target = bench.outside / "notes.txt"
        target.write_text("one\n")
        (bench.folder / "link").symlink_to(target)
        await read(bench, "link")
        outcome = await edit(bench, "link", "one", "two")
        assert outcome.code == "no_user", outcome.text
        assert target.read_text() == "one\n"
