"""The provider: requests out, parts in, repeats where a repeat can help.

The same code drives both transports. Importing it loads neither of them: our own client is loaded with the first
request, the official library only where ``provider.transport`` is ``sdk``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

from pegboard.provider import Abilities, Part, Request
from pegboard_http.failure import broken_line
from pegboard_http.retry import Schedule, Tries

from pegboard_anthropic.answer import Assembly
from pegboard_anthropic.body import Bodies
from pegboard_anthropic.failure import no_key

if TYPE_CHECKING:
    from pegboard_http.reach import SettingValues


class Transport(Protocol):
    """One way to reach the service. Raises `Failure` only. Cancelling it closes the connection in use."""

    def events(self, body: bytes) -> AsyncGenerator[dict[str, Any], None]:
        """Send a streamed message request; yield its events as they arrive."""
        ...

    async def count(self, body: bytes) -> int:
        """Ask the count endpoint."""
        ...

    async def models(self) -> list[str]:
        """All model names, newest first."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class Anthropic:
    """A `Provider` for the Anthropic Messages API."""

    name = "anthropic"

    def __init__(self, connect: Callable[[], Transport], tries: Tries | None = None) -> None:
        self._connect = connect
        self._transport: Transport | None = None
        self._tries = tries or Tries()
        self._bodies = Bodies()

    def stream(self, request: Request) -> AsyncIterator[Part]:
        """Send the request; yield parts as they arrive; the last one is an `Answer`.

        A failure that may pass is repeated, each time after a `Retrying` that makes all parts before it void.
        Raises `ProviderError`.
        """
        body = self._bodies.message(request)
        return self._tries.stream(lambda: self._once(body))

    async def count(self, request: Request) -> int:
        """Input tokens of the request, by the service."""
        body = self._bodies.count(request)
        return await self._tries.ask(lambda: self._reach().count(body))

    def abilities(self, model: str) -> Abilities:
        """What this model can do, from a table; a cautious default for a name that is not in it."""
        from pegboard_anthropic.abilities import abilities_of

        return abilities_of(model)

    async def models(self) -> list[str]:
        """Names of the models that the service offers."""
        return await self._tries.ask(lambda: self._reach().models())

    async def close(self) -> None:
        """Close connections; a later request opens new ones."""
        if self._transport is not None:
            await self._transport.close()

    async def _once(self, body: bytes) -> AsyncGenerator[Part, None]:
        """One try of a message request."""
        assembly = Assembly()
        async with aclosing(self._reach().events(body)) as events:
            async for event in events:
                if (part := assembly.take(event)) is not None:
                    yield part
        if assembly.answer is None:
            raise broken_line("The answer of the model service ended in the middle.")
        yield assembly.answer

    def _reach(self) -> Transport:
        if self._transport is None:
            self._transport = self._connect()
        return self._transport


def make(
    settings: SettingValues, environ: Mapping[str, str], *, sleep: Callable[[float], Awaitable[None]] | None = None
) -> Anthropic:
    """Build the provider from settings and environment. A missing key is reported by the first request, not here."""
    schedule = Schedule(tries=int(settings.value("anthropic.max_retries")) + 1)
    return Anthropic(lambda: _connect(settings, environ), Tries(schedule, sleep))


def _connect(settings: SettingValues, environ: Mapping[str, str]) -> Transport:
    from pegboard_anthropic.access import read_access

    access = read_access(settings, environ)
    if settings.value("provider.transport") == "sdk":
        from pegboard_anthropic.sdk import Library

        return Library(access, settings.value("anthropic.client"))
    if not access.key and not access.token:
        raise no_key()
    from pegboard_anthropic.wire import Wire

    return Wire(access)
