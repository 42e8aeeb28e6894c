"""A real session, the real loop and a strict service, in folders of a test's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pegboard.agent import Agent, AgentSpec
from pegboard.context import openings
from pegboard.events import Notice
from pegboard.host import Host, Question, Reply
from pegboard.provider import ModelRef
from pegboard.testing import Bench, Willing
from pegboard.testing.messages import MessagesService
from pegboard.transcript import Transcript


class Away(Willing):
    """A host with nobody in front of it."""

    async def ask(self, question: Question) -> Reply | None:
        self.questions.append(question)
        return None


def reading(*paths: str) -> dict[str, Any]:
    """A turn that reads files."""
    return {"content": [{"type": "tool_use", "name": "Read", "input": {"file_path": path}} for path in paths]}


class Ride:
    """Sessions in one working folder: write files, run prompts, look at what the model was told."""

    def __init__(self, make: Callable[..., Bench], service: MessagesService) -> None:
        self._make = make
        self.service = service
        self.notices: list[str] = []
        self.heard: list[Any] = []
        self.questions: list[Question] = []
        self.bench = make()
        self.folder, self.home = self.bench.folder, self.bench.outside

    def write(self, files: dict[str, str], folder: Path | None = None) -> None:
        """Write files below the working folder."""
        for name, text in files.items():
            path = (folder or self.folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    async def run(
        self, script: list[Any], *, host: Host | None = None, resume: str = "", kind: str = "startup", **options: Any
    ) -> str:
        """One run, as `peg -p` does it; the id of its session. ``script``: what the model answers."""
        self.service._play.__init__({"turns": script})  # type: ignore[misc]
        given = host or Away()
        bench = Bench(self.folder.parent, host=given, **options)
        session = bench.session
        folder = bench.places.sessions_dir / (resume or session.id)
        if resume:
            session.transcript = Transcript.resume(folder)
        else:
            session.transcript = Transcript.create(folder, cwd=session.cwd, version="0")
        model = "claude-haiku-5-5"
        provider = session.registry.provider(ModelRef.parse(model), session.settings, os.environ)
        agent = Agent(session, provider, AgentSpec(model=model), session.transcript)
        async with session:
            run = await agent.run("go", opening=await openings(session, kind))
            await provider.close()
        assert run.errors == []
        self.notices = [event.text for event in given.events if isinstance(event, Notice)]
        self.heard = [event for event in given.events if type(event).__name__ == "InstructionsLoaded"]
        self.questions = given.questions
        return folder.name

    def texts(self, request: int = -1) -> list[str]:
        """The texts of user messages in a request, in order."""
        messages = self.service.bodies[request]["messages"]
        blocks = [block for message in messages if message["role"] == "user" for block in message["content"]]
        return [block["text"] for block in blocks if block["type"] == "text"]

    def told(self, request: int = -1) -> list[str]:
        """The names of the instruction files in a request, in order, relative to the working folder."""
        found = []
        for text in self.texts(request):
            if text.startswith('<peg-note from="instructions '):
                path = text.partition("instructions ")[2].partition('"')[0]
                found.append(os.path.relpath(path, self.folder))
        return found


@pytest.fixture
def ride(peg_session: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> Iterator[Ride]:
    with MessagesService() as service:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", service.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
        yield Ride(peg_session, service)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
