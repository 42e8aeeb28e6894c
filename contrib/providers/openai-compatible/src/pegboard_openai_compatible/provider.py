"""The provider: requests out, parts in, repeats where a repeat can help.

Importing it loads no client; that happens with the first request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING

from pegboard.provider import Abilities, Part, Request
from pegboard_http.failure import broken_line
from pegboard_http.retry import Schedule, Sleep, Tries

from pegboard_openai_compatible.answer import Assembly
from pegboard_openai_compatible.body import Bodies

if TYPE_CHECKING:
    from pegboard_http.reach import SettingValues

    from pegboard_openai_compatible.wire import Wire


class Chat:
    """A `Provider` for chat completions."""

    name = "openai"

    def __init__(self, settings: SettingValues, environ: Mapping[str, str], tries: Tries) -> None:
        self._settings = settings
        self._environ = environ
        self._tries = tries
        self._wire: Wire | None = None
        self._bodies = Bodies(settings.value("openai.limit_field"))

    def stream(self, request: Request) -> AsyncIterator[Part]:
        """Send the request; yield parts as they arrive; the last one is an `Answer`.

        A failure that may pass is repeated, each time after a `Retrying` that makes all parts before it void.
        Raises `ProviderError`.
        """
        abilities = self.abilities(request.model)
        body = self._bodies.message(request, abilities)
        return self._tries.stream(lambda: self._once(body, abilities.window))

    async def count(self, request: Request) -> int:
        """Input tokens of the request, estimated with a reserve: chat completions have no way to ask."""
        return self._bodies.count(request, self.abilities(request.model))

    def abilities(self, model: str) -> Abilities:
        """What this model can do: by the setting ``openai.models``, by a table, or cautiously."""
        from pegboard_openai_compatible.abilities import abilities_of

        value = self._settings.value
        return abilities_of(model, value("openai.models"), value("openai.window"), value("openai.max_output"))

    async def models(self) -> list[str]:
        """Names of the models that the server offers."""
        return await self._tries.ask(lambda: self._reach().models())

    async def close(self) -> None:
        """Close connections; a later request opens new ones."""
        if self._wire is not None:
            await self._wire.close()

    async def _once(self, body: bytes, window: int) -> AsyncGenerator[Part, None]:
        """One try of a request. A server that says why it stopped may leave out that it is done."""
        assembly, done = Assembly(window), False
        async with aclosing(self._reach().chunks(body)) as chunks:
            async for chunk in chunks:
                if chunk is None:
                    done = True
                    break
                for part in assembly.take(chunk):
                    yield part
        if not done and not assembly.finished:
            raise broken_line("The answer of the model service ended in the middle.")
        for part in assembly.finish(len(body)):
            yield part

    def _reach(self) -> Wire:
        if self._wire is None:
            from pegboard_openai_compatible.wire import Wire

            self._wire = Wire(self._settings, self._environ)
        return self._wire


def make(settings: SettingValues, environ: Mapping[str, str], *, sleep: Sleep | None = None) -> Chat:
    """Build the provider from settings and environment. A missing key is reported by the first request, not here."""
    schedule = Schedule(tries=int(settings.value("openai.max_retries")) + 1)
    return Chat(settings, environ, Tries(schedule, sleep))
