"""The parts of the provider without a network: answers, bodies, the data beside the code."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard.provider import Message, Request, ToolSpec
from pegboard.testing.messages import problems
from pegboard.testing.messages_events import answer_blocks, encode_event, message_of, stream_of
from pegboard_anthropic.abilities import _table, abilities_of
from pegboard_anthropic.answer import Assembly
from pegboard_anthropic.body import Bodies
from pegboard_http.sse import EventReader
from pydantic import TypeAdapter

quick = settings(max_examples=60, deadline=None)
words = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
inputs = st.dictionaries(words, words | st.integers() | st.none() | st.lists(words, max_size=2), max_size=3)
content = st.lists(
    st.one_of(
        words.map(lambda text: {"type": "text", "text": text}),
        words.map(lambda text: {"type": "thinking", "thinking": text}),
        inputs.map(lambda value: {"type": "tool_use", "name": "Read", "input": value}),
        st.just({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}),
    ),
    min_size=1,
    max_size=5,
)


@quick
@given(content, st.integers(1, 30), st.integers(1, 40), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_answer_is_the_message_whatever_the_pieces(
    blocks: list[dict[str, Any]], pieces: int, step: int, newline: bytes
) -> None:
    turn = {"content": blocks, "pieces": pieces}
    made = answer_blocks(turn)
    message = message_of(turn, made, "m", 10)
    wire = b"".join(encode_event(event) for event in stream_of(turn, made, message))
    wire = b": comment\n\n" + wire.replace(b"\n", newline)
    reader, assembly = EventReader(), Assembly()
    for at in range(0, len(wire), step):
        for data in reader.feed(wire[at : at + step]):
            assembly.take(json.loads(data))
    if newline == b"\r":  # the last CR could be half of a CRLF until something follows
        for data in reader.feed(b": end\n"):
            assembly.take(json.loads(data))
    assert assembly.answer is not None
    assert assembly.answer.content == made
    assert assembly.answer.stop_reason == message["stop_reason"]


def conversation(turns: int, calls: int = 1) -> list[Message]:
    messages = [Message("user", [{"type": "text", "text": "go"}])]
    for turn in range(turns):
        ids = [f"toolu_{turn}_{number}" for number in range(calls)]
        made = [{"type": "tool_use", "id": one, "name": "Read", "input": {"n": turn}} for one in ids]
        messages.append(Message("assistant", [{"type": "text", "text": f"Step {turn}."}, *made]))
        messages.append(Message("user", [{"type": "tool_result", "tool_use_id": one, "content": "x"} for one in ids]))
    return messages


TOOLS = [
    ToolSpec("Read", "Reads.", {"type": "object", "properties": {}}),
    ToolSpec("Grep", "Finds.", {"type": "object"}),
]


def request(messages: list[Message], **fields: Any) -> Request:
    common: dict[str, Any] = {"system": [{"type": "text", "text": "s"}], "tools": TOOLS, "max_tokens": 50}
    return Request(model="claude-opus-5-5", messages=messages, **{**common, **fields})


def plain(node: Any) -> Any:
    """The same value without cache breakpoints."""
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items() if key != "cache_control"}
    return [plain(item) for item in node] if isinstance(node, list) else node


@quick
@given(st.lists(st.tuples(st.sampled_from(["grow", "fork", "cut", "swap", "count"]), st.integers(1, 12)), max_size=12))
def test_kept_encodings_always_say_what_the_messages_say(steps: list[tuple[str, int]]) -> None:
    bodies = Bodies()
    current, other = conversation(1), conversation(2)
    for step, size in steps:
        if step == "grow":
            current += conversation(size, calls=size)[1:]
        elif step == "fork":
            current = [*current[: max(1, len(current) - size)], *conversation(1)[1:]]
        elif step == "cut":
            changed = Message(current[0].role, [{"type": "text", "text": f"cut {size}"}])
            current = [changed, *current[1:]] if size % 2 else [*current[:1], changed, *current[2:]]
        elif step == "swap":
            current, other = other, current
        if step == "count":
            body = json.loads(bodies.count(request(current)))
        else:
            body = json.loads(bodies.message(request(current)))
            assert [found for found in problems(body) if "cache_control" in found] == []
        assert plain(body["messages"]) == [{"role": m.role, "content": m.content} for m in current]


def test_breakpoints_sit_at_the_ends_and_follow_a_wide_turn() -> None:
    bodies = Bodies()
    messages = conversation(1)
    first = json.loads(bodies.message(request(messages)))
    assert first["cache_control"] == {"type": "ephemeral"}
    assert first["system"][-1]["cache_control"] == {"type": "ephemeral"}
    assert plain(first["messages"]) == first["messages"]
    before = len(messages)
    messages += conversation(1, calls=15)[1:]
    second = json.loads(bodies.message(request(messages)))
    assert "cache_control" in second["messages"][before - 1]["content"][-1]
    assert second["messages"][: before - 1] == first["messages"][: before - 1]


def test_breakpoints_of_the_caller_are_counted() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": str(number), **mark} for number in range(3)] + [{"type": "text", "text": "end"}]
    body = json.loads(Bodies().message(request(conversation(1), system=system)))
    assert problems(body) == []
    assert (
        json.loads(Bodies().message(request(conversation(0), extra={"cache_control": None}))).get("cache_control")
        is None
    )


def test_messages_are_encoded_once() -> None:
    encoded: list[int] = []

    class Noted(Message, frozen=True):
        def encoded(self) -> bytes:
            encoded.append(id(self))
            return super().encoded()

    bodies = Bodies()
    messages = [Noted(message.role, message.content) for message in conversation(20)]
    for end in range(1, len(messages) + 1, 2):
        bodies.message(request(messages[:end]))
    assert len(encoded) == len(messages)


BODIES = {
    "plain": request(conversation(0)),
    "bare": request(conversation(0), system=[], tools=[]),
    "calls": request(conversation(3, calls=12)),
    "thinking": request(conversation(1), thinking={"type": "adaptive"}, max_tokens=9_000),
    "extra": request(conversation(1), extra={"metadata": {"user_id": "u"}, "output_config": {"effort": "low"}}),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_fit_the_official_types(name: str) -> None:
    body = json.loads(Bodies().message(BODIES[name]))
    TypeAdapter(message_create_params.MessageCreateParamsStreaming).validate_python(body)
    assert problems(body) == []
    count = json.loads(Bodies().count(BODIES[name]))
    TypeAdapter(message_count_tokens_params.MessageCountTokensParams).validate_python(count)
    assert problems(count, counting=True) == []


def test_abilities() -> None:
    opus = abilities_of("claude-opus-5-5-20261001")
    assert (opus.window, opus.max_output, opus.thinking) == (1_000_000, 128_000, True)
    assert opus.price == {"input": 4.0, "output": 20.0, "cache_read": 0.2, "cache_write": 5.0}
    assert abilities_of("us.anthropic.claude-opus-5-5-v1:0") == opus
    unknown = abilities_of("claude-new-9")
    assert (unknown.window, unknown.max_output, unknown.thinking, unknown.price) == (200_000, 32_000, False, None)


def test_table_has_no_entry_that_an_earlier_one_hides() -> None:
    prefixes = [model.prefix for model in _table()]
    for index, prefix in enumerate(prefixes):
        assert not [earlier for earlier in prefixes[:index] if prefix.startswith(earlier)]


def test_importing_the_provider_loads_no_client() -> None:
    code = (
        "import sys, pegboard_anthropic.provider as p;"
        "heavy = {'anthropic', 'httpx2', 'pydantic', 'h11', 'anyio', 'asyncio', 'ssl', 'http.client'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_turn_over_our_own_client_loads_no_library() -> None:
    code = """
import sys, anyio
from pegboard.provider import Message, Request
from pegboard.testing.messages import MessagesService
from pegboard_anthropic.provider import make
class Values:
    def value(self, key):
        return {"provider.base_url": "", "provider.transport": "http", "anthropic.max_retries": 0}.get(key, 10.0)
async def main():
    with MessagesService(["hi"]) as service:
        provider = make(Values(), {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": service.url})
        message = Message("user", [{"type": "text", "text": "x"}])
        request = Request(model="m", system=[], tools=[], messages=[message], max_tokens=9)
        async for part in provider.stream(request):
            pass
        await provider.close()
        print(part.content[0]["text"], sorted({"anthropic", "httpx2", "pydantic", "http.client"} & set(sys.modules)))
anyio.run(main)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("hi []\n", "")


def test_a_deferred_tool_says_so_and_a_loaded_one_says_nothing() -> None:
    later = ToolSpec("LSP", "Asks.", {"type": "object"}, defer=True)
    sent = json.loads(Bodies().message(request(conversation(0), tools=[*TOOLS, later])))
    assert [tool.get("defer_loading") for tool in sent["tools"]] == [None, None, True]
    assert problems(sent) == []


def test_references_only_where_the_service_knows_them() -> None:
    able = {name: abilities_of(name).tool_references for name in ("claude-opus-4-1", "claude-sonnet-4-20250514")}
    assert not any(able.values()) and not abilities_of("mystery-1").tool_references
    assert all(abilities_of(f"claude-{name}").tool_references for name in ("opus-5-5", "sonnet-4-5", "haiku-4-5"))


def test_thinking_that_nobody_signed_is_left_out() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    call = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}
    done = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
    messages = [*conversation(0), Message("assistant", [thinking, call]), Message("user", [done])]
    messages += [Message("assistant", [thinking]), *conversation(0)]
    sent = json.loads(Bodies().message(request(messages)))
    assert problems(sent) == []
    assert [block["type"] for block in sent["messages"][1]["content"]] == ["tool_use"]
