"""Write: a whole file at once, never half of it.

A new file needs no view; one that exists must have been seen whole, as it is now, before it may be replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Literal

from pegboard.errors import Code, Refusal
from pegboard.model import AbsolutePath, Input, Output
from pegboard.tool import Access, Context, Tool
from pegboard_files import FileHistory, disk, gates, names
from pegboard_files.gates import Target
from pegboard_files.patch import Hunk, hunks
from pegboard_files.text import Text, decode, encode_whole, refuse_halves
from pydantic import Field

CONTENT_BYTES = 10_000_000
"""[C] Largest content."""

ORIGINAL_BYTES = 1024 * 1024
"""[C] Largest content that comes back as ``originalFile``."""


class WriteInput(Input):
    """A file and all that it shall hold."""

    file_path: AbsolutePath = Field(description="Absolute path of the file")
    content: str = Field(description="The whole content; may be empty")


class WriteOutput(Output):
    """A finished write."""

    type: Literal["create", "update"]
    filePath: str
    content: str
    structuredPatch: list[Hunk]
    originalFile: str | None
    """The text before; null for a new file, and above 1 MB."""
    userModified: bool = False


class Write(Tool[WriteInput, WriteOutput]):
    """Create or replace a file."""

    Input = WriteInput
    Output = WriteOutput

    async def check(self, input: WriteInput, ctx: Context) -> None:
        await _open(input, ctx)

    def accesses(self, input: WriteInput, ctx: Context) -> Iterable[Access]:
        return [Access.edit(path) for path in dict.fromkeys((input.file_path, disk.aim(ctx, input.file_path)))]

    async def run(self, input: WriteInput, ctx: Context) -> WriteOutput:
        history = await ctx.own(FileHistory)
        async with history.lock(disk.aim(ctx, input.file_path)):
            target = await _open(input, ctx)
            data = encode_whole(input.content, _kept(target))
            text = decode(data)
            if target.content is None:
                await ctx.thread(_tell_alike, input.file_path, ctx)
                await history.create(ctx, input.file_path, data, text=text)
            else:
                expected = target.content
                await history.replace(ctx, input.file_path, data, expected=expected, text=text, known=True)
        before = target.text.plain if target.text else ""
        after = text.plain if text else input.content
        small = target.content is not None and len(target.content.raw) <= ORIGINAL_BYTES
        return WriteOutput(
            type="create" if target.content is None else "update",
            filePath=input.file_path,
            content=input.content,
            structuredPatch=await ctx.thread(hunks, before, after) if target.content is not None else [],
            originalFile=target.text.text if small and target.text else None,
        )

    def render(self, output: WriteOutput, ctx: Context) -> str:
        shown, lines = ctx.shown(output.filePath), output.content.count("\n")
        lines += bool(output.content) and not output.content.endswith("\n")
        size = "1 line" if lines == 1 else f"{lines} lines"
        if output.type == "create":
            return f"Created {shown} ({size})."
        changed = [line[:1] for hunk in output.structuredPatch for line in hunk.lines]
        if not changed:
            return f"Replaced {shown} ({size}); its text is the same as before."
        return f"Replaced {shown} ({size}; +{changed.count('+')} -{changed.count('-')})."


async def _open(input: WriteInput, ctx: Context) -> Target:
    """All gates, in the order of the specification."""
    gates.refuse_denied(ctx, input.file_path)
    refuse_halves("content", input.content)
    shown = ctx.shown(input.file_path)
    if len(input.content) > CONTENT_BYTES or len(input.content.encode("utf-8")) > CONTENT_BYTES:
        raise Refusal(
            Code.TOO_LARGE,
            f"The content for {shown} is larger than {disk.size_text(CONTENT_BYTES)}.",
            hint="Write it in smaller files, or produce it with a shell command.",
        )
    if input.file_path.lower().endswith(".ipynb"):
        await ctx.thread(_must_be_notebook, input.content, shown)
    target = await gates.open_target(ctx, input.file_path, whole=True)
    if target.text is not None and target.text.intact:
        encode_whole(input.content, target.text)
    return target


def _kept(target: Target) -> Text | None:
    """The old text whose encoding and line ends are kept: none for new, empty and binary files."""
    if target.content is None or not target.content.raw:
        return None
    return target.text if target.text is not None and target.text.intact else None


def _must_be_notebook(content: str, shown: str) -> None:
    from nbformat.validator import iter_validate

    try:
        notebook = json.loads(content)
        fault = next(iter(iter_validate(notebook, relax_add_props=True)), None)
    except Exception as error:
        fault = error
    if fault is not None:
        complaint = str(getattr(fault, "message", fault)).splitlines()[0][:200]
        raise Refusal(
            Code.INVALID_INPUT,
            f"The content for {shown} is not a valid notebook: {complaint}",
            hint="Give the whole JSON of a notebook (nbformat 4), or change cells with NotebookEdit.",
        )


def _tell_alike(path: str, ctx: Context) -> None:
    others = [other for other in names.alike(path) if other != path and ctx.denied(Access.read(other)) is None]
    if others:
        ctx.note(f"Beside it there is a file whose name differs only in Unicode form or quotes: {others[0]!r}.")
