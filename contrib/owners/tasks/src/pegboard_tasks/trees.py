"""Process trees: everything that a command started, wherever it went, and how to end it.

A process group is left with `setsid`, a parent by forking twice. What stays with a process are the environment that it
was started in and the descriptors that it inherited, so each command has a mark in the one and a pipe among the other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio

MARKER = "PEG_RUN"
"""Variable that every process of a command inherits; its value is unique to the command."""

SESSION = "PEG_SESSION_ID"
"""Variable that every process of a session's commands inherits."""

_PROC = Path("/proc")
_POLL = 0.02
_ROUNDS = 5
"""Sweeps after SIGKILL; each finds what was forked while the last one was read."""


@dataclass(frozen=True)
class Proc:
    """One living process."""

    pid: int
    parent: int
    group: int
    session: int
    birth: int
    """Clock ticks after boot; with the pid it names a process for good."""
    name: str


def processes() -> list[Proc]:
    """Every living process of this machine. Zombies do not count."""
    if not _PROC.is_dir():
        return listed()
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(_PROC):
            if entry.name.isdigit() and (one := look(int(entry.name))) is not None:
                found.append(one)
    return found


def listed() -> list[Proc]:
    """The same from `ps`, for systems without /proc: without birth and session, so only group and descent are known."""
    try:
        done = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,comm="],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError:
        return []
    rows = (line.split(None, 4) for line in done.stdout.splitlines())
    return [
        Proc(int(row[0]), int(row[1]), int(row[2]), 0, 0, os.path.basename(row[4]))
        for row in rows
        if len(row) == 5 and not row[3].startswith("Z")
    ]


def look(pid: int) -> Proc | None:
    """One process, or None when it is gone or dead."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    return Proc(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), name)


def birth(pid: int) -> int:
    """When a process was started, in clock ticks after boot; 0 when that is not known."""
    found = look(pid)
    return found.birth if found is not None else 0


def group_lives(leader: int) -> bool:
    """Whether anything is left in a process group."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def alive(one: Proc) -> bool:
    """Whether this very process still lives."""
    if not one.birth:
        return any(now.pid == one.pid and now.group == one.group for now in listed())
    now = look(one.pid)
    return now is not None and now.birth == one.birth


@dataclass
class Tree:
    """What a command started, by everything that can tell: group, session, descent, a mark, an inherited pipe."""

    mark: str
    """``NAME=value`` in the environment of each of its processes."""
    leader: int = 0
    """Its process group and session; 0 = that number may be somebody else's by now."""
    since: int = 0
    """Birth of the first of them; older processes are not looked at."""
    pipe: str = ""
    """A pipe that each of them inherits, as /proc names it."""

    def members(self) -> list[Proc]:
        """Its living processes."""
        own = {os.getpid(), os.getppid()}
        every = [one for one in processes() if (one.birth >= self.since or not one.birth) and one.pid not in own]
        found = {one.pid: one for one in every if self._holds(one)}
        grew = bool(found)
        while grew:
            more = {one.pid: one for one in every if one.pid not in found and one.parent in found}
            found |= more
            grew = bool(more)
        return list(found.values())

    def _holds(self, one: Proc) -> bool:
        if self.leader and self.leader in (one.group, one.session):
            return True
        place = _PROC / str(one.pid)
        try:
            if self.mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                return True
        except OSError:
            return False
        return bool(self.pipe) and self._inherited(place / "fd")

    def _inherited(self, folder: Path) -> bool:
        """Whether a process has the pipe. It stays with one that was started with an empty environment."""
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                with contextlib.suppress(OSError):
                    if os.readlink(folder / name) == self.pipe:
                        return True
        return False

    def send(self, number: int, found: list[Proc]) -> None:
        """Send a signal to the group and to these processes. What is gone already is no error."""
        if self.leader:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.leader, number)
        for one in found:
            if one.group != self.leader:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(one.pid, number)

    async def end(self, grace: float, ask: Callable[[], bool] | None = None) -> list[Proc]:
        """End all of it: SIGTERM, up to ``grace`` seconds, SIGKILL. Returns what was found at the beginning.

        ``ask`` says SIGTERM in another way and tells whether it could: a box must not hear it before what runs inside.
        """
        found = first = self.members()
        if ask is None or not ask():
            self.send(signal.SIGTERM, found)
        self.send(signal.SIGCONT, found)  # a stopped process hears the other signal when it goes on
        limit = time.monotonic() + grace
        while found and time.monotonic() < limit:
            await anyio.sleep(_POLL)
            found = [one for one in found if alive(one)] or self.members()
        for _ in range(_ROUNDS):
            self.send(signal.SIGKILL, found)
            found = self.members()
            if not found:
                break
            await anyio.sleep(_POLL)
        return first
