"""The ground the standard tests stand on: the tool under test, and a room with a real session for each try."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import anyio
import pytest

from pegboard.call import Call, Outcome, Status
from pegboard.errors import Code
from pegboard.manifest import Manifest, read_manifest
from pegboard.testing.sessions import Bench, Willing, set_room
from pegboard.tool import Access, AccessKind, Context, Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegboard.testing.suite import Case

T = TypeVar("T")

GROUP = "pegboard.tools"

SECONDS = 60.0
"""[C] Nothing in a standard test takes this long unless it hangs."""


class Exam:
    """What the standard tests have in common."""

    tool: ClassVar[str]
    good: ClassVar[Sequence[Case]]
    bad: ClassVar[Sequence[Case]]

    @pytest.fixture(autouse=True)
    def _room(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        set_room(tmp_path, monkeypatch.setenv)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
        self._tmp = tmp_path
        self._numbers = itertools.count()

    # -- the tool ----------------------------------------------------------------------------------------------

    def entry(self) -> importlib.metadata.EntryPoint:
        """The entry point that brings the tool."""
        found = [item for item in importlib.metadata.entry_points(group=GROUP) if item.name == self.tool]
        assert len(found) == 1, (
            f"{len(found)} installed distributions bring a tool named {self.tool}; "
            "install yours with: uv pip install -e . (or pip)"
        )
        return found[0]

    @property
    def package(self) -> str:
        """The package that holds the tool's module; a distribution may hold several."""
        return self.entry().module.rpartition(".")[0]

    @property
    def folder(self) -> Path:
        """The package folder, with `tool.toml` and its neighbours."""
        spec = importlib.util.find_spec(self.package)
        assert spec is not None and spec.submodule_search_locations
        return Path(spec.submodule_search_locations[0])

    @property
    def manifest(self) -> Manifest:
        return read_manifest(self.folder / "tool.toml")

    def tool_class(self) -> type[Tool[Any, Any]]:
        """The class itself; imports its module."""
        loaded: type[Tool[Any, Any]] = self.entry().load()
        return loaded

    def other_tool_packages(self) -> set[str]:
        """The packages of every other installed tool, without those of owners that this one names."""
        found = {item.module.rpartition(".")[0] for item in importlib.metadata.entry_points(group=GROUP)}
        owners = {owner.partition(":")[0].partition(".")[0] for owner in self.manifest.owners}
        return found - owners - {self.package}

    def variant(self, **methods: Callable[..., Any]) -> Tool[Any, Any]:
        """An object of the tool's class with some methods replaced."""
        made: Tool[Any, Any] = type(self.tool_class().__name__, (self.tool_class(),), methods)()
        return made

    # -- a try -------------------------------------------------------------------------------------------------

    def bench(self, case: Case | None = None, **options: Any) -> Bench:
        """A fresh room with the files of the case and a session in which every question is answered with "once"."""
        options.setdefault("host", Willing())
        if case is not None and case.settings:
            options["settings"] = {**case.settings, **options.get("settings", {})}
        bench = Bench(self._tmp / f"room{next(self._numbers)}", **options)
        if case is not None:
            case.prepare(bench.folder)
        return bench

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run async work to its end, and wait for the threads that an abort may have left to finish."""

        async def limited() -> T:
            with anyio.fail_after(SECONDS):
                return await work()

        try:
            return anyio.run(limited, backend="asyncio")
        finally:
            settle_threads()

    async def before(self, bench: Bench, case: Case) -> None:
        """Make the calls that come first."""
        from pegboard.testing.suite import fill

        for tool, given in case.before:
            outcome = await bench.call(tool, fill(given, bench.folder))
            assert not outcome.is_error, f"{tool}, called before the case, failed: {outcome.plain()}"

    async def attempt(self, bench: Bench, case: Case) -> Outcome:
        """The calls that come first, then the case itself."""
        await self.before(bench, case)
        return await bench.call(self.tool, case.given(bench.folder))

    def outcome(self, case: Case, **options: Any) -> Outcome:
        """How the case ends in a room of its own."""
        bench = self.bench(case, **options)

        async def work() -> Outcome:
            async with bench:
                return await self.attempt(bench, case)

        return self.run(work)

    def parsed(self, bench: Bench, given: dict[str, Any]) -> Any:
        """The input as the tool's model sees it."""
        from pegboard.shaping import parse_input

        places = {"cwd": str(bench.folder), "home": str(bench.places.home)}
        return parse_input(self.tool_class().Input, given, self.manifest, places)[0]

    def context(self, bench: Bench) -> Context:
        """A context such as the pipeline makes for one call."""
        from pegboard.call import Ledger

        session = bench.session
        return Context(session, call_id="call", tool=self.tool, ledger=Ledger(), snapshot=session.snapshot())

    def accesses(self, bench: Bench, case: Case) -> list[Access]:
        """What the case says it would touch."""
        tool = self.tool_class()()
        return list(tool.accesses(self.parsed(bench, case.given(bench.folder)), self.context(bench)))

    def edits(self, bench: Bench, case: Case) -> list[str]:
        """The paths that the case says it would change."""
        return [item.target for item in self.accesses(bench, case) if item.kind is AccessKind.EDIT]

    def needs_permission(self) -> bool:
        """Whether a call is asked about in default mode, inside the working folder."""
        return self.manifest.ask and self.manifest.concurrency != "read"


def settle_threads() -> None:
    """Wait for worker threads that an aborted call left behind; their work runs to its end."""
    for thread in threading.enumerate():
        if thread.name.startswith("AnyIO worker"):
            thread.join(SECONDS)


def ended(outcome: Outcome, code: Code | str | None) -> bool:
    """Whether a call ended with this code (None: well)."""
    return outcome.code == code if code is not None else not outcome.is_error


LEGAL = {
    Status.OK: {"safe"},
    Status.LAUNCHED: {"check_first"},
    Status.NOT_STARTED: {"safe"},
    Status.PARTIAL: {"check_first"},
    Status.UNKNOWN: {"forbidden"},
    Status.UNMAPPED: {"check_first"},
}
"""Outcome class -> what it may say about a repeat."""

ENVELOPE = {
    "id", "tool", "is_error", "outcome", "code", "retry", "text", "data", "decision", "effects", "attachments",
}  # fmt: skip


def call(tool: str, given: dict[str, Any], id: str = "one") -> Call:
    """A call as a model would make it."""
    return Call(id=id, tool=tool, input=given)
