"""Hooks that are web addresses, against a real server on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pegboard_json_hooks.http import covers, filled

pytestmark = pytest.mark.anyio

SAVE = {"path": "a.txt", "text": "hello"}


class Server:
    """Answers every request the same way, and keeps what it was sent."""

    def __init__(self) -> None:
        self.status, self.body, self.kind = 200, b"", "application/json"
        self.seen: list[tuple[str, dict[str, str], Any]] = []
        outer = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.seen.append((self.path, headers, json.loads(sent)))
                self.send_response(outer.status)
                self.send_header("content-type", outer.kind)
                self.send_header("content-length", str(len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *words: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook?x=1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    found = Server()
    yield found
    found.close()


def http(server: Server, **fields: Any) -> dict[str, Any]:
    return {"matcher": "", "hooks": [{"type": "http", "url": server.url, **fields}]}


async def test_the_event_is_posted_and_the_answer_decides(hooked: Any, server: Server) -> None:
    specific = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "not now"}
    server.body = json.dumps({"hookSpecificOutput": specific}).encode()
    async with hooked("PreToolUse", http(server)) as bench:
        outcome = await bench.call("Save", SAVE, id="t1")
    assert (outcome.code, outcome.text) == ("denied_by_hook", "not now")
    ((path, headers, event),) = server.seen
    assert path == "/hook?x=1" and headers["content-type"] == "application/json"
    assert event["tool_use_id"] == "t1" and event["tool_input"]["text"] == "hello"


@pytest.mark.parametrize(("status", "body"), [(500, b"{}"), (404, b"gone"), (302, b""), (200, b'{"broken')])
async def test_a_failure_decides_nothing_unless_it_must(hooked: Any, server: Server, status: int, body: bytes) -> None:
    server.status, server.body = status, body
    async with hooked("PreToolUse", http(server)) as bench:
        assert (await bench.call("Save", SAVE)).status == "ok"
    assert len(hooked.host.notices) == 1
    async with hooked("PreToolUse", http(server, onFailure="block")) as bench:
        assert (await bench.call("Save", SAVE)).code == "denied_by_hook"


async def test_nobody_there_decides_nothing(hooked: Any, server: Server) -> None:
    group = http(server)
    server.close()
    async with hooked("PreToolUse", group) as bench:
        assert (await bench.call("Save", SAVE)).status == "ok"
    assert "Cannot connect" in hooked.host.notices[0]


async def test_an_empty_or_plain_answer_is_success(hooked: Any, server: Server) -> None:
    for body in (b"", b"all is well"):
        server.body = body
        async with hooked("PreToolUse", http(server)) as bench:
            assert (await bench.call("Save", SAVE)).status == "ok"
    assert hooked.host.notices == []


async def test_headers_hold_listed_variables_and_never_a_model_key(
    hooked: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "s3")
    monkeypatch.setenv("OTHER", "no")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-never")
    headers = {"Authorization": "Bearer ${HOOK_SECRET}", "X-Other": "<$OTHER>", "X-Key": "<$ANTHROPIC_API_KEY>"}
    group = http(server, headers=headers, allowedEnvVars=["HOOK_SECRET", "ANTHROPIC_API_KEY"])
    async with hooked("PreToolUse", group) as bench:
        await bench.call("Save", SAVE)
    sent = server.seen[0][1]
    assert sent["authorization"] == "Bearer s3" and sent["x-other"] == "<>" and sent["x-key"] == "<>"
    assert filled("a\r\nb: c", ()) == "ab: c"


async def test_managed_policy_lists_the_addresses(hooked: Any, server: Server) -> None:
    async with hooked("PreToolUse", http(server), managed='hooks.allow_urls = ["https://hooks.example/*"]\n') as bench:
        assert (await bench.call("Save", SAVE)).status == "ok"
    assert server.seen == [] and "does not list" in hooked.host.notices[0]
    async with hooked("PreToolUse", http(server), managed='hooks.allow_urls = ["http://127.0.0.1:*"]\n') as bench:
        await bench.call("Save", SAVE)
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("pattern", "host", "target", "fits"),
    [
        ("https://hooks.example/*", "hooks.example", "/a/b", True),
        ("https://hooks.example", "hooks.example", "/a/b", True),
        ("https://hooks.example/a", "hooks.example", "/b", False),
        ("https://*.example/*", "evil.test", "/x.example/", False),
        ("https://*.example", "a.example", "/", True),
        ("https://*.example", "a.example.evil", "/", False),
        ("*", "anything.test", "/", True),
        ("http://hooks.example/*", "hooks.example", "/", False),
    ],
)
def test_which_addresses_a_pattern_covers(pattern: str, host: str, target: str, fits: bool) -> None:
    assert covers(pattern, "https", host, target) is fits


@pytest.mark.parametrize(
    "url", ["ftp://x/y", "file:///etc/passwd", "http://user:pass@127.0.0.1/", "nonsense", "http://"]
)
async def test_odd_addresses_are_no_addresses(hooked: Any, url: str) -> None:
    async with hooked("PreToolUse", {"hooks": [{"type": "http", "url": url}]}) as bench:
        assert (await bench.call("Save", SAVE)).status == "ok"
    assert len(hooked.host.notices) == 1
