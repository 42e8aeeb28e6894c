"""What stdin holds: text that belongs to a prompt, or lines of JSON as they come.

A program that starts `peg` may leave a pipe open that nobody writes to, so waiting has an end where it can have one.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import AsyncIterator

import anyio

from pegboard.errors import UsageError

STDIN_BYTES = 10 * 1024 * 1024
"""[D] Most of stdin that is appended to a prompt."""

LINE_BYTES = 64 * 1024 * 1024
"""[C] Most of one line of a stream; pictures come inside of them."""

STDIN_PATIENCE = 3.0
"""[C] Seconds to wait for the first byte of a piped stdin that nobody may be writing to."""

CHUNK = 1 << 16


def with_stdin(prompt: str) -> str:
    """The prompt with piped input behind it. Raises `UsageError` above 10 MB."""
    given = _piped().decode("utf-8", "replace")
    if prompt.strip() and given.strip():
        return f"{prompt}\n\n{given}"
    return prompt if prompt.strip() else given


async def lines() -> AsyncIterator[bytes]:
    """The lines of stdin as they come, without blank ones. Raises `UsageError` for one that is far too long."""
    waits, rest = _waits(), b""
    while True:
        if waits:
            await anyio.wait_readable(0)
        part = os.read(0, CHUNK)
        first, *more = part.split(b"\n")
        rest += first
        for line in more:
            if rest.strip():
                yield rest
            rest = line
        if len(rest) > LINE_BYTES:
            raise UsageError(f"A line on stdin has more than {LINE_BYTES >> 20} MB; put the content in a file.")
        if not part:
            if rest.strip():
                yield rest
            return


def _waits() -> bool:
    """Whether stdin is something that can be waited for, not a file that is there already."""
    mode = os.fstat(0).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(0)


def _piped() -> bytes:
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return b""
    if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        return b""
    if not stat.S_ISREG(kind) and not select.select([0], [], [], STDIN_PATIENCE)[0]:
        sys.stderr.write("peg: nothing came from stdin; the run goes on without it. Use </dev/null to say so.\n")
        return b""
    parts, total = [], 0
    while part := os.read(0, 1 << 20):
        parts.append(part)
        total += len(part)
        if total > STDIN_BYTES:
            raise UsageError("stdin holds more than 10 MB; put it in a file and name the file in the prompt.")
    return b"".join(parts)
