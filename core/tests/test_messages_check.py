"""The strict check of a request body: what the real service accepts passes, what it refuses is named."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from anthropic.types import message_create_params
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard.testing.messages import problems, sealed, signature_of
from pydantic import TypeAdapter

MODEL = "claude-opus-5-5"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 16).decode()
PDF = base64.b64encode(b"%PDF-1.7\n").decode()


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [_block(block) for block in blocks]}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [_block(block) for block in blocks]}


def _block(block: Any) -> dict[str, Any]:
    return {"type": "text", "text": block} if isinstance(block, str) else block


def call(id: str = "toolu_1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Read", "input": {}, **fields}


def result(id: str = "toolu_1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": "done", **fields}


def thought(text: str = "hm", **fields: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature_of(text), **fields}


def tool(name: str = "Read", **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": "d", "input_schema": {"type": "object"}, **fields}


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 100, "messages": list(messages) or [user("hi")], **fields}


def image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG, **source}}


MARKED = {"type": "ephemeral"}
LATER = tool("LSP", defer_loading=True)
FOUND = {"type": "tool_reference", "tool_name": "LSP"}
SEARCH = (user("hi"), assistant(call()), user(result(content=[FOUND])))
PAIR = (user("hi"), assistant("ok", call()), user(result()))

ACCEPTED = {
    "plain": body(),
    "text in place of blocks": body({"role": "user", "content": "hi"}),
    "pair": body(*PAIR),
    "text after results": body(user("hi"), assistant(call("a"), call("b")), user(result("b"), result("a"), "and now")),
    "two turns": body(*PAIR, assistant(call("toolu_2")), user(result("toolu_2"))),
    "thinking": body(
        user("hi"), assistant(thought(), {"type": "redacted_thinking", "data": sealed("x")}, call()), PAIR[2]
    ),
    "images": body(user("see", image()), assistant(call()), user(result(content=[_block("x"), image()]))),
    "document": body(
        user({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}})
    ),
    "server tool": body(
        user("hi"),
        assistant(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        ),
    ),
    "tools": body(tools=[tool(), tool("Grep"), {"type": "web_search_20250305", "name": "web_search"}]),
    "choice": body(tools=[tool()], tool_choice={"type": "tool", "name": "Read"}),
    "system": body(system=[{"type": "text", "text": "s", "cache_control": MARKED}]),
    "four marks": body(
        user({**_block("a"), "cache_control": MARKED}),
        system=[{**_block("s"), "cache_control": MARKED}],
        tools=[tool(cache_control={"type": "ephemeral", "ttl": "1h"})],
        cache_control=MARKED,
    ),
    "error result": body(user("hi"), assistant(call()), user(result(is_error=True, content=[_block("no")]))),
    "empty result": body(user("hi"), assistant(call()), user(result(content=""))),
    "loaded by reference": body(*SEARCH, tools=[tool(), LATER]),
    "adaptive": body(thinking={"type": "adaptive"}),
    "budget": body(max_tokens=2_000, thinking={"type": "enabled", "budget_tokens": 1_024}),
}

REFUSED = {
    "no model": ({"max_tokens": 1, "messages": [user("hi")]}, "model: Field required"),
    "no max_tokens": ({"model": MODEL, "messages": [user("hi")]}, "max_tokens: Field required"),
    "max_tokens 0": (body(max_tokens=0), "max_tokens"),
    "max_tokens text": (body(max_tokens="9"), "max_tokens"),
    "no messages": ({"model": MODEL, "max_tokens": 1}, "messages"),
    "empty messages": ({"model": MODEL, "max_tokens": 1, "messages": []}, "messages"),
    "first from assistant": (body(assistant("hi")), "first message must use"),
    "system role": (body(user("hi"), {"role": "system", "content": "x"}), "messages.1.role"),
    "extra field": (body(colour="red"), "colour: Extra inputs"),
    "temperature": (body(temperature=1), "temperature: Extra inputs"),
    "extra message field": (body({**user("hi"), "id": "x"}), "messages.0.id: Extra inputs"),
    "extra block field": (body(user({**_block("hi"), "index": 0})), "messages.0.content.0.text.index"),
    "empty content": (body({"role": "user", "content": []}), "non-empty content"),
    "empty text content": (body({"role": "user", "content": ""}), "non-empty content"),
    "empty text": (body(user("")), "non-empty"),
    "blank text": (body(user(" \n")), "non-whitespace"),
    "unknown block": (body(user({"type": "video"})), "'video'"),
    "call from user": (body(user(call())), "'tool_use'"),
    "document from assistant": (body(user("hi"), assistant({"type": "document", "source": {}})), "'document'"),
    "unanswered": (body(user("hi"), assistant(call())), "without `tool_result`"),
    "unanswered in the middle": (body(user("hi"), assistant(call()), user("well?")), "without `tool_result`"),
    "answered too late": (
        body(user("hi"), assistant(call()), user("wait"), assistant("ok"), user(result())),
        "without",
    ),
    "half answered": (body(user("hi"), assistant(call("a"), call("b")), user(result("a"))), ": b."),
    "orphan": (body(user(result())), "unexpected `tool_use_id`"),
    "answered twice": (body(user("hi"), assistant(call()), user(result(), result())), "multiple `tool_result`"),
    "text before results": (body(user("hi"), assistant(call()), user("so", result())), "must come before"),
    "id used twice": (body(*PAIR, assistant(call()), user(result())), "must be unique"),
    "id twice in one": (body(user("hi"), assistant(call(), call()), user(result())), "must be unique"),
    "input no object": (
        body(user("hi"), assistant(call(input="x")), user(result())),
        "input: Input should be an object",
    ),
    "bad call name": (body(user("hi"), assistant(call(name="a b")), user(result())), "name"),
    "bad call id": (body(user("hi"), assistant(call("a.b")), user(result("a.b"))), "id"),
    "bad tool name": (body(tools=[tool("mcp.a")]), "tools.0.name"),
    "long tool name": (body(tools=[tool("a" * 129)]), "tools.0.name"),
    "tool twice": (body(tools=[tool(), tool()]), "unique"),
    "no schema": (body(tools=[{"name": "Read"}]), "input_schema"),
    "schema no object": (body(tools=[tool(input_schema={"type": "string"})]), "input_schema.type"),
    "schema anyOf": (body(tools=[tool(input_schema={"type": "object", "anyOf": []})]), "anyOf"),
    "choice of nothing": (body(tool_choice={"type": "auto"}), "tool_choice"),
    "choice unknown": (body(tools=[tool()], tool_choice={"type": "tool", "name": "Grep"}), "Grep"),
    "altered thinking": (body(user("hi"), assistant(thought(thinking="other"), "x"), user("y")), "Invalid `signature`"),
    "foreign signature": (
        body(user("hi"), assistant(thought(signature="c3R1Yg=="), "x"), user("y")),
        "Invalid `signature`",
    ),
    "foreign redacted": (
        body(user("hi"), assistant({"type": "redacted_thinking", "data": "x"}, "x"), user("y")),
        "Invalid",
    ),
    "marked thinking": (body(user("hi"), assistant(thought(cache_control=MARKED), "x"), user("y")), "cache_control"),
    "five marks": (body(user(*[{**_block("a"), "cache_control": MARKED}] * 4), cache_control=MARKED), "maximum of 4"),
    "odd mark": (body(cache_control={"type": "forever"}), "ephemeral"),
    "surrogate": (body(user("a \ud800 b")), "unpaired surrogate"),
    "surrogate in a key": (
        body(user("hi"), assistant(call(input={"\udc00": 1})), user(result())),
        "unpaired surrogate",
    ),
    "wrong base64": (body(user(image(data="***"))), "base64"),
    "wrong media": (body(user(image(media_type="image/tiff"))), "media_type"),
    "other media": (body(user(image(media_type="image/jpeg"))), "does not look like"),
    "large image": (body(user(image(data=PNG[:-2] + "A" * (5 * 1024 * 1024) + PNG[-2:]))), ""),
    "image in error": (body(user("hi"), assistant(call()), user(result(is_error=True, content=[image()]))), "is_error"),
    "small budget": (body(thinking={"type": "enabled", "budget_tokens": 100}), "budget_tokens"),
    "large budget": (body(thinking={"type": "enabled", "budget_tokens": 5_000}), "max_tokens"),
    "space at the end": (body(user("hi"), assistant("so ")), "trailing whitespace"),
    "all deferred": (body(tools=[LATER]), "at least one tool must be loaded"),
    "marked and deferred": (body(tools=[tool(), {**LATER, "cache_control": MARKED}]), "cannot carry cache_control"),
    "deferred by a text": (body(tools=[tool(), tool("LSP", defer_loading="yes")]), "valid boolean"),
    "reference to nothing": (body(*SEARCH, tools=[tool()]), "no corresponding tool"),
    "reference to a loaded tool": (body(*SEARCH, tools=[tool(), tool("LSP")]), "no corresponding tool"),
    "reference beside text": (
        body(user("hi"), assistant(call()), user(result(content=[FOUND, _block("x")])), tools=[tool(), LATER]),
        "cannot be mixed",
    ),
    "no object": ([], "not a JSON object"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    assert problems(ACCEPTED[name]) == []


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_accepted_fits_the_official_types(name: str) -> None:
    TypeAdapter(message_create_params.MessageCreateParamsNonStreaming).validate_python(ACCEPTED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    given_body, says = REFUSED[name]
    found = problems(given_body)
    assert found
    assert says in "\n".join(found)


def test_version_decides_about_sampling() -> None:
    assert problems(body(temperature=0.5), version="2023-06-01") == []


def test_counting_needs_no_max_tokens() -> None:
    assert problems({"model": MODEL, "messages": [user("hi")]}, counting=True) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(json_values, st.sampled_from(["messages", "system", "tools", "thinking", "tool_choice", "cache_control"]))
def test_any_json_is_judged_without_an_error(value: Any, field: str) -> None:
    problems(value)
    problems({**body(), field: value})
    problems(body({"role": "user", "content": value}))
    problems(body(user({"type": "tool_result", "tool_use_id": "x", "content": value})))
