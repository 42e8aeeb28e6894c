"""What a box refused, read from what programs wrote: the one trace that a refused file operation leaves."""

from __future__ import annotations

import re
from collections.abc import Callable

MOST = 20
"""[C] Refusals named in one result."""

_LINE = re.compile(
    r"Read-only file system|Permission denied|Operation not permitted|resource busy|\bE(?:ROFS|ACCES|PERM|BUSY)\b",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"['\"‘`]([^'\"’`\n]+)['\"’`]"
    r"|(?:^|[\s:(=])(/[^\s:'\"()]+|(?:\.{0,2}/)?[\w.@+~-][^\s:'\"()]*)(?=:|\s|$)"
)


def of_files(output: str, why: Callable[[str, str], str]) -> list[str]:
    """One line for each refused path: ``why`` says of a path as written and of the error what the box does, or nothing.

    A line that names no path the box speaks about is no violation, because plain permissions fail in the same words.
    """
    found: dict[str, None] = {}
    for line in output.splitlines():
        sign = _LINE.search(line)
        if sign is None or len(line) > 4_000:
            continue
        for path in _paths(line, sign.start()):
            said = why(path, sign[0])
            if said:
                found[f"file: {path} was refused: {said}"] = None
                break
        if len(found) >= MOST:
            break
    return list(found)


def _paths(line: str, sign: int) -> list[str]:
    """What may be a path in a line: what is in quotes, else what is absolute, else the last word before the error."""
    matches = list(_PATH.finditer(line))
    quoted = [match[1] for match in matches if match[1]]
    absolute = [match[2] for match in matches if match[2] and match[2].startswith("/")]
    words = [match[2] for match in matches if match[2] and match.end() <= sign]
    return quoted or absolute or words[-1:]
