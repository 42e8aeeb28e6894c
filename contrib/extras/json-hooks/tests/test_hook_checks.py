"""The numbered checks of hooks from settings, each with real programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

SAVE = {"path": "a.txt", "text": "hello"}


@pytest.fixture
def peg(tmp_path: Path) -> Any:
    """Run `peg` in a folder and a home of the test's own."""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PEG_MANAGED_DIR": str(tmp_path / "managed")}

    def run(*words: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pegboard", *words]
        done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert not ok or done.returncode == 0, done.stderr
        return done

    run.work, run.home = work, home  # type: ignore[attr-defined]
    return run


def test_hook_1_imported_hooks_decide_the_same_on_the_same_fields(peg: Any, tmp_path: Path) -> None:
    guard = tmp_path / "guard.py"
    guard.write_text(
        "import json, sys\n"
        "event = json.load(sys.stdin)\n"
        f"open({str(tmp_path / 'seen.json')!r}, 'w').write(json.dumps(event))\n"
        "if '.env' in event['tool_input'].get('file_path', ''):\n"
        "    print(json.dumps({'hookSpecificOutput': {'hookEventName': 'PreToolUse', 'permissionDecision': 'deny',"
        " 'permissionDecisionReason': 'not this file'}}))\n"
    )
    hook = {"type": "command", "command": f"{sys.executable} {guard}", "timeout": 20}
    (peg.home / ".claude").mkdir()
    foreign = {"hooks": {"PreToolUse": [{"matcher": "Read|Write", "hooks": [hook]}]}}
    (peg.home / ".claude/settings.json").write_text(json.dumps(foreign))
    (peg.work / ".env").write_text("A=1")
    (peg.work / "b.txt").write_text("fine")
    assert peg("call", "Read", '{"file_path": ".env"}', "--text").stdout.strip().endswith("A=1")
    peg("import", "claude")
    told = json.loads(peg("call", "Read", '{"file_path": ".env"}', ok=False).stdout)
    assert (told["code"], told["text"]) == ("denied_by_hook", "not this file")
    event = json.loads((tmp_path / "seen.json").read_text())
    assert event["hook_event_name"] == "PreToolUse" and event["tool_name"] == "Read"
    assert event["tool_input"] == {"file_path": str(peg.work / ".env")} and event["cwd"] == str(peg.work)
    assert {"session_id", "transcript_path", "permission_mode", "tool_use_id"} <= event.keys()
    assert Path(event["transcript_path"]).exists()
    assert peg("call", "Read", '{"file_path": "b.txt"}', "--text").stdout.strip().endswith("fine")


async def test_hook_2_exit_1_without_json_lets_the_call_proceed_with_a_notice(hooked: Any) -> None:
    async with hooked("PreToolUse", hooked.group("echo it broke >&2; exit 1")) as bench:
        outcome = await bench.call("Save", SAVE)
    assert outcome.status == "ok" and (bench.folder / "a.txt").read_text() == "hello"
    assert any("exit code 1: it broke" in notice for notice in hooked.host.notices)


async def test_hook_2_a_program_that_is_not_there_decides_nothing(hooked: Any) -> None:
    async with hooked("PreToolUse", hooked.group("/no/such/program"), hooked.group("x", args=["y"])) as bench:
        assert (await bench.call("Save", SAVE)).status == "ok"
    assert any("exit code 127" in notice for notice in hooked.host.notices)
    assert any("Cannot start x" in notice for notice in hooked.host.notices)


async def test_hook_3_exit_2_with_json_allow_blocks(hooked: Any) -> None:
    command = hooked.script("specific(permissionDecision='allow'); print('no way', file=sys.stderr); sys.exit(2)")
    async with hooked("PreToolUse", hooked.group(command), allow=["Save"]) as bench:
        outcome = await bench.call("Save", SAVE)
    assert outcome.code == "denied_by_hook" and outcome.text == "no way" and not (bench.folder / "a.txt").exists()
    assert outcome.decision is not None and outcome.decision.by == "hook"
    assert str(bench.settings_file) in outcome.decision.source and "hook.py" in outcome.decision.source


async def test_hook_4_an_output_of_the_wrong_shape_is_ignored(hooked: Any) -> None:
    command = hooked.script("specific(updatedToolOutput={'path': 1, 'nonsense': True})")
    async with hooked("PostToolUse", hooked.group(command)) as bench:
        outcome = await bench.call("Save", SAVE)
    assert outcome.status == "ok" and outcome.plain().startswith("saved 5 characters")
    assert "does not fit Save; it was ignored" in outcome.plain() and outcome.data["size"] == 5


@pytest.mark.parametrize("value", ["'text'", "[1]", "None", "3"])
async def test_hook_4_an_output_that_is_no_object_is_ignored(hooked: Any, value: str) -> None:
    async with hooked("PostToolUse", hooked.group(hooked.script(f"specific(updatedToolOutput={value})"))) as bench:
        outcome = await bench.call("Save", SAVE)
    assert outcome.status == "ok" and outcome.plain().startswith("saved 5 characters") and outcome.data["size"] == 5


async def test_hook_4_an_output_that_fits_replaces_the_shown_one(hooked: Any) -> None:
    command = hooked.script("specific(updatedToolOutput={'path': 'hidden', 'size': 99})")
    async with hooked("PostToolUse", hooked.group(command)) as bench:
        outcome = await bench.call("Save", SAVE)
    assert outcome.plain() == "saved 99 characters" and (bench.folder / "a.txt").read_text() == "hello"


@pytest.mark.parametrize(
    ("matcher", "name", "fits"),
    [
        ("mcp__memory", "mcp__memory__store", False),
        ("mcp__memory__.*", "mcp__memory__store", True),
        ("", "Save", True),
        ("*", "Save", True),
        ("Save", "Save", True),
        ("Sav", "Save", False),
        ("Write|Save", "Save", True),
        ("Write, Save", "Save", True),
        ("save", "Save", False),
        ("Notebook.*", "NotebookEdit", True),
        ("^Edit$", "NotebookEdit", False),
        (".*Edit", "NotebookEdit", True),
        ("Agent", "Task", True),
        ("Task", "Task", True),
    ],
)
def test_hook_5_matchers(matcher: str, name: str, fits: bool) -> None:
    from pegboard.manifest import Manifest
    from pegboard_json_hooks.matching import matches, names_of

    assert matches(matcher, names_of(Manifest(name=name, summary="", api=1))) is fits


async def test_hook_6_deny_beats_allow(hooked: Any) -> None:
    allow = hooked.script("specific(permissionDecision='allow')", "allow.py")
    deny = hooked.script("specific(permissionDecision='deny', permissionDecisionReason='mine')", "deny.py")
    async with hooked("PreToolUse", hooked.group(allow), hooked.group(deny)) as bench:
        outcome = await bench.call("Save", SAVE)
    assert (outcome.code, outcome.text) == ("denied_by_hook", "mine") and not (bench.folder / "a.txt").exists()


async def test_hook_7_a_late_hook_decides_nothing_unless_it_must(hooked: Any) -> None:
    late = hooked.script("time.sleep(30); sys.exit(2)")
    async with hooked("PreToolUse", hooked.group(late, timeout=1)) as bench:
        assert (await bench.call("Save", SAVE)).status == "ok"
    assert any("took longer than 1 s" in notice for notice in hooked.host.notices)
    async with hooked("PreToolUse", hooked.group(late, timeout=1, onFailure="block")) as bench:
        outcome = await bench.call("Save", SAVE)
    assert outcome.code == "denied_by_hook" and "took longer than 1 s" in outcome.plain()


async def test_hook_8_managed_hooks_run_when_all_are_switched_off(hooked: Any, tmp_path: Path) -> None:
    marks = tmp_path / "managed.mark", tmp_path / "user.mark"
    managed = f'[[hooks.PreToolUse]]\nhooks = [{{ type = "command", command = "touch {marks[0]}" }}]\n'
    group = hooked.group(f"touch {marks[1]}")
    async with hooked("PreToolUse", group, settings={"hooks.disabled": True}, managed=managed) as bench:
        assert (await bench.call("Save", SAVE)).status == "ok"
    assert marks[0].exists() and not marks[1].exists()


async def test_hook_8_managed_only_drops_the_others(hooked: Any) -> None:
    async with hooked("PreToolUse", hooked.group("exit 2"), managed="hooks.managed_only = true\n") as bench:
        assert (await bench.call("Save", SAVE)).status == "ok"


async def test_hook_9_nothing_fires_for_calls_that_are_none(hooked: Any) -> None:
    record = hooked.recorder()
    settings = {
        f"hooks.{event}": [hooked.group(record)] for event in ("PreToolUse", "PostToolUse", "PostToolUseFailure")
    }
    async with hooked(settings=settings, deny=["Bash"]) as bench:
        assert (await bench.call("Nothing", {})).code == "unknown_tool"
        assert (await bench.call("Save", {"path": 5, "what": 1})).code == "invalid_input"
        assert hooked.seen() == []
        assert (await bench.call("Bash", {"command": "ls"})).code == "denied_by_rule"
        assert [event["hook_event_name"] for event in hooked.seen()] == ["PreToolUse"]


@pytest.mark.parametrize("trusted", [False, True])
async def test_hook_10_an_untrusted_project_runs_no_hook(hooked: Any, tmp_path: Path, trusted: bool) -> None:
    mark = tmp_path / "ran"
    project = f'[[hooks.PreToolUse]]\nhooks = [{{ type = "command", command = "touch {mark}" }}]\n'
    async with hooked(project=project, trusted=trusted) as bench:
        assert (await bench.call("Save", SAVE)).status == "ok"
    assert mark.exists() is trusted
