"""What the Messages service refuses with a 400: `problems`, the strict check of a request body.

A pure function, so that property tests of transcripts and providers can ask it without a server. It is meant to be at
least as strict as the real service: what passes here is accepted there.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Any

from pegboard.testing.messages_blocks import NAME, block_problems, cache_problems, text_problems

VERSIONS = ("2023-06-01", "2026-10-21")
"""[A] The API versions that are served; the last one is current."""
BREAKPOINTS = 4
"""[A] Most cache breakpoints of one request; a top-level ``cache_control`` takes one."""
MESSAGES = 100_000
"""[A] Most messages of one request."""
DEFERRED = 10_000
"""[A] Most deferred tools of one request."""
THINKING_FLOOR = 1_024
"""[A] Smallest ``budget_tokens``."""

_FIELDS = frozenset(
    {
        "model",
        "messages",
        "max_tokens",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "metadata",
        "stop_sequences",
        "stream",
        "service_tier",
        "container",
        "cache_control",
        "output_config",
        "output_format",
        "context_management",
        "mcp_servers",
        "speed",
        "diagnostics",
        "inference_geo",
    }
)
_SAMPLING = frozenset({"temperature", "top_p", "top_k"})
_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def problems(
    body: Any, *, version: str = VERSIONS[-1], known: Container[str] = (), counting: bool = False
) -> list[str]:
    """Everything that the service would refuse in this request body, in reading order; empty when it is accepted.

    ``known`` holds signatures that were given out with a script's own values. ``counting`` checks a body for the
    count endpoint, which has no ``max_tokens``. Thinking that `signature_of` signed is always accepted.
    """
    if not isinstance(body, dict):
        return ["The request body is not a JSON object"]
    return list(_body(body, version, known, counting))


def _body(body: dict[str, Any], version: str, known: Container[str], counting: bool) -> Iterator[str]:
    fields = _FIELDS | _SAMPLING if version == VERSIONS[0] else _FIELDS
    for key in body:
        if key not in fields:
            yield f"{key}: Extra inputs are not permitted"
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model: Field required"
    if not counting:
        yield from _max_tokens(body)
    yield from _system(body.get("system"))
    yield from _tools(body)
    yield from _thinking(body)
    yield from cache_problems(body.get("cache_control"), "request")
    yield from _stop_sequences(body.get("stop_sequences"))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    yield from _messages(messages, known)
    yield from _pairs(messages)
    yield from _references(messages, _deferred(body))
    if (marks := _marks(body)) > BREAKPOINTS:
        yield f"A maximum of {BREAKPOINTS} blocks with cache_control may be provided. Found {marks}."
    for path in _surrogates(body, ""):
        yield f"{path}: the string has an unpaired surrogate and is not valid UTF-8"


def _max_tokens(body: dict[str, Any]) -> Iterator[str]:
    value = body.get("max_tokens")
    if "max_tokens" not in body:
        yield "max_tokens: Field required"
    elif not isinstance(value, int) or isinstance(value, bool):
        yield "max_tokens: Input should be a valid integer"
    elif value < 1:
        yield "max_tokens: must be greater than or equal to 1"


def _system(system: Any) -> Iterator[str]:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        yield "system: Input should be a string or a list of text blocks"
        return
    for index, block in enumerate(system):
        where = f"system.{index}"
        if not isinstance(block, dict) or block.get("type") != "text":
            yield f"{where}: only text blocks are permitted"
            continue
        yield from text_problems(block, where, "system")
        yield from cache_problems(block.get("cache_control"), where)


def _tools(body: dict[str, Any]) -> Iterator[str]:
    tools = body.get("tools", [])
    if not isinstance(tools, list):
        yield "tools: Input should be a list"
        return
    seen: set[Any] = set()
    for index, tool in enumerate(tools):
        where = f"tools.{index}"
        if not isinstance(tool, dict):
            yield f"{where}: Input should be an object"
            continue
        name = tool.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            yield f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        elif name in seen:
            yield "tools: Tool names must be unique."
        else:
            seen.add(name)
        yield from cache_problems(tool.get("cache_control"), where)
        yield from _deferral(tool, where)
        if tool.get("type") in (None, "custom"):
            yield from _custom_tool(tool, where)
    deferred = len(_deferred(body))
    if tools and deferred == len(tools):
        yield "tools: all tools have defer_loading set; at least one tool must be loaded from the start"
    if deferred > DEFERRED:
        yield f"tools: at most {DEFERRED} tools may have defer_loading set. Found {deferred}."
    yield from _tool_choice(body.get("tool_choice"), seen)


def _deferral(tool: dict[str, Any], where: str) -> Iterator[str]:
    if not isinstance(tool.get("defer_loading", False), bool):
        yield f"{where}.defer_loading: Input should be a valid boolean"
    elif tool.get("defer_loading") and tool.get("cache_control"):
        yield f"{where}: a tool with defer_loading is not part of the cached prefix and cannot carry cache_control"


def _deferred(body: dict[str, Any]) -> list[Any]:
    """Names of the tools that only a reference loads."""
    found = [tool for tool in _listed(body.get("tools")) if isinstance(tool, dict) and tool.get("defer_loading")]
    return [tool.get("name") for tool in found]


def _references(messages: list[Any], deferred: list[Any]) -> Iterator[str]:
    """Every ``tool_reference`` names a deferred tool of this request, and its result holds nothing but references."""
    for index, message in enumerate(messages):
        for number, block in enumerate(_blocks(message)):
            inner = _listed(block.get("content")) if _is(block, "tool_result", "tool_use_id") else []
            names = [
                item.get("tool_name")
                for item in inner
                if isinstance(item, dict) and item.get("type") == "tool_reference"
            ]
            where = f"messages.{index}.content.{number}"
            for name in names:
                if name not in deferred:
                    yield f"{where}: Tool reference {name!r} has no corresponding tool with defer_loading in `tools`"
            if names and len(names) != len(inner):
                yield f"{where}: `tool_reference` blocks cannot be mixed with other content in one tool_result"


_TOOL_FIELDS = frozenset(
    {
        "type",
        "name",
        "description",
        "input_schema",
        "cache_control",
        "strict",
        "defer_loading",
        "eager_input_streaming",
        "input_examples",
        "allowed_callers",
    }
)


def _custom_tool(tool: dict[str, Any], where: str) -> Iterator[str]:
    for key in tool.keys() - _TOOL_FIELDS:
        yield f"{where}.{key}: Extra inputs are not permitted"
    if not isinstance(tool.get("description", ""), str):
        yield f"{where}.description: Input should be a valid string"
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        yield f"{where}.input_schema: Field required"
        return
    if schema.get("type") != "object":
        yield f"{where}.input_schema.type: Input should be 'object'"
    if schema.keys() & {"oneOf", "allOf", "anyOf"}:
        yield f"{where}.input_schema: does not support oneOf, allOf, or anyOf at the top level"
    for key in schema.get("properties") or {}:
        if not _PROPERTY.fullmatch(key):
            yield f"{where}.input_schema.properties: keys should match '^[a-zA-Z0-9_.-]{{1,64}}$', not {key!r}"


def _tool_choice(choice: Any, names: set[Any]) -> Iterator[str]:
    if choice is None:
        return
    if not isinstance(choice, dict) or choice.get("type") not in ("auto", "any", "tool", "none"):
        yield "tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'"
    elif not names:
        yield "tool_choice: may only be specified while providing tools"
    elif choice["type"] == "tool" and choice.get("name") not in names:
        yield f"tool_choice.name: no tool is called {choice.get('name')!r}"


def _thinking(body: dict[str, Any]) -> Iterator[str]:
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in ("enabled", "disabled", "adaptive", "between_tools"):
        yield "thinking.type: Input should be 'adaptive', 'enabled', 'disabled' or 'between_tools'"
    elif kind == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int) or budget < THINKING_FLOOR:
            yield f"thinking.enabled.budget_tokens: Input should be greater than or equal to {THINKING_FLOOR}"
        elif isinstance(body.get("max_tokens"), int) and budget >= body["max_tokens"]:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`"


def _stop_sequences(value: Any) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
        yield "stop_sequences: each stop sequence must contain non-whitespace"


def _messages(messages: list[Any], known: Container[str]) -> Iterator[str]:
    if len(messages) > MESSAGES:
        yield f"messages: at most {MESSAGES} messages are permitted"
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        if not isinstance(message, dict):
            yield f"{where}: Input should be an object"
            continue
        for key in message.keys() - {"role", "content"}:
            yield f"{where}.{key}: Extra inputs are not permitted"
        role = message.get("role")
        if role not in ("user", "assistant"):
            yield f"{where}.role: Input should be 'user' or 'assistant', not {role!r}"
            continue
        if index == 0 and role != "user":
            yield 'messages: first message must use the "user" role'
        yield from _content(message, where, role, index == len(messages) - 1, known)


def _content(message: dict[str, Any], where: str, role: str, last: bool, known: Container[str]) -> Iterator[str]:
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) and content else content
    if blocks in ("", []) and not (last and role == "assistant"):
        yield f"{where}: all messages must have non-empty content except for the optional final assistant message"
        return
    if not isinstance(blocks, list):
        if blocks != "":
            yield f"{where}.content: Input should be a string or a list of blocks"
        return
    for number, block in enumerate(blocks):
        yield from block_problems(block, f"{where}.content.{number}", role, known)
    final = blocks[-1] if blocks else None
    if last and role == "assistant" and isinstance(final, dict) and final.get("type") == "text":
        text = final.get("text")
        if isinstance(text, str) and text != text.rstrip():
            yield "messages: final assistant content cannot end with trailing whitespace"


def _pairs(messages: list[Any]) -> Iterator[str]:
    """Every tool_use has its one tool_result in the very next message, before any text; ids are never used twice."""
    used: set[str] = set()
    asked: list[str] = []
    for index, message in enumerate(messages):
        blocks = _blocks(message)
        user = isinstance(message, dict) and message.get("role") == "user"
        yield from _results(blocks if user else [], asked, index)
        asked = [] if user else [block["id"] for block in blocks if _is(block, "tool_use", "id")]
        for tool_id in asked:
            if tool_id in used:
                yield f"messages.{index}: `tool_use` ids must be unique, {tool_id} is used twice"
            used.add(tool_id)
    if asked:
        yield _unanswered(len(messages) - 1, asked)


def _results(blocks: list[Any], asked: list[str], index: int) -> Iterator[str]:
    open_ids = list(asked)
    other = False
    for number, block in enumerate(blocks):
        if not _is(block, "tool_result", "tool_use_id"):
            other = True
            continue
        where, tool_id = f"messages.{index}.content.{number}", block["tool_use_id"]
        if tool_id in open_ids:
            open_ids.remove(tool_id)
        elif tool_id in asked:
            yield f"{where}: each `tool_use` must have a single result. Found multiple `tool_result` for {tool_id}"
        else:
            yield f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {tool_id}. Each `tool_result`" + (
                " block must have a corresponding `tool_use` block in the previous message."
            )
        if other:
            yield f"{where}: `tool_result` blocks must come before other content"
    if open_ids:
        yield _unanswered(index - 1, open_ids)


def _unanswered(index: int, ids: list[str]) -> str:
    return (
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after:"
        f" {', '.join(ids)}. Each `tool_use` block needs its `tool_result` block in the next message."
    )


def _blocks(message: Any) -> list[Any]:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, list) else []


def _is(block: Any, kind: str, key: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind and isinstance(block.get(key), str)


def _marks(body: dict[str, Any]) -> int:
    """Count cache breakpoints: the top-level one, and those on system blocks, tools and content blocks."""
    places: list[Any] = [body, *_listed(body.get("system")), *_listed(body.get("tools"))]
    for message in _listed(body.get("messages")):
        for block in _blocks(message):
            places.append(block)
            if isinstance(block, dict):
                places.extend(_listed(block.get("content")))
    return sum(1 for place in places if isinstance(place, dict) and place.get("cache_control"))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _surrogates(node: Any, path: str) -> Iterator[str]:
    if isinstance(node, str):
        try:
            node.encode()
        except UnicodeEncodeError:
            yield path
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _surrogates(key, path or "request")
            yield from _surrogates(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _surrogates(value, f"{path}.{index}")
