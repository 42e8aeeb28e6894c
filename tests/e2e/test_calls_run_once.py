"""What may have acted is never run again, and no fault leaves a call without its result.

The faults are forced: tools that break after they acted, steps of the pipeline that fail, a crash in the middle.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pegboard
import pytest
from pegboard import pipeline
from pegboard.hooks import hook
from pegboard.model import Input, Output
from pegboard.testing import Willing, tool_of
from pegboard.testing.messages import MessagesService
from pegboard.testing.sessions import Bench
from pegboard.tool import Access, Tool

sys.path.insert(0, str(Path(__file__).parent))
from ride_scenario import Ride, asks

pytestmark = pytest.mark.anyio

GOOD: dict[str, dict[str, Any]] = {
    "Read": {"file_path": "a.txt"},
    "Write": {"file_path": "new/b.txt", "content": "b\n"},
    "Bash": {"command": "echo x >> ran.txt"},
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


class Ends(Tool[Input, Output]):
    """Acts, and ends in the class that its name says."""

    Input, Output = Input, Output
    ran = 0
    kind, fails, loses = "file", False, False

    def accesses(self, input: Input, ctx: Any) -> list[Access]:
        return [Access.use(f"thing-{self.ran}")]

    async def run(self, input: Input, ctx: Any) -> Output:
        type(self).ran += 1
        if self.fails:
            with ctx.effect(self.kind, f"thing-{self.ran}"):
                raise OSError(5, "the line broke")
        return Output()

    def render(self, output: Output, ctx: Any) -> str:
        if self.loses:
            raise ValueError("lost")
        return "done"


class Partial(Ends):
    fails = True


class Unknown(Ends):
    fails, kind = True, "remote"


class Unmapped(Ends):
    loses = True


ENDS = (Partial, Unknown, Unmapped)


@pytest.fixture
def ends() -> list[Any]:
    for one in ENDS:
        one.ran = 0
    return [tool_of(one, concurrency="write", effects=["file", "remote"], ask=False) for one in ENDS]


async def test_fm_1_unknown(bench: Callable[..., Bench], ends: list[Any]) -> None:
    async with bench(tools=ends) as it:
        outcome = await it.call("Unknown", {})
        assert (outcome.status, outcome.code, outcome.retry) == ("unknown", "unknown_outcome", "forbidden")
        assert outcome.is_error and outcome.plain().splitlines()[0] == "This may have happened: remote thing-1."
        assert list(it.session.unsettled) == ["thing-1"]


async def test_fm_4_what_may_have_acted_is_never_run_again(bench: Callable[..., Bench], ends: list[Any]) -> None:
    """Not in the batch, not in the run, not when the service fails behind it, not when the session is resumed."""
    answer = asks(*[(one.__name__, {}) for one in ENDS])
    broken = {"http_status": 529, "headers": {"retry-after": "0"}}
    with MessagesService([answer, broken, broken, {"http_status": 400}, "done", "done"]) as service:
        async with bench(tools=ends) as it, Ride(it, service) as ride:
            assert (await ride.agent.run("go")).is_error
            assert [result.outcome for result in ride.whole()] == ["partial", "unknown", "unmapped"]
            assert [one.ran for one in ENDS] == [1, 1, 1]
            assert (await ride.agent.run("go on")).text == "done"
        async with bench(tools=ends) as again, Ride(again, service, ride.path) as resumed:
            assert list(resumed.agent.transcript.unsettled) == ["thing-1"]
            assert (await resumed.agent.run("go on")).text == "done"
            ride.whole()
    assert [one.ran for one in ENDS] == [1, 1, 1]


async def test_fm_4_a_call_that_had_begun_at_a_crash_is_never_run_again(
    bench: Callable[..., Bench], ends: list[Any]
) -> None:
    with MessagesService([asks(("Partial", {})), "done", "done"]) as service:
        async with bench(tools=ends) as it, Ride(it, service) as ride:
            await ride.agent.run("go")
        lines = ride.path.read_bytes().splitlines(keepends=True)
        begun = next(number for number, line in enumerate(lines) if b'"began"' in line[:20])
        ride.path.write_bytes(b"".join(lines[: begun + 1]))
        async with bench(tools=ends) as again, Ride(again, service, ride.path) as resumed:
            assert (await resumed.agent.run("go on")).text == "done"
        (result,) = resumed.whole()
        assert result.is_error and "may have acted" in str(result.text) and Partial.ran == 1


def _calls(tree: ast.AST, name: str) -> Iterator[tuple[ast.AST, ...]]:
    """Every call of something with this name, with the nodes around it, outermost first."""

    def walk(node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[tuple[ast.AST, ...]]:
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == name:
            yield around
        for child in ast.iter_child_nodes(node):
            yield from walk(child, (*around, node))

    return walk(tree, ())


def test_fm_4_the_core_has_one_place_that_runs_a_tool_and_no_loop_around_it() -> None:
    """Calls come from an answer, from the command line, or from a hook that put one off before it began."""
    root, found = Path(pegboard.__file__).parent, {"run": set(), "run_call": set(), "run_calls": set()}
    for path in sorted(root.rglob("*.py")):
        if "testing" in path.parts:
            continue
        tree, name = ast.parse(path.read_text("utf-8")), str(path.relative_to(root))
        for called in found:
            for around in _calls(tree, called):
                function = [node for node in around if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)][-1:]
                inner = around[around.index(function[0]) :] if function else around
                if called == "run" and name != "pipeline.py":
                    continue
                found[called].add((name, function[0].name if function else ""))
                handled = [node for node in inner if isinstance(node, ast.ExceptHandler)]
                loops = [node for node in inner if isinstance(node, ast.While)]
                assert not handled and (not loops or name.startswith("cli/")), (name, called)
    assert found["run"] == {("pipeline.py", "run")}
    assert {where for where in found["run_call"] if not where[0].startswith("cli/")} == {("session.py", "one")}
    assert {where for where in found["run_calls"] if not where[0].startswith("cli/")} == {
        ("agent.py", "_calls"),
        ("agent.py", "_offer_again"),
    }


# -- FM-2 -------------------------------------------------------------------------------------------------------

STEPS = [step.__name__ for step in (*pipeline.BEFORE, *pipeline.DURING)]
ERRORS = (RuntimeError("broken"), OSError(5, "broken"), KeyError("broken"), RecursionError("broken"))


def _fails(number: int, error: Exception) -> Callable[[Any], Any]:
    """In place of a step: the same step, with this error for the calls of this number."""

    def wrap(real: Any) -> Any:
        counter = itertools.count(1)

        async def step(state: Any) -> None:
            if next(counter) == number:
                raise error
            await real(state)

        step.__name__ = real.__name__
        return step

    return wrap


BATCH = (("Read", GOOD["Read"]), ("Bash", GOOD["Bash"]), ("Write", GOOD["Write"]), ("Nope", {}), ("Bash", {}))


@pytest.mark.parametrize("step", [*STEPS, "after_hooks", "fit_budget", "record"])
async def test_fm_2_no_fault_of_a_step_leaves_a_call_without_its_result(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    answers = [turn for _ in ERRORS for turn in (asks(*BATCH), "done")]
    with MessagesService([*answers, "done"]) as service:
        async with bench() as it, Ride(it, service) as ride:
            for number, error in enumerate(ERRORS):
                wrap = _fails(1 + number % 2, error)
                with monkeypatch.context() as patch:
                    for stage in ("BEFORE", "DURING"):
                        steps = getattr(pipeline, stage)
                        patch.setattr(pipeline, stage, tuple(wrap(s) if s.__name__ == step else s for s in steps))
                    if step not in STEPS:
                        patch.setattr(pipeline, step, wrap(getattr(pipeline, step)))
                    if step in STEPS:
                        assert (await ride.agent.run("go")).text == "done"
                    else:  # a fault of the product itself behind the action ends the run, paired all the same
                        with contextlib.suppress(*map(type, ERRORS), ExceptionGroup):
                            await ride.agent.run("go")
                ride.whole()
            assert not (await ride.agent.run("go")).is_error
            ride.whole()
