"""How a scripted turn goes over the Messages wire: its blocks with ids and signatures, and its stream events.

Kept apart from the server so that the shape of the wire can be read, and tested, in one place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from pegboard.testing.messages_blocks import sealed, signature_of

PIECES = 4
"""Into how many fragments texts and tool inputs are cut where a turn does not say ``pieces``."""

Event = tuple[str, dict[str, Any]]
_MODEL_MADE = ("thinking", "redacted_thinking")


class Given:
    """What the service has given out, so that it can tell altered thinking from its own."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self._thinking: dict[str, list[dict[str, Any]]] = {}

    def remember(self, blocks: list[dict[str, Any]]) -> None:
        """Note the thinking of an answer under the ids of its tool calls."""
        thinking = [_bare(block) for block in blocks if block["type"] in _MODEL_MADE]
        for block in thinking:
            self.known.add(block.get("data") or block.get("thinking", "") + "\0" + block.get("signature", ""))
        for block in blocks:
            if block["type"] == "tool_use":
                self._thinking[block["id"]] = thinking

    def altered(self, messages: list[Any]) -> Iterator[str]:
        """Say where the latest assistant message lost or changed thinking that belongs to its tool calls."""
        for index in range(len(messages) - 1, -1, -1):
            if messages[index].get("role") != "assistant":
                continue
            content = messages[index]["content"]
            blocks = content if isinstance(content, list) else []
            ids = [block["id"] for block in blocks if block["type"] == "tool_use" and block["id"] in self._thinking]
            sent = [_bare(block) for block in blocks if block["type"] in _MODEL_MADE]
            if ids and sent != self._thinking[ids[0]]:
                yield (
                    f"messages.{index}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot"
                    " be modified. They have to come back as they were given out."
                )
            return


def _bare(block: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "cache_control"}


def answer_blocks(turn: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a turn as they are given out: tool calls get ids, thinking gets its signature."""
    blocks = []
    for block in turn.get("content", []):
        block = dict(block)
        if block["type"] in ("tool_use", "server_tool_use"):
            block.setdefault("id", ("srvtoolu_" if block["type"] == "server_tool_use" else "toolu_") + fresh())
            block.setdefault("input", {})
        elif block["type"] == "thinking":
            block.setdefault("signature", signature_of(block["thinking"]))
        elif block["type"] == "redacted_thinking":
            block.setdefault("data", sealed("redacted"))
        blocks.append(block)
    return blocks


def message_of(turn: Mapping[str, Any], blocks: list[dict[str, Any]], model: str, tokens: int) -> dict[str, Any]:
    """The finished message, as a request without ``stream`` gets it. ``tokens``: size of the request."""
    tool = any(block["type"] == "tool_use" for block in blocks)
    usage = {
        "input_tokens": tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": max(1, len(json.dumps(blocks)) // 4),
        **turn.get("usage", {}),
    }
    return {
        "id": f"msg_{fresh()}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{key: value for key, value in block.items() if key != "raw_input"} for block in blocks],
        "stop_reason": turn.get("stop_reason") or ("tool_use" if tool else "end_turn"),
        "stop_sequence": turn.get("stop_sequence"),
        "usage": usage,
    }


def stream_of(turn: Mapping[str, Any], blocks: list[dict[str, Any]], message: dict[str, Any]) -> Iterator[Event]:
    """The events of a streamed answer, in order."""
    usage = message["usage"]
    opening = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    yield _event("message_start", message={**opening, "usage": {**usage, "output_tokens": 1}})
    pieces = turn.get("pieces", PIECES)
    for index, block in enumerate(blocks):
        start, deltas = _parts(block, pieces)
        yield _event("content_block_start", index=index, content_block=start)
        if index == 0:
            yield _event("ping")
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    if error := turn.get("stream_error"):
        yield _event("error", error={"message": "The stream failed.", **error})
        return
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    yield _event("message_delta", delta=stop, usage=usage)
    yield _event("message_stop")


def encode_event(event: Event) -> bytes:
    """The bytes of one server-sent event."""
    return b"event: " + event[0].encode() + b"\ndata: " + encode_json(event[1]) + b"\n\n"


def encode_json(value: Any) -> bytes:
    """Compact JSON; what UTF-8 cannot carry is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _event(kind: str, **fields: Any) -> Event:
    return kind, {"type": kind, **fields}


def _parts(block: dict[str, Any], pieces: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a block starts as, and the deltas that complete it."""
    kind = block["type"]
    if kind == "text":
        deltas = [{"type": "text_delta", "text": part} for part in fragments(block["text"], pieces)]
        deltas += [{"type": "citations_delta", "citation": item} for item in block.get("citations") or []]
        return {"type": "text", "text": ""}, deltas
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": part} for part in fragments(block["thinking"], pieces)]
        if block["signature"]:
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if kind in ("tool_use", "server_tool_use"):
        text = block["raw_input"] if "raw_input" in block else encode_json(block["input"]).decode()
        start = {**{key: value for key, value in block.items() if key != "raw_input"}, "input": {}}
        return start, [{"type": "input_json_delta", "partial_json": part} for part in ["", *fragments(text, pieces)]]
    return block, []


def fragments(text: str, pieces: int) -> list[str]:
    """A text in about so many pieces."""
    size = max(1, -(-len(text) // max(1, pieces)))
    return [text[at : at + size] for at in range(0, len(text), size)]


def fresh() -> str:
    """The random part of an id."""
    return os.urandom(12).hex()
