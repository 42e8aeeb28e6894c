"""The strict Messages service on the wire; the official client is its oracle."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from typing import Any

import anthropic
import pytest
from pegboard.testing.messages import MessagesService, signature_of

MODEL = "claude-opus-5-5"


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


def tool(name: str = "Read", **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": "d", "input_schema": {"type": "object"}, **fields}


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 100, "messages": list(messages) or [user("hi")], **fields}


def post(url: str, data: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    common = {"content-type": "application/json", "x-api-key": "k", "anthropic-version": "2026-10-21"}
    send = {name: value for name, value in {**common, **headers}.items() if value}
    request = urllib.request.Request(f"{url}/v1/messages", data, send)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.parametrize(
    ("headers", "status", "kind"),
    [
        ({"x-api-key": ""}, 401, "authentication_error"),
        ({"anthropic-version": ""}, 400, "invalid_request_error"),
        ({"anthropic-version": "2020-01-01"}, 400, "invalid_request_error"),
        ({"content-type": "text/plain"}, 400, "invalid_request_error"),
    ],
)
def test_headers_that_are_refused(headers: dict[str, str], status: int, kind: str) -> None:
    with MessagesService(["x"]) as service:
        found, answer = post(service.url, json.dumps(body()).encode(), **headers)
    assert (found, answer["type"], answer["error"]["type"]) == (status, "error", kind)
    assert answer["request_id"].startswith("req_")


@pytest.mark.parametrize("data", [b"{", b"", b'{"a": NaN}', b'{"model": "\xff"}', b'"\\ud800"'])
def test_bodies_that_are_refused(data: bytes) -> None:
    with MessagesService(["x"]) as service:
        assert post(service.url, data)[0] == 400
        assert service.requests[0].problems


def test_limits_of_the_service() -> None:
    with MessagesService(["x"], window=1_000, max_output=50, key="right") as service:
        assert post(service.url, json.dumps(body(max_tokens=9)).encode())[0] == 401
        right = {"x-api-key": "right"}
        status, answer = post(service.url, json.dumps(body(user("word " * 2_000), max_tokens=9)).encode(), **right)
        assert (status, "prompt is too long" in answer["error"]["message"]) == (400, True)
        assert post(service.url, json.dumps(body(max_tokens=51)).encode(), **right)[0] == 400
        assert post(service.url, json.dumps(body(max_tokens=50)).encode(), **right)[0] == 200


def test_a_script_that_has_run_out_says_so() -> None:
    with MessagesService([]) as service:
        status, answer = post(service.url, json.dumps(body()).encode())
    assert (status, "no further turn" in answer["error"]["message"]) == (400, True)


def test_secrets_are_masked_in_the_record() -> None:
    with MessagesService(["x"]) as service:
        post(service.url, json.dumps(body()).encode(), **{"x-api-key": "very-secret", "authorization": "Bearer also"})
        entry = service.requests[0]
    assert "secret" not in repr(entry) and "also" not in repr(entry)
    assert entry.headers["x-api-key"].startswith("sha256:")
    assert (entry.method, entry.path, entry.status, entry.body, entry.size > 0) == (
        "POST",
        "/v1/messages",
        200,
        body(),
        True,
    )


def test_routes_functions_and_default() -> None:
    script = {
        "routes": [
            {"match": {"system": "child"}, "turns": ["from the child"]},
            {"match": {"tool": "Grep", "last": "go"}, "turns": lambda sent: f"saw {len(sent['messages'])}"},
        ],
        "turns": [lambda sent: {"content": [_block(sent["model"])]}],
        "default": "done",
    }
    with MessagesService(script) as service:

        def say(sent: dict[str, Any]) -> str:
            return post(service.url, json.dumps(sent).encode())[1]["content"][0]["text"]

        assert say(body(system="a child")) == "from the child"
        assert say(body(user("go"), tools=[tool("Grep")])) == "saw 1"
        assert say(body()) == MODEL
        assert say(body()) == "done"
        assert say(body(system="a child")) == "done"


@pytest.fixture
def spoken() -> Any:
    """Plays a script and gives the official client."""
    opened: list[Any] = []

    def start(script: Any, **options: Any) -> tuple[anthropic.Anthropic, MessagesService]:
        service = MessagesService(script, **options).__enter__()
        client = anthropic.Anthropic(base_url=service.url, api_key="k", max_retries=0)
        opened.extend([client, service])
        return client, service

    yield start
    for thing in opened:
        thing.close() if isinstance(thing, anthropic.Anthropic) else thing.__exit__(None, None, None)


def params(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 100, "messages": list(messages) or [user("hi")], **fields}


CONTENT = [
    {"type": "thinking", "thinking": "Hm \u00e4"},
    {"type": "redacted_thinking"},
    {"type": "text", "text": "Text \U0001f600"},
    {"type": "server_tool_use", "name": "web_search", "input": {"query": "q"}},
    {"type": "tool_use", "name": "Read", "input": {"a": [1, {"b": "\u2028"}]}},
]


def test_official_client_reads_the_stream(spoken: Any) -> None:
    client, service = spoken(
        [{"content": CONTENT, "pieces": 9, "usage": {"output_tokens": 3, "input_tokens": 8}}, "ok"]
    )
    with client.messages.stream(**params()) as stream:
        message = stream.get_final_message()
    shown = [block.to_dict() for block in message.content]
    assert [block["type"] for block in shown] == [block["type"] for block in CONTENT]
    assert shown[0]["thinking"] == "Hm \u00e4" and shown[2]["text"] == "Text \U0001f600"
    assert shown[4]["input"] == CONTENT[4]["input"]
    assert (message.stop_reason, message.usage.output_tokens, message.usage.input_tokens) == ("tool_use", 3, 8)
    answer = [user("hi"), assistant(*[block for block in shown if block["type"] != "server_tool_use"])]
    client.messages.create(**params(*answer, user(result(shown[4]["id"]))))
    assert service.requests[-1].problems == []


def test_official_client_reads_the_whole_message(spoken: Any) -> None:
    client, _ = spoken([{"content": CONTENT, "stop_reason": "max_tokens"}])
    message = client.messages.create(**params())
    assert [block.type for block in message.content] == [block["type"] for block in CONTENT]
    assert message.stop_reason == "max_tokens"


@pytest.mark.parametrize(
    ("turn", "kind"),
    [
        ({"http_status": 400}, anthropic.BadRequestError),
        ({"http_status": 401}, anthropic.AuthenticationError),
        ({"http_status": 429, "headers": {"retry-after": "1"}}, anthropic.RateLimitError),
        ({"http_status": 500}, anthropic.InternalServerError),
        ({"http_status": 529}, anthropic.InternalServerError),
        ({"content": CONTENT, "stream_error": {"type": "overloaded_error"}}, anthropic.APIStatusError),
    ],
)
def test_official_client_knows_the_errors(spoken: Any, turn: Any, kind: type[Exception]) -> None:
    client, _ = spoken([turn])
    with pytest.raises(kind), client.messages.stream(**params()) as stream:
        stream.get_final_message()


def test_official_client_counts_and_lists(spoken: Any) -> None:
    names = [f"m{number}" for number in range(45)]
    client, _ = spoken([], models=names)
    assert client.messages.count_tokens(model=MODEL, messages=[user("hi")]).input_tokens > 0
    assert [model.id for model in client.models.list()] == names
    with pytest.raises(anthropic.BadRequestError):
        client.messages.count_tokens(model=MODEL, messages=[assistant("hi")])


def test_thinking_that_was_left_out_is_noticed(spoken: Any) -> None:
    client, _ = spoken([{"content": [CONTENT[0], {**CONTENT[4], "id": "toolu_1"}]}, "ok"])
    client.messages.create(**params())
    with pytest.raises(anthropic.BadRequestError, match="latest assistant message"):
        client.messages.create(**params(user("hi"), assistant(call(input=CONTENT[4]["input"])), user(result())))


def test_thinking_of_another_run_is_known(spoken: Any) -> None:
    old = {"type": "thinking", "thinking": "from before", "signature": signature_of("from before")}
    client, _ = spoken(["ok", "ok"])
    client.messages.create(**params(user("hi"), assistant(old, call()), user(result())))


def test_signature_of_a_script_is_kept(spoken: Any) -> None:
    own = {"type": "thinking", "thinking": "hm", "signature": "its own"}
    client, _ = spoken([{"content": [own, _block("x")]}, "ok"])
    client.messages.create(**params())
    client.messages.create(**params(user("hi"), assistant(own, "x"), user("y")))


def test_head_and_unknown_paths() -> None:
    with MessagesService() as service:
        with urllib.request.urlopen(urllib.request.Request(service.url, method="HEAD")) as response:
            assert response.status == 200
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{service.url}/v2/else")
        caught.value.close()
        assert caught.value.code == 404


def test_it_leaves_nothing_behind() -> None:
    with socket.socket() as connection:
        with MessagesService(["x"]) as service:
            address = ("127.0.0.1", int(service.url.rpartition(":")[2]))
            connection.connect(address)
            connection.sendall(b"HEAD / HTTP/1.1\r\n\r\n")
            assert connection.recv(9) == b"HTTP/1.1 "
        while connection.recv(65_536):
            pass
    with pytest.raises(OSError):
        socket.create_connection(address, timeout=1)
