"""Find and open a file without being led astray: links are resolved once, and nothing but a regular file is opened.

What was judged is what gets opened: the real path is found once for each call, and every later step walks it
without following links.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import anyio.from_thread
from pegboard.errors import Code, Refusal

if TYPE_CHECKING:
    from pegboard.tool import Context

EDIT_BYTES = 100 * 1024 * 1024
"""[C] Largest file that is edited, and the largest whose content is compared."""

CHUNK = 1024 * 1024
"""[C] Bytes read or written between two looks at whether the call was aborted."""

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DESCRIPTOR = re.compile(r"/dev/(fd(/|$)|std(in|out|err)$)|/proc/[^/]+/(task/[^/]+/)?fd(/|$)")
_SECRET = re.compile(r"/proc/[^/]+/(task/[^/]+/)?(environ|mem)$")

_KINDS = (
    (stat.S_ISDIR, "folder"),
    (stat.S_ISFIFO, "named pipe (fifo)"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "character device"),
    (stat.S_ISBLK, "block device"),
)

_aims: WeakKeyDictionary[Context, dict[str, str]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Content:
    """A file's bytes as they were at one moment."""

    raw: bytes
    stat: os.stat_result
    digest: str
    """SHA-256 in hex."""
    steady: bool = True
    """False: the file changed while it was being read."""


def digest_of(raw: bytes) -> str:
    """SHA-256 of a content in hex: the identity by which staleness is judged."""
    return hashlib.sha256(raw).hexdigest()


def aim(ctx: Context, path: str) -> str:
    """The real path behind a path, found once for each call.

    `accesses` declares it and `run` uses it, so a link that is turned elsewhere in between leads nowhere.
    """
    known = _aims.setdefault(ctx, {})
    if path not in known:
        known[path] = os.path.realpath(path)
    return known[path]


def kind_of(mode: int) -> str:
    """What a mode describes, in words; ``file`` for a regular one."""
    return next((name for test, name in _KINDS if test(mode)), "file")


def look(path: str, shown: str) -> os.stat_result:
    """Stat a path and refuse, without opening it, what is not a regular file.

    Raises `FileNotFoundError` when there is nothing, `Refusal` (precondition_failed, io_error) otherwise.
    """
    for hop in _hops(path):
        if _DESCRIPTOR.match(hop) or _SECRET.match(hop):
            raise Refusal(
                Code.PRECONDITION_FAILED,
                f"{shown} belongs to a process (an open descriptor, its memory or its environment); it is not a file.",
            )
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise
    except NotADirectoryError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refusal(Code.PRECONDITION_FAILED, f"{shown} is a symbolic link that leads back to itself.") from None
        raise io_refusal("look at", shown, error) from None
    _regular_only(found.st_mode, shown)
    return found


def _regular_only(mode: int, shown: str) -> None:
    kind = kind_of(mode)
    if kind == "folder":
        raise Refusal(
            Code.PRECONDITION_FAILED,
            f"{shown} is a folder, not a file.",
            hint="List it with a shell command such as ls, or find files below it with Glob.",
        )
    if kind != "file":
        raise Refusal(Code.PRECONDITION_FAILED, f"{shown} is not a regular file: it is a {kind}. It was not opened.")


def _hops(path: str) -> Iterator[str]:
    """The path and, one after the other, the targets of the links it names."""
    for _ in range(40):
        yield path
        try:
            path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
        except OSError:
            return


def open_folder(real: str) -> int:
    """Open a folder by its real path, no component of which may be a link. The caller closes it."""
    handle = os.open("/", _FOLDER)
    try:
        for part in real.split("/"):
            if part:
                deeper = open_below(handle, part)
                os.close(handle)
                handle = deeper
    except BaseException:
        os.close(handle)
        raise
    return handle


def open_below(parent: int, name: str) -> int:
    """Open a folder in a folder; a link in its place is refused with ENOTDIR or ELOOP. The caller closes it."""
    return os.open(name, _FOLDER, dir_fd=parent)


@contextmanager
def folder(real: str) -> Iterator[int]:
    """A handle on a folder for the length of a block."""
    handle = open_folder(real)
    try:
        yield handle
    finally:
        os.close(handle)


def open_file(parent: int, name: str) -> int:
    """Open a regular file for reading beneath a folder handle; never blocks, never follows a link."""
    handle = os.open(name, _REGULAR, dir_fd=parent)
    try:
        _regular_only(os.fstat(handle).st_mode, name)
    except BaseException:
        os.close(handle)
        raise
    return handle


@contextmanager
def reading(real: str, shown: str) -> Iterator[int]:
    """A descriptor on the regular file at a real path. Raises `Refusal` and `FileNotFoundError` as `look` does."""
    try:
        with folder(os.path.dirname(real)) as parent:
            handle = open_file(parent, os.path.basename(real))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise io_refusal("open", shown, error) from None
    try:
        yield handle
    except BlockingIOError:
        raise Refusal(Code.PRECONDITION_FAILED, f"{shown} has no data to read now and would block.") from None
    except OSError as error:
        raise io_refusal("read", shown, error) from None
    finally:
        os.close(handle)


def chunks(handle: int) -> Iterator[bytes]:
    """The rest of an open file, chunk by chunk; stops when the call around the thread is aborted."""
    while piece := os.read(handle, CHUNK):
        yield piece
        check_aborted()


def check_aborted() -> None:
    """End the work of a thread whose call was aborted. Does nothing outside a worker thread."""
    try:
        anyio.from_thread.check_cancelled()
    except RuntimeError:
        return


def read_content(real: str, shown: str, limit: int = EDIT_BYTES) -> Content:
    """Read a whole regular file. Blocking; call it in a thread.

    Raises `Refusal` (too_large above ``limit`` bytes, precondition_failed, io_error), `FileNotFoundError`.
    """
    with reading(real, shown) as handle:
        before = os.fstat(handle)
        _within(before.st_size, limit, shown)
        pieces, size = [], 0
        for piece in chunks(handle):
            pieces.append(piece)
            size += len(piece)
            _within(size, limit, shown)
        raw = b"".join(pieces)
        return Content(raw, before, digest_of(raw), same_version(before, os.fstat(handle)))


def same_version(left: os.stat_result, right: os.stat_result) -> bool:
    """Whether two stats of an open file say that nobody wrote to it in between."""
    return (left.st_mtime_ns, left.st_ctime_ns, left.st_size) == (right.st_mtime_ns, right.st_ctime_ns, right.st_size)


def _within(size: int, limit: int, shown: str) -> None:
    if size > limit:
        raise Refusal(
            Code.TOO_LARGE,
            f"{shown} has {size_text(size)}; the largest file that can be handled whole has {size_text(limit)}.",
            hint="Look at a part of it with a range or with Grep, or use a shell command.",
        )


def io_refusal(verb: str, shown: str, error: OSError) -> Refusal:
    """The refusal for an operation that the operating system did not do, with its reason in words."""
    reason = error.strerror or str(error)
    if error.errno == errno.ELOOP:
        reason = "a part of the path is a symbolic link now, which it was not when the call was judged"
    elif error.errno == errno.EFBIG:
        reason = "file too large, beyond the file size limit of this process"
    return Refusal(Code.IO_ERROR, f"Cannot {verb} {shown}: {reason}.")


def size_text(size: float) -> str:
    """A number of bytes as people write it."""
    if size < 1024:
        return f"{size:.0f} bytes"
    units = ["KB", "MB", "GB", "TB"]
    size /= 1024
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.1f} {units[0]}"
