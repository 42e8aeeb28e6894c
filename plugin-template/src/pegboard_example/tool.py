"""Example: count the lines, words and bytes of one file.

A small tool with all the parts that a large one has: models, a check, accesses, a run, a text for the model.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from pegboard.errors import Code, Refusal
from pegboard.model import AbsolutePath, Input, Output
from pegboard.tool import Access, Context, Tool
from pydantic import Field

CHUNK = 1 << 20
"""Bytes read at a time, so that a large file does not fill the memory."""


class ExampleInput(Input):
    """What to count."""

    file_path: AbsolutePath = Field(description="The file to count")


class ExampleOutput(Output):
    """The counts."""

    filePath: str
    lines: int
    words: int
    bytes: int


class Example(Tool[ExampleInput, ExampleOutput]):
    """Count one file."""

    Input = ExampleInput
    Output = ExampleOutput

    async def check(self, input: ExampleInput, ctx: Context) -> None:
        try:
            found = os.stat(input.file_path)
        except FileNotFoundError:
            raise Refusal(Code.NOT_FOUND, f"{input.file_path} does not exist.") from None
        except OSError as error:
            raise Refusal(Code.IO_ERROR, f"{input.file_path} cannot be looked at: {error.strerror}.") from None
        if not stat.S_ISREG(found.st_mode):
            raise Refusal(Code.PRECONDITION_FAILED, f"{input.file_path} is no regular file.", hint="Name a file in it.")
        limit = ctx.setting("example.max_bytes")
        if found.st_size > limit:
            text = f"{input.file_path} has {found.st_size:,} bytes; the limit is {limit:,} (example.max_bytes)."
            raise Refusal(Code.TOO_LARGE, text)

    def accesses(self, input: ExampleInput, ctx: Context) -> Iterable[Access]:
        return (Access.read(input.file_path),)

    async def run(self, input: ExampleInput, ctx: Context) -> ExampleOutput:
        try:
            return await ctx.thread(count, input.file_path)
        except OSError as error:
            raise Refusal(Code.IO_ERROR, f"{input.file_path} cannot be read: {error.strerror}.") from None

    def render(self, output: ExampleOutput, ctx: Context) -> str:
        name = ctx.shown(output.filePath)
        return f"{name}: {output.lines:,} lines, {output.words:,} words, {output.bytes:,} bytes"


def count(path: str) -> ExampleOutput:
    """Count a file of any size in constant memory. Raises OSError."""
    lines = words = size = 0
    inside, last = False, b"\n"
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            lines += chunk.count(b"\n")
            words += len(chunk.split()) - (inside and not chunk[:1].isspace())
            size += len(chunk)
            last = chunk[-1:]
            inside = not last.isspace()
    return ExampleOutput(filePath=path, lines=lines + (last != b"\n"), words=words, bytes=size)
