"""State with one holder: Owner, and the table of open owners.

The core knows that state has owners, not which. Tools that share state share an owner's package, never each other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

import anyio

if TYPE_CHECKING:
    from pegboard.hooks import Fragment
    from pegboard.session import Session

JSON = Any
"""Anything that JSON can carry."""


class Scope(StrEnum):
    """Who shares one owner object. A subagent gets fresh AGENT owners and shares the wider ones."""

    AGENT = "agent"
    SESSION = "session"
    PROJECT = "project"
    USER = "user"


@dataclass(frozen=True)
class Place:
    """Where an owner lives: the folders it may write to, and the session it belongs to."""

    session: Session
    agent: str
    """Id of the agent; ``main`` for the first."""
    session_dir: Path
    """``<user dir>/projects/<project key>/<session id>``; may not exist yet."""
    project_dir: Path
    """The project's ``.peg`` folder; may not exist."""
    user_dir: Path
    """``~/.peg`` or ``PEG_HOME``."""


@dataclass(frozen=True)
class Mark:
    """A point to which an owner can go back. ``value`` is the owner's own business, and must be JSON."""

    value: JSON


@dataclass(frozen=True)
class Kept:
    """Something that a rewind did not restore, and why."""

    target: str
    reason: str


@dataclass(frozen=True)
class Restored:
    """Something that a rewind brings back."""

    target: str
    change: str
    """What becomes of it: ``create``, ``update`` or ``delete``."""
    diff: str = ""
    """From now to then, as a unified diff; empty where there are no lines to show."""


class Owner:
    """State with one holder. Opened on first use, closed with its scope."""

    scope: ClassVar[Scope] = Scope.SESSION

    follows: ClassVar[bool] = False
    """State of the conversation and not of the world: when the conversation goes back, so does this."""

    dirty: bool = False
    """Set by the owner when `remember` would give something new; cleared when it was asked."""

    @classmethod
    async def open(cls, place: Place) -> Self:
        """Make the owner. Called once for each scope."""
        return cls()

    async def close(self) -> None:
        """Release processes, handles and locks."""

    async def linger(self) -> None:
        """The final result of a headless run is out: wait as long as work that still goes on deserves."""

    def remember(self) -> JSON | None:
        """What changed since the last call, for the transcript; None = nothing new.

        Pieces, not the whole: the cost of a turn must not grow with the session. Only asked for while `dirty` is set.
        """
        return None

    def recall(self, saved: JSON) -> None:
        """Take back one piece that `remember` gave. In a resumed session called for each, oldest first, before use."""

    async def resumed(self) -> None:
        """Everything that an earlier process remembered is recalled: close what it left open. Before any use."""

    def cleared(self, calls: Collection[str]) -> None:
        """The results of these calls left the context of the agent: what they showed is not in sight any more."""

    async def compacted(self, room: int) -> Iterable[Fragment]:
        """The agent's conversation was replaced by a summary: what must be said again, within ``room`` characters."""
        return ()

    async def mark(self) -> Mark | None:
        """A point to return to. None = cannot be rewound, and rewind says so."""
        return None

    async def foresee(self, mark: Mark, *, force: bool = False) -> tuple[list[Restored], list[Kept]]:
        """What `rewind` would bring back, and what not. Changes nothing."""
        return [], []

    async def rewind(self, mark: Mark, *, force: bool = False) -> list[Kept]:
        """Go back to the mark; return what could not be restored.

        What somebody else changed since is left alone and returned, unless ``force`` is set.
        """
        return []


O = TypeVar("O", bound=Owner)


def owner_name(owner: type[Owner]) -> str:
    """Stable name of an owner type in transcripts: ``module:Class``."""
    return f"{owner.__module__}:{owner.__qualname__}"


class Owners:
    """The open owners of one session, by type and agent. One object for each scope, made on demand."""

    def __init__(self) -> None:
        self._open: dict[tuple[type[Owner], str], Owner] = {}
        self._locks: dict[tuple[type[Owner], str], anyio.Lock] = {}
        self._saved: dict[str, list[JSON]] = {}
        self.opened: Callable[[str, Owner], Awaitable[None]] | None = None
        """Told of every owner when it is opened, before anybody uses it."""

    async def get(self, owner: type[O], place: Place) -> O:
        """The owner of this type in the scope of ``place``; opened, and told its saved state, on first use."""
        key = (owner, place.agent if owner.scope is Scope.AGENT else "")
        found = self._open.get(key)
        if found is None:
            async with self._locks.setdefault(key, anyio.Lock()):
                found = self._open.get(key)
                if found is None:
                    found = await owner.open(place)
                    saved = self._saved.pop(_saved_key(owner, key[1]), None)
                    for piece in saved or ():
                        found.recall(piece)
                    if saved is not None:
                        await found.resumed()
                    if self.opened is not None:
                        await self.opened(_saved_key(owner, key[1]), found)
                    self._open[key] = found
        return cast(O, found)

    @property
    def waiting(self) -> list[str]:
        """Names of owners that have something to recall and were not asked for yet, as in transcripts."""
        return list(self._saved)

    def restore(self, saved: dict[str, JSON]) -> None:
        """Keep the pieces of one `State` record of a resumed session until their owners are asked for."""
        for name, piece in saved.items():
            self._saved.setdefault(name, []).append(piece)

    def changes(self) -> dict[str, JSON]:
        """What the owners want to remember since the last call, by stable name."""
        changed: dict[str, JSON] = {}
        for (owner, agent), held in self._open.items():
            if held.dirty:
                held.dirty = False
                piece = held.remember()
                if piece is not None:
                    changed[_saved_key(owner, agent)] = piece
        return changed

    def __iter__(self) -> Iterator[tuple[type[Owner], str, Owner]]:
        for (owner, agent), held in list(self._open.items()):
            yield owner, agent, held

    def named(self) -> dict[str, Owner]:
        """The open owners by the name that they have in transcripts."""
        return {_saved_key(owner, agent): held for (owner, agent), held in self._open.items()}

    async def reopen(self, names: Iterable[str], saved: Iterable[dict[str, JSON]]) -> None:
        """Close these owners; whoever asks for one next gets it with the pieces in ``saved`` alone."""
        wanted = set(names)
        for (owner, agent), held in list(self._open.items()):
            if _saved_key(owner, agent) in wanted:
                del self._open[owner, agent]
                await held.close()
        for pieces in saved:
            self.restore({name: piece for name, piece in pieces.items() if name in wanted})

    async def linger(self) -> None:
        """Let every open owner wait for its work."""
        for _, _, held in self:
            await held.linger()

    async def close(self, agent: str | None = None) -> None:
        """Close the owners of one agent, or all, newest first. One that fails does not stop the others."""
        failures: list[Exception] = []
        for key in reversed(list(self._open)):
            if agent is None or key[1] == agent:
                try:
                    await self._open[key].close()
                except Exception as error:
                    failures.append(error)
                finally:
                    self._open.pop(key, None)
        if failures:
            raise ExceptionGroup("owners failed to close", failures)


def _saved_key(owner: type[Owner], agent: str) -> str:
    return f"{owner_name(owner)}@{agent}" if agent else owner_name(owner)
