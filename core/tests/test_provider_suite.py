"""PROV-1: the suite is not made for one provider. A second one, written on bare sockets, passes it too."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream
from pegboard.errors import BadRequest, Overloaded, ProviderError, RateLimited, TooLong
from pegboard.provider import (
    Abilities,
    Answer,
    BlockDone,
    Message,
    Part,
    Request,
    Retrying,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from pegboard.testing.providers import TRIES, ProviderSuite, Sleep
from pegboard.testing.providers_bench import ask, results, text, tool

HEAD = "x-api-key: k\r\nanthropic-version: 2026-10-21\r\ncontent-type: application/json\r\nconnection: close\r\n"


class Plain:
    """A provider in a hundred lines: one connection a request, no encodings kept."""

    name = "plain"

    def __init__(self, url: str, sleep: Sleep) -> None:
        self._url = urlsplit(url)
        self._sleep = sleep

    async def stream(self, request: Request) -> AsyncIterator[Part]:
        body = {**_prompt(request), **request.extra, "max_tokens": request.max_tokens, "stream": True}
        for attempt in range(1, TRIES + 1):
            try:
                made = _Making()
                async with await self._connect() as stream:
                    async for event in _events(stream, await self._send(stream, "POST", "/v1/messages", body)):
                        for part in made.take(event):
                            yield part
                if made.stop is None:
                    raise Overloaded("The stream was cut.")
                yield made.answer()
                return
            except (OSError, anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError) as error:
                failure: ProviderError = Overloaded(str(error))
            except ProviderError as error:
                failure = error
            if not failure.retryable or attempt == TRIES:
                raise failure
            asked = failure.after if isinstance(failure, RateLimited) else None
            delay = asked if asked is not None else min(32.0, 0.5 * 2 ** (attempt - 1))
            yield Retrying(attempt, TRIES, delay, failure.status, str(failure))
            await self._sleep(delay)

    async def count(self, request: Request) -> int:
        return int((await self._call("POST", "/v1/messages/count_tokens", _prompt(request)))["input_tokens"])

    async def models(self) -> list[str]:
        return [entry["id"] for entry in (await self._call("GET", "/v1/models?limit=1000", None))["data"]]

    def abilities(self, model: str) -> Abilities:
        return Abilities(thinking=model.startswith("claude-"), server_tools=True)

    async def close(self) -> None:
        return None

    async def _connect(self) -> ByteStream:
        return await anyio.connect_tcp(self._url.hostname or "", self._url.port or 80)

    async def _send(self, stream: ByteStream, method: str, path: str, body: Any) -> BufferedByteReceiveStream:
        data = b"" if body is None else json.dumps(body).replace("\\ud800", "?").encode()
        head = f"{method} {path} HTTP/1.1\r\nhost: {self._url.netloc}\r\n{HEAD}content-length: {len(data)}\r\n\r\n"
        await stream.send(head.encode() + data)
        reader = BufferedByteReceiveStream(stream)
        lines = (await reader.receive_until(b"\r\n\r\n", 65_536)).decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        if (status := int(lines[0].split(" ")[1])) != 200:
            said = json.loads(await reader.receive_exactly(int(headers["content-length"])))["error"]["message"]
            raise _failure(status, f"The service said {status}: {said}", headers)
        self._length = int(headers.get("content-length", 0))
        return reader

    async def _call(self, method: str, path: str, body: Any) -> dict[str, Any]:
        async with await self._connect() as stream:
            reader = await self._send(stream, method, path, body)
            found: dict[str, Any] = json.loads(await reader.receive_exactly(self._length))
            return found


def _prompt(request: Request) -> dict[str, Any]:
    tools = [{"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in request.tools]
    messages = [{"role": message.role, "content": message.content} for message in request.messages]
    thinking = {"thinking": request.thinking} if request.thinking else {}
    return {"model": request.model, "system": request.system, "tools": tools, "messages": messages, **thinking}


def _failure(status: int, said: str, headers: dict[str, str]) -> ProviderError:
    if status == 429:
        return RateLimited(said, after=float(headers["retry-after"]))
    if status in (408, 409) or status >= 500:
        return Overloaded(said, status=status)
    return (TooLong if status == 413 or "too long" in said else BadRequest)(said, status=status)


async def _events(stream: ByteStream, reader: BufferedByteReceiveStream) -> AsyncIterator[dict[str, Any]]:
    rest = b""
    while size := int(await reader.receive_until(b"\r\n", 64), 16):
        rest += await reader.receive_exactly(size)
        await reader.receive_exactly(2)
        *whole, rest = rest.split(b"\n\n")
        for block in whole:
            yield json.loads(block.partition(b"\ndata: ")[2])


class _Making:
    """An answer on its way."""

    def __init__(self) -> None:
        self.stop: str | None = None
        self.content: list[dict[str, Any]] = []
        self.broken: dict[int, str] = {}
        self.cut = False
        self.raw = ""

    def take(self, event: dict[str, Any]) -> list[Part]:
        kind = event["type"]
        if kind == "error":
            passing = event["error"]["type"] in ("overloaded_error", "api_error")
            raise (Overloaded if passing else BadRequest)(event["error"]["message"])
        if kind == "message_start":
            self.id, self.model = event["message"]["id"], event["message"]["model"]
        elif kind == "content_block_start":
            self.block, self.raw = event["content_block"], ""
        elif kind == "content_block_delta":
            return self.delta(event["delta"])
        elif kind == "content_block_stop":
            return self.done()
        elif kind == "message_delta":
            self.ending, self.usage = event["delta"]["stop_reason"], event["usage"]
        elif kind == "message_stop":
            self.stop = self.ending
        return []

    def delta(self, delta: dict[str, Any]) -> list[Part]:
        if delta["type"] == "text_delta":
            self.block["text"] += delta["text"]
            return [TextDelta(delta["text"])]
        if delta["type"] == "thinking_delta":
            self.block["thinking"] += delta["thinking"]
            return [ThinkingDelta(delta["thinking"])]
        if delta["type"] == "signature_delta":
            self.block["signature"] = delta["signature"]
        self.raw += delta.get("partial_json", "")
        return []

    def done(self) -> list[Part]:
        if self.block["type"] == "thinking" and not self.block["signature"]:
            self.cut = True
            return []
        index = len(self.content)
        if self.raw:
            try:
                value = json.loads(self.raw, parse_constant=lambda name: [][0])
            except (ValueError, IndexError):
                value = None
            self.block["input"] = value if isinstance(value, dict) else {}
            if not isinstance(value, dict):
                self.broken[index] = self.raw
        self.content.append(self.block)
        return [BlockDone(index, self.block, self.broken.get(index))]

    def answer(self) -> Answer:
        last = len(self.content) - 1
        if self.stop == "max_tokens" and last >= 0 and self.content[last]["type"] == "tool_use":
            self.broken.setdefault(last, "")
            self.cut = True
        usage = Usage(**{name: self.usage[name] for name in Usage.__struct_fields__})
        return Answer(self.id, self.model, self.content, self.stop or "", usage, self.broken, self.cut)


class TestPlain(ProviderSuite):
    def make(self, url: str, sleep: Sleep) -> Plain:
        return Plain(url, sleep)

    async def test_prov_1_a_whole_conversation_with_a_second_provider(self) -> None:
        script = [
            {"content": [{"type": "thinking", "thinking": "hm"}, tool(), tool("Grep", {"a": 1}), tool("Nothing")]},
            {"content": [tool(raw_input='{"a": ')]},
            {"http_status": 429, "headers": {"retry-after": "2"}},
            {"content": [text("Wait.")], "stop_reason": "pause_turn"},
            "Done.",
        ]
        async with self.playing(script) as (provider, service, naps):
            messages = ask()
            await self.turn(provider, messages)
            broken = await self.answer(provider, messages)
            messages += [Message("assistant", broken.content), results(broken)]
            paused = await self.answer(provider, messages)
            messages.append(Message("assistant", paused.content))
            assert (await self.answer(provider, messages)).content == [text("Done.")]
            assert (broken.broken, naps.taken) == ({0: '{"a": '}, [2.0])
            assert [problem for entry in service.requests for problem in entry.problems] == []


def test_a_suite_without_a_provider_says_what_is_missing() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"define make\(self, url, sleep\)"):
        ProviderSuite().make("http://127.0.0.1:9", anyio.sleep)
