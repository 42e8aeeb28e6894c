"""Async tests run on asyncio, the one backend that the product runs on."""

from __future__ import annotations

import itertools

import pytest
from pegboard_files import FileViews

_numbers = itertools.count(1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def bench(peg_session):
    return peg_session(mode="acceptEdits")


async def view_of(bench, name):
    views = await bench.session.owners.get(FileViews, bench.session.place("main"))
    return views.get(str(bench.folder / name))


async def read(bench, name, id="", **more):
    path = str(bench.folder / name)
    return await bench.call("Read", {"file_path": path, **more}, id=id or f"read-{next(_numbers)}")
