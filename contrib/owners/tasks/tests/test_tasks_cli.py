"""`peg tasks`, and a whole headless run: a command in the background, its end, and the turn that hears of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pegboard.testing.cases import environment
from pegboard.testing.messages import MessagesService

BASH = {"type": "tool_use", "name": "Bash"}


@pytest.fixture
def peg(tmp_path):
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir()
    home.mkdir()

    def run(*words: str, service: MessagesService | None = None, code: int = 0) -> str:
        env = environment(home)
        if service is not None:
            env |= {"ANTHROPIC_BASE_URL": service.url, "ANTHROPIC_API_KEY": "test"}
        done = subprocess.run(
            [sys.executable, "-m", "pegboard", *words],
            cwd=folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout if code == 0 else done.stderr

    run.folder = folder  # type: ignore[attr-defined]
    return run


def call(command: str, **more) -> dict:
    return {"content": [{**BASH, "input": {"command": command, **more}}]}


def test_a_background_command_in_a_headless_run(peg):
    """It ends while the model answers, so the model is told in a further turn; the listing knows it afterwards."""
    wait = f"while [ ! -e {peg.folder}/go ]; do sleep 0.05; done; echo finished"
    script = [call(wait, run_in_background=True), call("touch go; sleep 0.7"), "I am done", "I was told"]
    with MessagesService(script) as service:
        said = peg("-p", "go", "--allow", "Bash", service=service)
        bodies = service.bodies
    texts = [json.dumps(body["messages"][-1]) for body in bodies]
    told = [text for text in texts if "task-notification" in text or "completed with exit code 0" in text]
    assert len(told) == 1 and "user approves" not in told[0]
    assert said.strip() in ("I am done", "I was told")
    (line,) = peg("tasks", "list", "--json").splitlines()
    run = json.loads(line)
    assert (run["status"], run["exit_code"], run["kind"]) == ("completed", 0, "shell")
    assert peg("tasks", "output", run["id"]) == "finished\n"
    assert run["id"] in peg("tasks", "list")
    assert "does not run any more" in peg("tasks", "stop", run["id"], code=2)
    assert run["id"] in peg("tasks", "output", "none", code=2)


def test_a_headless_run_gives_commands_a_moment(peg):
    """What ends soon after the final result ends by itself; what would not is ended with the session."""
    quick = call("sleep 0.8; echo late > late.txt; sleep 98", run_in_background=True)
    with MessagesService([quick, "done"]) as service:
        peg("-p", "go", "--allow", "Bash", service=service)
    assert (peg.folder / "late.txt").read_text() == "late\n"
    run = json.loads(peg("tasks", "list", "--json"))
    assert (run["status"], run["reason"]) == ("stopped", "the session ended")


def test_a_session_that_was_killed_is_taken_up_again(peg):
    """BG-2 from outside: the request after a resume holds one message about what was stopped."""
    with MessagesService([call("sleep 96", run_in_background=True), call("kill -9 $PPID")]) as service:
        peg("-p", "go", "--allow", "Bash", service=service, code=-9)
    listed = json.loads(peg("tasks", "list", "--json"))
    assert listed["status"] == "running", "nobody saw its end"
    with MessagesService(["ok"]) as service:
        peg("-p", "go on", "--continue", "--allow", "Bash", service=service)
        text = json.dumps(service.bodies[0]["messages"])
    assert text.count("1 background task was stopped, because the program that ran them ended") == 1
    assert json.loads(peg("tasks", "list", "--json"))["status"] == "stopped"


def test_a_task_is_stopped_from_outside(peg):
    from pegboard.testing.cases import Pipe

    home = peg.folder.parent / "home"
    with Pipe(Path(peg.folder), home, options=["--session", "one"]) as pipe:
        (begun,) = pipe.ask({"tool": "Bash", "input": {"command": "sleep 97", "run_in_background": True}})
        task = begun["data"]["backgroundTaskId"]
        peg("tasks", "stop", task, "--session", "one")
        (ended,) = pipe.ask({"tool": "TaskStop", "input": {"task_id": task}})
        assert ended["data"]["status"] == "failed" and ended["data"]["exitCode"] == 143
        pipe.close()


def test_nothing_to_list(peg):
    assert "no session" in peg("tasks", "list", code=2)
