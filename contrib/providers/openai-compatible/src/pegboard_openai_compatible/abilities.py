"""What each model can do: from the settings, then from the table in ``models.json``, then cautious.

A local server gives a model the name it likes, so entries are found by a part of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from pegboard.errors import UsageError
from pegboard.provider import Abilities


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said about a model; what is not said stays open."""

    window: int | None = None
    """Context window in tokens, prompt and answer together."""
    max_output: int | None = None
    images: bool | None = None
    tools: bool | None = None
    thinking: bool | None = None
    price: dict[str, float] | None = None


class _Model(Known, frozen=True, kw_only=True):
    name: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    models: list[_Model]


def abilities_of(model: str, table: Mapping[str, Any], window: int, max_output: int) -> Abilities:
    """The abilities of a model; ``table`` holds those of the settings, by a part of a model's name.

    Raises `UsageError` for an entry of the table that cannot be used.
    """
    given = {name: _known(name, entry) for name, entry in table.items()}
    ours = _best(model, given)
    shipped = _best(model, {one.name: one for one in _shipped()})
    room = ours.window or shipped.window or window
    return Abilities(
        window=room,
        max_output=min(ours.max_output or shipped.max_output or max_output, max(1, room // 2)),
        images=_first(ours.images, shipped.images, otherwise=False),
        documents=False,
        tools=_first(ours.tools, shipped.tools, otherwise=True),
        thinking=_first(ours.thinking, shipped.thinking, otherwise=False),
        price=ours.price,
    )


def _known(name: str, entry: Any) -> Known:
    try:
        return msgspec.convert(entry, Known)
    except msgspec.ValidationError as error:
        raise UsageError(f'The setting openai.models."{name}" cannot be used: {error}.') from None


def _best(model: str, table: Mapping[str, Known]) -> Known:
    """The entry with the longest name that occurs in the model's name, letters of either case."""
    lower = model.lower()
    names = [name for name in table if name and name.lower() in lower]
    return table[max(names, key=len)] if names else Known()


def _first(*said: bool | None, otherwise: bool) -> bool:
    return next((value for value in said if value is not None), otherwise)


@cache
def _shipped() -> list[_Model]:
    return msgspec.json.decode(Path(__file__).with_name("models.json").read_bytes(), type=_Table).models
