"""What an import would do, as data: what is mapped, what needs a decision, what is dropped and why.

Only keys that are new are ever written, and a record of what was taken from where keeps a second run from doing
anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from pegboard.errors import UsageError
from pegboard.places import Places
from pegboard.settings_files import Unparsable, parse_toml, read_text


@dataclass(frozen=True)
class Mapped:
    """A key that would be written."""

    key: str
    value: Any
    origin: str
    """The key that it comes from."""
    note: str = ""
    """What is different about it here."""
    lines: tuple[str, ...] = ()
    """What it holds, one line each, where the value itself does not say it well."""


@dataclass(frozen=True)
class Left:
    """Something that is not written, and why."""

    what: str
    why: str


@dataclass
class Plan:
    """The import of one file into another."""

    source: Path
    target: Path
    scope: str
    mapped: list[Mapped] = field(default_factory=list)
    decide: list[Left] = field(default_factory=list)
    dropped: list[Left] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    """Keys that the target has already, with this very value."""

    def rows(self) -> dict[str, Any]:
        """The plan JSON-ready."""
        return {
            "source": str(self.source),
            "target": str(self.target),
            "scope": self.scope,
            "mapped": [
                {"key": one.key, "value": one.value, "from": one.origin, "note": one.note, "lines": list(one.lines)}
                for one in self.mapped
            ],
            "decide": [{"what": one.what, "why": one.why} for one in self.decide],
            "dropped": [{"what": one.what, "why": one.why} for one in self.dropped],
            "same": self.same,
        }


class Entry(msgspec.Struct, frozen=True):
    """What was imported from one file into another."""

    digest: str
    at: str
    keys: list[str]


class Record:
    """Which keys came from which version of which file; ``imports.json`` in the user directory."""

    def __init__(self, places: Places) -> None:
        self.path = places.user_dir / "imports.json"
        try:
            self._entries = msgspec.json.decode(self.path.read_bytes(), type=dict[str, Entry])
        except (OSError, msgspec.DecodeError):
            self._entries = {}

    def keys(self, plan: Plan) -> list[str]:
        """The keys that were imported from this very version of the file."""
        found = self._entries.get(_label(plan))
        return found.keys if found is not None and found.digest == digest_of(plan.source) else []

    def add(self, plan: Plan, keys: Iterable[str]) -> None:
        """Remember an import. Raises `UsageError` when that cannot be written."""
        from pegboard import atomic

        known = dict.fromkeys([*self.keys(plan), *keys])
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = Entry(digest_of(plan.source), now, list(known))
        if self._entries.get(_label(plan)) and self._entries[_label(plan)].keys == entry.keys:
            return
        self._entries[_label(plan)] = entry
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic.replace(self.path, msgspec.json.format(msgspec.json.encode(self._entries)) + b"\n", mode=0o600)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}.") from None


def _label(plan: Plan) -> str:
    return f"{plan.source} -> {plan.target}"


def digest_of(path: Path) -> str:
    """SHA-256 of a file; empty where there is none."""
    try:
        return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    except OSError:
        return ""


def settle(plan: Plan, record: Record) -> None:
    """Take out of a plan what the target has already, and what its owner removed after an earlier import."""
    try:
        text, _ = read_text(str(plan.target))
        there = parse_toml(text or "")
    except Unparsable as error:
        raise UsageError(f"{plan.target} cannot be read: {error}. Repair it first; nothing was imported.") from None
    before = record.keys(plan)
    left = []
    for one in plan.mapped:
        old = _get(there, one.key)
        if old == one.value:
            plan.same.append(one.key)
        elif old is not None:
            why = f"{plan.target} has a value of its own for it, which is kept"
            plan.decide.append(Left(f"{one.key} = {_shown(one.value)}", why))
        elif one.key in before:
            why = "it was imported before and has been removed since"
            plan.decide.append(Left(f"{one.key} = {_shown(one.value)}", why))
        else:
            left.append(one)
    plan.mapped = left


def write(plan: Plan) -> list[str]:
    """Write the new keys, one by one, keeping every other byte; returns them. Raises `UsageError`."""
    from pegboard.settings_save import save_value

    for one in plan.mapped:
        save_value(plan.target, one.key, one.value, personal=plan.scope == "user")
    return [one.key for one in plan.mapped]


def _get(data: Mapping[str, Any], key: str) -> Any:
    node: Any = data
    for name in key.split("."):
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()
