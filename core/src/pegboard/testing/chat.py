"""A strict chat-completions service on loopback: it plays the scripts of `MessagesService` over the other wire.

For providers that speak what local servers speak. A script's blocks are those of the Messages API; what chat
completions cannot carry (signed thinking, blocks of server tools) cannot be played. ``bodies`` are shown in the shape
of the Messages API too, so that one suite holds for every provider; ``requests`` hold what really came.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pegboard.testing.chat_check import problems
from pegboard.testing.messages import (
    MODELS,
    REQUEST_LIMIT,
    MessagesService,
    Recorded,
    Script,
    recorded,
    send_events,
    send_json,
    tokens_of,
)
from pegboard.testing.messages_events import answer_blocks, encode_json, fragments, fresh, message_of
from pegboard.testing.messages_http import Exchange

__all__ = ["ChatService", "as_messages", "chunks_of", "problems"]

CHAT = "/v1/chat/completions"
_FINISH = {"tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter",
           "model_context_window_exceeded": "length"}  # fmt: skip
_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ChatService(MessagesService):
    """Plays a script while its ``with`` block runs, as `MessagesService` does. Without ``key`` it asks for none.

    ``images`` false refuses pictures. A prompt beyond ``window`` is refused; an answer that is cut because it is full
    is said to fill it.
    """

    def __init__(self, script: Script = (), *, images: bool = True, models: Sequence[str] = MODELS, **options: Any):
        super().__init__(script, models=models, **options)
        self._images = images

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """Bodies of the requests for an answer so far, refused ones included, in the shape of the Messages API."""
        return [as_messages(entry.body) for entry in self.requests if urlsplit(entry.path).path == CHAT]

    def _handle(self, exchange: Exchange) -> None:
        entry = recorded(exchange)
        self.requests.append(entry)
        path = urlsplit(exchange.path).path
        if self._key is not None and exchange.headers.get("authorization") != f"Bearer {self._key}":
            return _refuse(exchange, entry, 401, "Incorrect API key provided")
        if exchange.method == "GET" and path == "/v1/models":
            listed = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in self._models]
            return send_json(exchange, entry, 200, {"object": "list", "data": listed})
        if exchange.method != "POST" or path != CHAT:
            return _refuse(exchange, entry, 404, f"There is nothing at {exchange.method} {path}")
        body = entry.body
        if entry.size > REQUEST_LIMIT:
            return _refuse(exchange, entry, 413, "The request is too large")
        if body is None:
            return _refuse(exchange, entry, 400, "The body is no JSON in UTF-8")
        entry.problems = problems(body, images=self._images)
        if entry.problems:
            return _refuse(exchange, entry, 400, entry.problems[0])
        if tokens_of(entry) > self._window:
            said = f"This model's maximum context length is {self._window} tokens; you sent {tokens_of(entry)}."
            return _refuse(exchange, entry, 400, said, code="context_length_exceeded")
        return self._answer(exchange, entry, body)

    def _answer(self, exchange: Exchange, entry: Recorded, body: dict[str, Any]) -> None:
        turn = self._play.next(as_messages(body))
        if turn is None:
            return _refuse(exchange, entry, 400, "The script has no further turn for this request")
        if exchange.gone(turn.get("delay", 0)):
            entry.hung_up = True
            return exchange.drop()
        if status := turn.get("http_status"):
            given = {"message": "The service failed.", **turn.get("error", {})}
            return _refuse(exchange, entry, status, given["message"], headers=turn.get("headers", {}))
        blocks = answer_blocks({"content": [_named(block) for block in turn.get("content", [])]})
        message = message_of(turn, blocks, body["model"], tokens_of(entry))
        if message["stop_reason"] == "model_context_window_exceeded":
            message["usage"]["input_tokens"] = self._window - message["usage"]["output_tokens"]
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        events = [b"data: " + encode_json(chunk) + b"\n\n" for chunk in chunks_of(turn, blocks, message, usage)]
        if "stream_error" not in turn:
            events.append(b"data: [DONE]\n\n")
        entry.status = 200
        return send_events(exchange, entry, turn, events)


def chunks_of(
    turn: Mapping[str, Any], blocks: list[dict[str, Any]], message: Mapping[str, Any], usage: bool
) -> Iterator[dict[str, Any]]:
    """The chunks of a streamed answer, in order. ``reasoning`` in the turn names the field for thinking."""
    common = {"id": f"chatcmpl-{fresh()}", "object": "chat.completion.chunk", "created": 0, "model": message["model"]}

    def chunk(delta: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
        return {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": finish, **fields}]}

    yield chunk({"role": "assistant", "content": ""})
    for delta in _deltas(blocks, turn.get("pieces", 4), turn.get("reasoning", "reasoning_content")):
        yield chunk(delta)
    if error := turn.get("stream_error"):
        yield {"error": {"message": "The stream failed.", **error}}
        return
    stop = message["stop_reason"]
    stopped = {"stop_reason": message["stop_sequence"] or "STOP"} if stop == "stop_sequence" else {}
    yield chunk({}, _FINISH.get(stop, "stop"), **stopped)
    if usage:
        yield {**common, "choices": [], "usage": _usage(message["usage"])}


def _deltas(blocks: list[dict[str, Any]], pieces: int, reasoning: str) -> Iterator[dict[str, Any]]:
    number = 0
    for block in blocks:
        kind = block["type"]
        if kind in ("text", "thinking"):
            field = reasoning if kind == "thinking" else "content"
            yield from ({field: part} for part in fragments(block[kind], pieces))
            continue
        if kind != "tool_use":
            raise ValueError(f"chat completions cannot carry a block of type {kind}")
        text = block["raw_input"] if "raw_input" in block else encode_json(block["input"]).decode()
        function = {"name": block["name"], "arguments": ""}
        yield {"tool_calls": [{"index": number, "id": block["id"], "type": "function", "function": function}]}
        for part in fragments(text, pieces):
            yield {"tool_calls": [{"index": number, "function": {"arguments": part}}]}
        number += 1


def _named(block: Mapping[str, Any]) -> dict[str, Any]:
    named = {"id": f"call_{fresh()}", **block} if block["type"] == "tool_use" else dict(block)
    return {"signature": "", **named} if block["type"] == "thinking" else named


def _usage(counts: Mapping[str, int]) -> dict[str, Any]:
    read, written = counts["cache_read_input_tokens"], counts["cache_creation_input_tokens"]
    prompt = counts["input_tokens"] + read + written
    return {
        "prompt_tokens": prompt,
        "completion_tokens": counts["output_tokens"],
        "total_tokens": prompt + counts["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
    }


def as_messages(body: dict[str, Any]) -> dict[str, Any]:
    """A request of chat completions in the shape of the Messages API; fields that both have stay as they are."""
    renamed = {"stop": "stop_sequences", "max_completion_tokens": "max_tokens"}
    found = {renamed.get(key, key): value for key, value in body.items()}
    for key in ("messages", "stream_options", "chat_template_kwargs"):
        found.pop(key, None)
    if "tools" in body:
        functions = [tool["function"] for tool in body["tools"]]
        found["tools"] = [
            {"name": one["name"], "description": one.get("description", ""), "input_schema": one.get("parameters", {})}
            for one in functions
        ]
    if "chat_template_kwargs" in body:
        found["thinking"] = {"type": "adaptive" if body["chat_template_kwargs"].get("enable_thinking") else "disabled"}
    messages: list[dict[str, Any]] = []
    for message in body["messages"]:
        if message["role"] == "system":
            found["system"] = [{"type": "text", "text": message["content"]}]
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
        messages[-1]["content"] += _blocks(message)
    return {**found, "messages": messages}


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if message["role"] == "tool":
        return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}]
    blocks: list[dict[str, Any]] = []
    for field in ("reasoning_content", "reasoning"):
        if message.get(field):
            blocks.append({"type": "thinking", "thinking": message[field], "signature": "", "field": field})
    if isinstance(content, str):
        blocks += [{"type": "text", "text": content}] if content else []
    else:
        blocks += [_part(part) for part in content or []]
    for call in message.get("tool_calls") or []:
        arguments = json.loads(call["function"]["arguments"])
        blocks.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments})
    return blocks


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return part
    head, _, data = part["image_url"]["url"].partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}}


def _refuse(
    exchange: Exchange,
    entry: Recorded,
    status: int,
    text: str,
    *,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    entry.problems = entry.problems or [text]
    kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    error = {"message": text, "type": kind, "param": None, "code": code}
    send_json(exchange, entry, status, {"error": error}, headers or {})
