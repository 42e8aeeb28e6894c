"""What the tool needs to know of a command before it runs: the shell library's reading, in the tool's own questions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pegboard.tool import Access, AccessKind
from pegboard_shell.read import parse
from pegboard_shell.script import Script, Segment

if TYPE_CHECKING:
    from pegboard.tool import Context

MOVES = frozenset(("cd", "chdir", "pushd", "popd"))

GIT_CHANGES = frozenset((
    "am", "checkout", "cherry-pick", "clone", "commit", "fetch", "merge", "pull", "push", "rebase", "reset", "restore",
    "revert", "stash", "switch", "tag",
))  # fmt: skip
"""Commands of git that a result names."""

_GIT_VALUES = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path")
_GIT = re.compile(r"\bgit\b")


@dataclass(frozen=True)
class Reading:
    """A command, read."""

    accesses: tuple[Access, ...]
    """What it would touch; rules, questions and locks speak about these."""
    read_only: bool
    """Nothing remains of it."""
    readable: bool
    """Every part of it was seen."""
    last: str
    """The program whose exit code the command ends with, as far as that is known; ``git grep`` for one of git's."""
    moves: bool
    """It changes its directory."""
    stops_late: bool
    """At its timeout it is stopped instead of moved to the background."""
    leaves: bool
    """It starts something in the background."""
    edits: tuple[str, ...]
    """Paths that it is known to change."""
    git: str | None
    """Commands of git in it that change something."""


def read(command: str, ctx: Context) -> Reading:
    """Read a command as the session would run it."""
    return _read(command, str(ctx.cwd), str(ctx.home), tuple(map(str, ctx.roots)))


@lru_cache(maxsize=64)
def _read(command: str, cwd: str, home: str, roots: tuple[str, ...]) -> Reading:
    script = parse(command, cwd=cwd, home=home)
    accesses = [Access.run(segment.source) for segment in script.segments if segment.argv]
    for segment in script.segments:
        for redirect in segment.redirects:
            if redirect.writes and redirect.target is not None and segment.dirs:
                accesses.append(Access.edit(f"{segment.dirs[0]}/{redirect.target.text}"))
    judged = accesses
    read_only = False
    return Reading(
        accesses=tuple(judged),
        read_only=read_only,
        readable=script.readable,
        last=_last(script),
        moves=any(segment.name in MOVES for segment in script.segments),
        stops_late=_stops_late(script),
        leaves=any(segment.background for segment in script.segments),
        edits=tuple(access.target for access in judged if access.kind is AccessKind.EDIT),
        git=", ".join(dict.fromkeys(filter(None, map(_git, script.segments)))) or None,
    )


def _last(script: Script) -> str:
    segment = next((one for one in reversed(script.segments) if one.argv), None)
    if segment is None:
        return ""
    return f"git {_command(segment)}" if segment.name == "git" else segment.name


def _stops_late(script: Script) -> bool:
    """[D] A command that could not be read, one of git, which holds locks, and one that only waits; the last also where
    the waiting is a part of it, because nothing is lost then."""
    waits = any(segment.name == "sleep" for segment in script.segments)
    return not script.readable or waits or _GIT.search(script.command) is not None


def _git(segment: Segment) -> str:
    command = _command(segment) if segment.name == "git" else ""
    return command if command in GIT_CHANGES else ""


def _command(segment: Segment) -> str:
    """The command in a call of git: the first word that is neither an option nor an option's value."""
    words = iter(segment.argv[1:])
    for word in words:
        if word.text in _GIT_VALUES:
            next(words, None)
        elif not word.text.startswith("-"):
            return word.text
    return ""
