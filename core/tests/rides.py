"""A real session, the real loop and the real provider against the strict service, for tests of long conversations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pegboard.agent import Agent, AgentSpec, RunResult
from pegboard.model import Input, Output
from pegboard.provider import ModelRef
from pegboard.testing import Bench, Willing, tool_of
from pegboard.testing.messages import MessagesService
from pegboard.testing.sessions import set_room
from pegboard.tool import Tool
from pegboard.transcript import Transcript

MODEL = "claude-haiku-5-5"


class Words(Input):
    text: str = ""


class Said(Output):
    said: str


class Plain(Tool[Words, Said]):
    """Gives back its text."""

    Input, Output = Words, Said

    async def run(self, input: Words, ctx: Any) -> Said:
        return Said(said=f"{ctx.tool} {input.text}")

    def render(self, output: Said, ctx: Any) -> str:
        return output.said


def plain(name: str, **fields: Any) -> Tool[Any, Any]:
    """A tool of this name that gives back its text."""
    return tool_of(type(name, (Plain,), {}), concurrency="read", ask=False, **fields)


def call(tool: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": tool, "input": given}


def calls(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"content": list(blocks), **more}


class Ride:
    """One session with a scripted service: run prompts, look at requests, leave and come back."""

    def __init__(self, bench: Bench, service: MessagesService, spec: dict[str, Any], session: str = "") -> None:
        self.bench, self.service, self.session = bench, service, bench.session
        self.closed = False
        folder = bench.session.places.sessions_dir / (session or bench.session.id)
        if (folder / "transcript.jsonl").exists():
            self.transcript = Transcript.resume(folder)
        else:
            self.transcript = Transcript.create(folder, cwd=bench.session.cwd, version="0")
        self.session.transcript = self.transcript
        for pieces in self.transcript.states:
            self.session.owners.restore(pieces)
        spec = {"model": MODEL, **spec}
        ref = ModelRef.parse(spec["model"])
        provider = bench.session.registry.provider(ref, bench.session.settings, os.environ)
        self.agent = Agent(self.session, provider, AgentSpec(**{**spec, "model": ref.model}), self.transcript)

    async def run(self, prompt: str = "go") -> RunResult:
        return await self.agent.run(prompt)

    async def close(self) -> None:
        """End the session; a second time does nothing."""
        if not self.closed:
            self.closed = True
            await self.agent.provider.close()
            await self.session.close()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return self.service.bodies

    @property
    def refused(self) -> list[str]:
        return [problem for entry in self.service.requests for problem in entry.problems]

    def names(self, request: int = -1) -> list[str]:
        """The tools of a request."""
        return [tool["name"] for tool in self.bodies[request].get("tools", [])]

    def results(self, request: int = -1) -> list[Any]:
        """The contents of all results in a request, in order."""
        messages = self.bodies[request]["messages"]
        blocks = [block for message in messages for block in message["content"]]
        return [block["content"] for block in blocks if block["type"] == "tool_result"]

    def texts(self, request: int = -1) -> str:
        """All user texts of a request."""
        messages = [message for message in self.bodies[request]["messages"] if message["role"] == "user"]
        return "\n".join(block["text"] for message in messages for block in message["content"] if "text" in block)

    @property
    def events(self) -> list[Any]:
        host = self.session.host
        assert isinstance(host, Willing)
        return host.events

    def file(self, name: str, text: str) -> str:
        path = Path(self.bench.folder / name)
        path.write_text(text, "utf-8")
        return str(path)


class Rides:
    """Makes rides and ends them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch = folder, monkeypatch
        self._services: list[MessagesService] = []
        self.open: list[Ride] = []

    def __call__(
        self, script: Any, *, service: dict[str, Any] | None = None, again: Ride | None = None, **more: Any
    ) -> Ride:
        """A ride on a script. ``again``: go on with an earlier ride's session. Other words go to the bench or spec."""
        served = MessagesService(script, **(service or {}))
        self._services.append(served)
        served.__enter__()
        self._patch.setenv("ANTHROPIC_BASE_URL", served.url)
        self._patch.setenv("ANTHROPIC_API_KEY", "sk-test")
        fields = AgentSpec.__dataclass_fields__
        spec = {name: more.pop(name) for name in list(more) if name in fields and name != "tools"}
        room = again.bench.folder.parent if again else self._folder / f"room{len(self.open)}"
        bench = Bench(room, **{"host": Willing(), "only": ["ToolSearch"], **more})
        ride = Ride(bench, served, spec, again.transcript.path.parent.name if again else "")
        self.open.append(ride)
        return ride

    async def close(self) -> None:
        for ride in self.open:
            await ride.close()
        for served in self._services:
            served.__exit__(None, None, None)


@pytest.fixture
async def ride(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    set_room(tmp_path, monkeypatch.setenv)
    rides = Rides(tmp_path, monkeypatch)
    yield rides
    await rides.close()


def head(body: dict[str, Any]) -> Iterator[Any]:
    """What a service caches of a request before the messages: loaded tools and the system text, without marks."""
    yield [tool for tool in body.get("tools", []) if not tool.get("defer_loading")]
    yield [{key: value for key, value in block.items() if key != "cache_control"} for block in body["system"]]
