"""What a setting may be: its type, bounds and who may set it, as declared in ``settings.toml`` and in manifests.

Declared as data, so that settings can be listed, checked and explained without importing what uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from pegboard.errors import UsageError
from pegboard.manifest import Setting
from pegboard.settings_files import parse_toml

JSON = Any
"""Anything that JSON can carry."""

Type = Literal["bool", "int", "float", "str", "list", "table"]


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key that the core knows. ``settings.toml`` says what each field means."""

    summary: str
    default: bool | int | float | str | list[str] | None = None
    type: Type | None = None
    min: int | float | None = None
    max: int | float | None = None
    choices: list[str] | None = None
    merge: Literal["combine", "replace"] = "combine"
    set_by: Literal["any", "user", "managed"] = "any"
    trust: bool = False
    strict: bool | str | list[str] | None = None
    project_never: list[str] = []

    @property
    def kind(self) -> Type:
        """The type of its values."""
        return self.type or _type_of(self.default)

    def unset(self) -> JSON:
        """The built-in value; lists and tables are new each time."""
        if self.kind == "table":
            return {}
        return list(self.default) if isinstance(self.default, list) else self.default

    def clean(self, raw: JSON) -> tuple[JSON, list[str]]:
        """The valid part of a raw value, and what is wrong with the rest. The value is None when nothing is left."""
        fault = self._fault(raw)
        if fault:
            return None, [fault]
        if self.kind == "float":
            return float(raw), []
        if self.kind != "list":
            return raw, []
        faults = [
            f"{msgspec.json.encode(item).decode()} is not {_either(self.choices) if self.choices else 'a text'}"
            for item in raw
            if not self._is_item(item)
        ]
        return [item for item in raw if self._is_item(item)], faults

    def _is_item(self, item: JSON) -> bool:
        return isinstance(item, str) and (self.choices is None or item in self.choices)

    def _fault(self, raw: Any) -> str:
        kind = self.kind
        if not isinstance(raw, _PYTHON[kind]) or (isinstance(raw, bool) and kind != "bool"):
            return f"takes {_NAMES[kind]}, not {shown(raw)}"
        if isinstance(raw, int | float) and kind != "bool":
            # Written so that a value that is not a number (nan) fails too.
            if self.min is not None and not raw >= self.min:
                return f"takes {self.min} or more, not {raw}"
            if self.max is not None and not raw <= self.max:
                return f"takes {self.max} or less, not {raw}"
        if kind == "str" and self.choices and raw not in self.choices:
            return f"takes {_either(self.choices)}, not {shown(raw)}"
        return ""


_PYTHON: dict[Type, type | tuple[type, ...]] = {
    "bool": bool,
    "int": int,
    "float": (int, float),
    "str": str,
    "list": list,
    "table": Mapping,
}

_NAMES: dict[Type, str] = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "list": 'a list such as ["a", "b"]',
    "table": "a table",
}


@cache
def core_keys() -> Mapping[str, Key]:
    """The keys of ``settings.toml``, by full name; read from ``settings.json``, which is made from it."""
    return msgspec.json.decode(Path(__file__).with_name("settings.json").read_bytes(), type=dict[str, Key])


def declared_key(setting: Setting) -> Key:
    """The key that a manifest declares. Its lists are whole values: only rules, directories and hooks combine."""
    return Key(
        summary=setting.summary,
        default=None if isinstance(setting.default, dict) else setting.default,
        type="table" if isinstance(setting.default, dict) else None,
        min=setting.min,
        max=setting.max,
        choices=setting.choices,
        merge="replace",
    )


def unknown_key(key: str, known: Iterable[str]) -> UsageError:
    """The error for a key that nothing declares, with the nearest known one."""
    return UsageError(f"There is no setting {key}.{near(key, known)}")


def near(key: str, known: Iterable[str]) -> str:
    """`` Did you mean ...?`` or nothing."""
    import difflib

    found = difflib.get_close_matches(key, list(known), n=1)
    return f" Did you mean {found[0]}?" if found else ""


def shown(value: JSON) -> str:
    """A value on one line, as TOML would have it for everything but tables."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        text = str(value) if isinstance(value, float | str) else "something else"
    return text if len(text) <= 80 else text[:79] + "…"


def parse_value(text: str) -> JSON:
    """A value as a person types it: TOML where it is TOML, else the text itself."""
    from pegboard.settings_files import Unparsable

    try:
        found = parse_toml(f"value = {text}")
    except Unparsable:
        return text
    return found["value"] if list(found) == ["value"] else text


def parse_as(key: Key, name: str, text: str) -> JSON:
    """What a person typed, as a value for a key. Raises `UsageError` saying what the key takes."""
    value = text if key.kind == "str" and not text.startswith(('"', "'")) else parse_value(text)
    clean, faults = key.clean(value)
    if faults:
        raise UsageError(f"{name} {faults[0]}.")
    return clean


def _type_of(default: JSON) -> Type:
    for kind in _PYTHON:
        if isinstance(default, _PYTHON[kind]):
            return kind
    return "table"


def _either(choices: list[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
