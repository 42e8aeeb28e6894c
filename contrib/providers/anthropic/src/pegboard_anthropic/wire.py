"""Our own client of the Messages API, over `Lines`.

It exists because importing the official library takes longer than many whole turns take here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import h11
import msgspec

from pegboard_anthropic.access import VERSION, Access
from pegboard_anthropic.failure import Failure, broken_line, from_answer
from pegboard_anthropic.line import Line, Lines, basic
from pegboard_anthropic.sse import EventReader

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
MODELS = "/v1/models?limit=100"
ANSWER_LIMIT = 10_000_000
"""Most bytes of an answer that is no stream."""


class Wire:
    """A `Transport` that speaks HTTP itself."""

    def __init__(self, access: Access) -> None:
        self._lines = Lines(access)
        self._decode = msgspec.json.Decoder().decode
        headers = {
            "host": access.address.host_header,
            "user-agent": "pegboard/0.1.0",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "anthropic-version": VERSION,
        }
        if access.key:
            headers["x-api-key"] = access.key
        if access.token:
            headers["authorization"] = f"Bearer {access.token}"
        if access.proxy is not None and access.proxy.user and not access.address.tls:
            headers["proxy-authorization"] = basic(access.proxy.user)
        self._headers = list({**headers, **access.headers}.items())

    async def events(self, body: bytes) -> AsyncGenerator[dict[str, Any], None]:
        """Send a streamed message request; yield its events as they arrive. Closing it early closes the connection."""
        line, response = await self._lines.request("POST", MESSAGES, self._headers, body)
        try:
            if response.status_code != 200:
                raise await _refusal(line, response)
            _want_events(response)
            reader = EventReader()
            while chunk := await line.chunk():
                for data in reader.feed(chunk):
                    event = self._event(data)
                    yield event
                    if event.get("type") == "message_stop":
                        await line.finish()
                        return
        finally:
            await self._lines.release(line)

    async def count(self, body: bytes) -> int:
        """Ask the count endpoint."""
        return int((await self._call("POST", COUNT, body))["input_tokens"])

    async def models(self) -> list[str]:
        """All model names, newest first."""
        names: list[str] = []
        page = await self._call("GET", MODELS)
        while True:
            names += [entry["id"] for entry in page["data"]]
            if not page.get("has_more") or not page.get("last_id"):
                return names
            page = await self._call("GET", f"{MODELS}&after_id={page['last_id']}")

    async def close(self) -> None:
        """Close idle connections."""
        await self._lines.close()

    async def _call(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        line, response = await self._lines.request(method, path, self._headers, body)
        try:
            if response.status_code != 200:
                raise await _refusal(line, response)
            return _object(await _whole(line))
        finally:
            await self._lines.release(line)

    def _event(self, data: bytes) -> dict[str, Any]:
        try:
            event = self._decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise broken_line("The model service sent an event that is no JSON.") from None
        if not isinstance(event, dict):
            raise broken_line("The model service sent an event that is no object.")
        return event


def _want_events(response: h11.Response) -> None:
    kind = _headers(response).get("content-type", "")
    if not kind.startswith("text/event-stream"):
        what = f"something of type {kind or 'unknown'}, not a stream of events"
        raise from_answer(400, {"error": {"message": f"{what}. Is provider.base_url right?"}}, {})


async def _refusal(line: Line, response: h11.Response) -> Failure:
    try:
        body = _object(await _whole(line))
    except Failure:
        body = {}
    return from_answer(response.status_code, body, _headers(response))


async def _whole(line: Line) -> bytes:
    parts: list[bytes] = []
    size = 0
    while chunk := await line.chunk():
        parts.append(chunk)
        size += len(chunk)
        if size > ANSWER_LIMIT:
            raise broken_line("The answer of the model service is too large.")
    return b"".join(parts)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise broken_line("The answer of the model service is no JSON.") from None
    if not isinstance(value, dict):
        raise broken_line("The answer of the model service is no object.")
    return value


def _headers(response: h11.Response) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
