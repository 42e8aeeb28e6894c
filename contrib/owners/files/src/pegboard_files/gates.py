"""The gates before a change, in the order that the specification gives: rules, read gate, stale gate.

Edit, Write and NotebookEdit go through here, before the permission question and again before they write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pegboard.errors import Code, Refusal
from pegboard.tool import Access

from pegboard_files import disk, patch
from pegboard_files.disk import Content
from pegboard_files.history import FileHistory
from pegboard_files.text import Text, decode
from pegboard_files.views import FileViews, View

if TYPE_CHECKING:
    from pegboard.tool import Context

DIFF_LINES = 40
"""[C] Changed lines that a stale refusal shows."""


@dataclass(frozen=True)
class Target:
    """A file as it is now, and how the agent knows it."""

    path: str
    """As the call names it."""
    real: str
    content: Content | None
    """None: there is no file yet."""
    text: Text | None = None
    """None: there is no file, or it is binary."""
    unseen: str = ""
    """Why the gate would have been closed, where the relaxed gate let the call through."""


def refuse_denied(ctx: Context, path: str) -> None:
    """Gate 1: a deny rule on the path, or on what it leads to, refuses; for a file that is to be made as well."""
    for name in dict.fromkeys((path, disk.aim(ctx, path))):
        ctx.refuse_denied(Access.edit(name))


async def open_target(ctx: Context, path: str, *, whole: bool, relaxed: bool = False) -> Target:
    """Take a file through the read gate and the stale gate.

    ``whole``: the agent must know all of the file. ``relaxed``: a file that is unread or changed passes if reading it
    would not ask; the caller must then make sure that the change fits today's content. Raises `Refusal` (not_read,
    stale, precondition_failed, too_large, io_error).
    """
    real, shown = disk.aim(ctx, path), ctx.shown(path)
    try:
        await ctx.thread(disk.look, real, shown)
        views = await ctx.own(FileViews)
        view = views.get(real)
        closed = _read_gate(view, shown, whole)
        if closed is not None and not (relaxed and ctx.reads_freely(real)):
            raise closed
        content = await ctx.thread(disk.read_content, real, shown)
    except FileNotFoundError:
        return Target(path, real, None)
    text = await ctx.thread(decode, content.raw)
    unseen = closed.text if closed is not None else ""
    if closed is None and view is not None and content.digest != view.digest:
        stale = await _stale(ctx, view, content, text, shown, whole)
        if not (relaxed and ctx.reads_freely(real)):
            if not whole and stale.hint == _ALL_SHOWN:
                views.refresh(real, content)
            raise stale
        unseen = stale.text
    return Target(path, real, content, text, unseen)


def _read_gate(view: View | None, shown: str, whole: bool) -> Refusal | None:
    if view is None:
        return Refusal(
            Code.NOT_READ,
            f"{shown} has not been read in this session, so it was not changed.",
            hint="Read it with the Read tool first, then repeat the call.",
        )
    if view.view == "partial":
        return Refusal(
            Code.NOT_READ,
            f"Only a partial view of {shown} has been shown ({view.why or 'it was cut'}), so it was not changed.",
            hint="Read the part in question with offset and limit, then repeat the call."
            if not view.why or view.ranges
            else "Change it with a shell command, or convert it to UTF-8 first.",
        )
    if whole and view.view != "full":
        return Refusal(
            Code.NOT_READ,
            f"Only a part of {shown} has been read ({_ranges(view)}); replacing all of it needs all of it to be read.",
            hint="Change the part with Edit, or read the rest first.",
        )
    return None


def _ranges(view: View) -> str:
    parts = [f"{first}-{last}" for first, last in view.ranges[:5]]
    return f"lines {', '.join(parts)}" if parts else "not every line whole"


_ALL_SHOWN = "The lines above are all the differences. Take them into account and repeat the call."


async def _stale(ctx: Context, view: View, content: Content, text: Text | None, shown: str, whole: bool) -> Refusal:
    """The refusal of a changed file, with what changed since it was seen, where that is known and short."""
    before = (await ctx.own(FileViews)).kept(view.digest)
    if before is None:
        history = await ctx.own(FileHistory)
        before = await ctx.thread(history.kept, view.digest)
    said = f"{shown} changed since it was last read, so it was not changed."
    old = decode(before) if before is not None else None
    if old is None or text is None:
        return Refusal(Code.STALE, said, hint="Read it again, then repeat the call.")
    lines, complete = await ctx.thread(patch.short, old.plain, text.plain, DIFF_LINES)
    if not lines:
        return Refusal(
            Code.STALE, f"{said} Its encoding or its line ends are different now.", hint="Read it again, then repeat."
        )
    diff = "\n".join(lines)
    if complete:
        hint = "Read it again before you replace it." if whole else _ALL_SHOWN
        return Refusal(Code.STALE, f"{said} What changed (line number, - before, + now):\n{diff}", hint=hint)
    return Refusal(
        Code.STALE, f"{said} The first of the changed lines:\n{diff}", hint="Read it again, then repeat the call."
    )
