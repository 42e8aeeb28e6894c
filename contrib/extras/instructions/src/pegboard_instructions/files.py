"""One instruction file: whether it may be read, and its text.

A file of a repository is a stranger's until somebody says otherwise; a link or an import must not carry a private file
into the conversation.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pegboard.session import Session

LARGEST = 4 * 1024 * 1024
"""[D] Bytes. Larger files are skipped."""


class Unread(Exception):
    """A file is not read; the message says why, and goes on after its name."""


def text_of(path: str) -> str:
    """The text of a file. Raises `Unread`."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise Unread("is no file")
            if status.st_size > LARGEST:
                raise Unread(f"has {status.st_size:,} bytes; the limit is {LARGEST:,}")
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise Unread(f"cannot be read: {error.strerror or error}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unread("is no text in UTF-8") from None
    if "\0" in text:
        raise Unread("is no text")
    return text.replace("\r\n", "\n")


def real_path(path: str | Path) -> str:
    """Where a path really leads."""
    return os.path.realpath(path)


def inside(path: str, folders: list[str]) -> bool:
    """Whether a path is in one of these folders, by whole components."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def workspace(session: Session) -> list[str]:
    """The folders whose files belong to the workspace, without links."""
    own: list[Path] = [session.places.root, *session.roots, session.cwd]
    return list(dict.fromkeys(real_path(folder) for folder in own))


def foreign(path: str) -> bool:
    """Whether a file belongs to somebody who is neither this user nor the system."""
    try:
        return os.stat(path).st_uid not in (os.geteuid(), 0)
    except OSError:
        return False


def denied(session: Session, path: str) -> bool:
    """Whether a deny rule keeps Read from this file."""
    from pegboard.tool import Access

    return session.snapshot().denied("Read", Access.read(path)) is not None
