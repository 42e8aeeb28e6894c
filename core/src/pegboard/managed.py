"""Managed policy: the operator's files, which no other scope can overrule.

``managed.toml`` and then ``managed.d/*.toml`` in alphabetical order; later files win, lists unite. Anything that makes
the policy uncertain (a file that does not parse, that others could have written) stops the start.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from pegboard.errors import PolicyError, UsageError
from pegboard.places import MANAGED_DIRS
from pegboard.settings_files import ABSENT, Layer, Problem, SettingsFile

_APART = ("lock", "recommended")
"""Parts of a managed file that are no settings of its mandatory level."""


class Managed:
    """The managed layers of one folder. Raises `PolicyError` when it cannot be relied on at the start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mandatory: list[Layer] = []
        """Highest first: the last file in the alphabet decides."""
        self.recommended: list[Layer] = []
        self.locks: list[tuple[str, Layer]] = []
        self.problems: list[Problem] = []
        self._files: list[SettingsFile] = []
        self._folders: tuple[tuple[int, ...] | None, ...] = ()
        self._load()

    def changed(self) -> bool:
        """Whether a file came, went or changed."""
        return self._folder_stamps() != self._folders or any(file.changed() for file in self._files)

    def read(self) -> bool:
        """Read again. A policy that cannot be read keeps its last good version in force, and is reported.

        Returns whether anything is different now.
        """
        before = (self._texts(), self.problems)
        try:
            self._load()
        except PolicyError as error:
            self.problems = [Problem(text=f"{error} The last good managed policy stays in force.")]
        return before != (self._texts(), self.problems)

    def lock_of(self, key: str) -> Layer | None:
        """The managed file that locks this key (by its name, a table around it, or ``*``), or None."""
        for locked, layer in self.locks:
            if locked == "*" or key == locked or key.startswith(f"{locked}."):
                return layer
        return None

    def _load(self) -> None:
        folders = self._folder_stamps()
        files = [SettingsFile("managed", path) for path in self._paths()] if folders[0] is not None else []
        for file in files:
            file.read()
        self.problems = self._broken(files)
        self._check_signatures(files)
        self._files, self._folders = files, folders
        layers = [file.layer for file in reversed(files) if file.problem is None]
        self.mandatory = [
            layer.part("managed", {name: value for name, value in layer.data.items() if name not in _APART})
            for layer in layers
        ]
        self.recommended = [
            layer.part("recommended", layer.data["recommended"], "recommended.")
            for layer in layers
            if isinstance(layer.data.get("recommended"), Mapping)
        ]
        self.locks = [lock for layer in layers for lock in self._locks_in(layer)]

    def _check_signatures(self, files: list[SettingsFile]) -> None:
        """Where ``managed.toml`` names a key, every drop-in must be signed with it. Nothing excuses a bad signature."""
        first = files[0] if files and files[0].path == str(self.folder / "managed.toml") else None
        for file in files:
            key = file.layer.get("managed.signing_key")
            if file is not first and key is not ABSENT:
                raise PolicyError(f"Managed policy {file.path} sets managed.signing_key; only managed.toml can.")
        key = first.layer.get("managed.signing_key") if first is not None else ABSENT
        if key in (ABSENT, ""):
            return
        from pegboard.signature import check

        for file in files[1:]:
            self._check_owner(Path(f"{file.path}.sig"))
            check(file.path, file.content, str(key))

    def _locks_in(self, layer: Layer) -> list[tuple[str, Layer]]:
        names = layer.get("lock")
        if names is ABSENT:
            return []
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return [(name, layer) for name in names]
        text = "lock takes a list of keys; until it is one, every key is locked."
        self.problems.append(Problem(text=text, source=layer.source, line=layer.line("lock"), key="lock"))
        return [("*", layer)]

    def _broken(self, files: list[SettingsFile]) -> list[Problem]:
        for file in files:
            file.problem = file.problem or _restriction_fault(file.layer)
        problems = [file.problem for file in files if file.problem is not None]
        sound = [file.layer for file in files if file.problem is None]
        if problems and not any(layer.get("managed.on_error") == "ignore" for layer in sound):
            raise PolicyError(f"Managed policy {problems[0]}. Nothing runs until this is repaired.")
        return problems

    def _paths(self) -> list[Path]:
        self._check_owner(self.folder)
        paths = [self.folder / "managed.toml"] if os.path.lexists(self.folder / "managed.toml") else []
        drop_ins = self.folder / "managed.d"
        try:
            if os.path.lexists(drop_ins):
                self._check_owner(drop_ins)
                names = sorted(name for name in os.listdir(drop_ins) if name.endswith(".toml") and name[0] != ".")
                paths += [drop_ins / name for name in names]
        except OSError as error:
            raise PolicyError(f"Managed policy {drop_ins} cannot be listed: {error.strerror}.") from None
        for path in paths:
            self._check_owner(path)
        return paths

    def _check_owner(self, path: Path) -> None:
        """Refuse what somebody else than the operator could have written. Test folders may belong to the user."""
        try:
            found = os.stat(path)
        except OSError as error:
            raise PolicyError(f"Managed policy {path} cannot be read: {error.strerror}.") from None
        if path == self.folder and not stat.S_ISDIR(found.st_mode):
            raise PolicyError(f"Managed policy {path} is not a folder.")
        if sys.platform == "win32":
            return
        owners = {0}
        if self.folder != MANAGED_DIRS.get(sys.platform, Path("/etc/peg")):
            owners.add(os.getuid())
        if found.st_uid not in owners:
            raise PolicyError(f"Managed policy {path} belongs to user {found.st_uid}; it must belong to root.")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PolicyError(f"Managed policy {path} can be written by others; run: chmod go-w {path}")

    def _folder_stamps(self) -> tuple[tuple[int, ...] | None, ...]:
        stamps: list[tuple[int, ...] | None] = []
        for folder in (self.folder, self.folder / "managed.d"):
            try:
                found = os.stat(folder)
                stamps.append((found.st_mtime_ns, found.st_ino))
            except (FileNotFoundError, NotADirectoryError):
                stamps.append(None)
                if folder is self.folder:
                    break
            except OSError as error:
                stamps.append((-(error.errno or 1),))
        return tuple(stamps)

    def _texts(self) -> list[tuple[str, object]]:
        return [(file.path, file.layer.data) for file in self._files]


def _restriction_fault(layer: Layer) -> Problem | None:
    """What makes the managed deny or ask rules of a file uncertain: a rule that cannot be read denies nothing."""
    for key in ("permissions.deny", "permissions.ask"):
        rules = layer.get(key)
        if rules is ABSENT:
            continue
        if not (isinstance(rules, list) and all(isinstance(rule, str) for rule in rules)):
            return Problem(text=f"{key} takes a list of rules", source=layer.source, line=layer.line(key), key=key)
        from pegboard.rules import parse_rule

        for rule in rules:
            try:
                parse_rule(rule, effect=key.rpartition(".")[2], scope="managed")
            except UsageError as error:
                return Problem(text=str(error), source=layer.source, line=layer.line(key, rule), key=key)
    return next(iter(layer.faults()), None)
