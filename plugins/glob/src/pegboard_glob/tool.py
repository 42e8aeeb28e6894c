"""Glob: list the files whose paths match a wildcard pattern.

The list is a view of one moment, limited by folder, ignore rules, permission and budget; nothing is kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from pegboard.errors import Code, Refusal
from pegboard.model import AbsolutePath, Input, Output
from pegboard.tool import Access, Context, Tool
from pegboard_ripgrep.engine import find
from pegboard_ripgrep.globs import plan
from pegboard_ripgrep.view import shown_name, shown_prefix
from pydantic import Field

from pegboard_glob.listing import Walk

RESULT_CHARS = 20_000
"""[C] Largest text of a listing."""

_NOTES = 2_000


class GlobInput(Input):
    """What to list, and where."""

    pattern: str = Field(description="Wildcard pattern, relative to the folder", min_length=1)
    path: AbsolutePath | None = Field(default=None, description="Folder; default is the session directory")


class GlobOutput(Output):
    """The newest matches."""

    durationMs: int
    numFiles: int
    """Paths in ``filenames``."""
    filenames: list[str]
    truncated: bool
    totalMatches: int | None = None
    countIsComplete: bool | None = None
    """False when the walk was cut short or could not enter a folder."""


class Glob(Tool[GlobInput, GlobOutput]):
    """List files by wildcard."""

    Input = GlobInput
    Output = GlobOutput

    async def check(self, input: GlobInput, ctx: Context) -> None:
        _check_text(input.pattern)
        _check_folder(_folder(input, ctx))
        plan(input.pattern, str(_folder(input, ctx)))

    def accesses(self, input: GlobInput, ctx: Context) -> Iterable[Access]:
        return (Access.read(_folder(input, ctx)),)

    async def run(self, input: GlobInput, ctx: Context) -> GlobOutput:
        begun = time.monotonic()
        root = _folder(input, ctx)
        engine = await ctx.thread(find)
        prefix = shown_prefix(ctx, root)
        listing = await Walk(ctx, engine, root, plan(input.pattern, str(root)), prefix).listing()
        for note in filter(None, listing.notes):
            ctx.note(note)
        if not listing.total and (root / input.pattern).is_dir():
            ctx.note("The pattern is the name of a folder; add /** to list the files in it.")
        names = _fitting([prefix + shown_name(name) for name in listing.newest])
        return GlobOutput(
            durationMs=round((time.monotonic() - begun) * 1000),
            numFiles=len(names),
            filenames=names,
            truncated=len(names) < listing.total or not listing.complete,
            totalMatches=listing.total,
            countIsComplete=listing.complete,
        )

    def render(self, output: GlobOutput, ctx: Context) -> str:
        if not output.filenames:
            return "No files found"
        lines = list(output.filenames)
        total = output.totalMatches or 0
        if output.numFiles < total:
            least = "" if output.countIsComplete else "at least "
            lines += [
                "",
                f"Showing the newest {output.numFiles:,} of {least}{total:,} files. Narrow the pattern or path.",
            ]
        return "\n".join(lines)


def _folder(input: GlobInput, ctx: Context) -> Path:
    return Path(input.path) if input.path else ctx.cwd


def _check_folder(folder: Path) -> None:
    if not os.path.lexists(folder):
        raise Refusal(Code.NOT_FOUND, f"The folder {folder} does not exist.", hint="List its parent to see names.")
    if not folder.is_dir():
        raise Refusal(Code.NOT_FOUND, f"{folder} is not a folder.", hint="Give the folder that holds the file.")


def _check_text(pattern: str) -> None:
    if "\0" in pattern:
        raise Refusal(Code.INVALID_INPUT, "The pattern contains a null byte.")
    try:
        os.fsencode(pattern)
    except UnicodeEncodeError:
        raise Refusal(Code.INVALID_INPUT, "The pattern is not valid text.") from None
    if len(pattern) > 4096:
        raise Refusal(Code.INVALID_INPUT, "The pattern is longer than 4,096 characters.")


def _fitting(names: list[str]) -> list[str]:
    room = RESULT_CHARS - _NOTES
    for at, name in enumerate(names):
        room -= len(name) + 1
        if room < 0:
            return names[:at]
    return names
