"""Checkpoints around what somebody else changes: files that a command is about to write are kept before it runs.

The writer keeps what tools change. A command writes by itself, so all that can be done is to look before and after at
the files it is known to aim at.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pegboard.errors import Refusal

from pegboard_files import disk
from pegboard_files.disk import Content

if TYPE_CHECKING:
    from pegboard.tool import Context

    from pegboard_files.history import FileHistory

MOST_FILES = 50
"""[C] Files that are kept for one command."""

MOST_BYTES = 10 * 1024 * 1024
"""[C] Largest file that is kept for a command."""

MOST_TOTAL = 32 * 1024 * 1024
"""[C] All files together that are kept for one command."""


@dataclass(frozen=True)
class Seen:
    """A file as it was before."""

    real: str
    content: Content | None
    """None: there was nothing."""

    def now(self, path: str) -> Content | None:
        """What is there now. Raises `OSError` and `Refusal` where that is no file that could be kept."""
        try:
            status = disk.look(self.real, path)
            if self.content is not None and disk.same_version(self.content.stat, status):
                return self.content
            return disk.read_content(self.real, path, MOST_BYTES)
        except FileNotFoundError:
            return None


@asynccontextmanager
async def kept_around(history: FileHistory, ctx: Context, paths: Iterable[str]) -> AsyncIterator[None]:
    """Keep what these files hold before the block, and note what they hold after it, so that a rewind restores them.

    Absolute paths. Folders, special files and large ones are left out: a rewind will not bring those back.
    """
    wanted = list(dict.fromkeys(paths))[:MOST_FILES]
    before = await ctx.thread(_look, wanted) if wanted else {}
    for path, seen in before.items():
        _keep(history, ctx, path, seen, seen.content)
    try:
        yield
    finally:
        for path, seen in before.items():  # short, and not in a thread: an abort must not lose it
            with suppress(OSError, Refusal):
                now = seen.now(path)
                if (now.digest if now else None) != (seen.content.digest if seen.content else None):
                    _keep(history, ctx, path, seen, now)


def _keep(history: FileHistory, ctx: Context, path: str, seen: Seen, now: Content | None) -> None:
    names = seen.content.stat.st_nlink if seen.content else 1
    history._keep(ctx, path, seen.real, seen.content, now.digest if now else None, names)


def _look(paths: Iterable[str]) -> dict[str, Seen]:
    found: dict[str, Seen] = {}
    room = MOST_TOTAL
    for path in paths:
        seen = Seen(os.path.realpath(path), None)
        with suppress(OSError, Refusal):
            content = seen.now(path)
            room -= len(content.raw) if content else 0
            if room < 0:
                break
            found[path] = Seen(seen.real, content)
    return found
