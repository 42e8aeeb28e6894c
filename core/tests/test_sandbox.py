"""How a session comes to a box, and how processes live in one: with a box that a plug-in brings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from pegboard.call import Status
from pegboard.errors import Broken, Code, Refusal
from pegboard.hooks import hook
from pegboard.model import Input, Output
from pegboard.process import Process
from pegboard.sandbox import LEVELS, Boxes, Need, Planted, best, rank
from pegboard.sandbox import Status as Level
from pegboard.testing.sessions import Willing, tool_of
from pegboard.tool import Tool


class Box:
    """A box that adds a variable, and counts what happens to it."""

    def __init__(self, level: str = "full", hears: bool = False) -> None:
        self.level = level
        self.hears = hears
        self.events: list[object] = []

    async def prepare(self) -> None:
        self.events.append("prepare")

    def wrap(self, argv, env):
        self.events.append("wrap")
        return list(argv), {**env, "BOXED": "1"}

    def signal(self, pid: int, number: int) -> bool:
        self.events.append(number)
        if self.hears:
            os.killpg(pid, number)
        return self.hears

    def ended(self) -> None:
        self.events.append("ended")

    def violations(self, output: str) -> list[str]:
        return []

    async def planted(self) -> list[Planted]:
        return []

    async def close(self) -> None:
        return None


class Maker:
    """A plug-in that has a box for every need."""

    def __init__(self, box: Box | None) -> None:
        self.box = box
        self.needs: list[Need] = []

    @hook
    def peg_sandbox(self, need: Need) -> Box | None:
        self.needs.append(need)
        return self.box


class In(Input):
    pass


class Out(Output):
    said: str


class Say(Tool[In, Out]):
    """Starts a program and tells what it wrote."""

    Input, Output = In, Out

    async def run(self, input: In, ctx) -> Out:
        async with await ctx.process([sys.executable, "-c", "import os; print(os.environ.get('BOXED'))"]) as process:
            return Out(said=(await process.stdout.receive()).decode().strip())

    def render(self, output: Out, ctx) -> str:
        return output.said


SAY = tool_of(Say, effects=["process"], concurrency="write", ask=False)
QUIET = tool_of(Say, name="Quiet", concurrency="write", ask=False)


async def call(peg_session, maker: Maker, tool: str = "Say", **options):
    settings = options.pop("settings", {"sandbox.enabled": True})
    bench = peg_session(settings=settings, tools=[SAY, QUIET], hooks=[maker], allow=["Say", "Quiet"], **options)
    async with bench:
        return await bench.call(tool, {})


async def test_a_box_is_prepared_wrapped_and_told_the_end(peg_session):
    maker = Maker(Box())
    outcome = await call(peg_session, maker)
    assert (outcome.status, outcome.plain()) == (Status.OK, "1"), outcome.plain()
    assert maker.box is not None and [event for event in maker.box.events if isinstance(event, str)] == [
        "prepare", "wrap", "ended",
    ]  # fmt: skip


async def test_a_tool_that_starts_no_process_needs_no_box(peg_session):
    maker = Maker(Box())
    assert (await call(peg_session, maker, "Quiet")).plain() == "None"
    assert maker.needs == []


async def test_nobody_is_asked_while_the_sandbox_is_off(peg_session):
    maker = Maker(Box())
    assert (await call(peg_session, maker, settings={})).plain() == "None"
    assert maker.needs == []


async def test_the_need_speaks_of_the_session(peg_session):
    maker = Maker(Box())
    await call(peg_session, maker, deny=["Read(./secret)"])
    need = maker.needs[0]
    assert need.roots == (need.cwd,) and need.hidden == (f"{need.cwd}/secret",) and not need.required


@pytest.mark.parametrize(("level", "runs"), [("full", True), ("no-proxy", False), ("landlock", False), ("own", False)])
async def test_a_required_box_must_reach_the_level(peg_session, tmp_path, level, runs):
    (tmp_path / "managed").mkdir(exist_ok=True)
    (tmp_path / "managed/managed.toml").write_text("[sandbox]\nrequired = true\n")
    outcome = await call(peg_session, Maker(Box(level)), settings={})
    assert (outcome.status is Status.OK) is runs
    if not runs:
        assert (outcome.status, outcome.code) == (Status.NOT_STARTED, Code.SANDBOX_REFUSED)
        assert outcome.decision is not None and outcome.decision.by == "sandbox"


async def test_falling_short_is_said_to_the_person_and_not_to_the_model(peg_session):
    host = Willing()
    outcome = await call(peg_session, Maker(Box("no-proxy")), host=host)
    assert outcome.plain() == "1"
    said = [event.text for event in host.events if getattr(event, "kind", "") == "sandbox"]
    assert len(said) == 1 and "reaches the level no-proxy only, not full" in said[0]


async def test_parallel_calls_find_the_sandbox_once(peg_session, monkeypatch):
    found = []
    monkeypatch.setattr("pegboard.sandbox.found", lambda registry, need: found.append(1) or ())
    bench = peg_session(settings={"sandbox.enabled": True})
    boxes = Boxes()
    async with bench, anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(boxes.open, bench.session)
    assert found == [1]


# -- processes ---------------------------------------------------------------------------------------------------------

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(100)"]


@pytest.mark.parametrize("hears", [True, False])
async def test_the_end_asks_the_box_first_and_kills_anyway(tmp_path: Path, hears):
    box = Box(hears=hears)
    async with await Process.start(SLEEP, cwd=tmp_path, env=dict(os.environ), box=box) as process:
        await process.stdout.receive()
    assert box.events == [signal.SIGTERM, "ended"]
    assert process.returncode == -signal.SIGTERM
    process.signal(signal.SIGTERM)
    assert box.events == [signal.SIGTERM, "ended"]


async def test_a_program_that_cannot_start_has_ended_too(tmp_path: Path):
    box = Box()
    with pytest.raises(Refusal):
        await Process.start(["/nonexistent/x"], cwd=tmp_path, env={}, box=box)
    assert box.events == ["ended"]


# -- levels and commands -----------------------------------------------------------------------------------------------


def test_levels_are_a_ladder():
    assert [rank(level) for level in LEVELS] == [0, 1, 2, 3] and rank("anything else") == 0


def test_the_best_plug_in_is_taken_and_all_reasons_are_told_where_none_helps():
    one, two = object(), object()
    assert best([]) == (None, Level("none", ("no sandbox plug-in is installed",)))
    assert best([(one, Level("none", ("a",))), (two, Level("full"))]) == (two, Level("full"))
    assert best([(one, Level("none", ("a",))), (two, Level("none", ("b",)))]) == (None, Level("none", ("a", "b")))


def test_a_broken_sandbox_plug_in_is_passed_over(monkeypatch):
    from pegboard.sandbox import found

    class Registry:
        def of_kind(self, kind):
            return ["one"]

        def load(self, candidate):
            raise Broken("one", "it cannot be imported")

    assert found(Registry(), None) == ()


def peg(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PEG_MANAGED_DIR": str(folder / "managed")}
    return subprocess.run(
        [sys.executable, "-m", "pegboard", *words], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def test_the_status_is_told_as_text_and_as_json(tmp_path: Path):
    done = peg(tmp_path, "sandbox", "status", "--json")
    told = json.loads(done.stdout)
    assert told.keys() == {"level", "sandbox", "reasons", "enabled", "required", "wanted", "enough"}
    assert told["level"] in LEVELS and told["wanted"] == "full" and done.returncode == 0
    text = peg(tmp_path, "sandbox", "status").stdout
    assert text.startswith(f"level     {told['level']}") and "sandbox.enabled is false" in text


def test_the_status_of_a_required_sandbox_is_an_exit_code(tmp_path: Path):
    (tmp_path / "managed").mkdir()
    (tmp_path / "managed/managed.toml").write_text("[sandbox]\nrequired = true\n")
    done = peg(tmp_path, "sandbox", "status", "--json")
    told = json.loads(done.stdout)
    assert told["required"] and told["enabled"]
    assert done.returncode == (0 if told["enough"] else 1)


def test_the_doctor_knows_the_sandbox(tmp_path: Path):
    found = json.loads(peg(tmp_path, "doctor", "--json").stdout)["findings"]
    assert [finding["level"] for finding in found if finding["area"] == "sandbox"] == ["note"]
    (tmp_path / ".peg").mkdir(exist_ok=True)
    (tmp_path / ".peg/settings.toml").write_text("[sandbox]\nenabled = true\n")
    found = json.loads(peg(tmp_path, "doctor", "--json").stdout)["findings"]
    assert next(finding["level"] for finding in found if finding["area"] == "sandbox") in ("ok", "problem")
