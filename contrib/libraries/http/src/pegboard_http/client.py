"""JSON requests and event streams over `Lines`: what the clients of all services have in common.

What an error answer means differs from service to service, so that is asked of the provider.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import h11

from pegboard_http.failure import Failure, broken_line
from pegboard_http.line import Line, Lines, basic
from pegboard_http.reach import Reach
from pegboard_http.sse import EventReader
from pegboard_http.values import json_object

ANSWER_LIMIT = 10_000_000
"""Most bytes of an answer that is no stream."""

Judge = Callable[[int, Mapping[str, Any], Mapping[str, str]], Failure]
"""The failure behind an error answer: from its status, its body and its headers (names in lower case)."""


class Events:
    """The events of one answer, as they arrive. Call `finish` after the last one to keep the connection."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._reader = EventReader()
        self._ready: deque[bytes] = deque()

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            chunk = await self._line.chunk()
            if not chunk:
                raise StopAsyncIteration
            self._ready.extend(self._reader.feed(chunk))
        return self._ready.popleft()

    async def finish(self) -> None:
        """Nothing more is wanted: read the end of the answer, but do not wait for it for long."""
        await self._line.finish()


class Client:
    """One service. Raises `Failure` only; cancelling a request closes its connection."""

    def __init__(self, reach: Reach, headers: Mapping[str, str], judge: Judge) -> None:
        self._lines = Lines(reach)
        self._judge = judge
        common = {
            "host": reach.address.host_header,
            "user-agent": "pegboard/0.1.0",
            "accept-encoding": "identity",
            "content-type": "application/json",
        }
        if reach.proxy is not None and reach.proxy.user and not reach.address.tls:
            common["proxy-authorization"] = basic(reach.proxy.user)
        self._headers = list({**common, **headers}.items())

    @asynccontextmanager
    async def events(self, path: str, body: bytes) -> AsyncIterator[Events]:
        """Send a request whose answer is a stream of events. Leaving early closes the connection."""
        line, response = await self._lines.request("POST", path, self._headers, body)
        try:
            if response.status_code != 200:
                raise await self._refusal(line, response)
            kind = _headers(response).get("content-type", "")
            if not kind.startswith("text/event-stream"):
                what = f"something of type {kind or 'unknown'}, not a stream of events"
                raise self._judge(400, {"error": {"message": f"{what}. Is provider.base_url right?"}}, {})
            yield Events(line)
        finally:
            await self._lines.release(line)

    async def call(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        """Send a request whose answer is one JSON object."""
        line, response = await self._lines.request(method, path, self._headers, body)
        try:
            if response.status_code != 200:
                raise await self._refusal(line, response)
            return json_object(await _whole(line), "answer of the model service")
        finally:
            await self._lines.release(line)

    async def close(self) -> None:
        """Close idle connections."""
        await self._lines.close()

    async def _refusal(self, line: Line, response: h11.Response) -> Failure:
        try:
            body = json_object(await _whole(line), "answer")
        except Failure:
            body = {}
        return self._judge(response.status_code, body, _headers(response))


async def _whole(line: Line) -> bytes:
    parts: list[bytes] = []
    size = 0
    while chunk := await line.chunk():
        parts.append(chunk)
        size += len(chunk)
        if size > ANSWER_LIMIT:
            raise broken_line("The answer of the model service is too large.")
    return b"".join(parts)


def _headers(response: h11.Response) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
