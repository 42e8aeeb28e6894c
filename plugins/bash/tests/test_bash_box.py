"""Commands in a real sandbox: the directory, the ends and the notices hold there as well."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from pegboard.call import Status
from pegboard.testing import Willing

HERE = bool(shutil.which("bwrap")) and any(
    item.name == "bubblewrap" for item in entry_points(group="pegboard.sandboxes")
)
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not HERE and not os.environ.get("CI"), reason="bubblewrap or its plug-in is missing"),
]
BOXED = {"allow": ["Bash"], "settings": {"sandbox.enabled": True}}


async def bash(bench, command: str, **more):
    return await bench.call("Bash", {"command": command, **more}, id=f"call-{time.monotonic_ns()}")


async def test_the_directory_lasts_and_what_is_refused_is_told(peg_session):
    async with peg_session(**BOXED) as bench:
        outcome = await bash(bench, "mkdir sub; cd sub; touch /usr/lib/planted")
        assert (outcome.status, outcome.code) == (Status.PARTIAL, "command_failed")
        assert "Sandbox: " in outcome.plain() and "/usr/lib/planted" in outcome.plain()
        assert not Path("/usr/lib/planted").exists()
        assert (await bash(bench, "pwd")).plain() == str(bench.folder / "sub")


async def test_timeouts_and_ends_reach_into_the_box(peg_session):
    async with peg_session(**BOXED) as bench:
        stopped = await bash(bench, "echo begun; sleep 401", timeout=500)
        assert stopped.plain().startswith("Exit code 143\n") and "begun" in stopped.plain()
        moved = await bash(bench, "python3 -c 'import time; time.sleep(402)'", timeout=500)
        assert moved.status is Status.LAUNCHED
        task = moved.data["backgroundTaskId"]
        stop = await bench.call("TaskStop", {"task_id": task}, id="stop")
        assert stop.data["status"] == "stopped"
        assert not lives("sleep 401") and not lives("time.sleep.402")


def lives(pattern: str) -> bool:
    return subprocess.run(["pgrep", "-f", f"^[^ ]*{pattern}"], capture_output=True, check=False).returncode == 0


async def test_what_a_box_takes_with_it_is_told(peg_session):
    async with peg_session(**BOXED) as bench:
        outcome = await bash(bench, "sleep 403 & echo on")
        assert outcome.plain().startswith("on\n") and "run_in_background" in outcome.plain()


async def test_outside_of_the_box_only_with_a_question(peg_session):
    host = Willing()
    async with peg_session(allow=["Bash(touch *)"], settings=BOXED["settings"], host=host) as bench:
        target = bench.outside / "made"
        inside = await bash(bench, f"touch {target}")
        assert inside.is_error and not target.exists()
        outside = await bash(bench, f"touch {target}", dangerouslyDisableSandbox=True)
        assert not outside.is_error and target.exists(), outside.plain()
        assert any("outside of the sandbox" in line for question in host.questions for line in question.lines)
