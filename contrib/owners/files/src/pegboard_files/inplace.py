"""Write a file with several names in place: the one way that keeps its other names.

It cannot be atomic, so it takes back what breaks, and says so where even that fails.
"""

from __future__ import annotations

import contextlib
import os
import stat

import anyio
from pegboard.call import Effect
from pegboard.errors import Code, Refusal

from pegboard_files import disk
from pegboard_files.writer import Effects, same_content, translated


async def overwrite(real: str, old: bytes, data: bytes, shown: str, effects: Effects, kept: str) -> os.stat_result:
    """Write a file with several names in place.

    The growth is reserved before the first byte is touched. A write that breaks is taken back; where even that
    fails the effect stays open, and the refusal says where the content before is kept (``kept``).
    """
    await anyio.lowlevel.checkpoint()
    try:
        with disk.folder(os.path.dirname(real)) as parent:
            handle = os.open(os.path.basename(real), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        raise translated(error, shown) from None
    try:
        before = os.fstat(handle)
        same_content(handle, disk.digest_of(old), shown)
        with effects(real) as effect:
            _write_over(handle, old, data, shown, effect, kept)
        with contextlib.suppress(OSError):
            os.fchmod(handle, stat.S_IMODE(before.st_mode))
        return os.fstat(handle)
    finally:
        os.close(handle)


def _write_over(handle: int, old: bytes, data: bytes, shown: str, effect: Effect, kept: str) -> None:
    touched = False
    try:
        if len(data) > len(old) and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, len(old), len(data) - len(old))
        touched = True
        _put(handle, data)
    except OSError as error:
        try:
            if touched:
                _put(handle, old)
            os.ftruncate(handle, len(old))
        except OSError:
            raise Refusal(
                Code.IO_ERROR,
                f"{shown} has several names and had to be written in place; the write broke half-way: "
                f"{error.strerror}. Its content is damaged.",
                hint=f"The content before is kept in {kept}." if kept else "No copy of the content before was kept.",
            ) from None
        effect.undone()
        raise disk.io_refusal("write", shown, error) from None


def _put(handle: int, data: bytes) -> None:
    at = 0
    while at < len(data):
        at += os.pwrite(handle, data[at : at + disk.CHUNK], at)
    os.ftruncate(handle, len(data))
    os.fsync(handle)
