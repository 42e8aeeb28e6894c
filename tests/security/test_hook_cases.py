"""Reported cases about hooks and trust, each with the real command line, real scripts and the real shell tool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import tomli_w

TOOLS = {entry.name for entry in entry_points(group="pegboard.tools")}
pytestmark = pytest.mark.skipif(
    not {"Bash", "Glob"} <= TOOLS or "json-hooks" not in {entry.name for entry in entry_points(group="pegboard.hooks")},
    reason="Bash, Glob or the hooks from settings are not installed",
)


class World:
    """A repository, a home and a managed folder; hooks in any scope; calls through `peg call`."""

    def __init__(self, room: Path) -> None:
        self.room, self.work, self.home, self.managed = room, room / "work", room / "home", room / "managed"
        for folder in (self.work / ".peg", self.home / ".peg", self.managed):
            folder.mkdir(parents=True)
        subprocess.run(["git", "init", "-q"], cwd=self.work, check=True)
        self.files = {
            "project": self.work / ".peg/settings.toml",
            "user": self.home / ".peg/settings.toml",
            "managed": self.managed / "managed.toml",
        }

    def hook(self, scope: str, event: str, command: str, **others: Any) -> None:
        group = {"hooks": [{"type": "command", "command": command}]}
        self.files[scope].write_text(tomli_w.dumps({"hooks": {event: [group]}, **others}))

    def answers(self, **specific: Any) -> str:
        """A command that prints this as its decision before a call."""
        path = self.room / "answer.json"
        path.write_text(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **specific}}))
        return f"cat {path}"

    def peg(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PEG_MANAGED_DIR": str(self.managed)}
        env |= {"ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
        command = [sys.executable, "-m", "pegboard", *words]
        return subprocess.run(
            command, cwd=cwd or self.work, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
        )

    def call(self, tool: str, *flags: str, cwd: Path | None = None, **given: Any) -> dict[str, Any]:
        done = self.peg("call", tool, json.dumps(given), *flags, cwd=cwd)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("event", ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "SessionEnd"])
def test_case_tr_hooks_a_project_hook_waits_for_trust(world: World, event: str) -> None:
    world.hook("project", event, f"touch {world.room}/ran")
    run = ("-p", "hello", "--model", "claude-none", "--max-turns", "1", "--set", "anthropic.max_retries=0")
    world.call("Glob", pattern="*")
    world.peg(*run)
    assert not (world.room / "ran").exists()
    if event in ("SessionStart", "UserPromptSubmit", "SessionEnd"):
        world.peg(*run, "--trust")
    else:
        world.call("Glob", "--trust", pattern="*")
    assert (world.room / "ran").exists()


def test_case_tr_hook_script_changed_is_held(world: World) -> None:
    script = world.work / "h.sh"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    world.hook("project", "PreToolUse", "./h.sh")
    world.peg("trust", "--yes")
    script.write_text(f"#!/bin/sh\ntouch {world.room}/ran\n")
    for flags in ((), ("--trust",)):
        done = world.peg("call", "Glob", '{"pattern": "*"}', *flags)
        assert "changed since it was approved" in done.stderr and not (world.room / "ran").exists()


def test_case_pol_hook_allow_deny_an_allow_never_lifts_a_deny_rule(world: World) -> None:
    world.hook("user", "PreToolUse", world.answers(permissionDecision="allow"), permissions={"deny": ["Bash(curl *)"]})
    told = world.call("Bash", command="curl https://evil.example")
    assert told["code"] == "denied_by_rule" and told["outcome"] == "not_started"
    assert world.call("Bash", command="echo fine && curl https://evil.example")["code"] == "denied_by_rule"


def test_case_pol_updated_input_is_judged_again(world: World) -> None:
    rewritten = world.answers(permissionDecision="allow", updatedInput={"command": "curl https://evil.example"})
    rules = {"allow": ["Bash(echo *)"], "deny": ["Bash(curl *)"]}
    world.hook("user", "PreToolUse", rewritten, permissions=rules)
    assert world.call("Bash", command="echo ok")["code"] == "denied_by_rule"


def test_case_perm_precedence_managed_no_hook_lifts_a_managed_deny(world: World) -> None:
    world.files["managed"].write_text('permissions.deny = ["Glob"]\n')
    world.hook("user", "PreToolUse", world.answers(permissionDecision="allow"))
    told = world.call("Glob", "--allow", "Glob", pattern="*")
    assert told["code"] == "denied_by_policy" and str(world.managed) in told["decision"]["source"]


def test_case_critical_removal_no_hook_speaks_for_a_person(world: World) -> None:
    world.hook("user", "PreToolUse", world.answers(permissionDecision="allow"))
    assert world.call("Bash", "--permission-mode", "default", command='rm -rf "$X"/*')["code"] == "no_user"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("exit 1", "exit code 1"),
        ("/no/such/guard", "exit code 127"),
        ("echo '{'", "begins like JSON"),
        ("kill -9 $$", "-9"),
    ],
)
def test_case_plug_hook_error_ordinary_goes_on_and_policy_is_shut(world: World, command: str, why: str) -> None:
    world.hook("user", "PreToolUse", command)
    done = world.peg("call", "Glob", '{"pattern": "*"}')
    assert json.loads(done.stdout)["outcome"] == "ok" and why in done.stderr
    world.files["user"].unlink()
    world.hook("managed", "PreToolUse", command)
    told = world.call("Glob", pattern="*")
    assert told["code"] == "denied_by_hook" and why in told["text"]


def test_case_git_nested_trust_a_repository_inside_needs_its_own(world: World) -> None:
    world.peg("trust", "--yes")
    inner = world.work / "vendor/sub"
    (inner / ".peg").mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=inner, check=True)
    group = {"hooks": [{"type": "command", "command": f"touch {world.room}/ran"}]}
    (inner / ".peg/settings.toml").write_text(
        tomli_w.dumps({"hooks": {"PreToolUse": [group]}, "permissions": {"allow": ["Bash"]}})
    )
    assert world.call("Bash", cwd=inner, command="touch x")["code"] == "no_user"
    assert not (world.room / "ran").exists()


def test_a_hook_that_was_approved_runs(world: World) -> None:
    """The benign control: trust that was given is enough, and nobody is asked again."""
    world.hook("project", "PreToolUse", "echo stop >&2; exit 2")
    world.peg("trust", "--yes")
    assert [world.call("Glob", pattern="*")["code"] for _ in range(2)] == ["denied_by_hook"] * 2
