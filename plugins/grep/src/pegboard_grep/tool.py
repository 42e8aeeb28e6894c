"""Grep: find lines in files by regular expression.

The tool holds the fields, the permission of the path, the size of the result and its totals; the engine matches and
the runner limits.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pegboard.errors import Code, Refusal
from pegboard.model import AbsolutePath, Input, Output
from pegboard.tool import Access, Context, Tool
from pegboard_ripgrep.engine import find
from pegboard_ripgrep.view import Denies, shown_name, shown_prefix
from pydantic import Field

from pegboard_grep.query import query_of
from pegboard_grep.search import Search

MAX_PATTERN = 100_000
"""Bytes; the system takes no longer argument than 131,072."""

Mode = Literal["files_with_matches", "content", "count"]


class GrepInput(Input):
    """What to search for, where, and which part of the result to show."""

    pattern: str = Field(description="Regular expression")
    path: AbsolutePath | None = Field(default=None, description="File or folder; default is the session directory")
    glob: str | None = Field(default=None, description="Path filter, e.g. **/*.tsx; several with commas")
    type: str | None = Field(default=None, description="Language of the files, e.g. py")
    output_mode: Mode = Field(default="files_with_matches", description="What a row is")
    after: int | None = Field(default=None, alias="-A", ge=0, description="Lines after each match")
    before: int | None = Field(default=None, alias="-B", ge=0, description="Lines before each match")
    around: int | None = Field(default=None, alias="-C", ge=0, description="Lines on both sides of each match")
    context: int | None = Field(default=None, ge=0, description="Same as -C")
    ignore_case: bool = Field(default=False, alias="-i", description="Ignore case")
    line_numbers: bool | None = Field(default=None, alias="-n", description="Show line numbers; default true")
    only_matching: bool = Field(default=False, alias="-o", description="Show only the matching parts")
    head_limit: int = Field(default=250, ge=0, description="Rows to show; 0 = as many as fit")
    offset: int = Field(default=0, ge=0, description="Rows to skip first")
    multiline: bool = Field(default=False, description="Let the pattern and the dot cross line ends")


class GrepOutput(Output):
    """One page of a result, and the totals of all of it."""

    mode: Mode
    numFiles: int
    """Files on this page."""
    filenames: list[str]
    content: str | None = None
    numLines: int | None = None
    """Rows on this page."""
    numMatches: int | None = None
    """Matching lines in all files."""
    totalFiles: int | None = None
    totalLines: int | None = None
    """Rows in all files, with the lines around matches."""
    appliedLimit: int | None = None
    """Rows of this page, when there are more behind it."""
    appliedOffset: int | None = None


class Grep(Tool[GrepInput, GrepOutput]):
    """Search file contents."""

    Input = GrepInput
    Output = GrepOutput

    async def check(self, input: GrepInput, ctx: Context) -> None:
        _check_text(input)
        _check_path(_path(input, ctx))
        if input.only_matching and input.output_mode != "content":
            raise Refusal(
                Code.INVALID_INPUT, "-o shows matching parts of lines.", hint='Set output_mode to "content" with it.'
            )

    def accesses(self, input: GrepInput, ctx: Context) -> Iterable[Access]:
        return (Access.read(_path(input, ctx)),)

    async def run(self, input: GrepInput, ctx: Context) -> GrepOutput:
        engine = await ctx.thread(find)
        path = _path(input, ctx)
        folder = path if path.is_dir() else path.parent
        denies = Denies.below(ctx, folder)
        search = Search(ctx, engine, query_of(input, path, denies.flags()), denies, input, shown_prefix(ctx, folder))
        _note_ignored(input, ctx)
        totals: dict[str, int] = {}
        if input.output_mode == "files_with_matches":
            page, totals["totalFiles"] = await search.files()
        elif input.output_mode == "count":
            page, counts = await search.counts()
            totals = {"totalFiles": len(counts.files), "numMatches": sum(counts.files.values())}
        else:
            page, lines = await search.lines()
            totals = {"totalFiles": len(lines.files), "numMatches": lines.matches(), "totalLines": lines.total()}
            totals["numLines"] = page.shown
        names = page.names()
        return GrepOutput(
            mode=input.output_mode,
            numFiles=len(names),
            filenames=[search.prefix + shown_name(name) for name in names],
            content=None if input.output_mode == "files_with_matches" else page.text,
            appliedLimit=page.shown if page.more else None,
            appliedOffset=input.offset or None,
            **totals,
        )

    def render(self, output: GrepOutput, ctx: Context) -> str:
        shown = output.content if output.content is not None else "\n".join(output.filenames)
        if shown:
            return shown
        if output.totalFiles:
            return "No entries at this offset"
        return "No files found" if output.mode == "files_with_matches" else "No matches found"


def _path(input: GrepInput, ctx: Context) -> Path:
    return Path(input.path) if input.path else ctx.cwd


def _check_path(path: Path) -> None:
    try:
        found = os.stat(path)
    except OSError as error:
        raise Refusal(
            Code.NOT_FOUND, f"Cannot search {path}: {error.strerror or error}.", hint="Find it with Glob first."
        ) from None
    if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
        raise Refusal(Code.INVALID_INPUT, f"{path} is neither a file nor a folder, so it is not searched.")


def _check_text(input: GrepInput) -> None:
    for name in ("pattern", "glob", "type"):
        value = getattr(input, name) or ""
        if "\0" in value:
            raise Refusal(Code.INVALID_INPUT, f"{name} contains a null byte.")
        try:
            size = len(os.fsencode(value))
        except UnicodeEncodeError:
            raise Refusal(Code.INVALID_INPUT, f"{name} is not valid text.") from None
        if size > MAX_PATTERN:
            raise Refusal(Code.INVALID_INPUT, f"{name} is {size:,} bytes long; at most {MAX_PATTERN:,} are taken.")


def _note_ignored(input: GrepInput, ctx: Context) -> None:
    given = {"-A": input.after, "-B": input.before, "-C": input.around, "context": input.context}
    ignored = [name for name, value in given.items() if value]
    if input.line_numbers is not None:
        ignored.append("-n")
    if ignored and (input.output_mode != "content" or (input.only_matching and ignored != ["-n"])):
        where = "with -o" if input.output_mode == "content" else f"in {input.output_mode} mode"
        ctx.note(f"{', '.join(ignored)} ignored {where}.")
