"""An agent on a bench whose model plays a script over the real wire, and the look at its session file afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pegboard import events
from pegboard.agent import Agent, AgentSpec
from pegboard.lines import read
from pegboard.testing.messages import MessagesService
from pegboard.testing.sessions import Bench
from pegboard.transcript import Transcript
from pegboard_anthropic.provider import make


class Ride:
    """An agent on a bench, whose model plays a script."""

    def __init__(
        self,
        it: Bench,
        service: MessagesService,
        resumed: Path | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self.it, self.service, session = it, service, it.session
        folder = session.places.sessions_dir / session.id
        session.transcript = (
            Transcript.resume(resumed) if resumed else Transcript.create(folder, cwd=session.cwd, version="0")
        )
        self.path = session.transcript.path
        environ = {"ANTHROPIC_API_KEY": "sk-test", "ANTHROPIC_BASE_URL": service.url}
        self.provider = make(session.settings, environ, sleep=sleep)
        self.agent = Agent(session, self.provider, AgentSpec(model="claude-haiku-5-5"), session.transcript)

    async def __aenter__(self) -> Ride:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.provider.close()

    def whole(self) -> list[events.Result]:
        """The results, after a look at the file: each call has one, and every request was accepted."""
        assert not [problem for entry in self.service.requests for problem in entry.problems]
        records = list(read(self.agent.transcript.path))
        results = [record for record in records if isinstance(record, events.Result)]
        calls = [
            block["id"]
            for record in records
            if isinstance(record, events.Assistant)
            for block in record.content
            if block["type"] == "tool_use"
        ]
        assert sorted(calls) == sorted({result.id for result in results}) and len(results) == len(calls)
        return results


def asks(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"content": [{"type": "tool_use", "name": name, "input": given} for name, given in calls]}
