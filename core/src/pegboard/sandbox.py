"""What a process needs of a box, what a box is, and how a session comes to one: Need, Sandbox, Boxes.

The boxes themselves are plug-ins of the group ``pegboard.sandboxes``. None is imported before a call starts a process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pegboard.errors import Code, PluginError, PolicyError, Refusal

if TYPE_CHECKING:
    import anyio

    from pegboard.loader import Registry
    from pegboard.session import Session
    from pegboard.settings import Settings

LEVELS = ("none", "landlock", "no-proxy", "full")
"""How much a box holds back, weakest first.

``full``: files, processes and network, hosts judged one by one. ``no-proxy``: the same without any network.
``landlock``: files and network by kernel rules alone; what lies inside a writable folder cannot be locked.
"""

HIDE, LOCK = "hide", "lock"
"""What `Need.rule` says of a path: it must not be readable, or it must not be changed."""


def rank(level: str) -> int:
    """The place of a level in `LEVELS`; an unknown one counts as none."""
    return LEVELS.index(level) if level in LEVELS else 0


@dataclass(frozen=True, kw_only=True)
class Need:
    """What the caller wants of a box for one process."""

    cwd: Path
    home: Path
    roots: tuple[Path, ...]
    """Working directories: may be written, but for what is protected in them."""
    writable: tuple[Path, ...] = ()
    """Further paths that the user or the operator opened; also protected ones inside the working directories."""
    hidden: tuple[str, ...] = ()
    """Paths that must not be readable."""
    readable: tuple[Path, ...] = ()
    """Credentials, hidden by default, that the user lets processes read."""
    locked: tuple[str, ...] = ()
    """Paths that must not be changed."""
    rule: Callable[[str, bool], str] | None = None
    """Says of an absolute path (and whether it is a folder) `HIDE`, `LOCK` or nothing; None: no pattern does."""
    watched: tuple[str, ...] = ()
    """Folders outside of the working directories that patterns speak about."""
    hosts: tuple[str, ...] = ()
    """Hosts that may be contacted: names, ``*.name``, addresses or networks, each with ``:port`` or without.

    Empty = none. A private address must be named itself."""
    refused_hosts: tuple[str, ...] = ()
    """Host patterns that stay refused although a wider one allows them."""
    variables: tuple[str, ...] = ()
    """Names of environment variables, ``*`` allowed, that pass beside the usual ones."""
    required: bool = False
    """True: without a box of the wanted level the call does not start."""
    level: str = "full"
    """The least level that counts."""


@dataclass(frozen=True)
class Status:
    """The level that a sandbox plug-in reaches on this machine, and why no higher one."""

    level: str
    reasons: tuple[str, ...] = ()
    name: str = ""
    """The plug-in."""


@dataclass(frozen=True)
class Planted:
    """A file that other programs run by themselves, and that a process left behind."""

    path: str
    how: str
    """``new`` or ``changed``."""
    why: str
    """Who runs it, and when."""

    def __str__(self) -> str:
        return f"{self.path} is {self.how}: {self.why}"


class Sandbox(Protocol):
    """A box for the processes of one call."""

    level: str
    """The level reached, as `peg sandbox status` names it."""

    async def prepare(self) -> None:
        """Make ready, and remember what is there so that `planted` can tell what is new. Once, before `wrap`."""
        ...

    def wrap(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """The command and environment that start ``argv`` inside the box. `ended` must follow for each process.

        Start it from a thread that lives on: a box may end with the thread that started it.
        """
        ...

    def signal(self, pid: int, number: int) -> bool:
        """Pass a signal to what runs inside; ``pid`` is the started process. False: the box has no way to do it."""
        ...

    def ended(self) -> None:
        """A process that `wrap` was made for is gone with its whole tree."""
        ...

    def violations(self, output: str) -> list[str]:
        """What the box refused since it was made: hosts by its own record, files by what the programs wrote."""
        ...

    async def planted(self) -> list[Planted]:
        """Files that run by themselves and are new or other than when the box was prepared. Asked after a command."""
        ...

    async def close(self) -> None:
        """Remove what the box left behind."""
        ...


class Confinement(Protocol):
    """What a plug-in of the group ``pegboard.sandboxes`` names: made without arguments, once in a session."""

    def status(self, need: Need) -> Status:
        """The level that is reached here, found by trying. May block."""
        ...

    def box(self, need: Need) -> Sandbox:
        """A box for one call. Only where `status` is better than ``none``."""
        ...

    async def close(self) -> None:
        """End what the boxes of the session shared."""
        ...


class Boxes:
    """Where a session gets its boxes: the best sandbox plug-in, found at the first call that starts a process."""

    def __init__(self) -> None:
        self._found: tuple[tuple[Confinement, Status], ...] | None = None
        self._warned = False
        self._lock: anyio.Lock | None = None
        self._need: tuple[object, Need] | None = None

    async def open(self, session: Session) -> Sandbox | None:
        """A prepared box for a call, or None where none is wanted or, with a warning, none can be had.

        Raises `Refusal` (sandbox_refused) when a box is required and the wanted level is not reached.
        """
        settings = session.settings
        if not wanted(settings):
            return None
        need = self._need_of(session)
        box: Sandbox | None = session.manager.hook.peg_sandbox(need=need)
        reasons: tuple[str, ...] = ()
        if box is None:
            confinement, status = await self._best(session.registry, need)
            reasons = status.reasons
            box = confinement.box(need) if confinement is not None and rank(status.level) else None
        reached = box.level if box is not None else "none"
        if rank(reached) < rank(need.level):
            why = "; ".join(reasons) or "no sandbox plug-in is installed"
            if need.required:
                raise Refusal(
                    Code.SANDBOX_REFUSED,
                    f"A sandbox of the level {need.level} is required here (sandbox.required), but only {reached} is "
                    f"reached: {why}. Nothing was started.",
                    hint="Processes cannot be started here until that is repaired; see: peg sandbox status.",
                )
            await self._warn(session, reached, need.level, why)
        if box is not None:
            await box.prepare()
        return box

    async def _best(self, registry: Registry, need: Need) -> tuple[Confinement | None, Status]:
        import anyio
        import anyio.to_thread

        self._lock = self._lock or anyio.Lock()
        async with self._lock:
            if self._found is None:
                self._found = await anyio.to_thread.run_sync(found, registry, need)
        return best(self._found)

    async def _warn(self, session: Session, reached: str, level: str, why: str) -> None:
        if not self._warned:
            from pegboard.events import Notice

            self._warned = True
            text = f"The sandbox reaches the level {reached} only, not {level}: {why}. See: peg sandbox status"
            await session.tell(Notice(text=text, kind="sandbox"))

    def _need_of(self, session: Session) -> Need:
        from pegboard.needs import need_of

        snapshot = session.snapshot()
        key = (snapshot.generation, session.settings.generation, session.cwd, session.roots)
        if self._need is None or self._need[0] != key:
            self._need = (key, need_of(session))
        return self._need[1]

    async def close(self) -> None:
        """End what the boxes of the session shared."""
        for confinement, _ in self._found or ():
            await confinement.close()
        self._found = None


def wanted(settings: Settings) -> bool:
    """Whether processes are to run in a box: switched on, or required."""
    return bool(settings.value("sandbox.required") or settings.value("sandbox.enabled"))


def found(registry: Registry, need: Need) -> tuple[tuple[Confinement, Status], ...]:
    """Every sandbox plug-in that passed the gate, with what it reaches here. Imports and tries them; may block."""
    from pegboard.candidate import Kind

    seen = []
    for candidate in registry.of_kind(Kind.SANDBOX):
        try:
            confinement: Confinement = registry.load(candidate)()
        except PluginError:
            continue
        seen.append((confinement, confinement.status(need)))
    return tuple(seen)


def reached(registry: Registry, need: Need) -> Status:
    """The level that processes get here, found by trying, and why no higher one. May block for a moment."""
    import anyio

    seen = found(registry, need)
    try:
        return best(seen)[1]
    finally:
        for confinement, _ in seen:
            anyio.run(confinement.close)


def demand(registry: Registry, need: Need) -> None:
    """Refuse a start under a required sandbox that cannot be had; tries it in a thread, so an event loop may run.

    Raises `PolicyError` saying what is missing. A box that a hook brings is known only at the call that needs it.
    """
    from concurrent.futures import ThreadPoolExecutor

    if registry.manager.hook.peg_sandbox.get_hookimpls():
        return
    with ThreadPoolExecutor(1) as apart:
        status = apart.submit(reached, registry, need).result()
    if rank(status.level) < rank(need.level):
        raise PolicyError(
            f"A sandbox of the level {need.level} is required here (sandbox.required), but only {status.level} is "
            f"reached: {'; '.join(status.reasons) or 'no reason was given'}. Nothing was started; see: peg sandbox "
            "status"
        )


def best(seen: Sequence[tuple[Confinement, Status]]) -> tuple[Confinement | None, Status]:
    """The plug-in that reaches most, and its status; the reasons of all where none reaches anything."""
    if not seen:
        return None, Status("none", ("no sandbox plug-in is installed",))
    confinement, status = max(seen, key=lambda pair: rank(pair[1].level))
    if rank(status.level):
        return confinement, status
    return None, Status("none", tuple(reason for _, one in seen for reason in one.reasons))
