"""Whether an instruction file may be read.

A file of a repository is a stranger's until somebody says otherwise; a link or an import must not carry a private file
into the conversation.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pegboard.session import Session

LARGEST = 4 * 1024 * 1024
"""[D] Bytes. Larger files are skipped."""


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
