"""What the tool needs to know of a command before it runs: the shell library's reading, in the tool's own questions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

from pegboard.tool import Access, Context
from pegboard_shell.judge import Judgement, accesses, can_be_backgrounded
from pegboard_shell.places import hidden_from
from pegboard_shell.script import Script, Segment

MOVES = frozenset(("cd", "chdir", "pushd", "popd"))

GIT_CHANGES = frozenset((
    "am", "checkout", "cherry-pick", "clone", "commit", "fetch", "merge", "pull", "push", "rebase", "reset", "restore",
    "revert", "stash", "switch", "tag",
))  # fmt: skip
"""Commands of git that a result names."""

_GIT_VALUES = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path")

_readings: WeakKeyDictionary[Context, dict[str, Reading]] = WeakKeyDictionary()


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
    """Read a command as the session would run it; once for each call, so that what was judged is what runs."""
    known = _readings.setdefault(ctx, {})
    if command not in known:
        known[command] = _read(command, ctx)
    return known[command]


def _read(command: str, ctx: Context) -> Reading:
    judged = accesses(
        command,
        cwd=str(ctx.cwd),
        home=str(ctx.home),
        roots=tuple(map(str, ctx.roots)),
        trusted=ctx.trusted,
        hidden=hidden_from(
            lambda folder: ctx.read_denies(Path(folder)), lambda path: ctx.denied(Access.read(path)) is not None
        ),
    )
    return reading_of(judged)


def reading_of(judged: Judgement) -> Reading:
    """The tool's own questions, put to a judgement."""
    script = judged.script
    return Reading(
        accesses=judged.accesses,
        read_only=judged.reads_only,
        readable=script.readable,
        last=_last(script),
        moves=any(segment.name in MOVES for segment in script.segments),
        stops_late=_stops_late(script),
        leaves=any(segment.background for segment in script.segments),
        edits=judged.edits,
        git=", ".join(dict.fromkeys(filter(None, map(_git, script.segments)))) or None,
    )


def _last(script: Script) -> str:
    segment = next((one for one in reversed(script.segments) if one.argv), None)
    if segment is None:
        return ""
    return f"git {_command(segment)}" if segment.name == "git" else segment.name


def _stops_late(script: Script) -> bool:
    """[D] A command that could not be read, one of git, which holds locks, and one that waits. The last also where the
    waiting is only a part of it: what it starts beside that would live on for nothing."""
    waits = any(segment.name == "sleep" for segment in script.segments)
    return waits or not can_be_backgrounded(script.command)


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
