"""The writer: whatever fails, and whenever, the file is the old one or the new one, and the ledger knows which."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import anyio
import pytest
from pegboard.call import Ledger, Status
from pegboard.errors import Code, Refusal
from pegboard.testing.effects import changed, tree
from pegboard_files import inplace, writer
from pegboard_files.disk import digest_of

OLD, NEW = b"old content\n" * 10, b"new content\n" * 300_000
CALLS = ("open", "write", "fsync", "fchmod", "fchown", "rename", "link", "unlink", "mkdir", "stat", "fstat", "pread")


class Faulty:
    """The n-th call of one function of the system fails, and so do all after it when ``on`` is set."""

    def __init__(self, monkeypatch, name, number, code, on=False):
        self.count = 0
        real = getattr(os, name)

        def call(*args, **named):
            self.count += 1
            if self.count == number or (on and self.count > number):
                raise OSError(code, os.strerror(code))
            return real(*args, **named)

        monkeypatch.setattr(os, name, call)


async def attempt(work):
    ledger = Ledger()
    try:
        await work(lambda real: ledger.effect("file", real))
    except Refusal as refusal:
        return refusal, ledger
    return None, ledger


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("kind", ["replace", "create"])
async def test_one_failing_call(tmp_path, monkeypatch, name, number, kind):
    real = str(tmp_path / "a")
    if kind == "replace":
        (tmp_path / "a").write_bytes(OLD)
    target = real if kind == "replace" else str(tmp_path / "x" / "y" / "a")
    before = tree(tmp_path)
    fault = Faulty(monkeypatch, name, number, errno.ENOSPC)

    async def work(effects):
        if kind == "replace":
            await writer.replace(target, NEW, digest_of(OLD), "a", effects)
        else:
            await writer.create(target, NEW, "a", effects)

    refusal, ledger = await attempt(work)
    monkeypatch.undo()
    names = [path for path in tree(tmp_path) if ".peg-" in path]
    if refusal is None:
        assert Path(target).read_bytes() == NEW
        assert not names or name == "unlink"
        return
    assert refusal.code == Code.IO_ERROR and fault.count >= number
    assert ledger.failed_status()[0] is Status.NOT_STARTED
    assert not changed(before, tree(tmp_path)), "something was left behind"


async def test_a_short_write_is_continued(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(OLD)
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:100_000]))
    refusal, _ = await attempt(lambda effects: writer.replace(str(tmp_path / "a"), NEW, digest_of(OLD), "a", effects))
    assert refusal is None and (tmp_path / "a").read_bytes() == NEW


@pytest.mark.parametrize("moment", ["write", "fsync", "stat"])
async def test_a_change_at_any_moment_is_seen(tmp_path, monkeypatch, moment):
    path = tmp_path / "a"
    path.write_bytes(OLD)
    real = getattr(os, moment)

    def late(*args, **named):
        monkeypatch.undo()
        path.write_bytes(b"theirs")
        return real(*args, **named)

    monkeypatch.setattr(os, moment, late)
    refusal, ledger = await attempt(lambda effects: writer.replace(str(path), NEW, digest_of(OLD), "a", effects))
    assert refusal.code == Code.STALE and not ledger.standing()
    assert path.read_bytes() == b"theirs" and os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("part", ["a", "folder"])
async def test_a_link_that_appears_leads_nowhere(tmp_path, part):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_bytes(OLD)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_bytes(OLD)
    target = str(tmp_path / "folder" / "a")
    if part == "a":
        os.remove(target)
        os.symlink("../outside/a", target)
    else:
        os.rename(tmp_path / "folder", tmp_path / "moved")
        os.symlink("outside", tmp_path / "folder")
    refusal, ledger = await attempt(lambda effects: writer.replace(target, NEW, digest_of(OLD), "a", effects))
    assert refusal.code == Code.IO_ERROR and not ledger.effects
    refusal, ledger = await attempt(lambda effects: writer.create(target, NEW, "a", effects))
    assert refusal is not None and not ledger.standing()
    assert (tmp_path / "outside" / "a").read_bytes() == OLD


async def test_mode_and_attributes_are_kept(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(OLD)
    path.chmod(0o6750)
    if os.geteuid() == 0:
        os.chown(path, 1234, 4321)
        path.chmod(0o6750)
    attributes = True
    try:
        os.setxattr(path, "user.colour", b"blue")
    except OSError:
        attributes = False
    before = path.stat()
    await attempt(lambda effects: writer.replace(str(path), NEW, digest_of(OLD), "a", effects))
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert not attributes or os.getxattr(path, "user.colour") == b"blue"


async def test_new_files_follow_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        await attempt(lambda effects: writer.create(str(tmp_path / "d" / "a"), b"x", "a", effects))
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "d" / "a").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o750


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
async def test_a_file_system_without_hard_links(tmp_path, monkeypatch, code):
    Faulty(monkeypatch, "link", 1, code, on=True)
    refusal, ledger = await attempt(lambda effects: writer.create(str(tmp_path / "a"), NEW, "a", effects))
    assert refusal is None and (tmp_path / "a").read_bytes() == NEW and len(ledger.standing()) == 1
    refusal, ledger = await attempt(lambda effects: writer.create(str(tmp_path / "a"), b"x", "a", effects))
    assert refusal.code == Code.STALE and not ledger.standing()


@pytest.mark.parametrize("name, number", [("pwrite", 1), ("pwrite", 2), ("fsync", 1), ("ftruncate", 1)])
async def test_in_place_a_broken_write_is_taken_back(tmp_path, monkeypatch, name, number):
    path = tmp_path / "a"
    path.write_bytes(OLD)
    os.link(path, tmp_path / "b")
    Faulty(monkeypatch, name, number, errno.EIO)
    refusal, ledger = await attempt(lambda effects: inplace.overwrite(str(path), OLD, NEW, "a", effects, "kept/1"))
    monkeypatch.undo()
    assert refusal.code == Code.IO_ERROR and not ledger.standing()
    assert path.read_bytes() == OLD == (tmp_path / "b").read_bytes()


async def test_in_place_a_write_that_cannot_be_taken_back_is_partial(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(OLD)
    os.link(path, tmp_path / "b")
    Faulty(monkeypatch, "pwrite", 2, errno.EIO, on=True)
    refusal, ledger = await attempt(lambda effects: inplace.overwrite(str(path), OLD, NEW, "a", effects, "kept/1"))
    assert refusal.code == Code.IO_ERROR and "kept/1" in refusal.shown()
    assert ledger.failed_status()[0] is Status.PARTIAL


async def test_in_place_keeps_all_names(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(OLD)
    os.link(path, tmp_path / "b")
    refusal, _ = await attempt(lambda effects: inplace.overwrite(str(path), OLD, b"short", "a", effects, ""))
    assert refusal is None and (tmp_path / "b").read_bytes() == b"short"
    refusal, _ = await attempt(lambda effects: inplace.overwrite(str(path), OLD, NEW, "a", effects, ""))
    assert refusal.code == Code.STALE


async def test_an_abort_while_writing_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(OLD)
    reached, real = threading.Event(), os.write

    def slow(handle, data):
        reached.set()
        return real(handle, data[:1000])

    monkeypatch.setattr(os, "write", slow)
    ledger = Ledger()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            effects = lambda real: ledger.effect("file", real)  # noqa: E731
            tasks.start_soon(writer.replace, str(path), NEW * 4, digest_of(OLD), "a", effects)
            while not reached.is_set():
                await anyio.sleep(0.001)
            scope.cancel()
    assert scope.cancelled_caught and not ledger.effects
    assert path.read_bytes() == OLD and os.listdir(tmp_path) == ["a"]
