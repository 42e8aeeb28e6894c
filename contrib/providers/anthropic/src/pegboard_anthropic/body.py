"""Request bodies from encodings that are kept, and the cache breakpoints in them.

The breakpoints: the end of the system prompt (tools come before it), and the end of the request through the top-level
``cache_control``, which the service moves along by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pegboard.call import Block, json_safe
from pegboard.provider import Message, Request
from pegboard_http.kept import Kept, KeptTools, Shelf
from pegboard_http.values import encode

MARK = {"type": "ephemeral"}
BREAKPOINTS = 4
"""[A] Most cache breakpoints of one request."""
LOOKBACK = 18
"""[A] The service looks back 20 blocks from a breakpoint for an older entry; two are kept in reserve."""
EMPTY = "(no text)"
"""Stands for an answer of which nothing can be sent back."""
_UNMARKABLE = frozenset({"thinking", "redacted_thinking"})


class Bodies:
    """Makes the bodies of all requests of one provider."""

    def __init__(self) -> None:
        self._conversations = Shelf(_Conversation)
        self._tools = KeptTools(encode)

    def message(self, request: Request) -> bytes:
        """The body of a streamed message request."""
        conversation = self._conversations.take(request.messages)
        system, marks = _system(request.system, conversation.marks)
        head: dict[str, Any] = {"model": request.model, "max_tokens": request.max_tokens, "stream": True}
        head.update({key: value for key, value in request.extra.items() if value is not None})
        if "cache_control" not in request.extra and marks < BREAKPOINTS:
            head["cache_control"] = MARK
        marks += 1
        messages = conversation.encoded(marks < BREAKPOINTS)
        return self._joined(request, head, system, messages)

    def count(self, request: Request) -> bytes:
        """The body for the count endpoint: the same prompt, nothing about the answer."""
        conversation = self._conversations.take(request.messages)
        return self._joined(request, {"model": request.model}, request.system, [conversation.buffer])

    def _joined(
        self, request: Request, head: dict[str, Any], system: list[Block], messages: Sequence[bytes | bytearray]
    ) -> bytes:
        if request.thinking is not None:
            head["thinking"] = request.thinking
        parts: list[bytes | bytearray] = [encode(head)[:-1]]
        if request.tools:
            parts += [b',"tools":[', b",".join(self._tools.all(request.tools)), b"]"]
        if system:
            parts += [b',"system":', encode(system)]
        parts += [b',"messages":[', *messages, b"]}"]
        return b"".join(parts)


class _Conversation(Kept):
    """A conversation that also knows where its breakpoints are."""

    def __init__(self) -> None:
        super().__init__(_encode_message)
        self._blocks: list[int] = []
        self._marks: list[int] = []
        self._sent = 0
        """How many messages the last request had; its cache entry ends there."""

    @property
    def marks(self) -> int:
        """Cache breakpoints that the messages bring along."""
        return sum(self._marks)

    def follow(self, messages: Sequence[Message]) -> int:
        """As `Kept.follow`; also counts the blocks and the breakpoints of what is new."""
        same = super().follow(messages)
        if same < len(self._blocks):
            del self._blocks[same:], self._marks[same:]
            self._sent = min(self._sent, same)
        for index in range(same, len(self.messages)):
            self._blocks.append(len(self.messages[index].content))
            self._marks.append(self.buffer.count(b'"cache_control":{', self.start(index), self.ends[index]))
        return same

    def encoded(self, may_mark: bool) -> list[bytes | bytearray]:
        """The messages, in pieces to be joined.

        Where too much is new for the service to find its last cache entry, the message at its end is marked.
        """
        last, self._sent = self._sent - 1, len(self.messages)
        if not may_mark or last < 0 or sum(self._blocks[last + 1 :]) <= LOOKBACK:
            return [self.buffer]
        marked = _marked(self.messages[last])
        return [self.buffer[: self.start(last)], _encode_message(marked), self.buffer[self.ends[last] :]]


def _marked(message: Message) -> Message:
    block = message.content[-1]
    if block["type"] in _UNMARKABLE:
        return message
    return Message(message.role, [*message.content[:-1], {**block, "cache_control": MARK}])


def _system(system: list[Block], marks: int) -> tuple[list[Block], int]:
    """The system blocks with a breakpoint at their end, where there is one left, and all breakpoints so far."""
    marks += sum(1 for block in system if block.get("cache_control"))
    if not system or marks >= BREAKPOINTS - 1 or system[-1].get("cache_control"):
        return system, marks
    return [*system[:-1], {**system[-1], "cache_control": MARK}], marks + 1


def _encode_message(message: Message) -> bytes:
    """The bytes of a message, without thinking that another service's model left unsigned: this one refuses it."""
    if message.role == "assistant" and any(_unsigned(block) for block in message.content):
        signed = [block for block in message.content if not _unsigned(block)]
        message = Message(message.role, signed or [{"type": "text", "text": EMPTY}])
    try:
        return message.encoded()
    except UnicodeEncodeError:
        return Message(message.role, json_safe(message.content)).encoded()


def _unsigned(block: Block) -> bool:
    return block["type"] == "thinking" and not block.get("signature")
