"""What stands around the match in a line that was too long to show.

A bare marker sends a reader back to the file; a second, small run of the engine says what is there.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pegboard.tool import Context

from pegboard_ripgrep.engine import Engine
from pegboard_ripgrep.rows import Row
from pegboard_ripgrep.runner import Limits, run
from pegboard_ripgrep.view import shown_name

MOST = 5
"""Long lines that are previewed in one result."""

AROUND = 60
"""Characters shown on each side of a match, and the most that is shown of the match itself."""

_DEADLINE = 2.0


async def previews(
    ctx: Context, engine: Engine, flags: list[str], rows: list[Row], *, root: Path, prefix: str, buffer: int
) -> list[str]:
    """One line for each of the first few rows: place, true length, surroundings of the first match.

    ``flags`` are those of the search without its shape. A row whose line cannot be had within two seconds and the
    buffer is left out.
    """
    wanted = dict.fromkeys((row.name, row.line) for row in rows)
    search = _Search(set(list(wanted)[:MOST]))
    names = dict.fromkeys(name for name, _ in search.wanted)
    await run(
        ctx,
        engine,
        ["--json", *flags],
        [os.fsdecode(b"./" + name) for name in names],
        root=root,
        take=search.take,
        limits=Limits(deadline=_DEADLINE, stdout=buffer),
    )
    return [
        f"{prefix}{shown_name(name)}:{line}: {search.found[name, line]}"
        for name, line in wanted
        if (name, line) in search.found
    ]


@dataclass
class _Search:
    wanted: set[tuple[bytes, int]]
    found: dict[tuple[bytes, int], str] = field(default_factory=dict)

    def take(self, records: list[bytes]) -> bool:
        for record in records:
            if record.startswith(b'{"type":"match"'):
                self._match(json.loads(record)["data"])
        return len(self.found) == len(self.wanted)

    def _match(self, match: dict[str, Any]) -> None:
        name = _bytes(match["path"]).removeprefix(b"./")
        for line, data, start, end in _lines(match):
            if (name, line) in self.wanted and (name, line) not in self.found:
                self.found[name, line] = _around(data, start, end)


def _lines(match: dict[str, Any]) -> list[tuple[int, bytes, int, int]]:
    """The lines of a match: number, bytes, and where the first match in it lies."""
    spans = [(item["start"], item["end"]) for item in match["submatches"]]
    number, begin, lines = match["line_number"] or 0, 0, []
    for data in _bytes(match["lines"]).removesuffix(b"\n").split(b"\n"):
        stop = begin + len(data) + 1
        hit = next(((max(a, begin), min(b, stop)) for a, b in spans if a < stop and b >= begin), (begin, begin))
        lines.append((number, data, hit[0] - begin, hit[1] - begin))
        number, begin = number + 1, stop
    return lines


def _around(data: bytes, start: int, end: int) -> str:
    before = data[:start].decode("utf-8", "replace")
    inside = data[start:end].decode("utf-8", "replace")
    behind = data[end:].decode("utf-8", "replace")
    length = len(before) + len(inside) + len(behind)
    left = "…" if len(before) > AROUND else ""
    right = "…" if len(behind) > AROUND else ""
    if len(inside) > AROUND:
        inside, behind, right = inside[:AROUND], "", "…"
    return f"{length:,} characters: {left}{before[-AROUND:]}{inside}{behind[:AROUND]}{right}"


def _bytes(value: dict[str, str]) -> bytes:
    return value["text"].encode("utf-8") if "text" in value else base64.b64decode(value["bytes"])
