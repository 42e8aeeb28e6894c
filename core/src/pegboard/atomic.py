"""Replacing a small file whole, alone: a lock beside it, a temporary file, one rename.

Settings and trust are shared by every session of a user; a torn or half-merged file would lift somebody's rules.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file while it is read, changed and replaced. Other processes wait. Raises OSError."""
    import fcntl

    lock = path.with_name(f".{path.name}.lock")
    while True:
        handle = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        # The holder before us removes the lock file; only a lock on the file that is there now counts.
        if _same(handle, lock):
            break
        os.close(handle)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(lock)
        os.close(handle)


def replace(path: Path, data: bytes, *, mode: int) -> None:
    """Put a new version in the place of a file; readers see the old or the new one. A file keeps its mode bits.

    Call it under `locked`. Raises OSError, and leaves the old version then.
    """
    with contextlib.suppress(FileNotFoundError):
        mode = path.stat().st_mode & 0o7777
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()  # of a process that was killed here and had the same id
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write(path: Path, data: bytes) -> None:
    """Write a file that nobody reads before this returns. Raises OSError, and leaves no part of it then."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(data)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)  # a part of it would be taken for the whole
        raise


def _same(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
