"""Async tests run on asyncio, the one backend that the product runs on."""

from __future__ import annotations

import itertools

import pytest

_numbers = itertools.count(1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def bench(peg_session):
    return peg_session(mode="acceptEdits")


async def read(bench, name, **more):
    given = {"file_path": str(bench.folder / name), **more}
    return await bench.call("Read", given, id=f"read-{next(_numbers)}")


def given(bench, name, old, new, **more):
    return {"file_path": str(bench.folder / name), "old_string": old, "new_string": new, **more}


async def edit(bench, name, old, new, **more):
    return await bench.call("Edit", given(bench, name, old, new, **more), id=f"edit-{next(_numbers)}")


async def edited(bench, raw, old, new, **more):
    """Write a file, read it, edit it; the outcome and the bytes afterwards."""
    path = bench.folder / "a.txt"
    path.write_bytes(raw)
    await read(bench, "a.txt", offset=1)
    outcome = await edit(bench, "a.txt", old, new, **more)
    return outcome, path.read_bytes()
