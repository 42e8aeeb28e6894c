"""The calls of one model message: which run together, which wait, and the locks between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import anyio

from pegboard.tool import Access, AccessKind, Concurrency

TOGETHER = 10
"""[C] Most calls that run at once."""

T = TypeVar("T")


def plan(calls: Sequence[T], concurrency: Callable[[T], Concurrency]) -> list[list[T]]:
    """Split calls into groups, in order: consecutive reads and spawns together, everything else alone."""
    groups: list[list[T]] = []
    open_group = False
    for call in calls:
        together = concurrency(call) in (Concurrency.READ, Concurrency.SPAWN)
        if together and open_group:
            groups[-1].append(call)
        else:
            groups.append([call])
        open_group = together
    return groups


class Locks:
    """Locks on what calls change, shared by all agents of a session. Taken in sorted order, so never in a circle."""

    def __init__(self) -> None:
        self._locks: dict[str, anyio.Lock] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def hold(self, accesses: Iterable[Access]) -> AsyncIterator[None]:
        """Hold the locks of everything that these accesses edit."""
        async with AsyncExitStack() as stack:
            for key in lock_keys(accesses):
                await stack.enter_async_context(self._one(key))
            yield

    @asynccontextmanager
    async def _one(self, key: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(key, anyio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]


def lock_keys(accesses: Iterable[Access]) -> list[str]:
    """Sorted lock names of the accesses that change something on this machine: the real path of each edit."""
    import os

    return sorted({os.path.realpath(item.target) for item in accesses if item.kind is AccessKind.EDIT})
