"""Hooks around a whole run: `peg -p` as a process, a strict model service, real scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from pegboard.testing.messages import MessagesService

SOON = 60.0


def call(tool: str, **given: Any) -> dict[str, Any]:
    return {"content": [{"type": "tool_use", "name": tool, "input": given}]}


class Run:
    """A folder, a home with hooks in its settings, and a service; runs `peg -p` there."""

    def __init__(self, room: Path, service: MessagesService) -> None:
        self.room, self.service = room, service
        self.work, self.home = room / "work", room / "home"
        self.work.mkdir()
        (self.home / ".peg").mkdir(parents=True)
        self.settings: dict[str, Any] = {"hooks": {}}
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "PEG_MANAGED_DIR": str(room / "managed"),
            "ANTHROPIC_BASE_URL": service.url,
            "ANTHROPIC_API_KEY": "sk-test-secret",
        }

    def on(self, event: str, command: str, matcher: str = "", **fields: Any) -> None:
        group = {"matcher": matcher, "hooks": [{"type": "command", "command": command, **fields}]}
        self.settings["hooks"].setdefault(event, []).append(group)

    def record(self, *events: str) -> None:
        for event in events:
            self.on(event, f"cat >> {self.room}/seen.jsonl; echo >> {self.room}/seen.jsonl")

    def script(self, text: str) -> str:
        path = self.room / f"hook{len(list(self.room.iterdir()))}.py"
        path.write_text(f"import json, os, sys\nevent = json.load(sys.stdin)\n{text}\n")
        return f"{sys.executable} {path}"

    @property
    def seen(self) -> list[dict[str, Any]]:
        path = self.room / "seen.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []

    def __call__(self, *words: str, prompt: str = "go") -> subprocess.CompletedProcess[str]:
        (self.home / ".peg/settings.toml").write_text(tomli_w.dumps(self.settings))
        command = [sys.executable, "-m", "pegboard", "-p", prompt, *words]
        return subprocess.run(
            command, cwd=self.work, env=self.env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=SOON
        )

    def stream(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        done = self("--output-format", "stream-json", *words)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def said(self, number: int = -1) -> str:
        """What the last user message of a request says."""
        return json.dumps(self.service.requests[number].body["messages"][-1])

    @property
    def refused(self) -> list[str]:
        return [problem for entry in self.service.requests for problem in entry.problems]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    services: list[MessagesService] = []

    def make(*script: Any) -> Run:
        services.append(MessagesService(list(script)))
        return Run(tmp_path, services[-1].__enter__())

    yield make
    for service in services:
        service.__exit__(None, None, None)


def test_the_events_of_a_run_in_their_order(run: Callable[..., Run]) -> None:
    it = run(call("Glob", pattern="*"), "done")
    (it.work / "a.txt").write_text("x")
    it.record("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolBatch", "Stop", "SessionEnd")
    done = it()
    assert done.stdout == "done\n" and done.stderr == "" and it.refused == []
    names = [event["hook_event_name"] for event in it.seen]
    assert names == [
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolBatch", "Stop", "SessionEnd",
    ]  # fmt: skip
    start, prompt, before, after, batch, stop, end = it.seen
    assert start["source"] == "startup" and prompt["prompt"] == "go" and end["reason"] == "other"
    assert prompt["prompt_id"] == before["prompt_id"] == stop["prompt_id"] and "prompt_id" not in start
    assert after["tool_response"] and batch["tool_calls"][0]["tool_response"] == "a.txt"
    assert batch["tool_calls"][0]["tool_input"] == {"pattern": "*"}
    assert stop["stop_hook_active"] is False and stop["last_assistant_message"] == "done"
    assert stop["background_tasks"] == [] and stop["session_crons"] == []
    assert len({event["session_id"] for event in it.seen}) == 1


def test_text_at_the_start_and_beside_the_prompt_reaches_the_model(run: Callable[..., Run]) -> None:
    it = run("done")
    it.on("SessionStart", "echo the build is green", "startup")
    it.on("SessionStart", "echo never", "resume")
    context = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "branch main"}}
    it.on("SessionStart", f"echo '{json.dumps(context)}'")
    it.on("UserPromptSubmit", "echo ticket 7 is open", "matchers mean nothing here")
    it.on("UserPromptSubmit", "echo never", **{"if": "Bash"})
    assert it().returncode == 0
    said = it.said()
    assert all(text in said for text in ("the build is green", "branch main", "ticket 7 is open"))
    assert "never" not in said
    assert "SessionStart" in said and it.refused == []


def test_a_resumed_session_starts_as_such(run: Callable[..., Run]) -> None:
    it = run("one", "two")
    it.record("SessionStart")
    it()
    it("--continue")
    assert [event["source"] for event in it.seen] == ["startup", "resume"]


def test_a_prompt_may_be_refused(run: Callable[..., Run]) -> None:
    it = run("never")
    it.on("UserPromptSubmit", "echo no secrets in prompts >&2; exit 2")
    done = it()
    assert done.returncode == 1 and "no secrets in prompts" in done.stderr and it.service.requests == []
    (transcript,) = it.home.glob(".peg/projects/*/*/transcript.jsonl")
    assert '"go"' not in transcript.read_text()


def test_a_hook_keeps_the_run_going_until_it_is_satisfied(run: Callable[..., Run]) -> None:
    it = run("first", "second")
    body = "if not event['stop_hook_active']:\n  print('run the tests', file=sys.stderr); sys.exit(2)"
    it.on("Stop", it.script(body))
    it.record("Stop")
    done = it()
    assert done.stdout == "second\n" and "run the tests" in it.said()
    assert [event["stop_hook_active"] for event in it.seen] == [False, True]
    assert [event["last_assistant_message"] for event in it.seen] == ["first", "second"]


def test_after_eight_times_the_stop_is_forced(run: Callable[..., Run]) -> None:
    it = run(*(f"answer {number}" for number in range(12)))
    it.on("Stop", it.script("print(json.dumps({'decision': 'block', 'reason': 'once more'}))"))
    done = it()
    assert done.stdout == "answer 8\n" and len(it.service.requests) == 9
    assert "8 times in a row" in done.stderr


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse", "PostToolBatch", "UserPromptSubmit", "SessionStart"])
def test_any_event_may_end_the_run(run: Callable[..., Run], event: str) -> None:
    it = run(call("Glob", pattern="*"), "never")
    it.on(event, it.script("print(json.dumps({'continue': False, 'stopReason': 'the build is red'}))"))
    done = it("--output-format", "json")
    told = json.loads(done.stdout)
    assert done.returncode == 1 and told["terminal_reason"] == "hook_stopped" and "the build is red" in done.stderr
    assert len(it.service.requests) == (0 if event in ("UserPromptSubmit", "SessionStart") else 1)
    it.settings["hooks"] = {}
    assert it("--continue").returncode == 0 and it.refused == []


def test_an_end_at_the_end_is_an_end(run: Callable[..., Run]) -> None:
    it = run("done")
    it.on("Stop", it.script("print(json.dumps({'continue': False, 'stopReason': 'enough'}))"))
    it.on("Stop", "echo more >&2; exit 2")
    done = it()
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_a_batch_may_stop_the_loop_or_add_to_it(run: Callable[..., Run]) -> None:
    it = run(call("Glob", pattern="*"), "done", call("Glob", pattern="*"), "never")
    context = {"hookSpecificOutput": {"hookEventName": "PostToolBatch", "additionalContext": "all of them are old"}}
    it.on("PostToolBatch", f"echo '{json.dumps(context)}'")
    assert it().stdout == "done\n" and "all of them are old" in it.said() and it.refused == []
    it.on("PostToolBatch", "echo wait for a person >&2; exit 2")
    done = it()
    assert done.returncode == 1 and "wait for a person" in done.stderr


def test_a_failure_of_the_service_is_an_event(run: Callable[..., Run]) -> None:
    it = run({"http_status": 401, "error": {"message": "no such key"}})
    it.record("StopFailure", "Stop")
    done = it()
    assert done.returncode == 1
    (event,) = it.seen
    assert event["hook_event_name"] == "StopFailure" and event["error"] == "authentication_failed"
    assert "no such key" in event["error_details"]


def test_hooks_show_in_the_stream_and_in_the_record(run: Callable[..., Run]) -> None:
    it = run(call("Glob", pattern="*"), "done")
    it.on("PreToolUse", "echo not here >&2; exit 2", "Glob")
    code, lines = it.stream()
    assert code == 0
    (hook,) = [line for line in lines if line.get("subtype") == "hook_response"]
    assert hook["hook_event"] == "PreToolUse" and hook["hook_name"] == "PreToolUse:Glob"
    assert (hook["outcome"], hook["exit_code"], hook["output"]) == ("blocked", 2, "not here")
    denied = lines[-1]["permission_denials"][0]
    assert denied["code"] == "denied_by_hook" and denied["decision"]["reason"] == "not here"
    (transcript,) = it.home.glob(".peg/projects/*/*/transcript.jsonl")
    records = [json.loads(line) for line in transcript.read_text().splitlines()]
    assert [record["outcome"] for record in records if record["type"] == "hook"] == ["blocked"]


def test_the_end_of_a_session_is_not_held_up(run: Callable[..., Run]) -> None:
    it = run("done")
    it.on("SessionEnd", f"sleep 50; touch {it.room}/late")
    it.on("SessionEnd", f"touch {it.room}/soon")
    assert it().stdout == "done\n"
    assert (it.room / "soon").exists() and not (it.room / "late").exists()


def test_a_background_hook_wakes_the_model(run: Callable[..., Run]) -> None:
    it = run(call("Glob", pattern="*"), "done", "repaired")
    it.on("PostToolUse", "echo the check failed >&2; exit 2", **{"asyncRewake": True})
    it.on("Stop", "sleep 1")
    done = it()
    assert "the check failed" in json.dumps(it.service.requests[-1].body["messages"])
    assert done.returncode == 0 and it.refused == []


def test_priv_1_the_key_is_in_no_hook_and_no_record(run: Callable[..., Run]) -> None:
    it = run(call("Glob", pattern="*"), "done")
    it.record("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd")
    it.on("PreToolUse", f"env > {it.room}/env.txt")
    it()
    whole = (it.room / "env.txt").read_text() + json.dumps(it.seen)
    whole += "".join(path.read_text() for path in it.home.rglob("*.jsonl"))
    assert "sk-test-secret" not in whole and "PATH=" in whole


def test_a_call_can_be_put_off_and_runs_once(run: Callable[..., Run]) -> None:
    it = run(call("Write", file_path="a.txt", content="x"), "written")
    it.settings["permissions"] = {"allow": ["Edit"]}
    gate = it.room / "gate"
    answer = "{'hookSpecificOutput': {'hookEventName': 'PreToolUse', 'permissionDecision': 'defer'}}"
    it.on("PreToolUse", it.script(f"if not os.path.exists({str(gate)!r}): print(json.dumps({answer}))"))
    it.record("PostToolUse")
    told = json.loads(it("--output-format", "json").stdout)
    assert told["terminal_reason"] == "tool_deferred" and not (it.work / "a.txt").exists()
    gate.touch()
    assert it("--continue", prompt="go on").stdout == "written\n"
    assert (it.work / "a.txt").read_text() == "x" and len(it.seen) == 1 and it.refused == []


@pytest.mark.anyio
async def test_events_of_other_parts_are_hooks_too(hooked: Any) -> None:
    from pegboard import events
    from pegboard.hooks import fold

    class Made(events.Event, tag="made"):
        hook = "TaskCreated"

        task_id: str
        task_subject: str
        agent: str = "main"

    settings = {
        "hooks.TaskCreated": [hooked.group(hooked.recorder()), hooked.group("echo too many tasks >&2; exit 2")],
        "hooks.PreCompact": [hooked.group(hooked.recorder("compact.jsonl"), "auto")],
        "hooks.PostCompact": [hooked.group(hooked.recorder("compact.jsonl"))],
        "hooks.CwdChanged": [hooked.group(hooked.recorder("cwd.jsonl"))],
    }
    async with hooked(settings=settings) as bench:
        bus, session = bench.session.bus, bench.session
        made = Made(task_id="1", task_subject="tests", agent="child")
        verdict, by = fold(await bus.ask("peg_before_event", event=made, session=session))
        assert (verdict.decision, verdict.reason) == ("deny", "too many tasks") and "too many" in by
        (event,) = hooked.seen()
        assert (event["task_id"], event["task_subject"], event["agent_id"]) == ("1", "tests", "child")
        assert "agent" not in event and "type" not in event
        for trigger in ("auto", "manual"):
            await bus.ask("peg_before_event", event=events.Compacting(trigger=trigger), session=session)
        await bus.ask(
            "peg_event", event=events.Compacted(summary="s", kept=[], trigger="auto", before=9), session=session
        )
        before, after = hooked.seen("compact.jsonl")
        assert before["trigger"] == "auto" and after["compact_summary"] == "s"
        (bench.folder / "sub").mkdir()
        await session.move(bench.folder / "sub", "Bash")
    (moved,) = hooked.seen("cwd.jsonl")
    assert (moved["old_cwd"], moved["new_cwd"]) == (str(bench.folder), str(bench.folder / "sub"))


def test_an_untrusted_project_starts_nothing(run: Callable[..., Run]) -> None:
    it = run("one", "two")
    mark = it.room / "ran"
    (it.work / ".peg").mkdir()
    hooks = {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": f"touch {mark}"}]}]}}
    (it.work / ".peg/settings.toml").write_text(tomli_w.dumps(hooks))
    assert it().returncode == 0 and not mark.exists()
    assert it("--trust").returncode == 0 and mark.exists()
