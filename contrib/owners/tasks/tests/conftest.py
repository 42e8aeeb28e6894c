"""Async tests run on asyncio, the one backend that the product runs on; a small door to the owners of a session."""

from __future__ import annotations

import pytest
from pegboard.call import Ledger
from pegboard.tool import Context
from pegboard_files import FileHistory, FileViews


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Room:
    """A session with its owners, and a context for each call."""

    def __init__(self, bench) -> None:
        self.bench = bench
        self.folder = bench.folder
        self.count = 0

    def ctx(self, agent: str = "main") -> Context:
        self.count += 1
        session = self.bench.session
        return Context(
            session,
            call_id=f"call-{self.count}",
            tool="Edit",
            ledger=Ledger(),
            snapshot=session.snapshot(),
            agent=agent,
        )

    async def history(self) -> FileHistory:
        return await self.ctx().own(FileHistory)

    async def views(self, agent: str = "main") -> FileViews:
        return await self.ctx(agent).own(FileViews)

    def path(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture
def room(peg_session) -> Room:
    return Room(peg_session(mode="acceptEdits"))
