"""Builds one answer from the events of its stream, block by block, exactly as it must be sent back.

Blocks of kinds unknown here (server tools, things to come) pass untouched.
"""

from __future__ import annotations

from typing import Any

from pegboard.call import Block
from pegboard.provider import Answer, BlockDone, Part, TextDelta, ThinkingDelta, Usage
from pegboard_http.failure import broken_line
from pegboard_http.values import call_input

from pegboard_anthropic.failure import from_event

_CUTTING = ("max_tokens", "model_context_window_exceeded", "refusal")
"""Stop reasons that can end a message inside a block."""
_COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class _OpenBlock:
    """A block on its way: what it started as, and its fragments so far."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.texts: list[str] = []
        self.inputs: list[str] = []


class Assembly:
    """Takes the events of one stream in order. ``answer`` is set once the message is complete."""

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self._id = ""
        self._model = ""
        self._stop = ""
        self._usage: dict[str, int] = {}
        self._open: dict[int, _OpenBlock] = {}
        self._content: list[Block] = []
        self._broken: dict[int, str] = {}
        self._unsigned = False

    def take(self, event: dict[str, Any]) -> Part | None:
        """The part that this event makes, if any. Raises `Failure` for an error event and for one without sense."""
        try:
            return self._take(event)
        except (KeyError, TypeError, AttributeError) as error:
            raise broken_line(f"The model service sent an event that cannot be read ({error!r}).") from error

    def _take(self, event: dict[str, Any]) -> Part | None:
        kind = event["type"]
        if kind == "content_block_delta":
            return self._delta(self._open[event["index"]], event["delta"])
        if kind == "content_block_start":
            self._open[event["index"]] = _OpenBlock(_sound(event["content_block"]))
        elif kind == "content_block_stop":
            return self._close(self._open.pop(event["index"]))
        elif kind == "message_start":
            message = event["message"]
            self._id, self._model = _string(message["id"]), _string(message.get("model") or "")
            self._count(message.get("usage"))
        elif kind == "message_delta":
            self._stop = _string(event["delta"].get("stop_reason") or self._stop)
            self._count(event.get("usage"))
        elif kind == "message_stop":
            self._finish()
        elif kind == "error":
            raise from_event(event)
        return None

    def _delta(self, open_block: _OpenBlock, delta: dict[str, Any]) -> Part | None:
        kind = delta["type"]
        if kind == "text_delta":
            open_block.texts.append(_string(delta["text"]))
            return TextDelta(delta["text"])
        if kind == "input_json_delta":
            open_block.inputs.append(_string(delta["partial_json"]))
        elif kind == "thinking_delta":
            open_block.texts.append(_string(delta["thinking"]))
            return ThinkingDelta(delta["thinking"])
        elif kind == "signature_delta":
            open_block.block["signature"] = (open_block.block.get("signature") or "") + _string(delta["signature"])
        elif kind == "citations_delta":
            open_block.block["citations"] = [*(open_block.block.get("citations") or []), delta["citation"]]
        return None

    def _close(self, open_block: _OpenBlock) -> BlockDone | None:
        """Put a complete block into the content; empty texts and unsigned thinking could not be sent back."""
        block, kind, broken = open_block.block, open_block.block["type"], None
        if kind in ("text", "thinking"):
            block[kind] = block.get(kind, "") + "".join(open_block.texts)
        if kind == "text" and not block["text"]:
            return None
        if kind == "thinking" and not block.get("signature"):
            self._unsigned = True
            return None
        if open_block.inputs and (text := "".join(open_block.inputs)):
            block["input"], broken = call_input(text)
        index = len(self._content)
        self._content.append(block)
        if broken is not None and kind == "tool_use":
            self._broken[index] = broken
        return BlockDone(index, block, broken if kind == "tool_use" else None)

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Counts are totals: later ones replace earlier ones, absent ones change nothing."""
        for name in _COUNTS:
            if (value := (usage or {}).get(name)) is not None:
                if not isinstance(value, int):
                    raise TypeError(f"{name} is no number")
                self._usage[name] = value

    def _finish(self) -> None:
        for index in sorted(self._open):
            self._close(self._open[index])
        cut = self._stop in _CUTTING and (self._unsigned or self._cut_call())
        self.answer = Answer(
            id=self._id,
            model=self._model,
            content=self._content,
            stop_reason=self._stop,
            usage=Usage(**self._usage),
            broken=self._broken,
            cut=cut,
        )

    def _cut_call(self) -> bool:
        """Whether the message ended inside a tool call; its broken text is noted, even an empty one."""
        last = len(self._content) - 1
        if last < 0 or self._content[last]["type"] != "tool_use":
            return False
        if last not in self._broken and self._content[last].get("input"):
            return False
        self._broken.setdefault(last, "")
        return True


def _sound(block: Block) -> Block:
    """A block as it starts, if what the loop relies on is there. Raises KeyError and TypeError."""
    kind = _string(block["type"])
    if kind in ("text", "thinking"):
        _string(block.get(kind, ""))
    if kind == "thinking":
        _string(block.get("signature") or "")
    if kind == "tool_use":
        if not (_string(block["id"]) and _string(block["name"])):
            raise TypeError("a call has no id or no name")
        if not isinstance(block.get("input") or {}, dict):
            raise TypeError("the input of a call is no object")
    return block


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value
