"""The effective settings: every scope's values, who may set what, and why a value holds.

    managed > flag > local > project > user > recommended > built-in

Single values come from the highest scope that may set them; lists of rules, directories and hooks come from all of
them; tables are merged name by name. A value that cannot be used is reported, and the next lower scope's holds; but an
invalid lock of managed policy is shut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pegboard.errors import PolicyError, UsageError
from pegboard.managed import Managed
from pegboard.settings_entries import (
    Entry,
    Explanation,
    Held,
    RuleEffect,
    RuleText,
    Switch,
    any_match,
    fold,
    keys_in,
    parse_all,
    pieces,
    tool_switch,
)
from pegboard.settings_files import (
    ABSENT,
    Layer,
    Problem,
    SettingsFile,
    belongs_to_project,
    nested,
    own_files,
    restriction_files,
    settings_file,
)
from pegboard.settings_keys import JSON, Key, core_keys, declared_key, near, parse_value, shown, unknown_key

if TYPE_CHECKING:
    from pegboard.manifest import Setting
    from pegboard.places import Places
    from pegboard.rules import Rule

__all__ = [
    "Entry",
    "Explanation",
    "Held",
    "Problem",
    "RuleText",
    "Settings",
    "Switch",
    "add_rules",
    "parse_value",
    "settings_file",
    "tool_switch",
]

PROJECT_SCOPES = ("local", "project")
"""Scopes whose files lie in the workspace."""

POLICY_SCOPES = ("managed", "recommended")
"""Scopes whose files belong to the operator."""

LOOSE_MODES = ("acceptEdits", "bypassPermissions", "auto")
"""Modes that let calls pass unasked."""


class Settings:
    """All settings of one start. Files are re-read by `refresh`, so a changed rule holds for the next call."""

    def __init__(self, places: Places, *, flags: Mapping[str, JSON], trusted: bool, workspace: bool = True) -> None:
        self.places = places
        self.generation = 0
        """Grows whenever any value may have changed."""
        self._trusted = trusted
        self._managed = Managed(places.managed_dir)
        self._flags = Layer("flag", "command line", nested(flags))
        self._files = [file for file in own_files(places) if workspace or file.scope not in PROJECT_SCOPES]
        self._compat = restriction_files(places) if workspace else []
        self._declared: dict[str, Key] = {}
        self._values: dict[str, JSON] = {}
        self._problems: list[Problem] | None = None
        self._suspended: str | None = None
        self._found: list[Layer] | None = None
        self._parsed: tuple[list[Rule], list[Problem]] | None = None
        for file in self._files:
            file.read()
        self._reset()

    @classmethod
    def load(
        cls,
        places: Places,
        *,
        flags: Mapping[str, JSON] | None = None,
        trusted: bool = False,
        declared: Mapping[str, Setting] | None = None,
        workspace: bool = True,
    ) -> Settings:
        """Read the settings of a start; without ``workspace`` the files of the project and its local ones stay out.

        ``flags`` holds dotted keys with typed values (`parse_value` types a text). Raises `PolicyError` when managed
        policy cannot be relied on or forbids a flag. Everything else that is wrong is in `problems`.
        """
        settings = cls(places, flags=flags or {}, trusted=trusted, workspace=workspace)
        settings.declare(declared or {})
        settings._refuse_mode_flag()
        return settings

    @property
    def trusted(self) -> bool:
        """Whether the workspace's own files may widen what is allowed."""
        return self._trusted

    @trusted.setter
    def trusted(self, trusted: bool) -> None:
        if trusted != self._trusted:
            self._trusted = trusted
            self._reset()

    def declare(self, declared: Mapping[str, Setting]) -> None:
        """Add the settings of a plug-in's manifest. The core's own keys cannot be redeclared."""
        for key, setting in declared.items():
            if key not in self._declared and key not in core_keys():
                self._declared[key] = declared_key(setting)
                self._problems = None

    # -- values ------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Every declared key, in order."""
        return sorted({*core_keys(), *self._declared})

    def key(self, name: str) -> Key:
        """What is declared about a key. Raises `UsageError` for one that nobody declared."""
        found = core_keys().get(name) or self._declared.get(name)
        if found is None:
            raise unknown_key(name, self.names())
        return found

    def value(self, key: str) -> Any:
        """The effective value, of the declared type. Raises `UsageError` for a key that nobody declared."""
        found = self._values.get(key, ABSENT)
        if found is ABSENT:
            spec = self.key(key)
            found = self._values[key] = fold(spec, [entry for entry in self.entries(key) if not entry.why_not])
        if isinstance(found, list):
            return list(found)
        return dict(found) if isinstance(found, Mapping) else found

    def entries(self, key: str) -> list[Entry]:
        """What each scope says about a key, highest first, counted or not."""
        spec = self.key(key)
        found: list[Entry] = []
        for layer in self._layers():
            raw = layer.get(key)
            if raw is not ABSENT:
                if spec.kind == "table" and isinstance(raw, Mapping):
                    raw = {name: value for name, value in raw.items() if f"{key}.{name}" not in core_keys()}
                if raw != {}:
                    found.append(self._judge(key, spec, layer, raw))
        return found

    def explain(self, key: str) -> Explanation:
        """The value of a key, where it comes from, and what it shadows."""
        spec, entries = self.key(key), self.entries(key)
        counted = [entry for entry in entries if not entry.why_not]
        refused = [entry for entry in entries if entry.why_not]
        whole = spec.kind not in ("list", "table") or (spec.kind == "list" and spec.merge == "replace")
        used = counted[:1] if whole else counted
        lock = self._managed.lock_of(key)
        shadowed = [entry for entry in counted if entry not in used]
        source = lock.source if lock is not None else ""
        return Explanation(key, spec.summary, self.value(key), tuple(used), (*shadowed, *refused), source)

    # -- rules and what is held --------------------------------------------------------------------------------

    def rules(self) -> list[RuleText]:
        """The permission rules in force, deny first, highest scope first. What is held back is in `held`.

        A managed recommendation is a ``builtin`` rule: everybody may add to it.
        """
        effects: tuple[RuleEffect, ...] = ("deny", "ask", "allow")
        return [
            RuleText(effect, text, _rule_scope(entry), entry.source, self._root(entry), entry.layer)
            for effect in effects
            for entry in self.entries(f"permissions.{effect}")
            if not entry.why_not
            for text in entry.value
        ]

    def parsed_rules(self) -> list[Rule]:
        """The rules in force that are well formed, parsed once; what is wrong with the others is in `problems`."""
        if self._parsed is None:
            self._parsed = parse_all(self.rules())
        return list(self._parsed[0])

    @property
    def suspended(self) -> str:
        """Empty, or why no allow rule but managed ones holds: a broken file may contain any deny rule."""
        if self._suspended is None:
            unknown = [file.path for file in self._watched() if file.unknown]
            self._suspended = (
                f"{' and '.join(unknown)} cannot be read, so its deny rules are unknown" if unknown else ""
            )
        return self._suspended

    @property
    def held(self) -> list[Held]:
        """What the workspace's files ask for and do not get until it is trusted (or a broken file is repaired)."""
        return [
            Held(entry.key, text, entry.scope, entry.source, entry.why_not)
            for key in sorted({key for layer in self._layers() for key in self._keys_in(layer)[0]})
            for entry in self.entries(key)
            if entry.held
            for text in pieces(entry.value)
        ]

    # -- what is wrong -----------------------------------------------------------------------------------------

    @property
    def problems(self) -> list[Problem]:
        """All that is wrong: broken files, unknown keys, values that cannot be used or that a scope may not set."""
        if self._problems is None:
            found = [*self._managed.problems, *(file.problem for file in self._watched() if file.problem is not None)]
            for layer in self._layers():
                known, unknown = self._keys_in(layer)
                found += [self._unknown(layer, key) for key in unknown]
                found += [problem for key in known for problem in self._faults(layer, key)] + layer.faults()
            self.parsed_rules()
            self._problems = found + (self._parsed[1] if self._parsed is not None else [])
        return list(self._problems)

    def check_flags(self) -> None:
        """Raise `UsageError` for a flag that is unknown, unusable or not settable there. Call after `declare`."""
        for problem in self.problems:
            if problem.source == self._flags.source:
                raise UsageError(problem.text)

    def check_settable(self, key: str, scope: str, value: JSON) -> None:
        """Raise `UsageError` when a scope may not set a key to this value: asked before a value is saved."""
        spec = self.key(key)
        entry = self._limit(key, spec, Entry(Layer(scope, "", {}), key, value))
        why = self._not_settable(key, spec, scope) or entry.why_not or " ".join(entry.faults)
        if why:
            raise UsageError(f"{key} cannot be set in {scope} settings: {why}. Nothing was changed.")

    # -- changes on disk ---------------------------------------------------------------------------------------

    def changed(self) -> list[str]:
        """Paths of files that are not as they were read: one stat each."""
        managed = [str(self.places.managed_dir)] if self._managed.changed() else []
        return managed + [file.path for file in self._watched() if file.changed()]

    def reload(self) -> bool:
        """Read changed files again. Returns whether anything is different now; then `generation` has grown."""
        managed = self._managed.changed() and self._managed.read()
        files = [file.read() for file in self._watched() if file.changed()]
        different = managed or any(files)
        if different:
            self._reset()
        return different

    def refresh(self) -> bool:
        """`reload` where something changed. Cheap enough to be called before every call."""
        return bool(self.changed()) and self.reload()

    # -- inside ------------------------------------------------------------------------------------------------

    def _reset(self) -> None:
        self.generation += 1
        self._values = {}
        self._problems = self._suspended = self._found = self._parsed = None

    def _own_layers(self) -> list[Layer]:
        files = [file.layer for file in self._files]
        return [*self._managed.mandatory, self._flags, *files, *self._managed.recommended]

    def _layers(self) -> list[Layer]:
        """All layers, highest first. Another product's restrictions count as project rules."""
        if self._found is None:
            self._found = self._own_layers()
            if self.value("compat.claude"):
                for file in self._compat:
                    if file.changed():
                        file.read()
                self._found = [*self._found, *(file.layer for file in self._compat)]
        return self._found

    def _watched(self) -> list[SettingsFile]:
        return self._files + (self._compat if self.value("compat.claude") else [])

    def _judge(self, key: str, spec: Key, layer: Layer, raw: JSON) -> Entry:
        """Whether and how far a scope's value counts."""
        value, faults = spec.clean(raw)
        why = self._not_settable(key, spec, layer.scope)
        if why:
            return Entry(layer, key, value, why, faults=(why,))
        if faults and layer.scope == "managed" and spec.strict is not None:
            return Entry(layer, key, spec.strict, faults=tuple(faults), strict=True)
        if value is None:
            return Entry(layer, key, None, faults[0], faults=tuple(faults))
        entry = self._limit(key, spec, Entry(layer, key, value, faults=tuple(faults)))
        if spec.trust and not self._trusted and layer.scope in PROJECT_SCOPES and not entry.why_not:
            return Entry(layer, key, entry.value, "the workspace is not trusted", held=True, faults=entry.faults)
        return entry

    def _not_settable(self, key: str, spec: Key, scope: str) -> str:
        if spec.set_by == "managed" and scope != "managed":
            return "only managed policy can set it"
        if spec.set_by == "user" and scope in PROJECT_SCOPES:
            return "a project cannot set it; user settings can"
        lock = self._managed.lock_of(key)
        if lock is not None and scope not in POLICY_SCOPES:
            return f"managed policy {lock.source} locks it"
        return ""

    def _limit(self, key: str, spec: Key, entry: Entry) -> Entry:
        """Take away what this scope cannot choose for this key."""
        value, scope = entry.value, entry.scope
        if spec.project_never and scope in PROJECT_SCOPES:
            if spec.kind == "table":
                if scope == "project" or belongs_to_project(entry.source):
                    never = [name for name in value if any_match(name, spec.project_never)]
                    faults = tuple(f"a project cannot set {name}" for name in never)
                    kept = {name: item for name, item in value.items() if name not in never}
                    return Entry(entry.layer, key, kept, faults=entry.faults + faults)
            elif value in spec.project_never:
                return _refused(entry, f"a project cannot choose {value}")
        if key == "permissions.mode":
            why = self._mode_forbidden(value)
            if why:
                return _refused(entry, why)
            if value in LOOSE_MODES and scope not in POLICY_SCOPES and self.suspended:
                return Entry(entry.layer, key, value, self.suspended, held=True)
        if key == "permissions.allow" and scope not in POLICY_SCOPES:
            if self.value("permissions.managed_rules_only"):
                return _refused(entry, "managed policy admits only managed allow rules")
            if self.suspended:
                return Entry(entry.layer, key, value, self.suspended, held=True)
        return entry

    def _mode_forbidden(self, mode: str) -> str:
        for name, lock in (("bypassPermissions", "permissions.disable_bypass"), ("auto", "permissions.disable_auto")):
            if mode == name and self.value(lock):
                source = next(entry.source for entry in self.entries(lock) if not entry.why_not)
                return f"managed policy {source} forbids the mode {name}"
        return ""

    def _refuse_mode_flag(self) -> None:
        mode = self._flags.get("permissions.mode")
        why = self._mode_forbidden(mode) if isinstance(mode, str) else ""
        if why:
            raise PolicyError(f"{why[0].upper()}{why[1:]}. Start without it.")

    def _root(self, entry: Entry) -> Path:
        return self.places.user_dir if entry.scope == "user" else self.places.root

    def _keys_in(self, layer: Layer) -> tuple[list[str], list[str]]:
        return keys_in(layer, {**self._declared, **core_keys()})

    def _faults(self, layer: Layer, key: str) -> Iterator[Problem]:
        for entry in self.entries(key):
            if entry.layer is layer:
                for fault in entry.faults:
                    text = f"{key}: {fault}"
                    if entry.strict:
                        text += f"; until it is repaired it counts as {shown(entry.value)}"
                    yield Problem(text=text, source=entry.source, line=entry.line, key=key)

    def _unknown(self, layer: Layer, key: str) -> Problem:
        group = any(known.startswith(f"{key}.") for known in self.names())
        text = f"{key} must be a table." if group else f"There is no setting {key}.{near(key, self.names())}"
        return Problem(text=text, source=layer.source, line=layer.line(key), key=key)


def add_rules(places: Places, effect: RuleEffect, rules: Sequence[str]) -> None:
    """Save permission rules in the local settings of this project. Raises `UsageError` when the file refuses."""
    from pegboard.settings_save import edit_list

    edit_list(settings_file(places, "local"), f"permissions.{effect}", add=rules)


def _rule_scope(entry: Entry) -> str:
    return "builtin" if entry.scope == "recommended" else entry.scope


def _refused(entry: Entry, why: str) -> Entry:
    return Entry(entry.layer, entry.key, entry.value, why, faults=(*entry.faults, why))
