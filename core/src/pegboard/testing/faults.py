"""Runs of `peg` that die: forked from one warm process, and killed at any point at which they touch the world.

A point is a step of the pipeline, an effect, a write (before it, and with half of it done), or a change of a folder:
making, renaming, linking, removing. Points count what lies in the run's own folder, so the same run has the same
points each time.

    with Stage(room) as stage:
        whole = stage.run(["-p", "go"], env)             # whole.points: how many there are, whole.trail: what they are
        stage.run(["-p", "go"], env, Fault("kill", 17))  # SIGKILL at the seventeenth
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

Kind = Literal["kill", "half", "full", "sync"]
"""``kill``: SIGKILL before the point. ``half``: the same, with half of a write done. ``full``: from the point on the
disk is full. ``sync``: from the point on nothing can be forced to the disk."""

TRAIL = 1 << 20
"""Bytes for the names of the points of one run."""

_CHANGES = {"os.rename", "os.link", "os.symlink", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and at which point (from 1)."""

    kind: Kind
    at: int


@dataclass
class Ended:
    """How a run ended. ``code`` is the exit code, or minus the signal."""

    code: int
    out: str
    err: str
    trail: list[str] = field(repr=False, default_factory=list)
    """The points that were reached, by name."""

    @property
    def points(self) -> int:
        """How many points were reached."""
        return len(self.trail)


class Stage:
    """A warm process that forks a `peg` for every run. ``room`` holds the working folder ``work`` and the homes."""

    def __init__(self, room: Path) -> None:
        self.room = Path(os.path.realpath(room))
        self.work = self.room / "work"
        self.work.mkdir(exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        argv = [sys.executable, "-m", "pegboard.testing.faults", str(self.room)]
        home = {"HOME": str(self.room), "PEG_HOME": str(self.room / "none")}
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **home}, cwd=self.room
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()

    def run(
        self, args: Sequence[str], env: Mapping[str, str], fault: Fault | None = None, *, seconds: float | None = None
    ) -> Ended:
        """Run `peg` with these arguments in the working folder; ``seconds``: SIGKILL it then, wherever it is."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        asked: dict[str, Any] = {"args": list(args), "env": dict(env), "seconds": seconds}
        if fault is not None:
            asked |= {"kind": fault.kind, "at": fault.at}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        said = [(self.room / name).read_text("utf-8", "replace") for name in ("stdout", "stderr")]
        return Ended(os.waitstatus_to_exitcode(answer["status"]), said[0], said[1], answer["trail"])


class _Points:
    """Counts points in memory that outlives the process, and makes the fault happen at its own."""

    def __init__(self, room: str, shared: mmap.mmap, kind: str, at: int) -> None:
        self._room = room
        self._shared = shared
        self._kind = kind
        self._at = at
        self._count = 0
        self._end = 8

    @property
    def reached(self) -> bool:
        """Whether the fault's point was passed."""
        return bool(self._at) and self._count >= self._at

    def point(self, name: str) -> None:
        """One more point. Does not return when it is the one to die at."""
        self._count += 1
        entry = name.encode("utf-8", "replace")[:200] + b"\n"
        if self._end + len(entry) <= TRAIL:
            self._shared[self._end : self._end + len(entry)] = entry
            self._end += len(entry)
        self._shared[:8] = struct.pack("q", self._end)
        if self._count == self._at and self._kind in ("kill", "half"):
            os.kill(os.getpid(), signal.SIGKILL)

    def fail(self, name: str) -> None:
        """A point of something that changes the disk. Raises OSError on a full one."""
        self.point(name)
        if self._kind == "full" and self.reached:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def heard(self, event: str, given: tuple[Any, ...]) -> None:
        """An audit event."""
        if event == "open":
            path, _, flags = given
            if isinstance(flags, int) and flags & _WRITES and self._ours(path):
                self.fail(f"open {_short(path)}")
        elif event in _CHANGES and any(self._ours(path) for path in given):
            if event in ("os.remove", "os.rmdir", "os.chmod", "os.truncate"):
                self.point(f"{event} {_short(given[0])}")  # these need no room
            else:
                self.fail(f"{event} {_short(given[0])}")
        elif event == "pegboard.effect":
            self.point(f"effect {given[0]} {_short(given[1])} {given[2]}")

    def _ours(self, path: Any) -> bool:
        text = os.fsdecode(path) if isinstance(path, str | bytes) else ""
        return bool(text) and (text.startswith(self._room) or not text.startswith("/")) and "__pycache__" not in text

    def write(self, real: Callable[[int, Any], int], handle: int, data: Any) -> int:
        """In place of `os.write`: a point before it, and one with half of it done."""
        target = _target(handle)
        if not target.startswith(self._room) or target.endswith(("/stdout", "/stderr")):
            return real(handle, data)
        self.fail(f"write {_short(target)}")
        if self._kind == "half" and self._at == self._count + 1:
            real(handle, memoryview(data)[: len(data) // 2])
        self.point(f"half {_short(target)}")
        return real(handle, data)

    def sync(self, real: Callable[[int], None], handle: int) -> None:
        """In place of `os.fsync`."""
        self.point(f"sync {_short(_target(handle))}")
        if self._kind == "sync" and self.reached:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(handle)

    def step(self, real: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A step of the pipeline with a point before it."""

        @functools.wraps(real)
        async def counted(state: Any) -> None:
            self.point(f"step {real.__name__} {state.call.tool}")
            await real(state)

        return counted


def _target(handle: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return ""


def _short(path: Any) -> str:
    return os.path.basename(os.fsdecode(path)) if isinstance(path, str | bytes) else str(path)


def _install(points: _Points) -> None:
    from pegboard import pipeline

    sys.addaudithook(points.heard)
    os.write = functools.partial(points.write, os.write)
    os.fsync = functools.partial(points.sync, os.fsync)
    pipeline.BEFORE = tuple(map(points.step, pipeline.BEFORE))
    pipeline.DURING = tuple(map(points.step, pipeline.DURING))


def _warm() -> None:
    """Import what a run needs, once for all of them; nothing here starts a thread."""
    import pydantic  # noqa: F401

    import pegboard.agent
    import pegboard.cli.call
    import pegboard.cli.rewind
    import pegboard.cli.run
    import pegboard.cli.sessions
    import pegboard.session  # noqa: F401
    from pegboard.cli.start import start
    from pegboard.errors import PegError

    registry = start().registry
    for name in registry.tools():
        try:
            registry.load_tool(name)
        except PegError:
            continue


def _child(room: str, shared: mmap.mmap, asked: dict[str, Any]) -> None:
    from pegboard import cli

    os.setsid()
    os.chdir(Path(room) / "work")
    os.environ.clear()
    os.environ.update(asked["env"])
    for number, name in ((0, os.devnull), (1, f"{room}/stdout"), (2, f"{room}/stderr")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        os.dup2(os.open(name, flags, 0o600), number)
    sys.argv = ["peg", *asked["args"]]
    sys.dont_write_bytecode = True  # what is compiled here would be cut, or counted, only once
    _install(_Points(room, shared, asked.get("kind", ""), asked.get("at", 0)))
    cli.main()


def _serve(room: str) -> None:
    """Fork a run for each line of stdin; answer how it ended."""
    _warm()
    gc.freeze()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    shared = mmap.mmap(-1, TRAIL)
    for line in requests:
        asked = json.loads(line)
        shared[:8] = struct.pack("q", 8)
        child = os.fork()
        if child == 0:
            try:
                _child(room, shared, asked)
            finally:
                os._exit(70)
        if asked["seconds"] is not None:
            _wait(child, asked["seconds"])
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it had started goes too, as on a machine that was switched off
        end = struct.unpack("q", shared[:8])[0]
        trail = bytes(shared[8:end]).decode("utf-8", "replace").splitlines()
        answers.write(json.dumps({"status": status, "trail": trail}).encode() + b"\n")
        answers.flush()


def _wait(child: int, seconds: float) -> None:
    import select

    handle = os.pidfd_open(child)
    try:
        if not select.select([handle], [], [], seconds)[0]:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(handle)


if __name__ == "__main__":
    _serve(sys.argv[1])
