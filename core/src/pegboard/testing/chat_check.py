"""What a strict chat-completions service refuses: `problems`, the check of a request body, as a pure function.

It is as strict as the strictest of the local servers and their chat templates, which break off in mid-session on what
others let pass: every call answered right behind its message, roles that alternate, no empty message.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any

from pegboard.testing.messages_blocks import IMAGE_LIMIT, IMAGE_STARTS, NAME

_FIELDS = frozenset(
    {
        "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "tools", "tool_choice",
        "parallel_tool_calls", "temperature", "top_p", "stop", "seed", "user", "metadata", "response_format",
        "reasoning_effort", "chat_template_kwargs", "cache_prompt",
    }
)  # fmt: skip
_ROLES = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "reasoning", "reasoning_content"},
    "tool": {"role", "content", "tool_call_id"},
}


def problems(body: Any, *, images: bool = True) -> list[str]:
    """Everything that the service would refuse in this request body, in reading order; empty when it is accepted."""
    return list(_body(body, images)) if isinstance(body, dict) else ["the body must be an object"]


def _body(body: dict[str, Any], images: bool) -> Iterator[str]:
    for key in body.keys() - _FIELDS:
        yield f"Unrecognized request argument supplied: {key}"
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "you must provide a model parameter"
    for key in ("max_tokens", "max_completion_tokens"):
        value = body.get(key, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            yield f"{key}: must be a whole number above 0"
    if "stream_options" in body and not body.get("stream"):
        yield "stream_options: only allowed when stream is true"
    if "tools" in body:
        yield from _tools(body["tools"])
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: must be a list with at least one message"
        return
    for index, message in enumerate(messages):
        yield from _message(message, f"messages[{index}]", images)
    if all(isinstance(message, dict) for message in messages):
        yield from _order(messages)


def _tools(tools: Any) -> Iterator[str]:
    if not isinstance(tools, list) or not tools:
        yield "tools: must be a list with at least one tool"
        return
    names: set[str] = set()
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function" or tool.keys() != {"type", "function"}:
            yield f"tools[{index}]: must be an object of type function, with a function"
            continue
        name = function.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            yield f"tools[{index}].function.name: does not match ^[a-zA-Z0-9_-]+$"
        elif name in names:
            yield f"tools[{index}].function.name: {name} is there twice"
        else:
            names.add(name)
        if function.keys() - {"name", "description", "parameters", "strict"}:
            yield f"tools[{index}].function: unknown fields"
        parameters = function.get("parameters", {"type": "object"})
        if not isinstance(parameters, dict) or parameters.get("type") != "object":
            yield f"tools[{index}].function.parameters: must be a schema of type object"


def _message(message: Any, where: str, images: bool) -> Iterator[str]:
    role = message.get("role") if isinstance(message, dict) else None
    if role not in _ROLES:
        yield f"{where}.role: must be one of {', '.join(_ROLES)}"
        return
    for key in message.keys() - _ROLES[role]:
        yield f"{where}: Unknown parameter: {key}"
    content = message.get("content")
    if role == "assistant":
        yield from _calls(message.get("tool_calls", []), where)
        for key in ("reasoning", "reasoning_content"):
            if not isinstance(message.get(key, ""), str):
                yield f"{where}.{key}: must be a string"
        if content is None and message.get("tool_calls"):
            return
        if not isinstance(content, str) or not (content or message.get("tool_calls")):
            yield f"{where}: an assistant message must contain content or tool_calls"
    elif role == "user" and isinstance(content, list):
        yield from _parts(content, where, images)
    elif not isinstance(content, str):
        yield f"{where}.content: must be a string"
    elif role == "user" and not content:
        yield f"{where}.content: must not be empty"


def _calls(calls: Any, where: str) -> Iterator[str]:
    if not isinstance(calls, list):
        yield f"{where}.tool_calls: must be a list"
        return
    for index, call in enumerate(calls):
        place = f"{where}.tool_calls[{index}]"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or call.get("type") != "function":
            yield f"{place}: must be an object of type function, with a function"
            continue
        if not isinstance(call.get("id"), str) or not call["id"]:
            yield f"{place}.id: must be a string"
        if not isinstance(function.get("name"), str) or not NAME.fullmatch(function["name"]):
            yield f"{place}.function.name: does not match ^[a-zA-Z0-9_-]+$"
        try:
            arguments = json.loads(function["arguments"])
        except (KeyError, TypeError, ValueError):
            arguments = None
        if not isinstance(arguments, dict):
            yield f"{place}.function.arguments: must be the text of a JSON object"


def _parts(parts: list[Any], where: str, images: bool) -> Iterator[str]:
    if not parts:
        yield f"{where}.content: must not be empty"
    for index, part in enumerate(parts):
        place = f"{where}.content[{index}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            if not isinstance(part.get("text"), str) or not part["text"]:
                yield f"{place}.text: must be a string that is not empty"
        elif kind == "image_url":
            if not images:
                yield f"{place}: image input is not supported by this model"
            yield from _image(part.get("image_url"), place)
        else:
            yield f"{place}.type: must be text or image_url"


def _image(image: Any, where: str) -> Iterator[str]:
    url = image.get("url") if isinstance(image, dict) else None
    if not isinstance(url, str):
        yield f"{where}.image_url.url: must be a string"
        return
    if url.startswith(("https://", "http://")):
        return
    head, _, data = url.partition(";base64,")
    start = IMAGE_STARTS.get(head.removeprefix("data:"))
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if start is None or not raw.startswith(start) or len(data) > IMAGE_LIMIT:
        yield f"{where}.image_url.url: failed to decode the image"


def _order(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Say where roles do not alternate, and where calls and answers do not pair."""
    before = ""
    waiting: list[Any] = []
    seen: set[Any] = set()
    for index, message in enumerate(messages):
        role, where = message.get("role"), f"messages[{index}]"
        if waiting and role != "tool":
            yield f"{where}: an assistant message with tool_calls must be followed by tool messages responding to each"
            waiting = []
        if role == "tool":
            call = message.get("tool_call_id")
            if call in waiting:
                waiting.remove(call)
            else:
                yield f"{where}: a message with role tool must be a response to a preceding message with tool_calls"
        elif role == "system":
            if index:
                yield f"{where}: the system message must be at the beginning"
        elif role == before:
            yield f"{where}: conversation roles must alternate"
        elif role == "assistant" and before in ("", "system"):
            yield f"{where}: the conversation must begin with a user message"
        calls = message.get("tool_calls") if role == "assistant" else None
        if isinstance(calls, list):
            waiting = [call.get("id") for call in calls if isinstance(call, dict)]
            if len(set(waiting)) < len(waiting) or seen & set(waiting):
                yield f"{where}.tool_calls: duplicate ids"
            seen.update(waiting)
        before = "" if role is None else role
    if waiting:
        yield f"messages[{len(messages) - 1}]: tool_calls without responses: {', '.join(map(str, waiting))}"
