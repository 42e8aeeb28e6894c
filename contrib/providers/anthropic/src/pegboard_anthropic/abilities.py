"""What each model can do, from the table in ``models.json``."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
from pegboard.provider import Abilities


class _Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    prefix: str
    window: int
    max_output: int
    thinking: bool = False
    references: bool = False
    """Whether ``tool_reference`` blocks load deferred tools."""
    price: dict[str, float] | None = None


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    models: list[_Model]


def abilities_of(model: str) -> Abilities:
    """The abilities of a model by the beginning of its name; cautious ones for a name that nobody knows.

    Names of other platforms count from ``claude-`` on: ``us.anthropic.claude-opus-5-5-v1:0``.
    """
    name = model[max(0, model.find("claude-")) :]
    for known in _table():
        if name.startswith(known.prefix):
            return Abilities(
                window=known.window,
                max_output=known.max_output,
                thinking=known.thinking,
                tool_references=known.references,
                server_tools=True,
                price=known.price,
            )
    return Abilities(server_tools=True)


@cache
def _table() -> list[_Model]:
    return msgspec.json.decode(Path(__file__).with_name("models.json").read_bytes(), type=_Table).models
