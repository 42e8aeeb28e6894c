"""From the plan of a box to mounts, few and in order of depth: a folder opened inside a locked one stays open.

What is hidden comes last and covers everything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pegboard.paths import inside
from pegboard_boxes.plan import Plan

VEILED = ("/run", "/tmp", "/var/run", "/var/tmp", "/dev", "/proc")
"""Folders that every box replaces."""

KEPT = ("/run/current-system", "/run/opengl-driver", "/run/booted-system", "/run/wrappers")
"""What some systems need of the folders that are replaced."""


def installation() -> list[str]:
    """Folders of this interpreter and of the installed packages that lie in a replaced folder.

    They stay readable: what the product itself starts inside a box (and the interpreter that runs it) is found there.
    """
    kept: list[str] = []
    for path in sorted({sys.prefix, sys.base_prefix, *sys.path}):
        if os.path.isabs(path) and os.path.isdir(path) and inside(path, VEILED) and not inside(path, kept):
            kept.append(path)
    return kept


@dataclass(frozen=True)
class Sealed:
    """What is mounted over what is hidden: nothing in it, and for rules of the user not even that."""

    blank: str
    empty: str
    closed: str
    none: str

    def over(self, folder: bool, hard: bool) -> str:
        """What to mount over a hidden path; ``hard``: it cannot even be opened."""
        if hard:
            return self.closed if folder else self.none
        return self.blank if folder else self.empty

    @classmethod
    def make(cls, folder: Path) -> Sealed:
        """Make the four of them in a folder."""
        found = cls(*(str(folder / name) for name in ("blank", "empty", "closed", "none")))
        for path, mode in ((found.blank, 0o555), (found.closed, 0o000)):
            os.mkdir(path)
            os.chmod(path, mode)
        for path, mode in ((found.empty, 0o444), (found.none, 0o000)):
            Path(path).touch()
            os.chmod(path, mode)
        return found


def mounts(plan: Plan, sealed: Sealed) -> Iterator[str]:
    """The mounts as words for bubblewrap."""
    steps = [(path, "--bind") for path in (*plan.writable, *plan.opened, *plan.own)]
    steps += [(path, "--ro-bind") for path in plan.locked]
    hidden = plan.hidden.keys()
    for path, how in sorted(steps, key=lambda step: (step[0].count("/"), step[1] != "--bind", step[0])):
        if not inside(path, hidden):
            yield from (how, path, path)
    for path in plan.ghosts:
        yield from ("--ro-bind", sealed.blank, path)
    for path, hard in sorted(plan.hidden.items()):
        if not inside(os.path.dirname(path), hidden - {path}):
            folder = os.path.isdir(path)
            yield from ("--ro-bind", sealed.over(folder, hard), path)
