"""A walk through working directories for what runs by itself and what rules hide; folders that did not change are free.

It runs before every command, so a folder is read again only when its times changed, and those no program can set back.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import NamedTuple

from pegboard.floors import names
from pegboard.sandbox import HIDE

MOST_FOLDERS = 20_000
"""[C] Folders looked at in one walk, nearest first."""

FRESH = 50_000_000
"""[C] Nanoseconds. A folder that changed this recently may change again under the same time; it is not remembered."""

SKIPPED = frozenset(("node_modules", "__pycache__", "site-packages"))
"""Folders made of other people's packages; walked through only where a rule with a pattern could hide something."""


class Kind(StrEnum):
    """What was found."""

    GIT = "git"
    """A ``.git`` folder, or the file that stands for one."""
    BARE = "bare"
    """A folder that Git takes for a repository by what lies in it."""
    PROTECTED = "protected"
    """A file or folder that other programs run or read by themselves."""
    HIDDEN = "hidden"
    LOCKED = "locked"


class Sight(NamedTuple):
    """One finding."""

    path: str
    kind: Kind
    folder: bool


@dataclass(frozen=True)
class View:
    """All findings of a walk, nearest first. ``complete`` is false where the walk came to its limit."""

    found: tuple[Sight, ...]
    complete: bool = True

    def of(self, *kinds: Kind) -> list[Sight]:
        """The findings of these kinds."""
        return [sight for sight in self.found if sight.kind in kinds]


class _Folder(NamedTuple):
    stamp: tuple[int, int, int]
    below: tuple[str, ...]
    found: tuple[Sight, ...]


Rule = Callable[[str, bool], str]


class Survey:
    """Remembers what it saw, by folder. One for a session."""

    def __init__(self, *, most: int = MOST_FOLDERS) -> None:
        self._most = most
        self._known: dict[str, _Folder] = {}
        self._rule: Rule | None = None
        self._lock = Lock()

    def look(self, roots: Iterable[str], rule: Rule | None = None) -> View:
        """Walk through the roots. ``rule`` says what is hidden or locked; another one than before starts afresh."""
        with self._lock:
            return self._look(roots, rule)

    def _look(self, roots: Iterable[str], rule: Rule | None) -> View:
        if rule is not self._rule:
            self._known, self._rule = {}, rule
        queue = deque(dict.fromkeys(roots))
        seen: set[str] = set()
        found: list[Sight] = []
        while queue and len(seen) < self._most:
            path = queue.popleft()
            if path in seen:
                continue
            seen.add(path)
            folder = self._folder(path)
            if folder is not None:
                found += folder.found
                queue += folder.below
        for gone in self._known.keys() - seen if len(self._known) > len(seen) else ():
            del self._known[gone]
        return View(tuple(found), not queue)

    def _folder(self, path: str) -> _Folder | None:
        try:
            status = os.lstat(path)
        except OSError:
            return None
        if not stat.S_ISDIR(status.st_mode):
            return None
        stamp = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        known = self._known.get(path)
        if known is not None and known.stamp == stamp:
            return known
        try:
            read = self._read(path, stamp)
        except OSError:
            return None
        if time.time_ns() - status.st_ctime_ns > FRESH:
            self._known[path] = read
        else:
            self._known.pop(path, None)
        return read

    def _read(self, path: str, stamp: tuple[int, int, int]) -> _Folder:
        below, found, present = [], [], set()
        protected, here = names(), os.path.basename(path).casefold()
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                folder = entry.is_dir(follow_symlinks=False)
                present.add(name)
                full = f"{path.rstrip('/')}/{name}"
                plain = name.casefold()
                said = self._rule(full, folder) if self._rule is not None else ""
                if said:
                    found.append(Sight(full, Kind.HIDDEN if said == HIDE else Kind.LOCKED, folder))
                    if folder and said == HIDE:
                        continue
                if plain == ".git":
                    found.append(Sight(full, Kind.GIT, folder))
                elif plain in protected.folders or plain in protected.files or f"{here}/{plain}" in protected.pairs:
                    found.append(Sight(full, Kind.PROTECTED, folder))
                    if folder and self._rule is not None:
                        below.append(full)
                    elif folder and f"{plain}/worktrees" in protected.open:
                        below.append(f"{full}/worktrees")
                elif folder and (self._rule is not None or name not in SKIPPED):
                    below.append(full)
        if {"HEAD", "objects", "refs"} <= present:
            found.append(Sight(path, Kind.BARE, True))
        return _Folder(stamp, tuple(sorted(below)), tuple(sorted(found)))
