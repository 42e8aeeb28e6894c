"""Request bodies from encodings that are kept, so that a turn costs the same however long the conversation is.

Messages never change once made, so each is encoded once; a request joins what is there with what is new. Cache
breakpoints: the end of the system prompt (tools come before it), and the end of the request through the top-level
``cache_control``, which the service moves along by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

import msgspec
from pegboard.call import Block, json_safe
from pegboard.provider import Message, Request, ToolSpec

MARK = {"type": "ephemeral"}
BREAKPOINTS = 4
"""[A] Most cache breakpoints of one request."""
LOOKBACK = 18
"""[A] The service looks back 20 blocks from a breakpoint for an older entry; two are kept in reserve."""
KEPT = 8
"""Conversations whose encodings are kept at once; one more only costs encoding again."""
_UNMARKABLE = frozenset({"thinking", "redacted_thinking"})


class Bodies:
    """Makes the bodies of all requests of one provider."""

    def __init__(self) -> None:
        self._conversations: list[_Conversation] = []
        self._tools: dict[int, tuple[ToolSpec, bytes]] = {}

    def message(self, request: Request) -> bytes:
        """The body of a streamed message request."""
        conversation = self._conversation(request.messages)
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
        conversation = self._conversation(request.messages)
        return self._joined(request, {"model": request.model}, request.system, [conversation.buffer])

    def _joined(
        self, request: Request, head: dict[str, Any], system: list[Block], messages: Sequence[bytes | bytearray]
    ) -> bytes:
        if request.thinking is not None:
            head["thinking"] = request.thinking
        parts: list[bytes | bytearray] = [_encode(head)[:-1]]
        if request.tools:
            parts += [b',"tools":[', b",".join(self._encoded_tools(request.tools)), b"]"]
        if system:
            parts += [b',"system":', _encode(system)]
        parts += [b',"messages":[', *messages, b"]}"]
        return b"".join(parts)

    def _encoded_tools(self, tools: Sequence[ToolSpec]) -> list[bytes]:
        """The encodings, kept for as long as the same tools are offered."""
        kept = self._tools
        self._tools = {
            id(tool): kept[id(tool)] if kept.get(id(tool), (None,))[0] is tool else (tool, _encode(tool))
            for tool in tools
        }
        return [encoded for _, encoded in self._tools.values()]

    def _conversation(self, messages: Sequence[Message]) -> _Conversation:
        """The kept conversation that these messages go on with, brought up to date; the most recent one is last."""
        found = max(self._conversations, key=lambda kept: kept.shared(messages), default=None)
        if found is None or not found.shared(messages):
            found = _Conversation()
        else:
            self._conversations.remove(found)
        self._conversations.append(found)
        del self._conversations[:-KEPT]
        found.follow(messages)
        return found


class _Conversation:
    """The joined encodings of a growing list of messages."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self._messages: list[Message] = []
        self._ends: list[int] = []
        self._blocks: list[int] = []
        self._marks: list[int] = []
        self._sent = 0
        """How many messages the last request had; its cache entry ends there."""

    @property
    def marks(self) -> int:
        """Cache breakpoints that the messages bring along."""
        return sum(self._marks)

    def shared(self, messages: Sequence[Message]) -> int:
        """How many messages at the start are the very same objects."""
        ours = self._messages
        if not ours or not messages or ours[0] is not messages[0]:
            return 0
        shortest = min(len(ours), len(messages))
        if all(map(is_, ours, messages)):
            return shortest
        return next(index for index in range(shortest) if ours[index] is not messages[index])

    def follow(self, messages: Sequence[Message]) -> None:
        """Drop what is no longer part of the conversation and encode what is new."""
        same = self.shared(messages)
        if same < len(self._messages):
            del self._messages[same:], self._ends[same:], self._blocks[same:], self._marks[same:]
            del self.buffer[self._ends[-1] if self._ends else 0 :]
            self._sent = min(self._sent, same)
        for message in messages[same:] if same else messages:
            encoded = _encode_message(message)
            if self.buffer:
                self.buffer += b","
            self.buffer += encoded
            self._messages.append(message)
            self._ends.append(len(self.buffer))
            self._blocks.append(len(message.content))
            self._marks.append(encoded.count(b'"cache_control":{'))

    def encoded(self, may_mark: bool) -> list[bytes | bytearray]:
        """The messages, in pieces to be joined.

        Where too much is new for the service to find its last cache entry, the message at its end is marked.
        """
        last, self._sent = self._sent - 1, len(self._messages)
        if not may_mark or last < 0 or sum(self._blocks[last + 1 :]) <= LOOKBACK:
            return [self.buffer]
        marked = _marked(self._messages[last])
        start = self._ends[last - 1] + 1 if last else 0
        return [self.buffer[:start], _encode_message(marked), self.buffer[self._ends[last] :]]


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
    try:
        return message.encoded()
    except UnicodeEncodeError:
        return Message(message.role, json_safe(message.content)).encoded()


def _encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(json_safe(msgspec.to_builtins(value)))
