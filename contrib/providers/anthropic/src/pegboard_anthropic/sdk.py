"""The official library as a transport: for platforms and credentials that only it can serve.

Importing it takes a second or more; it is loaded with the first request, in a thread.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from pegboard.errors import ProviderError
from pegboard_http.certificates import contexts
from pegboard_http.failure import Failure, broken_line

from pegboard_anthropic.access import Access
from pegboard_anthropic.failure import from_answer, from_event, no_key

if TYPE_CHECKING:
    import anthropic

_PLATFORMS = {
    "aws": "AsyncAnthropicAWS",
    "bedrock": "AsyncAnthropicBedrock",
    "foundry": "AsyncAnthropicFoundry",
    "vertex": "AsyncAnthropicVertex",
}


class Library:
    """A `Transport` over the official client. Its own repeats are off: the provider repeats, and says so."""

    def __init__(self, access: Access, platform: str = "api") -> None:
        self._access = access
        self._platform = platform
        self._client: anthropic.AsyncAnthropic | None = None
        self._opening = anyio.Lock()

    async def events(self, body: bytes) -> AsyncGenerator[dict[str, Any], None]:
        """Send a streamed message request; yield its events as they arrive. Closing it early closes the connection."""
        given = msgspec.json.decode(body)
        required = {name: given.pop(name) for name in ("model", "max_tokens", "messages", "stream")}
        client = await self._opened()
        with _failures():
            stream = await client.messages.create(**required, extra_body=given)
            async with stream:
                async for event in stream:
                    yield event.to_dict(mode="json")

    async def count(self, body: bytes) -> int:
        """Ask the count endpoint."""
        given = msgspec.json.decode(body)
        required = {name: given.pop(name) for name in ("model", "messages")}
        client = await self._opened()
        with _failures():
            return int((await client.messages.count_tokens(**required, extra_body=given)).input_tokens)

    async def models(self) -> list[str]:
        """All model names, newest first."""
        client = await self._opened()
        with _failures():
            return [model.id async for model in client.models.list(limit=100)]

    async def close(self) -> None:
        """Close the client."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _opened(self) -> anthropic.AsyncAnthropic:
        async with self._opening:
            if self._client is None:
                self._client = await anyio.to_thread.run_sync(self._open)
            return self._client

    def _open(self) -> anthropic.AsyncAnthropic:
        import anthropic
        import httpx2

        access = self._access
        common: dict[str, Any] = {
            "max_retries": 0,
            "timeout": httpx2.Timeout(access.reach.read_timeout, connect=access.reach.connect_timeout),
            "default_headers": access.headers,
        }
        *_, verify = contexts(access.reach.certificate_file, access.reach.certificate_folder)
        try:
            if self._platform != "api":
                client: anthropic.AsyncAnthropic = getattr(anthropic, _PLATFORMS[self._platform])(**common)
                return client
            return anthropic.AsyncAnthropic(
                api_key=access.key or None,
                auth_token=access.token or None,
                base_url=access.base_url,
                http_client=anthropic.DefaultAsyncHttpxClient(
                    proxy=access.reach.proxy_url, verify=verify, trust_env=False
                ),
                **common,
            )
        except (anthropic.AnthropicError, ImportError, ValueError) as error:
            raise ProviderError(
                f"The official client cannot be set up: {error}", kind="authentication_error"
            ) from error


@contextmanager
def _failures() -> Iterator[None]:
    """Turn the library's errors into ours."""
    import anthropic
    import httpx2

    try:
        yield
    except anthropic.APIStatusError as error:
        body = error.body if isinstance(error.body, Mapping) else {}
        if error.status_code == 200:
            raise from_event(body) from error
        raise from_answer(error.status_code, body, error.response.headers) from error
    except (anthropic.APIConnectionError, httpx2.TransportError) as error:
        raise broken_line(f"The connection to the model service failed: {error.__cause__ or error}") from error
    except TypeError as error:
        if "authentication" not in str(error):
            raise
        raise no_key() from error
    except anthropic.AnthropicError as error:
        raise Failure(ProviderError(f"The official client refuses the request: {error}")) from error
