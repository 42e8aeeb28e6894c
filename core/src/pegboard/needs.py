"""From the policy of a session to what a box must hold: Read, Edit and WebFetch rules, and the sandbox settings.

A project's own files take part in what is forbidden, never in what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.rules import host_pattern, kind_of
from pegboard.sandbox import HIDE, LOCK, Need

if TYPE_CHECKING:
    from pegboard.ruleindex import RuleIndex
    from pegboard.rules import Rule
    from pegboard.session import Session
    from pegboard.settings import Settings

PROJECT = ("project", "plugin")
"""Scopes whose rules cannot widen a box."""


def need_of(session: Session) -> Need:
    """What a box for the session's next process must hold. Does I/O."""
    settings, snapshot = session.settings, session.snapshot()
    hosts, refused = _hosts(snapshot.rules)
    index = snapshot.index
    hidden, seen_by_read = _paths(index, "Read")
    locked, seen_by_edit = _paths(index, "Edit")
    watched = seen_by_read | seen_by_edit
    own = _project_directories(settings)
    return Need(
        cwd=session.cwd,
        home=session.places.home,
        roots=tuple(dict.fromkeys(folder for folder in session.roots if str(folder) not in own)),
        writable=tuple(_absolute(item, session) for item in settings.value("sandbox.writable")),
        readable=tuple(_absolute(item, session) for item in settings.value("sandbox.readable")),
        hidden=tuple(hidden),
        locked=tuple(locked),
        rule=_rule(index) if watched else None,
        watched=tuple(sorted(watched)),
        hosts=tuple(dict.fromkeys((*settings.value("sandbox.allowed_hosts"), *hosts))),
        refused_hosts=tuple(refused),
        variables=(*settings.value("sandbox.variables"), *settings.value("env")),
        required=bool(settings.value("sandbox.required")),
        level=str(settings.value("sandbox.level")),
    )


def _absolute(item: str, session: Session) -> Path:
    if item == "~" or item.startswith("~/"):
        return session.places.home / item[2:]
    return session.places.root / item


def _hosts(rules: Iterable[Rule]) -> tuple[list[str], list[str]]:
    """Hosts that WebFetch rules name: allowed, and denied or asked about. A rule for the whole tool names none."""
    allowed, refused = [], []
    for rule in rules:
        if rule.tool == "WebFetch" and rule.specifier is not None and kind_of(rule) == "host":
            if rule.effect != "allow":
                refused.append(host_pattern(rule.specifier))
            elif rule.scope not in PROJECT and not (rule.scope == "local" and _of_project(rule.source)):
                allowed.append(host_pattern(rule.specifier))
    return allowed, refused


def _of_project(source: str) -> bool:
    from pegboard.settings_files import belongs_to_project

    return bool(belongs_to_project(source))


def _project_directories(settings: Settings) -> set[str]:
    """Working directories that only the project's own files name."""
    by: dict[bool, set[str]] = {True: set(), False: set()}
    for entry in settings.entries("permissions.directories"):
        if not entry.why_not:
            own = entry.scope == "project" or (entry.scope == "local" and _of_project(entry.source))
            by[own].update(entry.value)
    return by[True] - by[False]


def _paths(index: RuleIndex, family: str) -> tuple[list[str], set[str]]:
    """The paths that deny rules name outright, and the folders that their patterns start from."""
    named: list[str] = []
    heads: set[str] = set()
    for bound in index.path_table(family, True).all:
        if bound.item.effect != "deny":
            continue
        if bound.text is not None:
            named.append(bound.text or "/")
        else:
            heads.add(bound.head())
    return list(dict.fromkeys(named)), heads


def _rule(index: RuleIndex) -> Callable[[str, bool], str]:
    def rule(path: str, folder: bool) -> str:
        for family, word in (("Read", HIDE), ("Edit", LOCK)):
            if any(found.effect == "deny" for found in index.paths(family, path, folder, True)):
                return word
        return ""

    return rule


def blank_need(home: Path, cwd: Path, settings: Settings) -> Need:
    """A need without a session, to find out which level is reached."""
    return Need(
        cwd=cwd,
        home=home,
        roots=(cwd,),
        hosts=tuple(settings.value("sandbox.allowed_hosts")),
        required=bool(settings.value("sandbox.required")),
        level=str(settings.value("sandbox.level")),
    )
