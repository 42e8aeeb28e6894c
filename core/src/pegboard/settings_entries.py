"""What scopes say about a key, and how that adds up: entries, rules, what is held back, tool switches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pegboard.errors import UsageError
from pegboard.settings_files import Layer, Problem
from pegboard.settings_keys import JSON, Key, shown

if TYPE_CHECKING:
    from pegboard.rules import Rule
    from pegboard.settings import Settings

SCOPES = ("managed", "flag", "local", "project", "user", "recommended")
"""Highest first."""

RuleEffect = Literal["deny", "ask", "allow"]


@dataclass(frozen=True)
class Entry:
    """What one scope says about a key, and whether it counts."""

    layer: Layer
    key: str
    value: JSON
    """The usable part of what the scope sets."""
    why_not: str = ""
    """Empty, or the reason why it does not count."""
    held: bool = False
    """It would count in a trusted workspace with sound files."""
    faults: tuple[str, ...] = ()
    """What is wrong with it, or with parts of it."""
    strict: bool = False
    """It is invalid, and the strict value stands for it."""

    @property
    def scope(self) -> str:
        return self.layer.scope

    @property
    def source(self) -> str:
        return self.layer.source

    @property
    def line(self) -> int | None:
        """Line of the key in its file, where it can be told."""
        return self.layer.line(self.key)


@dataclass(frozen=True)
class RuleText:
    """One permission rule as somebody wrote it. ``root`` is what a leading ``/`` in it stands for."""

    effect: RuleEffect
    text: str
    scope: str
    source: str
    root: Path
    layer: Layer = field(repr=False, compare=False)

    @property
    def line(self) -> int | None:
        """Line in the source; looked for only when asked."""
        return self.layer.line(f"permissions.{self.effect}", self.text)


@dataclass(frozen=True)
class Held:
    """Something that a file asks for and does not get, and why."""

    key: str
    shown: str
    scope: str
    source: str
    why: str


@dataclass(frozen=True)
class Explanation:
    """Why a key has its value: ``used`` counted (highest scope first), ``passed`` did not."""

    key: str
    summary: str
    value: JSON
    used: tuple[Entry, ...]
    passed: tuple[Entry, ...]
    locked_by: str = ""
    """The managed file that locks the key, or empty."""


@dataclass(frozen=True)
class Switch:
    """Whether a tool is on, and the one entry that decided it."""

    on: bool
    scope: str
    source: str
    reason: str


def fold(spec: Key, entries: list[Entry]) -> JSON:
    """The effective value of entries that count, highest scope first."""
    if not entries:
        return spec.unset()
    if any(entry.strict for entry in entries):
        return spec.strict
    if spec.kind == "table":
        merged: dict[str, JSON] = {}
        for entry in entries:
            for name, value in entry.value.items():
                if name not in merged:
                    merged[name] = value
                elif spec.merge == "combine" and isinstance(merged[name], list) and isinstance(value, list):
                    merged[name] = [*merged[name], *(item for item in value if item not in merged[name])]
        return merged
    if spec.kind == "list" and spec.merge == "combine":
        return list(dict.fromkeys(item for entry in entries for item in entry.value))
    return entries[0].value


def parse_all(texts: Iterable[RuleText]) -> tuple[list[Rule], list[Problem]]:
    """The rules that are well formed, and what is wrong with the others: one bad rule never takes the rest along."""
    from pegboard.rules import parse_rule

    rules: list[Rule] = []
    problems: list[Problem] = []
    for one in texts:
        try:
            rules.append(
                parse_rule(
                    one.text, effect=one.effect, scope=one.scope, source=one.source, line=one.line, root=str(one.root)
                )
            )
        except UsageError as error:
            text = str(error).replace(f" ({one.source}:{one.line})", "").replace(f" ({one.source})", "")
            text += " The rule does nothing; the others hold."
            problems.append(Problem(text=text, source=one.source, line=one.line, key=f"permissions.{one.effect}"))
    return rules, problems


def keys_in(layer: Layer, keys: Mapping[str, Key]) -> tuple[list[str], list[str]]:
    """The declared keys that a layer sets, and the undeclared ones. Names inside a declared table are free."""
    known: list[str] = []
    unknown: list[str] = []

    def walk(table: Mapping[str, JSON], prefix: str, free: bool) -> None:
        for name, value in table.items():
            key = f"{prefix}{name}"
            spec = keys.get(key)
            if spec is not None:
                known.append(key)
                if spec.kind == "table" and isinstance(value, Mapping):
                    walk(value, f"{key}.", True)
            elif isinstance(value, Mapping) and value and not free:
                walk(value, f"{key}.", False)
            elif isinstance(value, Mapping) and any(name.startswith(f"{key}.") for name in keys):
                continue  # an empty table of a group that there is
            elif not free:
                unknown.append(key)

    walk(layer.data, "", False)
    return known, unknown


def pieces(value: JSON) -> list[str]:
    """A value as separate lines for people: the items of a list, the names of a table, or the value."""
    if isinstance(value, list):
        return [item if isinstance(item, str) else shown(item) for item in value]
    if isinstance(value, Mapping):
        return [f"{name}: {shown(item)}" for name, item in value.items()]
    return [shown(value)]


def any_match(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name fits a pattern, whatever the case."""
    return any(fnmatchcase(name.casefold(), pattern.casefold()) for pattern in patterns)


def tool_switch(settings: Settings, name: str, *, load: str = "core") -> Switch:
    """Whether a tool is on here, and who decided it. Names match whatever their case; ``*`` stands for any text.

    Managed policy decides first, then the highest scope that names the tool (off wins within a scope), then
    ``tools.default`` and the tool's load class.
    """
    said: list[tuple[int, bool, Entry]] = []
    for key, on in (
        ("tools.force_disabled", False),
        ("tools.force_enabled", True),
        ("tools.disabled", False),
        ("tools.enabled", True),
    ):
        for entry in settings.entries(key):
            if not entry.why_not and any_match(name, entry.value):
                rank = -1 if "force" in key else SCOPES.index(entry.scope)
                said.append((rank, on, entry))
    if said:
        _, on, entry = min(said, key=lambda item: item[:2])
        reason = f"{entry.key} in {entry.source} names it"
        return Switch(on, entry.scope, entry.source, reason)
    default = settings.value("tools.default")
    on = default == "all" or (default == "core" and load == "core")
    used = settings.explain("tools.default").used
    scope, source = (used[0].scope, used[0].source) if used else ("builtin", "built-in")
    return Switch(on, scope, source, f"no list names it, and tools.default is {default}")
