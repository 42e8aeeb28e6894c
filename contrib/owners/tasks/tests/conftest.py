"""Async tests run on asyncio, the one backend that the product runs on; a session with its registry of runs."""

from __future__ import annotations

import pytest
from pegboard.testing import Willing
from pegboard_tasks.runs import Runs


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def bench(peg_session):
    async with peg_session(host=Willing()) as bench:
        yield bench


@pytest.fixture
async def runs(bench) -> Runs:
    return await bench.session.owners.get(Runs, bench.session.place("main"))
