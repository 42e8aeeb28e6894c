"""Runs: the registry of what goes on beside the conversation - commands, agents, workflows, calls of servers.

The registry is the fact: a status comes from how the work ended, never from what it printed. Each end is told once, as
a machine's message that has nobody's authority.
"""

from __future__ import annotations

import codecs
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import anyio
import anyio.to_thread
import msgspec
from pegboard.errors import Code, Refusal
from pegboard.events import Event, UserText
from pegboard.state import JSON, Owner, Place, Scope

from pegboard_tasks import trees
from pegboard_tasks.shell import Shell
from pegboard_tasks.sink import CAP, MOST, Sink, decoded

if TYPE_CHECKING:
    from pegboard.sandbox import Sandbox
    from pegboard.session import Session

Kind = Literal["shell", "agent", "workflow", "mcp"]
Status = Literal["running", "completed", "failed", "stopped"]

GRACE = 5.0
"""[C] Seconds between SIGTERM and SIGKILL."""

LAST_GRACE = 1.0
"""[C] The same at the end of the session, which nobody wants to wait for."""

READ_BACK = 32_000
"""[S] Characters of output that are read back at once, if not asked otherwise."""

PATIENCE: dict[Kind, float] = {"shell": 5.0, "agent": 600.0, "workflow": 600.0, "mcp": 5.0}
"""[D] Seconds that a headless run waits for work of this kind after its final result."""


class Run(msgspec.Struct, kw_only=True):
    """One piece of background work."""

    id: str
    kind: Kind
    description: str
    agent: str = "main"
    """The agent that began it, and that is told of its end."""
    call: str = ""
    """The call that began it."""
    status: Status = "running"
    mark: str = ""
    """What each of its processes carries in its environment; empty for work inside this program."""
    output: str = ""
    """Path of its output; the file is closed when the run has ended."""
    size: int = 0
    """Bytes of output, once it has ended."""
    started: float
    """Seconds since the epoch, as ``ended``."""
    ended: float = 0.0
    exit_code: int | None = None
    reason: str = ""
    """Why it failed or was stopped."""

    @property
    def running(self) -> bool:
        return self.status == "running"


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How a piece of work ended, as the work itself says it."""

    status: Status
    exit_code: int | None = None
    reason: str = ""


class RunChanged(Event, tag="run"):
    """A background run began or ended; shown, and told to hooks. The transcript has it as the owner's state."""

    run: Run

    def line(self) -> dict[str, Any]:
        run = self.run
        told: dict[str, Any] = {"task_id": run.id, "task_type": run.kind, "description": run.description}
        if run.running:
            return {"subtype": "task_started", **told}
        told |= {"status": run.status, "exit_code": run.exit_code, "output_file": run.output, "summary": said(run)}
        return {"subtype": "task_notification", **told}


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a run's output."""

    text: str
    start: int
    """Bytes before it."""
    end: int
    """Where to read on."""
    size: int
    """Bytes of the file now."""


Work = Callable[[Run], Awaitable[End]]
"""What a run does. Cancelled when the run is stopped; it then ends what it started before it lets go."""

Listed = list[Run]


class Runs(Owner):
    """The background runs of one session, of all its agents."""

    scope = Scope.SESSION

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._runs: dict[str, Run] = {}
        self._news: set[str] = set()
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._ends: dict[str, anyio.Event] = {}
        self._why: dict[str, str] = {}
        self._noted = False
        """The transcript says that commands were run, so that a resumed session looks for what is left of them."""
        self._closing = False

    @classmethod
    async def open(cls, place: Place) -> Self:
        return cls(place.session, place.session_dir / "tool-output")

    @property
    def grace(self) -> float:
        """Seconds that a stopped process has to end by itself."""
        return LAST_GRACE if self._closing else GRACE

    @property
    def possible(self) -> bool:
        """Whether work can go on beside the conversation."""
        return self._session.entered and not self._closing

    # -- for tools ---------------------------------------------------------------------------------------------------

    def sink(self, name: str, *, cap: int = CAP, most: int = MOST) -> Sink:
        """A place for output in the session's folder; no file is made yet."""
        safe = "".join(char if char.isalnum() or char in "._-" else "_" for char in name)[-120:]
        path, number = self._folder / f"{safe}.txt", 1
        while path.exists():  # ids of calls repeat where a session is used by several programs, one after the other
            number += 1
            path = self._folder / f"{safe}-{number}.txt"
        return Sink(path, cap=cap, most=most)

    def shell(self, command: str, sink: Sink, *, cwd: Path, box: Sandbox | None = None) -> Shell:
        """Start a command in this session's child environment, in a box if there is one. Raises `Refusal`."""
        if not self._noted:
            self._noted = self.dirty = True
            self._session.save_state()
        env = self._session.child_env()
        return Shell.start(command, cwd=cwd, env=env, sink=sink, session=self._session.id, box=box)

    def new_id(self, kind: Kind) -> str:
        """An id for a run that is about to begin."""
        while (made := f"{kind[0]}{secrets.token_hex(4)}") in self._runs:
            pass
        return made

    def launch(
        self,
        kind: Kind,
        description: str,
        work: Work,
        *,
        id: str = "",
        agent: str = "main",
        call: str = "",
        output: str | Path = "",
        mark: str = "",
        started: float = 0.0,
    ) -> Run:
        """Begin a run and return at once. Raises `Refusal` (not_available) where no work can go on beside the calls."""
        if not self.possible:
            raise Refusal(Code.NOT_AVAILABLE, "Nothing can be run in the background here: the session is ending.")
        run = Run(
            id=id or self.new_id(kind),
            kind=kind,
            description=description,
            agent=agent,
            call=call,
            mark=mark,
            output=str(output),
            started=started or time.time(),
        )
        self._runs[run.id] = run
        self._ends[run.id] = anyio.Event()
        self._scopes[run.id] = anyio.CancelScope()
        self._changed(run)
        self._session.background(self._carry, run, work)
        return run

    def get(self, id: str) -> Run | None:
        """The run of this id, whatever became of it; also by the id of the call that began it."""
        return self._runs.get(id) or next((run for run in reversed(self._runs.values()) if run.call == id), None)

    def list(self, *, agent: str | None = None, running: bool | None = None) -> Listed:
        """Runs in the order of their start: all, those of one agent, those that still run or have ended."""
        return [
            run
            for run in self._runs.values()
            if (agent is None or run.agent == agent) and (running is None or run.running == running)
        ]

    async def stop(self, id: str, reason: str = "it was stopped") -> Run | None:
        """Stop a run and everything it started; returns when it has ended. None for an unknown id."""
        run = self._runs.get(id)
        if run is not None and run.running and id in self._scopes:
            self._why.setdefault(id, reason)
            self._scopes[id].cancel()
            await self._ends[id].wait()
        return run

    async def wait(self, id: str, seconds: float | None = None) -> Run | None:
        """Wait until a run has ended, at most so many seconds; its state then tells. None for an unknown id."""
        run = self._runs.get(id)
        if run is not None and run.running and id in self._ends:
            with anyio.move_on_after(seconds):
                await self._ends[id].wait()
        return run

    async def output(self, id: str, *, offset: int | None = None, limit: int = READ_BACK) -> Piece:
        """A part of a run's output: from byte ``offset``, or the last of it. At most ``limit`` characters.

        Raises `Refusal`: not_found for an unknown id, io_error when the file cannot be read.
        """
        run = self._runs.get(id)
        if run is None:
            raise Refusal(Code.NOT_FOUND, f"There is no background task {id}.")
        try:
            return await anyio.to_thread.run_sync(_piece, run.output, offset, limit)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Refusal(Code.IO_ERROR, f"The output of {id} ({run.output}) cannot be read: {reason}.") from None

    async def end_agent(self, agent: str, reason: str = "the agent that began it has ended") -> None:
        """Stop everything that one agent began. Called for a subagent that somebody waited for."""
        async with anyio.create_task_group() as tasks:
            for run in self.list(agent=agent, running=True):
                tasks.start_soon(self.stop, run.id, reason)

    async def linger(self) -> None:
        """Wait for what still runs, each as long as its kind deserves. For the end of a headless run."""
        for kind, seconds in sorted(PATIENCE.items(), key=lambda item: item[1]):
            with anyio.move_on_after(seconds):
                for run in self.list(running=True):
                    if run.kind == kind:
                        await self.wait(run.id)

    # -- the work ----------------------------------------------------------------------------------------------------

    async def _carry(self, run: Run, work: Work) -> None:
        scope, end = self._scopes[run.id], End(status="stopped", reason="the session ended")
        await self._told(run)
        try:
            with scope:
                try:
                    end = await work(run)
                except Exception as error:
                    end = End(status="failed", reason=" ".join(str(error).split()) or type(error).__name__)
            if scope.cancelled_caught:
                end = End(status="stopped", exit_code=end.exit_code, reason=self._why.get(run.id, "it was stopped"))
        finally:
            with anyio.CancelScope(shield=True):
                await self._ended(run, end)

    async def _ended(self, run: Run, end: End) -> None:
        run.status, run.exit_code, run.reason, run.ended = end.status, end.exit_code, end.reason, time.time()
        run.size = _size(run.output)
        self._scopes.pop(run.id, None)
        self._changed(run)
        if not self._closing:
            self._session.post(notice(said(run), author=run.id), run.agent)
        self._ends[run.id].set()
        await self._told(run)

    def _changed(self, run: Run) -> None:
        self._news.add(run.id)
        self.dirty = True
        self._session.save_state()

    async def _told(self, run: Run) -> None:
        await self._session.tell(RunChanged(run=run))

    # -- the owner's life --------------------------------------------------------------------------------------------

    def remember(self) -> JSON | None:
        news, self._news = self._news, set()
        return {key: msgspec.to_builtins(self._runs[key]) for key in sorted(news)}

    def recall(self, saved: JSON) -> None:
        for key, data in saved.items():
            self._runs[key] = msgspec.convert(data, Run)

    async def resumed(self) -> None:
        """End what still lives of an earlier process of this session, and tell once of what it did not see end."""
        self._noted = True
        await trees.Tree(f"{trees.SESSION}={self._session.id}").end(LAST_GRACE)
        lost = self.list(running=True)
        for run in lost:
            run.status, run.reason = "stopped", "the program that ran it ended"
            run.ended, run.size = time.time(), _size(run.output)
            self._changed(run)
        if lost:
            self._session.post(notice(_collapsed(lost, "the program that ran them ended"), author="tasks"))

    async def close(self) -> None:
        """Stop everything that still runs, whole trees; the one message about it waits for a resumed session."""
        self._closing = True
        left = self.list(running=True)
        if left:
            async with anyio.create_task_group() as tasks:
                for run in left:
                    tasks.start_soon(self.stop, run.id, "the session ended")
        stopped = [run for run in left if run.status == "stopped"]
        for run in left:
            if run not in stopped:
                self._session.post(notice(said(run), author=run.id), run.agent)
        if stopped:
            self._session.post(notice(_collapsed(stopped, "the session ended"), author="tasks"))


def notice(text: str, *, author: str) -> UserText:
    """A message about a run: made by a machine, with nobody's authority."""
    return UserText(content=[{"type": "text", "text": text}], origin="task-notification", author=author)


def said(run: Run) -> str:
    """The end of a run in words."""
    how = {"completed": "completed", "failed": "failed", "stopped": "was stopped"}.get(run.status, run.status)
    code = f" with exit code {run.exit_code}" if run.exit_code is not None else ""
    lines = [f"Background task {run.id} ({run.kind}: {_short(run.description)}) {how}{code}."]
    if run.reason:
        lines.append(f"Reason: {run.reason}.")
    lines.append(f"It ran for {max(0.0, run.ended - run.started):.1f} s.")
    if run.output:
        lines.append(f"Output ({run.size:,} bytes): {run.output}")
    return "\n".join(lines)


def _collapsed(runs: list[Run], reason: str) -> str:
    tasks = "1 background task was" if len(runs) == 1 else f"{len(runs)} background tasks were"
    lines = [f"{tasks} stopped, because {reason}:"]
    lines += [f"- {run.id} ({run.kind}: {_short(run.description)})" + _where(run) for run in runs[:20]]
    if len(runs) > 20:
        lines.append(f"- and {len(runs) - 20} more")
    return "\n".join(lines)


def _where(run: Run) -> str:
    return f", output so far: {run.output}" if run.output else ""


def _short(text: str, most: int = 120) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size if path else 0
    except OSError:
        return 0


def _piece(path: str, offset: int | None, limit: int) -> Piece:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = max(0, size - 4 * limit) if offset is None else min(max(0, offset), size)
        file.seek(start)
        raw = file.read(4 * limit if offset is None else limit)
    if offset is None:
        text = decoded(raw, start=start == 0, end=True)[-limit:]
        return Piece(text=text, start=max(0, size - len(text.encode("utf-8", "replace"))), end=size, size=size)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(raw)
    return Piece(text=text, start=start, end=start + len(raw) - len(decoder.getstate()[0]), size=size)


def state_of(states: list[dict[str, Any]]) -> list[Run]:
    """The runs of a session from the records of its transcript, oldest first."""
    from pegboard.state import owner_name

    found: dict[str, Any] = {}
    for pieces in states:
        found |= pieces.get(owner_name(Runs), {})
    return [msgspec.convert(data, Run) for data in found.values()]
