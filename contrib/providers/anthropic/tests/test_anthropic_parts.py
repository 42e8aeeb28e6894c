"""The parts of the provider without a network: events, answers, bodies, addresses, waits, the data beside the code."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard.errors import UsageError
from pegboard.provider import Message, Request, ToolSpec
from pegboard.testing.messages import problems
from pegboard.testing.messages_events import answer_blocks, encode_event, message_of, stream_of
from pegboard_anthropic.abilities import _table, abilities_of
from pegboard_anthropic.access import custom_headers
from pegboard_anthropic.address import excepted, parse_address, proxy_for
from pegboard_anthropic.answer import Assembly
from pegboard_anthropic.body import Bodies
from pegboard_anthropic.failure import wait_asked_for
from pegboard_anthropic.retry import LONGEST, PATIENCE, Schedule
from pegboard_anthropic.sse import EventReader
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


@pytest.mark.parametrize(
    ("chunks", "events"),
    [
        ([b"data: a\n\n"], [b"a"]),
        ([b"\xef\xbb", b"\xbfdata: a\n\n"], [b"a"]),
        ([b"data:a\ndata: b\n\n"], [b"a\nb"]),
        ([b"data: a\r", b"\n\r", b"\ndata: b\n\n"], [b"a", b"b"]),
        ([b"event: x\nid: 1\nretry: 5\n: note\n\n"], []),
        ([b"data\n\n"], [b""]),
        ([b"data:  two spaces\n\n"], [b" two spaces"]),
        ([b"data: never finished\n"], []),
    ],
)
def test_events_from_bytes(chunks: list[bytes], events: list[bytes]) -> None:
    reader = EventReader()
    assert [event for chunk in chunks for event in reader.feed(chunk)] == events


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


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.anthropic.com", ("https", "api.anthropic.com", 443, "", "api.anthropic.com")),
        ("https://h:8443/", ("https", "h", 8443, "", "h:8443")),
        ("http://127.0.0.1:80/a/b/v1/", ("http", "127.0.0.1", 80, "/a/b", "127.0.0.1")),
        ("http://[::1]:9", ("http", "::1", 9, "", "[::1]:9")),
        ("http://b\u00fccher.example", ("http", "xn--bcher-kva.example", 80, "", "xn--bcher-kva.example")),
    ],
)
def test_addresses(url: str, expected: tuple[str, str, int, str, str]) -> None:
    found = parse_address(url)
    assert (found.scheme, found.host, found.port, found.prefix, found.host_header) == expected


@pytest.mark.parametrize("url", ["ftp://h", "https://", "http://h:99999", "socks5://h:1", "http://[::1"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError, match=r"provider\.base_url"):
        parse_address(url)


@pytest.mark.parametrize(
    ("entry", "covered"),
    [
        ("*", True),
        ("example.com", True),
        (".example.com", True),
        ("*.example.com", True),
        ("API.example.com:443", True),
        ("api.example.com:80", False),
        ("ample.com", False),
        ("other, example.com", True),
        ("10.0.0.0/8", False),
        ("", False),
    ],
)
def test_no_proxy(entry: str, covered: bool) -> None:
    assert excepted(parse_address("https://api.example.com"), entry) is covered


def test_proxy_variables() -> None:
    target = parse_address("https://api.example.com")
    lower = {"https_proxy": "http://a:1", "HTTPS_PROXY": "http://b:2", "HTTP_PROXY": "http://c:3"}
    assert proxy_for(target, lower) == parse_address("http://a:1")
    assert proxy_for(target, {"ALL_PROXY": "http://u:p@d:4"}) == parse_address("http://u:p@d:4")
    assert proxy_for(target, {"HTTP_PROXY": "http://c:3"}) is None
    with pytest.raises(UsageError, match="all_proxy"):
        proxy_for(target, {"all_proxy": "socks5://e:5"})


def test_custom_headers() -> None:
    assert custom_headers("A: b: c\n\n X-Y :z ") == {"a": "b: c", "x-y": "z"}
    with pytest.raises(UsageError, match="ANTHROPIC_CUSTOM_HEADERS"):
        custom_headers("no colon")


def test_waits() -> None:
    schedule = Schedule(chance=lambda: 0.0)
    waits = [schedule.wait(failed, None) for failed in range(1, 11)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0, 32.0, None]
    assert Schedule(chance=lambda: 1.0).wait(1, None) == 0.375
    assert schedule.wait(1, 7.0) == 7.0 > 0 and LONGEST < 60.0 == schedule.wait(1, 60.0)
    assert schedule.wait(1, PATIENCE + 1) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert wait_asked_for(headers) == seconds


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
