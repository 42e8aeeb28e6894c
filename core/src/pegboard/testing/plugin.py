"""The pytest plug-in of the kit: fixtures that build real sessions in a folder of the test's own.

It is loaded by every pytest run of an environment that holds pegboard, so it imports nothing until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pegboard.testing.sessions import Bench


@pytest.fixture
def peg_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    """Make benches: ``async with peg_session(settings=..., deny=[...]) as bench: await bench.call("Read", {...})``.

    Takes the arguments of `pegboard.testing.Bench`. Environment and folders are hermetic; each call makes a new room.
    """
    from itertools import count

    from pegboard.testing.sessions import Bench, set_room

    set_room(tmp_path, monkeypatch.setenv)
    numbers = count()

    def make(**options: Any) -> Bench:
        number = next(numbers)
        return Bench(tmp_path / f"room{number}" if number else tmp_path, **options)

    return make


@pytest.fixture
def peg_watch() -> Iterator[Any]:
    """What the interpreter writes, starts and contacts during the test (`pegboard.testing.Watch`)."""
    from pegboard.testing.effects import Watch

    with Watch() as watch:
        yield watch
