"""The queue between what happens in a session and the plug-ins that listen, so that nobody waits for a listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from pegboard.events import Event

if TYPE_CHECKING:
    from pegboard.session import Session

LENGTH = 1000
"""[C] Events that may wait; a session that is further ahead of its listeners waits for them."""

LAST_SECONDS = 2.0
"""[C] How long the end of a session waits for listeners to catch up."""


class Feed:
    """Hands events to `peg_event` hooks, in order, in the background of an entered session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._into: MemoryObjectSendStream[Event] | None = None
        self._drained = anyio.Event()

    async def put(self, event: Event) -> None:
        """Queue one event. Without an entered session there is no background, so listeners are asked at once."""
        if self._into is None:
            if not self._session.entered:
                await self._tell(event)
                return
            self._into, out = anyio.create_memory_object_stream[Event](LENGTH)

            async def run() -> None:
                async with out:
                    async for waiting in out:
                        await self._tell(waiting)
                self._drained.set()

            self._session.background(run)
        await self._into.send(event)

    async def close(self) -> None:
        """Let the listeners catch up for a moment."""
        if self._into is not None:
            await self._into.aclose()
            with anyio.move_on_after(LAST_SECONDS):
                await self._drained.wait()

    async def _tell(self, event: Event) -> None:
        await self._session.bus.ask("peg_event", event=event, session=self._session)
