"""The way back of one file: what a rewind would do to it, what it would look like, and doing it.

A rewind never guesses: what cannot be restored for certain is left alone, with the reason.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Any

from pegboard.call import Ledger
from pegboard.errors import Refusal
from pegboard.state import Restored

from pegboard_files import disk, patch, text, writer
from pegboard_files.checkpoints import Checkpoints, Touch
from pegboard_files.disk import Content

SHOWN_BYTES = 1024 * 1024
"""[C] Largest content whose lines are shown in a preview."""


@dataclass(frozen=True)
class Way:
    """From what a file is now to what it was before the first change of a span."""

    first: Touch
    now: Content | None
    before: bytes | None

    @property
    def change(self) -> str:
        """What happens to the file: create, update or delete."""
        return "delete" if self.before is None else "create" if self.now is None else "update"

    @property
    def mode(self) -> int:
        """The permission bits of now, or those from before where there is no file."""
        return stat.S_IMODE(self.now.stat.st_mode) if self.now else self.first.mode

    def shown(self) -> Restored:
        """The way as a preview."""
        return Restored(self.first.path, self.change, _diff(self.now.raw if self.now else None, self.before))

    async def go(self) -> None:
        """Take it. Raises `Refusal` with the file as it is now."""
        path = self.first.path
        if self.before is None:
            assert self.now is not None
            await writer.remove(path, self.now.digest, path, _unrecorded)
        elif self.now is None:
            await writer.create(path, self.before, path, _unrecorded, self.first.mode)
        else:
            await writer.replace(path, self.before, self.now.digest, path, _unrecorded)


def find(store: Checkpoints, touches: list[Touch], force: bool) -> Way | str:
    """The way back from these changes of one file, oldest first; or why it is left alone.

    Empty when it is already as it was. ``force``: also over what somebody else made of it. Blocking.
    """
    first, last = touches[0], touches[-1]
    if reason := _left_alone(touches):
        return reason
    try:
        now = disk.read_content(first.path, first.path)
    except FileNotFoundError:
        now = None
    except Refusal as refusal:
        return f"cannot be read: {refusal.text}"
    digest = now.digest if now else None
    if digest == first.before:
        return ""
    if digest != last.after and not force:
        return "changed since by something else" if now else "removed since by something else"
    if now is not None and now.stat.st_nlink > 1:
        return "a hard link"
    before = store.content(first.before) if first.before else None
    if first.before and before is None:
        return "the content before is not kept any more"
    return Way(first, now, before)


def _left_alone(touches: list[Touch]) -> str:
    """Why a file is not restored, from what is known of its changes."""
    if any(touch.link for touch in touches) or os.path.islink(touches[0].path):
        return "a symbolic link"
    if any(touch.names > 1 for touch in touches):
        return "a hard link"
    other = next((touch.agent for touch in touches if touch.agent != "main"), None)
    return f"changed by the subagent {other}" if other else ""


def _diff(now: bytes | None, then: bytes | None) -> str:
    """The lines that change, as a unified diff without a header; empty for what is no text or too much of it."""
    sides = []
    for raw in (now, then):
        decoded = text.decode(raw) if raw is not None and len(raw) <= SHOWN_BYTES else None
        if raw is not None and decoded is None:
            return ""
        sides.append(decoded.text if decoded else "")
    lines: list[str] = []
    for hunk in patch.hunks(sides[0], sides[1]):
        lines.append(f"@@ -{hunk.oldStart},{hunk.oldLines} +{hunk.newStart},{hunk.newLines} @@")
        lines += hunk.lines
    return "\n".join(lines)


def _unrecorded(real: str) -> Any:
    """The effect of a rewind stands in the record of the rewind, in no call's ledger."""
    return Ledger().effect("file", real)
