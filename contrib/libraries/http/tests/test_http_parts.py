"""The parts of the library without a network: events from bytes, addresses, proxies, waits, kept encodings."""

from __future__ import annotations

import json
import subprocess
import sys

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard.errors import BadRequest, Overloaded, ProviderError, RateLimited, TooLong, UsageError
from pegboard.provider import Message, Part, Retrying, TextDelta
from pegboard_http.address import excepted, parse_address, proxy_for
from pegboard_http.failure import Failure, broken_line, broken_off, refused, wait_asked_for
from pegboard_http.kept import KEPT, Kept, Shelf
from pegboard_http.reach import headers_from
from pegboard_http.retry import LONGEST, PATIENCE, Schedule, Tries
from pegboard_http.sse import EventReader

quick = settings(max_examples=60, deadline=None)


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


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.anthropic.com", ("https", "api.anthropic.com", 443, "", "api.anthropic.com")),
        ("https://h:8443/", ("https", "h", 8443, "", "h:8443")),
        ("http://127.0.0.1:80/a/b/v1/", ("http", "127.0.0.1", 80, "/a/b/v1", "127.0.0.1")),
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


def test_headers_of_the_user() -> None:
    assert headers_from("HEADERS", {"HEADERS": "A: b: c\n\n X-Y :z "}) == {"a": "b: c", "x-y": "z"}
    assert headers_from("HEADERS", {}) == {}
    with pytest.raises(UsageError, match="MY_HEADERS"):
        headers_from("MY_HEADERS", {"MY_HEADERS": "no colon"})


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


@quick
@given(st.binary(max_size=60), st.lists(st.integers(1, 9), max_size=20))
def test_pieces_of_any_size_make_the_same_events(noise: bytes, sizes: list[int]) -> None:
    wire = b"data: one\n\ndata: " + noise + b"\n\ndata: two\r\n\r\ndata: three\n\n"
    whole, pieces = EventReader(), EventReader()
    found, at = [], 0
    for size in [*sizes, len(wire)]:
        found += pieces.feed(wire[at : at + size])
        at += size
    assert found == whole.feed(wire)


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("http://localhost:1", True),
        ("http://llama.localhost", True),
        ("http://127.8.9.1", True),
        ("http://[::1]:8080", True),
        ("http://192.168.0.4", False),
        ("http://localhost.example", False),
        ("http://0.0.0.0", False),
    ],
)
def test_loopback(url: str, near: bool) -> None:
    assert parse_address(url).loopback is near


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (refused(429, "", "slow", {"retry-after": "3"}), RateLimited),
        (refused(503, "", "", {}), Overloaded),
        (refused(500, "", "the prompt is too long", {}, too_long=True), TooLong),
        (refused(413, "", "", {}), TooLong),
        (refused(404, "", "nothing here", {}), BadRequest),
        (broken_off("x", "y", passing=True), Overloaded),
        (broken_off("x", "y", limited=True), RateLimited),
        (broken_off("x", "y", too_long=True), TooLong),
        (broken_off("x", "y"), BadRequest),
        (broken_line("gone"), Overloaded),
    ],
)
def test_kinds_of_failures(failure: Failure, kind: type[ProviderError]) -> None:
    assert type(failure.error) is kind


def test_a_refusal_says_whom_to_ask_and_what_to_check() -> None:
    said = str(refused(401, "", "", {"x-request-id": "r7"}, check="THE_KEY"))
    assert said == "The model service answered 401: no reason given (request r7)\nCheck THE_KEY."


async def test_tries_void_what_came_before_and_end() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def once():
        yield TextDelta("half")
        raise broken_line("cut")

    tries = Tries(Schedule(tries=3, chance=lambda: 0.0), sleep)
    parts: list[Part] = []
    with pytest.raises(Overloaded, match="cut"):
        async for part in tries.stream(once):
            parts.append(part)
    assert [type(part) for part in parts] == [TextDelta, Retrying, TextDelta, Retrying, TextDelta]
    assert slept == [0.5, 1.0]

    async def refuse() -> None:
        raise refused(404, "", "", {})

    with pytest.raises(BadRequest):
        await tries.ask(refuse)
    assert slept == [0.5, 1.0]


async def test_leaving_a_stream_closes_its_try() -> None:
    closed = anyio.Event()

    async def once():
        try:
            yield TextDelta("a")
            yield TextDelta("b")
        finally:
            closed.set()

    parts = Tries().stream(once)
    assert await anext(parts) == TextDelta("a")
    await parts.aclose()
    assert closed.is_set()


def told(text: str) -> Message:
    return Message("user", [{"type": "text", "text": text}])


@quick
@given(st.lists(st.tuples(st.sampled_from(["grow", "cut", "other"]), st.integers(0, 4)), max_size=20))
def test_kept_bytes_are_the_messages(steps: list[tuple[str, int]]) -> None:
    shelf = Shelf(lambda: Kept(Message.encoded))
    current, other = [told("a")], [told("b"), told("c")]
    for step, number in steps:
        if step == "grow":
            current = [*current, *(told(str(index)) for index in range(number))]
        elif step == "cut":
            current = [*current[: number + 1], told("new")]
        else:
            current, other = other, current
        kept = shelf.take(current)
        assert json.loads(b"[" + kept.buffer + b"]") == [
            {"role": message.role, "content": message.content} for message in current
        ]
        for index, message in enumerate(current):
            assert kept.buffer[kept.start(index) : kept.ends[index]] == message.encoded()


def test_a_shelf_forgets_the_oldest() -> None:
    made: list[int] = []

    def encode(message: Message) -> bytes:
        made.append(1)
        return message.encoded()

    shelf = Shelf(lambda: Kept(encode))
    talks = [[told(str(number))] for number in range(KEPT + 1)]
    for talk in talks:
        shelf.take(talk)
    shelf.take(talks[-1])
    assert len(made) == KEPT + 1
    shelf.take(talks[0])
    assert len(made) == KEPT + 2


def test_what_a_provider_imports_at_start_loads_no_network() -> None:
    code = (
        "import sys, pegboard_http.retry, pegboard_http.failure, pegboard_http.kept;"
        "print(sorted({'h11', 'anyio', 'asyncio', 'ssl', 'pydantic'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
