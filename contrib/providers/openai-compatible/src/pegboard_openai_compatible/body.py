"""Requests of chat completions from those of the loop: messages, tools, limits.

A message of the loop becomes one or several here: each result of a call is a message of its own. They are encoded once
and kept, so that a turn costs the same however long the conversation is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pegboard.call import Block
from pegboard.provider import Abilities, Message, Request, ToolSpec
from pegboard_http.kept import Kept, KeptTools, Shelf
from pegboard_http.values import encode

BYTES = 3
"""[C] A token has at least this many bytes in the mean; used to leave an answer room in the window."""
LEAST = 256
"""[C] An answer's limit is never made smaller than this to fit the window; the service decides then."""
EMPTY = "(no text)"
"""Stands for a message of which nothing can be sent."""
FAILED = "[This call failed.]"
"""Stands before the result of a failed call, for which the protocol has no flag."""
BELOW = "[{} {} of this result: see the next message.]"
"""Stands in a result for a picture, which the protocol takes from the user only."""

_ELSEWHERE = frozenset(
    {"cache_control", "container", "context_management", "diagnostics", "inference_geo", "mcp_servers", "service_tier",
     "speed"}
)  # fmt: skip
"""Fields of the Messages API without a counterpart."""


class Bodies:
    """Makes the bodies of all requests of one provider."""

    def __init__(self, limit_field: str = "max_tokens") -> None:
        self._limit_field = limit_field
        self._conversations = Shelf(lambda: Kept(_encode_message))
        self._tools = KeptTools(_encode_tool)

    def message(self, request: Request, abilities: Abilities) -> bytes:
        """The body of a streamed request."""
        parts = self._prompt(request, abilities)
        size = sum(map(len, parts))
        room = max(LEAST, abilities.window - size // BYTES)
        head: dict[str, Any] = {
            "model": request.model,
            self._limit_field: min(request.max_tokens, room),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        for key, value in request.extra.items():
            if value is not None and key not in _ELSEWHERE:
                head.update(_TRANSLATED[key](value) if key in _TRANSLATED else {key: value})
        if request.thinking is not None and abilities.thinking:
            wanted = {"enable_thinking": request.thinking.get("type") != "disabled"}
            head["chat_template_kwargs"] = {**wanted, **head.get("chat_template_kwargs", {})}
        return b"".join([encode(head)[:-1], *parts, b"}"])

    def count(self, request: Request, abilities: Abilities) -> int:
        """How many tokens the request has, estimated: the protocol has no way to ask."""
        size = sum(map(len, self._prompt(request, abilities)))
        return -(-size * 11 // 40)  # four bytes each, and a tenth in reserve

    def _prompt(self, request: Request, abilities: Abilities) -> list[bytes | bytearray]:
        parts: list[bytes | bytearray] = []
        if request.tools and abilities.tools:
            parts += [b',"tools":[', b",".join(self._tools.all(request.tools)), b"]"]
        parts.append(b',"messages":[')
        if system := "\n\n".join(block["text"] for block in request.system if block.get("text")):
            parts += [encode({"role": "system", "content": system}), b","]
        return [*parts, self._conversations.take(request.messages).buffer, b"]"]


def _encode_tool(tool: ToolSpec) -> bytes:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return encode({"type": "function", "function": function})


def _encode_message(message: Message) -> bytes:
    made = [_assistant(message.content)] if message.role == "assistant" else list(_user(message.content))
    return b",".join(map(encode, made))


def _assistant(blocks: list[Block]) -> dict[str, Any]:
    """One message with text, reasoning and calls. Thinking that another service signed is of no use here."""
    text = "\n\n".join(block["text"] for block in blocks if block["type"] == "text" and block["text"])
    calls = [_call(block) for block in blocks if block["type"] == "tool_use"]
    made: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else EMPTY)}
    for block in blocks:
        if block["type"] == "thinking" and not block.get("signature"):
            field = block.get("field") or "reasoning_content"
            made[field] = made.get(field, "") + block["thinking"]
    if calls:
        made["tool_calls"] = calls
    return made


def _call(block: Block) -> dict[str, Any]:
    function = {"name": block["name"], "arguments": encode(block["input"]).decode()}
    return {"id": block["id"], "type": "function", "function": function}


def _user(blocks: list[Block]) -> Iterator[dict[str, Any]]:
    """First the results, one message each, then one with pictures of results and everything else."""
    rest: list[dict[str, Any]] = []
    for block in blocks:
        if block["type"] == "tool_result":
            text, pictures = _result(block)
            rest += pictures
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": text}
    results = any(block["type"] == "tool_result" for block in blocks)
    rest += [_part(block) for block in blocks if block["type"] != "tool_result"]
    rest = [part for part in rest if part.get("text") != ""]
    if all(part["type"] == "text" for part in rest):
        text = "\n\n".join(part["text"] for part in rest)
        if text or not results:
            yield {"role": "user", "content": text or EMPTY}
    else:
        yield {"role": "user", "content": rest}


def _result(block: Block) -> tuple[str, list[dict[str, Any]]]:
    """The text of a result, and its pictures for the message behind it."""
    content = block.get("content") or ""
    texts: list[str] = [FAILED] if block.get("is_error") else []
    pictures: list[dict[str, Any]] = []
    for inner in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        part = _part(inner)
        if part["type"] == "text":
            texts.append(part["text"])
            continue
        pictures.append(part)
        texts.append(BELOW.format("Picture", len(pictures)))
    if pictures:
        pictures.insert(0, {"type": "text", "text": f"Pictures of the result of call {block['tool_use_id']}:"})
    return "\n".join(text for text in texts if text), pictures


def _part(block: Block) -> dict[str, Any]:
    """A block as a part of a user message; what the protocol cannot carry is named."""
    if block["type"] == "text":
        return {"type": "text", "text": block["text"]}
    source = block.get("source")
    if block["type"] == "image" and isinstance(source, dict) and source.get("type") in ("base64", "url"):
        inline = source["type"] == "base64"
        url = f"data:{source['media_type']};base64,{source['data']}" if inline else source["url"]
        return {"type": "image_url", "image_url": {"url": url}}
    name = block.get("tool_name") or block.get("title") or ""
    return {"type": "text", "text": f"[{block['type']} {name}".rstrip() + "]"}


def _output_config(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if effort := value.get("effort"):
        found["reasoning_effort"] = effort
    shape = value.get("format")
    if isinstance(shape, dict) and shape.get("type") == "json_schema":
        schema = {"name": "answer", "schema": shape["schema"], "strict": True}
        found["response_format"] = {"type": "json_schema", "json_schema": schema}
    return found


def _tool_choice(value: dict[str, Any]) -> dict[str, Any]:
    named = {"type": "function", "function": {"name": value.get("name")}}
    choice = {"any": "required", "tool": named}.get(value["type"], value["type"])
    serial = {"parallel_tool_calls": False} if value.get("disable_parallel_tool_use") else {}
    return {"tool_choice": choice, **serial}


_TRANSLATED: dict[str, Callable[[Any], dict[str, Any]]] = {
    "stop_sequences": lambda value: {"stop": value},
    "output_config": _output_config,
    "tool_choice": _tool_choice,
}
