"""Which results can leave the context, what stands in their place, and how heavy a conversation is.

A cleared result stays paired with its call, and the transcript keeps its text: only the messages lose it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from pegboard.call import Block

TOOLS = frozenset({"Read", "Grep", "Glob", "Bash", "LSP", "WebFetch", "WebSearch", "TaskOutput"})
"""[C] Tools whose results can be had again."""

PICTURE = 6_000
"""[C] Weight of an image in characters, whatever its size in bytes: services count its pixels."""

LEAST = 400
"""[C] Bodies below this weight stay; a line in their place would gain nothing."""


def weight(block: Block) -> int:
    """About how many characters a block counts for, without encoding what is large."""
    kind = block.get("type")
    if kind == "text":
        return len(block.get("text", ""))
    if kind == "image":
        return PICTURE
    if kind == "tool_result":
        inner = block.get("content", "")
        return len(inner) if isinstance(inner, str) else sum(map(weight, inner))
    if kind == "thinking":
        return len(block.get("thinking", ""))
    if kind == "document":
        source = block.get("source", {})
        return len(source.get("data", "")) // (1 if source.get("type") == "text" else 4)
    return len(msgspec.json.encode(block, enc_hook=str))


@dataclass(frozen=True)
class Body:
    """One result that can be cleared. ``where``: its message and its block there."""

    tool: str
    target: str
    weight: int
    where: tuple[int, int]

    def line(self) -> str:
        """What stands in its place."""
        return (
            f"[{self.tool} {self.target}: {self.weight:,} characters, cleared from the context. Call again if needed.]"
        )


class Bodies:
    """The results of one conversation that can be cleared, oldest first."""

    def __init__(self) -> None:
        self._held: dict[str, Body] = {}
        self.weight = 0

    def add(self, call: str, tool: str, given: Any, block: Block | None, where: tuple[int, int]) -> None:
        """Note a result, if it is one that can be cleared and is worth it."""
        heavy = weight(block) if block is not None and tool in TOOLS else 0
        if heavy >= LEAST:
            self._held[call] = Body(tool, _target(given), heavy, where)
            self.weight += heavy

    def pop(self, call: str) -> Body | None:
        """Take a result out; None when it is not here any more."""
        body = self._held.pop(call, None)
        if body is not None:
            self.weight -= body.weight
        return body

    def older(self, keep: int) -> Iterator[tuple[str, Body]]:
        """All but the newest ``keep`` of them, oldest first."""
        items = list(self._held.items())
        yield from items[: max(0, len(items) - keep)]


def _target(given: Any) -> str:
    """The first text of an input, on one line, shortened: a path, a pattern, a command."""
    values = given.values() if isinstance(given, dict) else ()
    words = " ".join(next((value for value in values if isinstance(value, str)), "").split())
    return words if len(words) <= 160 else f"{words[:40]}…{words[-119:]}"
