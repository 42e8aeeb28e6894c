"""The byte-true writer: a file has its old content or its new content, never something in between.

Everything happens beneath a handle on the file's folder: the temporary file, the last comparison and the rename. Files
with several names go through `inplace`, because a rename would cut the other names off.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import anyio
import anyio.to_thread
from pegboard.call import Effect
from pegboard.errors import Code, Refusal

from pegboard_files import disk
from pegboard_files.leftovers import temporary_name

Effects = Callable[[str], AbstractContextManager[Effect]]
"""Opens an effect on a real path in the ledger of the call."""

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS, errno.EACCES}
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Draft:
    """A temporary file that is complete and on the disk, waiting to take its place."""

    parent: int
    """Handle on the folder; the draft owns it."""
    name: str
    temporary: str
    stat: os.stat_result
    shown: str
    old: int = -1
    """Descriptor of the file to be replaced; -1 for a new file."""
    old_digest: str = ""

    def close(self) -> None:
        """Remove what is left of the temporary file and close the handles."""
        with contextlib.suppress(OSError):
            os.unlink(self.temporary, dir_fd=self.parent)
        for handle in (self.parent, self.old):
            if handle >= 0:
                os.close(handle)


async def replace(real: str, data: bytes, expected: str, shown: str, effects: Effects) -> os.stat_result:
    """Give an existing file a new content; mode, owner and extended attributes stay.

    ``expected`` is the digest of the content that the change was made from. Raises `Refusal` (stale when the file is
    another one by now, io_error when the system refuses); the file is then unchanged. An abort before the rename
    leaves it unchanged too.
    """
    draft = await _in_thread(_draft_replacement, real, data, expected, shown)
    try:
        await anyio.lowlevel.checkpoint()
        _compare(draft)
        with effects(real) as effect, _refused(effect, shown):
            os.rename(draft.temporary, draft.name, src_dir_fd=draft.parent, dst_dir_fd=draft.parent)
        _settle(draft.parent)
        return draft.stat
    finally:
        draft.close()


async def create(real: str, data: bytes, shown: str, effects: Effects, mode: int = 0o666) -> os.stat_result:
    """Make a new file and the folders that it lacks; each folder is an effect of its own.

    Raises `Refusal`: stale when the file appeared meanwhile, io_error when the system refuses. Folders that were made
    for a file that could not be made are removed again.
    """
    folders: list[tuple[str, Effect]] = []
    try:
        parent = _make_folders(os.path.dirname(real), shown, effects, folders)
        return await _create_in(parent, real, data, shown, effects, mode)
    except BaseException:
        for path, effect in reversed(folders):
            with contextlib.suppress(OSError):
                os.rmdir(path)
                effect.undone()
        raise


async def _create_in(parent: int, real: str, data: bytes, shown: str, effects: Effects, mode: int) -> os.stat_result:
    try:
        draft = await _in_thread(_draft_new, parent, real, data, shown, mode)
    except BaseException:
        os.close(parent)
        raise
    try:
        await anyio.lowlevel.checkpoint()
        with effects(real) as effect, _refused(effect, shown):
            _take_name(draft, data, mode)
        _settle(parent)
        return draft.stat
    finally:
        draft.close()


async def remove(real: str, expected: str, shown: str, effects: Effects) -> None:
    """Remove a file whose content has this digest. Raises `Refusal` (stale, io_error)."""
    await anyio.lowlevel.checkpoint()
    try:
        parent = disk.open_folder(os.path.dirname(real))
    except OSError as error:
        raise translated(error, shown) from None
    try:
        name = os.path.basename(real)
        try:
            handle = disk.open_file(parent, name)
        except OSError as error:
            raise translated(error, shown) from None
        try:
            same_content(handle, expected, shown)
            with effects(real) as effect, _refused(effect, shown):
                os.unlink(name, dir_fd=parent)
        finally:
            os.close(handle)
        _settle(parent)
    finally:
        os.close(parent)


async def _in_thread(work: Callable[..., Draft], *args: object) -> Draft:
    """Prepare in a thread. An abort waits for the thread, which looks out for it and cleans up."""
    return await anyio.to_thread.run_sync(work, *args)


def _draft_replacement(real: str, data: bytes, expected: str, shown: str) -> Draft:
    parent = old = -1
    try:
        parent = disk.open_folder(os.path.dirname(real))
        name = os.path.basename(real)
        old = disk.open_file(parent, name)
        before = os.fstat(old)
        temporary, made = _write_temporary(parent, data, 0o600, lambda handle: _dress(handle, old, before))
    except BaseException as error:
        for handle in (parent, old):
            if handle >= 0:
                os.close(handle)
        raise translated(error, shown) from None
    return Draft(parent, name, temporary, made, shown, old, expected)


def _draft_new(parent: int, real: str, data: bytes, shown: str, mode: int) -> Draft:
    try:
        temporary, made = _write_temporary(parent, data, mode, lambda handle: None)
    except BaseException as error:
        raise translated(error, shown) from None
    return Draft(parent, os.path.basename(real), temporary, made, shown)


def translated(error: BaseException, shown: str) -> BaseException:
    if isinstance(error, FileNotFoundError):
        return moved_on(shown)
    return disk.io_refusal("write", shown, error) if isinstance(error, OSError) else error


def _write_temporary(parent: int, data: bytes, mode: int, dress: Callable[[int], None]) -> tuple[str, os.stat_result]:
    """A complete file under a name of its own in the folder; removed again if anything goes wrong."""
    name = temporary_name()
    handle = os.open(name, _NEW, mode, dir_fd=parent)
    try:
        try:
            _write_all(handle, data)
            dress(handle)
            os.fsync(handle)
            made = os.fstat(handle)
        finally:
            os.close(handle)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=parent)
        raise
    return name, made


def _write_all(handle: int, data: bytes) -> None:
    """Write everything: one write may take less than it was given when a disk or a limit is nearly full."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view[: disk.CHUNK]) :]
        disk.check_aborted()


def _dress(handle: int, old: int, before: os.stat_result) -> None:
    """Give a new file the owner, the mode and the extended attributes of the old one, as far as allowed."""
    mode = stat.S_IMODE(before.st_mode)
    now = os.fstat(handle)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.fchown(handle, before.st_uid, before.st_gid)
        except OSError:
            mode &= ~(stat.S_ISUID | stat.S_ISGID)
            with contextlib.suppress(OSError):
                os.fchown(handle, -1, before.st_gid)
    os.fchmod(handle, mode)
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            _dress_attributes(handle, old)


def _dress_attributes(handle: int, old: int) -> None:
    """Copy extended attributes, access lists among them; what a folder's default list added is taken away."""
    wanted = os.listxattr(old)
    for attribute in set(os.listxattr(handle)) - set(wanted):
        with contextlib.suppress(OSError):
            os.removexattr(handle, attribute)
    for attribute in wanted:
        with contextlib.suppress(OSError):
            os.setxattr(handle, attribute, os.getxattr(old, attribute))


def _compare(draft: Draft) -> None:
    """The last look before the rename, on the descriptor that the change was prepared from."""
    try:
        named = os.stat(draft.name, dir_fd=draft.parent, follow_symlinks=False)
    except FileNotFoundError:
        raise moved_on(draft.shown) from None
    except OSError as error:
        raise disk.io_refusal("look at", draft.shown, error) from None
    opened = os.fstat(draft.old)
    if (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino):
        raise moved_on(draft.shown)
    same_content(draft.old, draft.old_digest, draft.shown)


def same_content(handle: int, digest: str, shown: str) -> None:
    try:
        now = disk.digest_of(_pread(handle))
    except OSError as error:
        raise disk.io_refusal("read", shown, error) from None
    if now != digest:
        raise moved_on(shown)


def _pread(handle: int) -> bytes:
    pieces, at = [], 0
    while piece := os.pread(handle, disk.CHUNK, at):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)


def moved_on(shown: str) -> Refusal:
    return Refusal(
        Code.STALE,
        f"{shown} changed while the call was being carried out. It was left as it is now.",
        hint="Read it again, then repeat the change.",
    )


@contextmanager
def _refused(effect: Effect, shown: str) -> Iterator[None]:
    """A refusal of the system inside means that the effect did not happen."""
    try:
        yield
    except OSError as error:
        effect.undone()
        raise disk.io_refusal("write", shown, error) from None
    except Refusal:
        effect.undone()
        raise


def _settle(parent: int) -> None:
    """Make the new name survive a power loss, where the system lets folders be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _make_folders(real: str, shown: str, effects: Effects, made: list[tuple[str, Effect]]) -> int:
    """A handle on a folder; the missing part of its path is made. The caller closes it."""
    handle, path = -1, "/"
    try:
        handle = disk.open_folder(path)
        for part in real.split("/"):
            if not part:
                continue
            path = os.path.join(path, part)
            try:
                deeper = disk.open_below(handle, part)
            except FileNotFoundError:
                with effects(path) as effect, _refused(effect, shown):
                    os.mkdir(part, dir_fd=handle)
                made.append((path, effect))
                deeper = disk.open_below(handle, part)
            os.close(handle)
            handle = deeper
    except BaseException as error:
        if handle >= 0:
            os.close(handle)
        if isinstance(error, NotADirectoryError):
            raise Refusal(
                Code.PRECONDITION_FAILED, f"Cannot make {shown}: {path} is not a folder.", hint="Choose another path."
            ) from None
        raise translated(error, shown) from None
    return handle


def _take_name(draft: Draft, data: bytes, mode: int) -> None:
    """Give the complete file its name, which must be free. Without hard links the name is taken first."""
    parent, name = draft.parent, draft.name
    try:
        os.link(draft.temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
        return
    except FileExistsError:
        raise _appeared(draft.shown) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    try:
        handle = os.open(name, _NEW, mode, dir_fd=parent)
    except FileExistsError:
        raise _appeared(draft.shown) from None
    try:
        _write_all(handle, data)
        os.fsync(handle)
    except BaseException:
        os.unlink(name, dir_fd=parent)
        raise
    finally:
        os.close(handle)


def _appeared(shown: str) -> Refusal:
    return Refusal(
        Code.STALE,
        f"{shown} did not exist when the call was judged, and exists now. It was left alone.",
        hint="Read it, then decide how to change it.",
    )
