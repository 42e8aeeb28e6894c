"""What the loop asks of a model service: Provider, Request, the streamed parts, Usage.

The internal block model is that of the Messages API: a message is ``{"role", "content": [blocks]}``. Other
providers translate. What a model can do is data (`Abilities`), never a test on its name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Literal, Protocol

import msgspec

from pegboard.call import Block
from pegboard.errors import UsageError


class Message(msgspec.Struct, frozen=True):
    """One message of the conversation. Never changed once made, so that its encoding can be kept."""

    role: Literal["user", "assistant"]
    content: list[Block]

    def encoded(self) -> bytes:
        """The JSON bytes of the message in the shape of the Messages API."""
        return msgspec.json.encode(self)


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool as a request carries it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    defer: bool = msgspec.field(default=False, name="defer_loading")
    """The schema counts only where a ``tool_reference`` block names it; the cached head of the request ends before it.
    Only for models whose abilities say ``tool_references``."""


class Request(msgspec.Struct, kw_only=True):
    """One request to the model. ``messages`` alternate and pair by construction (`pegboard.transcript`).

    The lists are shared with the caller and only ever grow by appending; providers may keep encodings by identity.
    """

    model: str
    system: list[Block]
    tools: Sequence[ToolSpec]
    messages: Sequence[Message]
    max_tokens: int
    thinking: dict[str, Any] | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further top-level fields, merged as they stand (``metadata``, ``output_config``, ...)."""


class Usage(msgspec.Struct, kw_only=True):
    """Tokens of one request, in the field names of the Messages API."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_creation_input_tokens=self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            cache_read_input_tokens=self.cache_read_input_tokens + other.cache_read_input_tokens,
        )


class TextDelta(msgspec.Struct, frozen=True, tag="text"):
    """Some more text of the answer."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, tag="thinking"):
    """Some more of the model's thinking."""

    text: str


class BlockDone(msgspec.Struct, frozen=True, tag="block"):
    """One content block is complete, exactly as it must be sent back.

    A ``tool_use`` whose input was not valid JSON has ``{}`` as ``input`` in ``block`` and the text in ``broken``.
    """

    index: int
    block: Block
    broken: str | None = None


class Retrying(msgspec.Struct, frozen=True, tag="retry"):
    """The request is sent again after ``delay`` seconds; all parts so far are void."""

    attempt: int
    max_attempts: int
    delay: float
    status: int | None
    error: str


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """The message is complete. Always the last part of a stream.

    ``content`` holds the blocks in order, byte-true for the next request. ``broken`` maps the index of each
    ``tool_use`` block whose input could not be parsed to its text. ``cut`` is true when the stream ended inside a
    block that cannot be used (``max_tokens``); such a trailing ``tool_use`` is in ``content`` with ``input`` ``{}``
    and in ``broken``.
    """

    id: str
    model: str
    content: list[Block]
    stop_reason: str
    usage: Usage
    broken: dict[int, str] = {}
    cut: bool = False


Part = TextDelta | ThinkingDelta | BlockDone | Retrying | Answer


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a model and its service can do, as data."""

    window: int = 200_000
    """Context window in tokens."""
    max_output: int = 32_000
    tools: bool = True
    images: bool = True
    documents: bool = True
    thinking: bool = False
    tool_references: bool = False
    """``tool_reference`` blocks in results load tools that are sent with ``defer``."""
    server_tools: bool = False
    """The service runs tools of its own and gives out their blocks."""
    caching: bool = True
    price: dict[str, float] | None = None
    """USD for a million tokens: ``input``, ``output``, ``cache_read``, ``cache_write``; None = unknown."""


class ModelRef(msgspec.Struct, frozen=True):
    """Which model is wanted: ``provider`` is a provider's name or empty, ``model`` its own name for the model."""

    model: str
    provider: str = ""

    @classmethod
    def parse(cls, text: str) -> ModelRef:
        """``"anthropic/claude-x"`` or ``"claude-x"``."""
        provider, slash, model = text.partition("/")
        return cls(model, provider) if slash else cls(text)


def listed(ref: ModelRef, available: Collection[str] | None) -> bool:
    """Whether policy lists a model; ``available`` None lists all.

    An entry without a provider covers the model of every provider, and a reference without one fits every entry.
    """
    entries = map(ModelRef.parse, available or ())
    fits = (one.model == ref.model and one.provider in ("", ref.provider or one.provider) for one in entries)
    return available is None or any(fits)


def refuse_unlisted(ref: ModelRef, available: Collection[str] | None) -> None:
    """Raise `UsageError` for a model that policy does not list."""
    if not listed(ref, available):
        allowed = ", ".join(available or ()) or "none"
        raise UsageError(f"Policy does not list the model {ref.model}; it allows {allowed}.")


class Provider(Protocol):
    """Speaks to one model service. Errors: `ProviderError` only, after the provider's own retries."""

    name: str

    def stream(self, request: Request) -> AsyncIterator[Part]:
        """Send the request; yield parts as they arrive; the last one is an `Answer`. Cancellable at every await."""
        ...

    async def count(self, request: Request) -> int:
        """Input tokens of the request, by the service where it can count, else an estimate."""
        ...

    def abilities(self, model: str) -> Abilities:
        """What this model can do; a careful default for a model the provider has never heard of."""
        ...

    async def models(self) -> list[str]:
        """Names of the models that the service offers."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
