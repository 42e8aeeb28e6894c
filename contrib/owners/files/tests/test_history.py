"""The file history: what is kept before a change, and what a rewind restores and leaves alone."""

from __future__ import annotations

import os
import stat
import subprocess

import pytest
from pegboard.hooks import hook
from pegboard.state import Kept
from pegboard_files import FileHistory, disk
from pegboard_files.checkpoints import SPANS


async def change(room, name, data, agent="main"):
    ctx = room.ctx(agent)
    history = await ctx.own(FileHistory)
    real = disk.aim(ctx, room.path(name))
    if os.path.exists(real):
        expected = disk.read_content(real, name)
        await history.replace(ctx, room.path(name), data, expected=expected, text=None, known=True)
    else:
        await history.create(ctx, room.path(name), data, text=None)
    return ctx


async def test_ses_3_rewind_restores_what_tools_changed(room):
    async with room.bench:
        for name in ("a", "b"):
            (room.folder / name).write_text(f"old {name}")
        (room.folder / "a").chmod(0o640)
        history = await room.history()
        mark = await history.mark()
        await change(room, "a", b"new a")
        await change(room, "b", b"new b")
        await change(room, "b", b"newer b")
        await change(room, "sub/c", b"made")
        (room.folder / "by-shell").write_text("made by a shell command")
        assert await history.rewind(mark) == []
        assert (room.folder / "a").read_text() == "old a" and (room.folder / "b").read_text() == "old b"
        assert stat.S_IMODE((room.folder / "a").stat().st_mode) == 0o640
        assert not (room.folder / "sub/c").exists() and (room.folder / "sub").is_dir()
        assert (room.folder / "by-shell").exists()
        assert await history.rewind(history.undo) == []
        assert (room.folder / "b").read_text() == "newer b" and (room.folder / "sub/c").read_text() == "made"


async def test_ses_5_links_are_left_alone_and_named(room):
    async with room.bench:
        (room.folder / "target").write_text("old")
        (room.folder / "link").symlink_to("target")
        (room.folder / "hard").write_text("old")
        os.link(room.folder / "hard", room.folder / "other-name")
        history = await room.history()
        mark = await history.mark()
        await change(room, "link", b"new")
        await change(room, "hard", b"new")
        kept = await history.rewind(mark)
        assert kept == [Kept(room.path("hard"), "a hard link"), Kept(room.path("target"), "a symbolic link")]
        assert (room.folder / "target").read_text() == "new" == (room.folder / "other-name").read_text()


async def test_rewind_leaves_what_somebody_else_changed(room):
    async with room.bench:
        for name in ("a", "b", "c", "d"):
            (room.folder / name).write_text("old")
        history = await room.history()
        mark = await history.mark()
        for name in ("a", "b", "c"):
            await change(room, name, b"new")
        await change(room, "d", b"new", agent="child-1")
        (room.folder / "a").write_text("by hand")
        (room.folder / "b").unlink()
        (room.folder / "c").write_text("old")
        kept = {os.path.basename(item.target): item.reason for item in await history.rewind(mark)}
        assert kept == {
            "a": "changed since by something else",
            "b": "removed since by something else",
            "d": "changed by the subagent child-1",
        }
        assert (room.folder / "a").read_text() == "by hand"


async def test_rewind_to_an_older_span_takes_its_own_first_state(room):
    async with room.bench:
        (room.folder / "a").write_text("1")
        history = await room.history()
        marks = []
        for data in (b"2", b"3", b"4"):
            marks.append(await history.mark())
            await change(room, "a", data)
        await history.rewind(marks[2])
        assert (room.folder / "a").read_text() == "3"
        await history.rewind(marks[0])
        assert (room.folder / "a").read_text() == "1"


async def test_history_survives_a_restart(room):
    async with room.bench:
        (room.folder / "a").write_text("old")
        history = await room.history()
        mark = await history.mark()
        await change(room, "a", b"new")
        again = FileHistory(room.bench.session.directory / "checkpoints")
        assert again.kept(disk.digest_of(b"old")) == b"old"
        assert await again.rewind(mark) == []
        assert (room.folder / "a").read_text() == "old"


async def test_old_spans_and_their_contents_go(room):
    async with room.bench:
        history = await room.history()
        (room.folder / "a").write_text("0")
        marks = []
        for number in range(SPANS + 5):
            marks.append(await history.mark())
            await change(room, "a", str(number + 1).encode())
        assert history.kept(disk.digest_of(b"0")) is None
        assert history.kept(disk.digest_of(b"50")) == b"50"
        await history.rewind(marks[-1])
        assert (room.folder / "a").read_text() == str(SPANS + 4)


async def test_a_store_that_cannot_be_written_stops_nothing(room):
    async with room.bench:
        (room.folder / "a").write_text("old")
        directory = room.bench.session.directory
        directory.parent.mkdir(parents=True)
        directory.write_text("in the way")
        ctx = await change(room, "a", b"new")
        assert (room.folder / "a").read_text() == "new"
        assert any("checkpoint_skipped" in note for note in ctx.notes)
        directory.unlink()


async def test_store_is_for_its_owner_only(room):
    async with room.bench:
        (room.folder / "a").write_text("old")
        await change(room, "a", b"new")
        folder = room.bench.session.directory / "checkpoints"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


async def test_a_mark_that_is_older_than_what_is_kept_restores_nothing(room):
    async with room.bench:
        history = await room.history()
        (room.folder / "a").write_text("0")
        oldest = await history.mark()
        await change(room, "a", b"1")
        for number in range(SPANS + 1):
            await history.mark()
            await change(room, "a", str(number + 2).encode())
        again = FileHistory(room.bench.session.directory / "checkpoints")
        for kept in (await history.rewind(oldest), await again.rewind(oldest), (await again.foresee(oldest))[1]):
            assert [item.target for item in kept] == ["files"] and f"the {SPANS} newest" in kept[0].reason
        assert (room.folder / "a").read_text() == str(SPANS + 2)


async def test_a_preview_shows_lines_and_changes_nothing(room):
    async with room.bench:
        (room.folder / "a").write_text("one\ntwo\n")
        (room.folder / "b").write_bytes(b"\0\1")
        history = await room.history()
        mark = await history.mark()
        await change(room, "a", b"one\n2\n")
        await change(room, "b", b"\0\2")
        await change(room, "c", b"new\n")
        restored, kept = await history.foresee(mark)
        assert [(os.path.basename(item.target), item.change) for item in restored] == [
            ("a", "update"),
            ("b", "update"),
            ("c", "delete"),
        ]
        assert restored[0].diff == "@@ -1,2 +1,2 @@\n one\n-2\n+two" and restored[1].diff == "" and kept == []
        assert restored[2].diff == "@@ -1,1 +0,0 @@\n-new"
        assert (room.folder / "a").read_text() == "one\n2\n" and (room.folder / "c").exists()
        assert await history.rewind(mark) == [] and await history.foresee(mark) == ([], [])


async def test_force_goes_over_what_somebody_else_made_of_it(room):
    async with room.bench:
        for name in ("a", "b"):
            (room.folder / name).write_text("old")
        history = await room.history()
        mark = await history.mark()
        await change(room, "a", b"new")
        await change(room, "b", b"new")
        (room.folder / "a").write_text("by hand")
        (room.folder / "b").unlink()
        assert [item.change for item in (await history.foresee(mark, force=True))[0]] == ["update", "create"]
        assert await history.rewind(mark, force=True) == []
        assert (room.folder / "a").read_text() == "old" == (room.folder / "b").read_text()
        assert await history.rewind(history.undo) == []
        assert (room.folder / "a").read_text() == "by hand" and not (room.folder / "b").exists()


async def test_a_torn_index_and_a_torn_content_lose_nothing_else(room):
    async with room.bench:
        (room.folder / "a").write_text("old")
        history = await room.history()
        mark = await history.mark()
        await change(room, "a", b"new")
        folder = room.bench.session.directory / "checkpoints"
        with (folder / "index.jsonl").open("ab") as index:
            index.write(b'{"span":1,"pa')
        await change(room, "b", b"made")
        again = FileHistory(folder)
        assert {os.path.basename(item.target) for item in (await again.foresee(mark))[0]} == {"a", "b"}
        (folder / disk.digest_of(b"old")).write_bytes(b"ol")
        assert [item.reason for item in await again.rewind(mark)] == ["the content before is not kept any more"]
        await history.mark()
        (room.folder / "a").write_text("old")
        await change(room, "a", b"newer")
        assert history.kept(disk.digest_of(b"old")) == b"old"


async def test_what_a_killed_process_left_is_removed_and_nothing_else(room):
    async with room.bench:
        await change(room, "a", b"new")
        gone = subprocess.Popen(["true"])
        gone.wait()
        names = [f".peg-{gone.pid}-{'0' * 16}.tmp", f".peg-{os.getpid()}-{'0' * 16}.tmp", ".peg-notes.tmp"]
        for name in names:
            (room.folder / name).write_text("half")
        await FileHistory.open(room.bench.session.place("main"))
        assert [(room.folder / name).exists() for name in names] == [False, True, True]


class Server:
    def __init__(self):
        self.heard = []

    @hook(optionalhook=True)
    async def peg_file_changed(self, change, ctx):
        self.heard.append((os.path.basename(change.path), change.kind, change.content, ctx is None))
        return "1 error: no tea" if change.content == b"bad" else None


class Broken:
    @hook(optionalhook=True)
    async def peg_file_changed(self, change):
        raise RuntimeError("no tea")


async def test_changes_are_told(room):
    server = Server()
    room.bench.hook(server)
    async with room.bench:
        history = await room.history()
        mark = await history.mark()
        ctx = await change(room, "a", b"bad")
        assert ctx.notes == ["1 error: no tea"]
        await change(room, "a", b"good")
        await history.rewind(mark)
        assert server.heard == [
            ("a", "create", b"bad", False),
            ("a", "update", b"good", False),
            ("a", "delete", None, True),
        ]


async def test_a_broken_listener_stops_nothing(room):
    room.bench.hook(Broken())
    async with room.bench:
        ctx = await change(room, "a", b"x")
        assert (room.folder / "a").read_bytes() == b"x"
        assert len(ctx.notes) == 1 and "no tea" in ctx.notes[0]


async def test_the_table_is_told(room):
    async with room.bench:
        await change(room, "a", b"x\r\n")
        views = await room.views()
        view = views.get(room.path("a"))
        assert (view.view, view.digest) == ("full", disk.digest_of(b"x\r\n"))


@pytest.mark.parametrize("name", ["a", "b/c"])
async def test_effects_are_those_of_the_disk(room, name):
    async with room.bench:
        ctx = await change(room, name, b"x")
        targets = [effect.target for effect in ctx._ledger.standing()]
        assert targets == [room.path(part) for part in (["a"] if name == "a" else ["b", "b/c"])]
