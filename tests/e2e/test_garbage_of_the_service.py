"""A model service that talks nonsense: on the line, in its stream, in the calls that it asks for."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pegboard.testing.faults import Stage
from pegboard.testing.messages import MessagesService

sys.path.insert(0, str(Path(__file__).parent))
from service_scenario import Play, acting, failure


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("service")) as made:
        yield made


@pytest.fixture
def play(stage: Stage) -> Play:
    made = Play(stage)
    made.begin()
    return made


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A server that gives these bytes to one connection after the other, and closes it; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                for answer in answers:
                    line = listener.accept()[0]
                    with line, line.makefile("rb") as file:
                        head = b"".join(iter(file.readline, b"\r\n"))
                        size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                        file.read(size)
                        line.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def http(body: bytes = b"", kind: str = "text/event-stream", status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n{more}\r\n".encode() + body


def sse(*events: Any) -> bytes:
    return http(b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events))


BEGIN = {"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 1}}}
END = ({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"})


def block(given: Any, *deltas: Any, index: Any = 0) -> bytes:
    """A whole answer with one block that starts as ``given``."""
    middle = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    start = {"type": "content_block_start", "index": index, "content_block": given}
    return sse(BEGIN, start, *middle, {"type": "content_block_stop", "index": index}, *END)


LINES = {
    "nothing": b"",
    "noise": bytes(range(256)) * 8,
    "another protocol": b"220 mail.example ESMTP\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-ty",
    "a head without an end": b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 40_000,
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "informational only": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "switched protocols": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n",
    "a wrong chunk": http(b"zz\r\nhello\r\n", more="transfer-encoding: chunked\r\n"),
    "less than promised": http(b"data: {}\n\n", more="content-length: 5000\r\n"),
    "a web page": http(b"<html>Log in</html>", "text/html"),
    "JSON in place of a stream": http(b'{"type":"message"}', "application/json"),
    "a redirect": http(status="302 Found", more="location: http://127.0.0.1:1/\r\n"),
    "no content": http(status="204 No Content"),
    "an error that is no JSON": http(b"<html>Bad gateway</html>", "text/html", "502 Bad Gateway"),
    "an error that is a list": http(b"[1]", "application/json", "400 Bad Request"),
    "an error of texts": http(b'{"error": "no"}', "application/json", "400 Bad Request"),
    "an error of numbers": http(b'{"error": {"type": 3, "message": {"a": 1}}}', "application/json", "400 Bad Request"),
    "a removal of what is not there": http(
        b'{"error": {"message": "messages.99.content.99: bad"}}', "application/json", "400 Bad Request"
    ),
    "a status that is none": http(status="799 What"),
}
STREAMS = {
    "no event": http(),
    "comments alone": http(b": hello\n\n" * 10),
    "events that are no UTF-8": http(b"data: \xff\xfe\n\n"),
    "events that are no JSON": http(b"data: {\n\n"),
    "a list": sse([1]),
    "deep nesting": http(b"data: " + b"[" * 100_000 + b"\n\n"),
    "no type": sse({}),
    "a type that is none": sse({"type": ["error"]}),
    "an error without a text": sse({"type": "error"}),
    "an error of texts": sse({"type": "error", "error": "no"}),
    "a delta of nothing": sse(BEGIN, {"type": "content_block_delta", "index": 4, "delta": {"type": "text_delta"}}),
    "an end of nothing": sse(BEGIN, {"type": "content_block_stop", "index": 0}),
    "an index that is none": block({"type": "text", "text": "a"}, index=[0]),
    "a message that is none": sse({"type": "message_start", "message": None}),
    "counts that are none": sse(
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": "x"}}}, *END
    ),
    "a model that is none": sse({"type": "message_start", "message": {"id": "m", "model": 7}}, *END),
    "an id that is none": sse({"type": "message_start", "message": {"id": {}, "model": "m"}}, *END),
    "a stop reason that is none": sse(BEGIN, {"type": "message_delta", "delta": {"stop_reason": 4}}, END[1]),
    "a block that is none": block(None),
    "a block of no kind": block({"text": "a"}),
    "a text that is none": block({"type": "text", "text": None}),
    "a piece that is none": block({"type": "text", "text": ""}, {"type": "text_delta", "text": 5}),
    "a signature that is none": block({"type": "thinking", "thinking": "a", "signature": 5}),
    "a call without an id": block({"type": "tool_use", "name": "Bash", "input": {}}),
    "a call without a name": block({"type": "tool_use", "id": "toolu_1", "input": {}}),
    "a call with an id that is none": block({"type": "tool_use", "id": 5, "name": "Bash", "input": {}}),
    "a call with a name that is none": block({"type": "tool_use", "id": "toolu_1", "name": None, "input": {}}),
    "a call with an empty name": block({"type": "tool_use", "id": "toolu_1", "name": "", "input": {}}),
    "a call with an input that is none": block({"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": [1]}),
    "a call with a wrong piece": block(
        {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}},
        {"type": "input_json_delta", "partial_json": {"command": "echo 9 >> count.txt"}},
    ),
}


@pytest.mark.parametrize("kind", ["lines", "streams"])
def test_garbage_ends_the_run_and_the_session_goes_on(play: Play, kind: str) -> None:
    garbage = LINES if kind == "lines" else STREAMS
    with MessagesService([acting(play, 1), failure(500), acting(play, 2), "done"]) as service:
        play.fails(service.url)
        with answering(*garbage.values()) as url:
            for name in garbage:
                try:
                    play.fails(url)
                except Exception as error:
                    raise AssertionError(name) from error
        play.ends_well(service.url)
        play.whole(service, effects=2)


DEPTHS = (50, 150, 300, 450, 600, 700, 800, 850, 900, 930, 960, 990, 2_000, 100_000)


def test_an_input_of_any_depth_is_answered(play: Play) -> None:
    def nested(depth: int) -> dict[str, Any]:
        return {"type": "tool_use", "name": "Write", "raw_input": '{"a":' * depth + "1" + "}" * depth}

    turns = [{"content": [nested(depth), nested(depth)]} for depth in DEPTHS]
    with MessagesService([*turns, acting(play, 1), "done", acting(play, 2), "done"]) as service:
        play.ends_well(service.url)
        play.ends_well(service.url)
        play.whole(service, effects=2)
