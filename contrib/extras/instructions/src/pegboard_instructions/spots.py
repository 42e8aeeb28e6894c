"""Where instruction files lie, found by looking at names alone.

Everybody pays for this at every start, so it does a few system calls a folder and imports nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pegboard.places import Places

OURS = "AGENTS.md"
COMPAT = {"CLAUDE.md": "project", ".claude/CLAUDE.md": "project", "CLAUDE.local.md": "local"}
"""Files of another product that are read too, in order -> whose instructions they are."""
RULES = ".claude/rules"
MOST_RULES = 1_000
"""[C] Rule files of one folder that are looked at."""


class Spot(NamedTuple):
    """A file that is there."""

    path: str
    kind: str
    """managed, user, project, local, nested, rule or import"""
    home: str
    """The folder that it speaks for; paths of a rule are relative to it."""


def at_start(places: Places, compat: bool) -> Iterator[Spot]:
    """Managed files, the user's, then those of each folder from the root of the file system to the start directory."""
    managed, user, home = str(places.managed_dir), str(places.user_dir), str(places.home)
    yield from _one(managed, OURS, "managed")
    yield from _one(user, OURS, "user")
    if compat:
        yield from _one(home, ".claude/CLAUDE.md", "user")
        yield from (spot._replace(home=str(places.root)) for spot in rules(home))
    for folder in (*reversed(places.cwd.parents), places.cwd):
        if compat and str(folder) == home:
            yield from (spot for spot in in_folder(home, compat) if not spot.path.startswith(f"{home}/.claude/"))
        else:
            yield from in_folder(str(folder), compat)


def in_folder(folder: str, compat: bool, kind: str = "") -> Iterator[Spot]:
    """The files of one folder. ``kind`` stands for that of the files, not for that of the rules."""
    folder = folder.rstrip("/")
    yield from _one(folder, OURS, kind or "project")
    if not compat:
        return
    for name, own in COMPAT.items():
        yield from _one(folder, name, kind or own)
    yield from rules(folder)


def rules(folder: str) -> Iterator[Spot]:
    """The rule files of one folder, also in folders of their own, by name."""
    todo, seen = [f"{folder}/{RULES}"], 0
    while todo:
        place = todo.pop()
        try:
            with os.scandir(place) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        todo += [entry.path for entry in reversed(found) if entry.is_dir(follow_symlinks=False)]
        for entry in found:
            if entry.name.endswith(".md") and not entry.is_dir():
                seen += 1
                if seen > MOST_RULES:
                    return
                yield Spot(entry.path, "rule", folder)


def _one(folder: str, name: str, kind: str) -> Iterator[Spot]:
    path = f"{folder}/{name}"
    if os.path.exists(path):
        yield Spot(path, kind, folder or "/")
