"""Stop a piece of work at its n-th suspension, for every n: the way to show that an abort is safe anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


class Counted(Awaitable[T]):
    """A coroutine that tells how often it, or what it awaits, is suspended."""

    def __init__(self, work: Coroutine[Any, Any, T], suspended: Callable[[], None]) -> None:
        self._work = work
        self._suspended = suspended

    def __await__(self) -> Generator[Any, Any, T]:
        iterator = self._work.__await__()
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                future = iterator.send(value) if error is None else iterator.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            self._suspended()
            value, error = None, None
            try:
                value = yield future
            except GeneratorExit:
                iterator.close()
                raise
            except BaseException as thrown:
                error = thrown


async def interrupted(work: Callable[[], Awaitable[T]], at: int | None, abort: Callable[[], None]) -> tuple[T, int]:
    """Run ``work`` in a task; call ``abort`` at its suspension number ``at``, counted over all tasks it starts.

    ``None`` never aborts. Returns what the work returned, and how many suspensions there were before the abort.
    """
    count = 0
    fired = False

    def suspended() -> None:
        nonlocal count, fired
        if fired:
            return
        if count == at:
            fired = True
            abort()
            return
        count += 1

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        async def counted() -> Any:
            return await Counted(coro, suspended)

        return asyncio.Task(counted(), loop=loop, **options)

    loop = asyncio.get_running_loop()
    results: list[T] = []

    async def keep() -> None:
        results.append(await work())

    usual = loop.get_task_factory()
    loop.set_task_factory(factory)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep)
    finally:
        loop.set_task_factory(usual)
    return results[0], count
