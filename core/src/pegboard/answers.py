"""One answer of the model service: asked for, streamed to the host, timed, and asked for again where that can help.

The loop sees whole answers only; what is shown while they arrive is dealt with here.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from pegboard import events
from pegboard.errors import BadRequest, ProviderError
from pegboard.provider import Answer, BlockDone, Part, Request, Retrying, TextDelta, ThinkingDelta

if TYPE_CHECKING:
    from pegboard.agent import Agent

REMOVED = "(A part of the conversation that the model service refused was removed here.)"

_PLACE = re.compile(r"messages\.(\d+)\.content\.(\d+)(?:\.tool_result\.content\.(\d+))?")


async def aside(agent: Agent, request: Request) -> Answer:
    """The answer to a request beside the conversation, which nobody is shown as it comes.

    Raises `ProviderError`, and `RunStopped` when it was aborted or ran out of the run's time.
    """
    answer = await _stream(agent, request, show=False)
    if answer is None:
        raise agent.interruption()
    return answer


async def ask(agent: Agent, request: Request) -> Answer | None:
    """The answer to a request; None when it was aborted or ran out of the run's time.

    A block that the service refuses by its place is removed from the conversation, and the request sent again, once.
    Raises `ProviderError`.
    """
    try:
        return await _stream(agent, request)
    except BadRequest as error:
        place = refused_block(str(error))
        if not place or not agent.transcript.remove(place, REMOVED):
            raise
        text = f"The model service refused a part of the conversation; it is left out: {error}"
        await agent.log(events.Notice(text=text))
    request.messages = agent.messages()
    return await _stream(agent, request)


def refused_block(text: str) -> tuple[int, ...]:
    """The place that an error text names: message, block and, in a result, inner block; empty when it names none."""
    found = _PLACE.search(text)
    return tuple(int(number) for number in found.groups() if number is not None) if found else ()


async def _stream(agent: Agent, request: Request, *, show: bool = True) -> Answer | None:
    begin, blocks = time.monotonic(), 0
    try:
        with agent.session.abortable(), anyio.move_on_after(agent.limits.left):
            async with _closing(agent.provider.stream(request)) as parts:
                async for part in parts:
                    if isinstance(part, Answer):
                        return part
                    if isinstance(part, BlockDone):
                        blocks += 1
                    elif isinstance(part, Retrying):
                        blocks = 0
                        await agent.log(_retry(part))
                    elif show:
                        await agent.session.tell(_delta(part, blocks))
            raise ProviderError("The model service ended its stream without an answer.")
    finally:
        agent.spending.api_seconds += time.monotonic() - begin
    return None


@asynccontextmanager
async def _closing(parts: AsyncIterator[Part]) -> AsyncIterator[AsyncIterator[Part]]:
    """Close a stream as soon as it is left, so that its connection is free for the next request."""
    try:
        yield parts
    finally:
        close = getattr(parts, "aclose", None)
        if close is not None:
            await close()


def _delta(part: TextDelta | ThinkingDelta, index: int) -> events.Delta:
    return events.Delta(text=part.text, kind="text" if isinstance(part, TextDelta) else "thinking", index=index)


def _retry(part: Retrying) -> events.Retry:
    return events.Retry(
        attempt=part.attempt,
        max_attempts=part.max_attempts,
        delay=part.delay,
        status=part.status,
        error=part.error,
    )
