"""Our own client of the Messages API.

It exists because importing the official library takes longer than many whole turns take here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from pegboard_http.client import Client
from pegboard_http.values import json_object

from pegboard_anthropic.access import VERSION, Access
from pegboard_anthropic.failure import from_answer

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
MODELS = "/v1/models?limit=100"


class Wire:
    """A `Transport` that speaks HTTP itself."""

    def __init__(self, access: Access) -> None:
        headers = {"anthropic-version": VERSION}
        if access.key:
            headers["x-api-key"] = access.key
        if access.token:
            headers["authorization"] = f"Bearer {access.token}"
        self._client = Client(access.reach, {**headers, **access.headers}, from_answer)

    async def events(self, body: bytes) -> AsyncGenerator[dict[str, Any], None]:
        """Send a streamed message request; yield its events as they arrive. Closing it early closes the connection."""
        async with self._client.events(MESSAGES, body) as events:
            async for data in events:
                event = json_object(data)
                yield event
                if event.get("type") == "message_stop":
                    await events.finish()
                    return

    async def count(self, body: bytes) -> int:
        """Ask the count endpoint."""
        return int((await self._client.call("POST", COUNT, body))["input_tokens"])

    async def models(self) -> list[str]:
        """All model names, newest first."""
        names: list[str] = []
        page = await self._client.call("GET", MODELS)
        while True:
            names += [entry["id"] for entry in page["data"]]
            if not page.get("has_more") or not page.get("last_id"):
                return names
            page = await self._client.call("GET", f"{MODELS}&after_id={page['last_id']}")

    async def close(self) -> None:
        """Close idle connections."""
        await self._client.close()
