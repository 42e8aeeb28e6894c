"""The client of a chat-completions server: two addresses, one stream format."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
from pegboard_http.address import parse_address
from pegboard_http.client import Client
from pegboard_http.reach import SettingValues, headers_from, read_reach
from pegboard_http.values import json_object

from pegboard_openai_compatible.failure import from_answer, no_key

BASE_URL = "http://127.0.0.1:8080/v1"
"""Where a local server listens when nobody says otherwise; no prompt leaves the machine by default."""
DONE = b"[DONE]"


class Wire:
    """One server. Raises `Failure` only; cancelling a request closes its connection."""

    def __init__(self, settings: SettingValues, environ: Mapping[str, str]) -> None:
        url = settings.value("provider.base_url") or environ.get("OPENAI_BASE_URL") or BASE_URL
        address = parse_address(url)
        address = msgspec.structs.replace(address, prefix=address.prefix or "/v1")
        headers = headers_from("OPENAI_CUSTOM_HEADERS", environ)
        key = environ.get("OPENAI_API_KEY", "").strip()
        if key:
            headers.setdefault("authorization", f"Bearer {key}")
        elif "authorization" not in headers and not address.loopback:
            raise no_key()
        self._client = Client(read_reach(address, settings, environ, "openai"), headers, from_answer)

    async def chunks(self, body: bytes) -> AsyncGenerator[dict[str, Any] | None, None]:
        """Send a streamed request; yield its chunks as they arrive, and None when the service says it is done."""
        async with self._client.events("/chat/completions", body) as events:
            async for data in events:
                if data.strip() == DONE:
                    await events.finish()
                    yield None
                    return
                yield json_object(data, "chunk of the model service")

    async def models(self) -> list[str]:
        """The names of the models that the server offers."""
        listed = (await self._client.call("GET", "/models")).get("data") or []
        return [str(entry["id"]) for entry in listed if isinstance(entry, dict) and entry.get("id")]

    async def close(self) -> None:
        """Close idle connections."""
        await self._client.close()
