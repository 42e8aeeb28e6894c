"""Encodings of conversations that are kept, so that a turn costs the same however long the conversation is.

Messages never change once made, so each is encoded once; a request joins what is there with what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Generic, TypeVar

from pegboard.provider import Message, ToolSpec

KEPT = 8
"""Conversations whose encodings are kept at once; one more only costs encoding again."""


class Kept:
    """The joined encodings of a growing list of messages, with a comma between any two."""

    def __init__(self, encode: Callable[[Message], bytes]) -> None:
        self.buffer = bytearray()
        self.messages: list[Message] = []
        self.ends: list[int] = []
        """Where in ``buffer`` each message ends."""
        self._encode = encode

    def shared(self, messages: Sequence[Message]) -> int:
        """How many messages at the start are the very same objects."""
        ours = self.messages
        if not ours or not messages or ours[0] is not messages[0]:
            return 0
        shortest = min(len(ours), len(messages))
        if all(map(is_, ours, messages)):
            return shortest
        return next(index for index in range(shortest) if ours[index] is not messages[index])

    def follow(self, messages: Sequence[Message]) -> int:
        """Drop what is no longer part of the conversation, encode what is new; how many messages stayed."""
        same = self.shared(messages)
        if same < len(self.messages):
            del self.messages[same:], self.ends[same:]
            del self.buffer[self.ends[-1] if self.ends else 0 :]
        for message in messages[same:] if same else messages:
            encoded = self._encode(message)
            if self.buffer and encoded:
                self.buffer += b","
            self.buffer += encoded
            self.messages.append(message)
            self.ends.append(len(self.buffer))
        return same

    def start(self, index: int) -> int:
        """Where in ``buffer`` a message starts."""
        return self.ends[index - 1] + 1 if index else 0


K = TypeVar("K", bound=Kept)


class Shelf(Generic[K]):
    """The conversations of one provider: a request goes on with one of them, or begins another."""

    def __init__(self, make: Callable[[], K]) -> None:
        self._make = make
        self._kept: list[K] = []

    def take(self, messages: Sequence[Message]) -> K:
        """The conversation that these messages go on with, brought up to date; the most recent one is last."""
        found = max(self._kept, key=lambda kept: kept.shared(messages), default=None)
        if found is None or not found.shared(messages):
            found = self._make()
        else:
            self._kept.remove(found)
        self._kept.append(found)
        del self._kept[:-KEPT]
        found.follow(messages)
        return found


class KeptTools:
    """The encodings of tools, kept for as long as the same ones are offered."""

    def __init__(self, encode: Callable[[ToolSpec], bytes]) -> None:
        self._encode = encode
        self._kept: dict[int, tuple[ToolSpec, bytes]] = {}

    def all(self, tools: Sequence[ToolSpec]) -> list[bytes]:
        """One encoding for each tool, in their order."""
        kept = self._kept
        self._kept = {
            id(tool): kept[id(tool)] if kept.get(id(tool), (None,))[0] is tool else (tool, self._encode(tool))
            for tool in tools
        }
        return [encoded for _, encoded in self._kept.values()]
