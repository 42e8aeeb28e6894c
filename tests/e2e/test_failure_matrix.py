"""The failure matrix of the tools that exist: every class that a tool can end in is forced, and nothing is repeated.

FM-3, the way back from ``unknown``, needs a tool with a remote effect; `test_scenarios` plays it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from pegboard.call import Outcome
from pegboard.hooks import hook
from pegboard.testing import Willing
from pegboard.testing.sessions import Bench

pytestmark = pytest.mark.anyio

MATRIX = {
    "Read": {"not_started", "unmapped"},
    "Glob": {"not_started", "unmapped"},
    "Grep": {"not_started", "unmapped"},
    "Edit": {"not_started", "partial", "unmapped"},
    "Write": {"not_started", "partial", "unmapped"},
    "Bash": {"not_started", "partial", "launched", "unmapped"},
    "TaskStop": {"not_started", "unmapped"},
    "ToolSearch": {"not_started", "unmapped"},
}
"""The rows of the specification (5) for these tools, and two tools that it has no row for."""

FIRST_LINE = {
    "not_started": r".+",
    "partial": r"(This happened: |This may have happened: |Exit code \d+$)",
    "launched": r".*task",
    "unknown": r"This may have happened: ",
    "unmapped": r"The action happened, but its result was lost\. It changed ",
}
RETRY = {"not_started": "safe", "partial": "check_first", "launched": "check_first", "unmapped": "check_first"}

GOOD: dict[str, dict[str, Any]] = {
    "Read": {"file_path": "a.txt"},
    "Glob": {"pattern": "*.txt"},
    "Grep": {"pattern": "one"},
    "Edit": {"file_path": "a.txt", "old_string": "one", "new_string": "two"},
    "Write": {"file_path": "new/b.txt", "content": "b\n"},
    "Bash": {"command": "echo x >> ran.txt"},
    "TaskStop": {"task_id": "b1"},
    "ToolSearch": {"query": "stop"},
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Aborts:
    """A plug-in that aborts the session as soon as a file was changed."""

    @hook
    async def peg_file_changed(self, change: Any, ctx: Any) -> None:
        ctx._session.abort()
        await anyio.sleep(1)


@pytest.fixture
def bench(peg_session: Callable[..., Bench]) -> Callable[..., Bench]:
    def make_bench(**options: Any) -> Bench:
        made = peg_session(mode="acceptEdits", allow=["Bash"], host=Willing(), **options)
        (made.folder / "a.txt").write_text("one\n")
        return made

    return make_bench


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


async def known(it: Bench) -> None:
    """Read what Edit will change, so that it may."""
    assert (await it.call("Read", GOOD["Read"], "seen")).status == "ok"


def holds(outcome: Outcome, status: str) -> None:
    """Class, `is_error`, repeat and the first line are those of the specification."""
    assert outcome.status == status, outcome
    assert outcome.is_error == (status not in ("ok", "launched"))
    assert outcome.retry == RETRY.get(status, "forbidden")
    first = outcome.plain().splitlines()[0]
    assert re.match(FIRST_LINE[status], first), first
    assert (outcome.code is None) == (status == "launched")


# -- FM-1: not_started ------------------------------------------------------------------------------------------

BAD: dict[str, list[dict[str, Any]]] = {
    "Read": [{}, {"file_path": "none.txt"}, {"file_path": "."}, {"file_path": "a.txt", "limit": 0}],
    "Glob": [{}, {"pattern": "*", "path": "none"}, {"pattern": ""}],
    "Grep": [{}, {"pattern": "("}, {"pattern": "x", "path": "none"}, {"pattern": "x", "output_mode": "y"}],
    "Edit": [
        {},
        {"file_path": "none.txt", "old_string": "a", "new_string": "b"},
        {"file_path": "a.txt", "old_string": "three", "new_string": "b"},
        {"file_path": "a.txt", "old_string": "one", "new_string": "one"},
    ],
    "Write": [{}, {"file_path": "a.txt/b", "content": "x"}, {"file_path": ".", "content": "x"}],
    "Bash": [{}, {"command": "true", "timeout": -1}, {"command": "x\0y"}],
    "TaskStop": [{}, {"task_id": "none"}],
    "ToolSearch": [{}, {"query": ""}],
}


@pytest.mark.parametrize("tool", MATRIX)
async def test_fm_1_not_started(bench: Callable[..., Bench], tool: str) -> None:
    async with bench() as it:
        await known(it)
        before = tree(it.folder)
        for given in BAD[tool]:
            outcome = await it.call(tool, given)
            holds(outcome, "not_started")
            assert not outcome.effects
        it.deny(tool)
        refused = await it.call(tool, GOOD[tool])
        holds(refused, "not_started")
        assert refused.code in ("denied_by_rule", "unknown_tool") or tool == "TaskStop"  # it knows no such task
        it.session.abort()
        late = await it.call(tool, GOOD[tool])
        holds(late, "not_started")
        assert late.code == "cancelled"
        assert tree(it.folder) == before


UNUSED = {("Edit", "link"), ("Edit", "mkdir"), ("Write", "rename")}
"""An edit makes no name and no folder, a new file replaces nothing."""


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename", "link", "mkdir"])
@pytest.mark.parametrize("tool", ["Edit", "Write"])
async def test_fm_1_a_system_that_refuses_before_the_change_is_not_started(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, tool: str, call: str
) -> None:
    """Each system call that the writer makes fails once for the project; the file is as it was, and nothing is left."""
    async with bench() as it:
        await known(it)
        before = tree(it.folder)
        real, failed = getattr(os, call), []

        def failing(*given: Any, **more: Any) -> Any:
            name = str(given[0])
            ours = more.get("dir_fd", more.get("src_dir_fd")) is not None or isinstance(given[0], int)
            creates = call != "open" or given[1] & os.O_CREAT
            if not failed and ours and creates and not _is_log(given[0]):
                failed.append(name)
                raise OSError(5, "Input/output error")
            return real(*given, **more)

        monkeypatch.setattr(os, call, failing)
        outcome = await it.call(tool, GOOD[tool])
        monkeypatch.undo()
        if failed:
            holds(outcome, "not_started")
            assert outcome.code == "io_error" and tree(it.folder) == before
            assert sorted(path.name for path in it.folder.iterdir()) == ["a.txt"]
            assert (await it.call(tool, GOOD[tool])).status == "ok"
        else:
            assert outcome.status == "ok" and (tool, call) in UNUSED


def _is_log(target: Any) -> bool:
    """Whether this is a handle on something outside the project: the session file, the decision log, checkpoints."""
    return isinstance(target, int) and ".peg/" in os.readlink(f"/proc/self/fd/{target}")


# -- FM-1: partial, launched ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["Edit", "Write"])
async def test_fm_1_partial_abort_behind_the_change(bench: Callable[..., Bench], tool: str) -> None:
    async with bench() as it:
        await known(it)
        await it.call("Write", {"file_path": "first.txt", "content": ""})
        it.hook(Aborts())
        outcome = await it.call(tool, GOOD[tool])
        holds(outcome, "partial")
        assert outcome.code == "cancelled" and outcome.effects
        assert (it.folder / "a.txt").read_text() == ("two\n" if tool == "Edit" else "one\n")
        assert (it.folder / "new/b.txt").exists() == (tool == "Write")


@pytest.mark.parametrize("tool", ["Edit", "Write"])
async def test_fm_1_partial_a_file_with_several_names_breaks_half_way(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    async with bench() as it:
        os.link(it.folder / "a.txt", it.folder / "also.txt")
        await known(it)
        real = os.pwrite

        def half(handle: int, data: bytes, at: int) -> int:
            real(handle, data[: len(data) // 2], at)
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "pwrite", half)
        outcome = await it.call(tool, GOOD[tool] if tool == "Edit" else {"file_path": "a.txt", "content": "two\n"})
        monkeypatch.undo()
        holds(outcome, "partial")
        assert outcome.code == "io_error"
        (kept,) = re.findall(r"is kept in (\S+)\.$", outcome.plain(), re.MULTILINE)
        assert Path(kept).read_text() == "one\n"


async def test_fm_1_partial_commands(bench: Callable[..., Bench]) -> None:
    async with bench() as it:
        failed = await it.call("Bash", {"command": "echo x >> ran.txt; exit 3"})
        holds(failed, "partial")
        assert failed.plain().startswith("Exit code 3\n") and failed.code == "command_failed"
        late = await it.call("Bash", {"command": "echo x >> ran.txt; exec sleep 60 2>/dev/null", "timeout": 1000})
        assert late.status in ("partial", "launched")
        holds(late, late.status)
        async with anyio.create_task_group() as tasks:

            async def stop() -> None:
                while (it.folder / "ran.txt").read_text().count("x") < 3:
                    await anyio.sleep(0.01)
                it.session.abort()

            tasks.start_soon(stop)
            cut = await it.call("Bash", {"command": "echo x >> ran.txt; sleep 60"})
        holds(cut, "partial")
        assert cut.code == "cancelled" and (it.folder / "ran.txt").read_text() == "x\n" * 3


async def test_fm_1_launched(bench: Callable[..., Bench]) -> None:
    async with bench() as it:
        holds(await it.call("Bash", {"command": "sleep 60", "run_in_background": True}), "launched")


# -- FM-1: unmapped ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["render", "output"])
@pytest.mark.parametrize("tool", MATRIX)
async def test_fm_1_unmapped(bench: Callable[..., Bench], tool: str, fault: str) -> None:
    async with bench() as it:
        await known(it)
        given = GOOD[tool]
        if tool == "TaskStop":
            started = await it.call("Bash", {"command": "sleep 60", "run_in_background": True}, "bg")
            given = {"task_id": started.data["backgroundTaskId"]}
        whole = it.session.toolbox.load(it.found(tool))
        it.swap(tool, _lossy(whole, fault))
        outcome = await it.call(tool, given)
        holds(outcome, "unmapped")
        assert outcome.code == "mapping_failed" and outcome.data is None
        assert bool(outcome.effects) == (tool in ("Edit", "Write", "Bash", "TaskStop"))
        acted = {"Edit": ("a.txt", "two\n"), "Write": ("new/b.txt", "b\n"), "Bash": ("ran.txt", "x\n")}
        if tool in acted:
            name, text = acted[tool]
            assert (it.folder / name).read_text() == text and name.split("/")[-1] in outcome.plain() + "ran.txt"


def _lossy(whole: Any, fault: str) -> Any:
    """The same tool, which loses its result after the action."""

    class Lossy(type(whole)):  # type: ignore[misc]
        async def run(self, input: Any, ctx: Any) -> Any:
            output = await super().run(input, ctx)
            return output if fault == "render" else {"no": "such field"}

        def render(self, output: Any, ctx: Any) -> Any:
            raise ValueError("these words are lost")

    made = Lossy()
    made.__dict__.update(whole.__dict__)
    return made


def test_fm_1_every_x_is_forced() -> None:
    """The matrix names every bundled tool that the product has; further tools get their row here."""
    from importlib.metadata import entry_points

    here = {point.name for point in entry_points(group="pegboard.tools") if point.name != "Example"}
    assert here == set(MATRIX), "give each tool its row, and force each of its classes"
