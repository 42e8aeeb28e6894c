"""The tool contract: four methods, the accesses they declare, and the small Context they get.

A tool never decides and never reports success: it declares what it would touch, does it under the ledger, and
returns a value of its output model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pegboard.call import Block, DecidedBy, Effect, EffectKind, Ledger
from pegboard.errors import Code, Refusal

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pegboard.events import Origin
    from pegboard.policy import Snapshot
    from pegboard.process import Process
    from pegboard.sandbox import Sandbox
    from pegboard.session import Session
    from pegboard.state import Owner
    from pegboard.toolbox import Toolbox

I = TypeVar("I", bound="BaseModel")
O = TypeVar("O", bound="BaseModel")
W = TypeVar("W", bound="Owner")
R = TypeVar("R")

Blocks = list[Block]


class Concurrency(StrEnum):
    """Which calls of one message may run beside this one."""

    READ = "read"
    """Together with others, at most ten at once."""
    WRITE = "write"
    """One after the other, in the order of the message."""
    SESSION = "session"
    """Alone; later calls of the message see the new session state."""
    SPAWN = "spawn"
    """Started together with other spawns and reads."""


class AccessKind(StrEnum):
    """What a call would do to a target."""

    READ = "read"
    EDIT = "edit"
    RUN = "run"
    FETCH = "fetch"
    USE = "use"


Grade = Literal["", "reads", "edits", "doubt", "risk", "blind", "part", "mention"]
"""Of a command: ``reads`` and ``edits`` say that it does nothing else, and to nothing but the paths that are accesses
of the same call; ``doubt``: a part of it is decided only when it runs; ``risk``: always asked about; ``blind``: it
could not be read whole. Of a path: ``part`` is asked about with its command, ``mention`` is only named in one."""


@dataclass(frozen=True)
class Access:
    """One thing a call would touch. Rules match on it, locks are taken on it, the question shows it."""

    kind: AccessKind
    target: str
    """An absolute path, a command segment, a host, or a name."""
    grade: Grade = ""
    """What is known about it beyond its target."""
    why: str = ""
    """For ``doubt``, ``risk`` and ``blind``: what is not known or dangerous, in half a sentence."""
    also: tuple[str, ...] = ()
    """Other spellings of a command, which deny and ask rules match too: without its wrappers, quotes, assignments."""
    head: str | None = None
    """The certain beginning of a command that goes on with what is made when it runs; None: all of it is certain."""

    @classmethod
    def read(cls, path: str | Path) -> Access:
        """The call reads this absolute path, or everything below it."""
        return cls(AccessKind.READ, str(path))

    @classmethod
    def edit(cls, path: str | Path) -> Access:
        """The call creates, changes or removes this absolute path. Implies reading it."""
        return cls(AccessKind.EDIT, str(path))

    @classmethod
    def run(cls, command: str) -> Access:
        """The call runs this command."""
        return cls(AccessKind.RUN, command)

    @classmethod
    def fetch(cls, host: str) -> Access:
        """The call contacts this host."""
        return cls(AccessKind.FETCH, host)

    @classmethod
    def use(cls, name: str) -> Access:
        """The call uses something by name: a skill, a server, a job, a list of its own."""
        return cls(AccessKind.USE, name)


@dataclass(frozen=True)
class Launched(Generic[O]):
    """What ``run`` returns when the work goes on after the call: a task was created, its work is not done."""

    output: O


class Context:
    """What a tool sees while its call runs. Small on purpose: it is not the session."""

    def __init__(
        self,
        session: Session,
        *,
        call_id: str,
        tool: str,
        ledger: Ledger,
        snapshot: Snapshot,
        agent: str = "main",
    ) -> None:
        self._session = session
        self._ledger = ledger
        self._snapshot = snapshot
        self.call_id = call_id
        self.tool = tool
        self.agent = agent
        """Id of the calling agent; ``main`` for the first."""
        self.box: Sandbox | None = None
        """The box that processes of this call run in; set by the pipeline."""
        self.seconds = 0.0
        """How long the tool ran, without checks, questions and hooks."""
        self.notes: list[str] = []
        self.attachments: list[str] = []

    @property
    def cwd(self) -> Path:
        """The session's directory. Relative paths in an input have been made absolute against it already."""
        return self._session.cwd

    @property
    def key(self) -> str:
        """Idempotency key for remote services: the same for the same call of the same session."""
        return f"{self._session.id}-{self.call_id}"

    @property
    def roots(self) -> tuple[Path, ...]:
        """The working directories of the session; the first is where it started."""
        return self._session.roots

    @property
    def trusted(self) -> bool:
        """Whether the workspace is trusted."""
        return self._session.trusted

    @property
    def home(self) -> Path:
        """The user's home folder."""
        return self._session.places.home

    async def move(self, path: Path) -> None:
        """Move the session to another directory; it is written down, and whoever listens is told."""
        await self._session.move(path, self.tool)

    @property
    def toolbox(self) -> Toolbox:
        """The tools of this session, for a tool that is about tools."""
        return self._session.toolbox

    def setting(self, name: str) -> Any:
        """The value of a setting that the tool's manifest (or the core) declares, e.g. ``"read.max_tokens"``."""
        return self._session.settings.value(name)

    async def own(self, owner: type[W]) -> W:
        """The owner of this type; the same object for every tool in its scope."""
        return await self._session.owners.get(owner, self._session.place(self.agent))

    def effect(self, kind: EffectKind | str, target: str | Path, detail: str = "") -> AbstractContextManager[Effect]:
        """Open an effect right before the first irreversible step.

        Leave the block when it is certain that it happened; call ``undone()`` on the effect when it is certain
        that it did not. Whatever is open when ``run`` fails counts as "may have happened".
        """
        return self._ledger.effect(kind, str(target), detail)

    def contact(self, host: str) -> None:
        """Record that the call talked to a host. A privacy record, not an effect."""
        self._ledger.contacts.append(host)

    async def progress(self, text: str) -> None:
        """Tell the host, not the model, how far the call is."""
        await self._session.progress(self.call_id, self.tool, text)

    def note(self, text: str) -> None:
        """Add a notice below the result that the model reads."""
        self.notes.append(text)

    def say(self, text: str, *, author: str, origin: Origin = "skill") -> None:
        """Put a text of its own behind all results of the batch, framed with its author; never human speech."""
        from pegboard.events import UserText

        self._session.post(UserText(content=[{"type": "text", "text": text}], author=author, origin=origin), self.agent)

    def attach(self, name: str, data: str | bytes) -> Path:
        """Keep output beside the transcript (``tool-output/``) and list its path in the outcome."""
        path = self._session.store_output(f"{self.call_id}-{name}", data)
        self.attachments.append(str(path))
        return path

    async def process(
        self, argv: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None, stdin: bytes | None = None
    ) -> Process:
        """Start a program in a process group of its own; the whole tree dies when the call is aborted.

        ``env=None`` gives the session's child environment, which holds no provider keys. Use the result as an async
        context manager.
        """
        from pegboard.process import Process

        given = env if env is not None else self._session.child_env()
        if self.box is not None:
            argv, given = self.box.wrap(argv, given)
        return await Process.start(argv, cwd=cwd or self.cwd, env=given, stdin=stdin, box=self.box)

    async def thread(self, work: Callable[..., R], *args: Any) -> R:
        """Run blocking work in a thread. On abort the call stops waiting; the work itself runs to its end."""
        import anyio.to_thread

        return await anyio.to_thread.run_sync(work, *args, abandon_on_cancel=True)

    def denied(self, access: Access) -> DecidedBy | None:
        """The deny rule that covers this access, or None. For tools that must leave denied files out of a view."""
        return self._snapshot.denied(self.tool, access)

    def refuse_denied(self, access: Access) -> None:
        """Raise `Refusal` (denied_by_rule) if a deny rule covers this access."""
        decision = self.denied(access)
        if decision is not None:
            self._snapshot.refuse(self.tool, access, decision)

    def reads_freely(self, path: str | Path) -> bool:
        """Whether a Read of this path would pass without a question."""
        from pegboard import policy
        from pegboard.manifest import API, Manifest

        reading = Manifest(name="Read", summary="", api=API, concurrency="read", ask=False)
        judged = policy.resolve_accesses([Access.read(path)], self._snapshot)
        return policy.decide(reading, {"file_path": str(path)}, judged, self._snapshot).verdict == "allow"

    def read_denies(self, root: Path) -> list[str]:
        """Globs in gitignore syntax, relative to ``root``, of what Read deny rules hide below it."""
        return self._snapshot.read_deny_globs(root)

    def shown(self, path: str | Path) -> str:
        """A path as people read it: relative to the session directory when inside it."""
        try:
            return str(Path(path).relative_to(self.cwd)) or "."
        except ValueError:
            return str(path)


class Tool(Generic[I, O]):
    """One tool. Its manifest (`tool.toml`) is data beside the class; the class is imported at the first call.

    ``I`` and ``O`` are pydantic models derived from `pegboard.model.Input` and `pegboard.model.Output`.
    """

    Input: type[I]
    Output: type[O]

    async def check(self, input: I, ctx: Context) -> None:
        """Refuse what cannot work. No effects, no questions. Called before the permission question and before run."""

    def accesses(self, input: I, ctx: Context) -> Iterable[Access]:
        """What this call would touch. A writing tool that returns none is asked about by its bare name."""
        return ()

    async def run(self, input: I, ctx: Context) -> O | Launched[O]:
        """Do it. Raise `Refusal` for what the model can act on; open an effect before the first irreversible step."""
        raise Refusal(Code.NOT_AVAILABLE, f"{type(self).__name__} has no run method.")

    def render(self, output: O, ctx: Context) -> str | Blocks:
        """The text (or content blocks) that the model reads."""
        return str(output)
