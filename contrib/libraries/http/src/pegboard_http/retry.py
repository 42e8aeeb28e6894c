"""When a failed request is sent again: how often, and after how long.

Providers alone repeat, over every transport by this one rule, and each repeat is announced.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

import msgspec
from pegboard.provider import Part, Retrying

from pegboard_http.failure import Failure

FIRST = 0.5
"""[C] Seconds before the first repeat."""
LONGEST = 32.0
"""[C] Most seconds between two tries, unless the service asks for more."""
PATIENCE = 600.0
"""[C] Most seconds that we wait because the service asks for it; beyond it the request fails at once."""

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """[C] 10 tries, exponential waits with jitter. ``chance`` gives numbers from 0 to 1."""

    tries: int = 10
    chance: Callable[[], float] = random.random

    def wait(self, failed: int, asked: float | None) -> float | None:
        """Seconds until the next try after ``failed`` tries, or None when there is none."""
        if failed >= self.tries or (asked or 0.0) > PATIENCE:
            return None
        if asked is not None:
            return asked
        return float(min(LONGEST, FIRST * 2 ** (failed - 1))) * (1 - 0.25 * self.chance())


class Tries:
    """Repeats what failed for a passing reason. ``sleep`` waits between tries; tests replace it."""

    def __init__(self, schedule: Schedule | None = None, sleep: Sleep | None = None) -> None:
        self._schedule = schedule or Schedule()
        self._sleep = sleep

    async def stream(self, once: Callable[[], AsyncGenerator[Part, None]]) -> AsyncIterator[Part]:
        """The parts of one try after the other, until one is complete.

        A repeat is announced by a `Retrying` that makes all parts before it void. Raises `ProviderError`.
        """
        failed = 0
        while True:
            try:
                async with aclosing(once()) as parts:
                    async for part in parts:
                        yield part
                return
            except Failure as failure:
                failed += 1
                retrying = self._retrying(failure, failed)
            yield retrying
            await self._pause(retrying.delay)

    async def ask(self, once: Callable[[], Awaitable[T]]) -> T:
        """One answer, with the same repeats. Raises `ProviderError`."""
        failed = 0
        while True:
            try:
                return await once()
            except Failure as failure:
                failed += 1
                retrying = self._retrying(failure, failed)
            await self._pause(retrying.delay)

    def _retrying(self, failure: Failure, failed: int) -> Retrying:
        """The announcement of the next try. Raises the error of the failure when there is none."""
        error = failure.error
        delay = self._schedule.wait(failed, failure.after) if error.retryable else None
        if delay is None:
            raise error from failure
        return Retrying(failed, self._schedule.tries, delay, error.status, str(error))

    async def _pause(self, seconds: float) -> None:
        if self._sleep is not None:
            await self._sleep(seconds)
        else:
            from anyio import sleep

            await sleep(seconds)
