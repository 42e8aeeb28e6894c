"""Builds one answer from the chunks of its stream, in the blocks of the Messages API.

Servers differ in small ways: fields that are missing, calls that come whole or in fragments, reasoning under one of
two names. All of them are taken; only an answer that makes no sense is refused.
"""

from __future__ import annotations

import os
from typing import Any

from pegboard.call import Block
from pegboard.provider import Answer, BlockDone, Part, TextDelta, ThinkingDelta, Usage
from pegboard_http.failure import broken_line
from pegboard_http.values import call_input, encode

from pegboard_openai_compatible.failure import from_chunk

_STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_CUTTING = ("max_tokens", "model_context_window_exceeded", "refusal")
_REASONING = ("reasoning_content", "reasoning")


class _OpenCall:
    """A call on its way: its fragments so far."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


class Assembly:
    """Takes the chunks of one stream in order. ``window``: the model's, to tell why an answer was cut."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._id = ""
        self._model = ""
        self._finish = ""
        self._sequence = False
        self._usage: dict[str, Any] | None = None
        self._content: list[Block] = []
        self._kind = ""
        self._texts: list[str] = []
        self._calls: list[_OpenCall] = []
        self._numbers: dict[Any, _OpenCall] = {}
        self._size = 0

    @property
    def finished(self) -> bool:
        """Whether the service has said why it stopped."""
        return bool(self._finish)

    def take(self, chunk: dict[str, Any]) -> list[Part]:
        """The parts that this chunk makes. Raises `Failure` for an error and for a chunk without sense."""
        try:
            return list(self._take(chunk))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise broken_line(f"The model service sent a chunk that cannot be read ({error!r}).") from error

    def _take(self, chunk: dict[str, Any]) -> list[Part]:
        if chunk.get("error"):
            raise from_chunk(chunk)
        self._id = self._id or str(chunk.get("id") or "")
        self._model = self._model or str(chunk.get("model") or "")
        self._usage = chunk.get("usage") or self._usage
        parts: list[Part] = []
        for choice in (chunk.get("choices") or [])[:1]:
            parts += self._delta(choice.get("delta") or {})
            if choice.get("finish_reason"):
                self._finish = str(choice["finish_reason"])
                self._sequence = isinstance(choice.get("stop_reason"), str)
        return parts

    def _delta(self, delta: dict[str, Any]) -> list[Part]:
        parts: list[Part] = []
        field = next((name for name in _REASONING if delta.get(name)), None)
        if field is not None:
            parts += self._switch(field)
            parts.append(ThinkingDelta(self._more(delta[field])))
        text = delta.get("content") or delta.get("refusal")
        if text:
            if delta.get("refusal"):
                self._finish = "content_filter"
            parts += self._switch("text")
            parts.append(TextDelta(self._more(text)))
        for fragment in delta.get("tool_calls") or ():
            parts += self._switch("")
            self._fragment(fragment)
        return parts

    def _more(self, text: Any) -> str:
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is no text")
        self._texts.append(text)
        return text

    def _switch(self, kind: str) -> list[Part]:
        """Begin a block of another kind; the one before it is complete."""
        if kind == self._kind:
            return []
        before, self._kind = self._kind, kind
        text = "".join(self._texts)
        self._texts.clear()
        if not before or not text:
            return []
        self._size += len(text)
        if before == "text":
            self._content.append({"type": "text", "text": text})
        else:
            self._content.append({"type": "thinking", "thinking": text, "signature": "", "field": before})
        return [BlockDone(len(self._content) - 1, self._content[-1])]

    def _fragment(self, fragment: dict[str, Any]) -> None:
        """Put a piece of a call where it belongs: by its number, unless its id shows that it is another call's."""
        number, call_id, function = fragment.get("index"), fragment.get("id"), fragment.get("function") or {}
        call = self._numbers.get(number) if number is not None else self._calls[-1] if self._calls else None
        if call is None or (call_id and call.id and call_id != call.id and function.get("name")):
            call = _OpenCall()
            self._calls.append(call)
            if number is not None:
                self._numbers[number] = call
        call.id = call.id or str(call_id or "")
        call.name = call.name or str(function.get("name") or "")
        arguments = function.get("arguments")
        if arguments:
            call.arguments.append(arguments if isinstance(arguments, str) else encode(arguments).decode())

    def finish(self, prompt: int) -> list[Part]:
        """The rest of the parts, the `Answer` last. ``prompt`` is the size of the request, for services that do not
        count."""
        parts = self._switch("")
        broken: dict[int, str] = {}
        for call in self._calls:
            text = "".join(call.arguments)
            self._size += len(text)
            value, fault = call_input(text) if text else ({}, None)
            index = len(self._content)
            name = {"id": call.id or f"call_{os.urandom(12).hex()}", "name": call.name}
            self._content.append({"type": "tool_use", **name, "input": value})
            if fault is not None:
                broken[index] = fault
            parts.append(BlockDone(index, self._content[-1], fault))
        usage = self._counted(prompt)
        stop = self._stop(usage)
        cut = stop in _CUTTING and self._cut(broken)
        parts.append(
            Answer(
                id=self._id or f"chatcmpl-{os.urandom(12).hex()}",
                model=self._model,
                content=self._content,
                stop_reason=stop,
                usage=usage,
                broken=broken,
                cut=cut,
            )
        )
        return parts

    def _stop(self, usage: Usage) -> str:
        stop = _STOPS.get(self._finish, "end_turn")
        if stop == "max_tokens" and _sum(usage) >= self._window:
            return "model_context_window_exceeded"
        if stop == "end_turn":
            return "tool_use" if self._calls else "stop_sequence" if self._sequence else "end_turn"
        return stop if stop != "tool_use" or self._calls else "end_turn"

    def _cut(self, broken: dict[int, str]) -> bool:
        """Whether the answer ended inside something that cannot be used: a call, or thinking with nothing behind it."""
        if self._content and all(block["type"] == "thinking" for block in self._content):
            self._content.clear()
            return True
        last = len(self._content) - 1
        if last < 0 or self._content[last]["type"] != "tool_use":
            return False
        if last not in broken and self._content[last]["input"]:
            return False
        broken.setdefault(last, "")
        return True

    def _counted(self, prompt: int) -> Usage:
        """What the service counted; an estimate (four bytes a token) where it does not count."""
        if self._usage is None:
            return Usage(input_tokens=prompt // 4, output_tokens=self._size // 4)
        details = self._usage.get("prompt_tokens_details") or {}
        read, written = details.get("cached_tokens") or 0, details.get("cache_write_tokens") or 0
        return Usage(
            input_tokens=max(0, (self._usage.get("prompt_tokens") or 0) - read - written),
            output_tokens=self._usage.get("completion_tokens") or 0,
            cache_read_input_tokens=read,
            cache_creation_input_tokens=written,
        )


def _sum(usage: Usage) -> int:
    prompt = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    return prompt + usage.output_tokens
