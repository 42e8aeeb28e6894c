"""What the tests of a provider stand on: a service that plays, a provider that talks to it, requests like the loop's.

Kept apart from `ProviderSuite`, so that a provider's further tests can use it too.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from pegboard.call import Block
from pegboard.provider import Answer, Message, Part, Provider, Request, ToolSpec
from pegboard.testing.messages import MessagesService, Script

Sleep = Callable[[float], Awaitable[None]]

PATIENCE = 10.0
"""Seconds after which a test gives up on an event that must come."""


class Naps:
    """Stands in for the sleep between tries: notes the seconds and goes on at once."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        await anyio.lowlevel.checkpoint()


def text(words: str) -> Block:
    """A text block."""
    return {"type": "text", "text": words}


def tool(name: str = "Read", input: Any = None, **fields: Any) -> Block:
    """A tool call for a script; ``raw_input`` for text that is no JSON."""
    return {"type": "tool_use", "name": name, "input": {} if input is None else input, **fields}


def results(answer: Answer) -> Message:
    """The user message that answers every call of an answer."""
    ids = [block["id"] for block in answer.content if block["type"] == "tool_use"]
    return Message("user", [{"type": "tool_result", "tool_use_id": call_id, "content": "done"} for call_id in ids])


def ask(words: str = "hello") -> list[Message]:
    """A conversation that has just begun."""
    return [Message("user", [text(words)])]


class ProviderBench:
    """What the tests stand on: how a provider is made, how a service is played, how a request looks."""

    pytestmark = pytest.mark.anyio
    model = "claude-opus-5-5"
    thinking_blocks = ("thinking", "redacted_thinking")
    """The kinds of thinking that the protocol can carry."""

    def make(self, url: str, sleep: Sleep) -> Provider:
        """Make the provider under test. It waits between tries with ``sleep``. Every suite defines this."""
        pytest.fail(f"{type(self).__name__} does not say how its provider is made: define make(self, url, sleep)")

    def serve(self, script: Script, **options: Any) -> AbstractContextManager[MessagesService]:
        """The service that plays a script."""
        return MessagesService(script, **options)

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    def request_of(self, messages: Sequence[Message], **fields: Any) -> Request:
        """A request as the loop makes it."""
        spec = ToolSpec("Read", "Reads a file.", {"type": "object", "properties": {"file_path": {"type": "string"}}})
        common: dict[str, Any] = {"system": [text("You are a test.")], "tools": [spec], "max_tokens": 1_000}
        return Request(model=self.model, messages=messages, **{**common, **fields})

    @contextlib.asynccontextmanager
    async def playing(self, script: Script, **options: Any) -> AsyncIterator[tuple[Provider, MessagesService, Naps]]:
        """A service, the provider that talks to it, and the waits that it took."""
        naps = Naps()
        with self.serve(script, **options) as service:
            provider = self.make(service.url, naps)
            try:
                yield provider, service, naps
            finally:
                await provider.close()

    async def parts(self, provider: Provider, messages: Sequence[Message], **fields: Any) -> list[Part]:
        """All parts of one answer. The last one must be the only `Answer`."""
        found = [part async for part in provider.stream(self.request_of(messages, **fields))]
        assert [index for index, part in enumerate(found) if isinstance(part, Answer)] == [len(found) - 1]
        return found

    async def answer(self, provider: Provider, messages: Sequence[Message], **fields: Any) -> Answer:
        """The answer to a request, without the parts on the way."""
        return cast(Answer, (await self.parts(provider, messages, **fields))[-1])

    async def hung_up(self, service: MessagesService) -> bool:
        """Wait until the service has seen its first client leave."""
        with anyio.move_on_after(PATIENCE):
            while not service.requests[0].hung_up:  # noqa: ASYNC110  # the service lives in threads
                await anyio.sleep(0.01)
        return service.requests[0].hung_up

    async def turn(self, provider: Provider, messages: list[Message]) -> Answer:
        """One turn of a conversation: ask, and append the answer and results for its calls."""
        answer = await self.answer(provider, messages)
        messages.append(Message("assistant", answer.content))
        messages.append(results(answer))
        return answer


def unmarked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without cache breakpoints, which a provider may set."""
    return [
        {
            "role": message["role"],
            "content": [{k: v for k, v in block.items() if k != "cache_control"} for block in message["content"]],
        }
        for message in messages
    ]
