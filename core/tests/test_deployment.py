"""A managed deployment, from outside: every lower scope tries to undo it with the real command, and fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

POLICY = """
[permissions]
disable_bypass = true
deny = ["Read(secret/**)"]

[tools]
force_disabled = ["Grep", "Glob"]

[mcp]
allow = ["docs"]
"""


@dataclass
class Machine:
    """A project, a home and a managed folder."""

    project: Path
    home: Path
    managed: Path

    def __call__(self, *words: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        env = {"HOME": str(self.home), "PATH": os.environ["PATH"], "PEG_MANAGED_DIR": str(self.managed), **environ}
        command = [sys.executable, "-m", "pegboard", *words]
        return subprocess.run(
            command, cwd=self.project, env=env, capture_output=True, text=True, input=stdin, timeout=100
        )

    def write(self, where: str, text: str) -> Path:
        paths = {
            "managed": self.managed / "managed.toml",
            "user": self.home / ".peg" / "settings.toml",
            "project": self.project / ".peg" / "settings.toml",
            "local": self.project / ".peg" / "settings.local.toml",
        }
        paths[where].parent.mkdir(parents=True, exist_ok=True)
        paths[where].write_text(text)
        return paths[where]

    def states(self, *words: str) -> dict[str, dict]:
        done = self("tools", "list", "--json", *words)
        assert done.returncode == 0, done.stderr
        return {row["name"]: row for row in json.loads(done.stdout)}

    def call(self, tool: str, given: dict, *words: str) -> dict:
        done = self("call", tool, json.dumps(given), *words)
        return {"exit": done.returncode, "noise": done.stderr, **(json.loads(done.stdout) if done.stdout else {})}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    found = Machine(tmp_path / "project", tmp_path / "home", tmp_path / "managed")
    for folder in (found.project / "secret", found.home, found.managed):
        folder.mkdir(parents=True)
    (found.project / "secret" / "x").write_text("hidden\n")
    (found.project / "a.txt").write_text("a\n")
    return found


@pytest.fixture
def deployed(machine: Machine) -> Machine:
    """E2E-5: two tools off, no bypass, one server allowed, and every lower scope against it."""
    machine.write("managed", POLICY)
    undo = """
tools.enabled = ["Grep", "Glob"]
permissions.mode = "bypassPermissions"
permissions.disable_bypass = false
permissions.allow = ["Read", "Grep", "Glob", "Read(secret/**)"]
tools.force_enabled = ["Grep"]
mcp.allow = ["docs", "evil"]
mcp.servers = { evil = { command = "touch /tmp/evil" } }
plugins.deny = []
"""
    for scope in ("user", "project", "local"):
        machine.write(scope, undo)
    return machine


def test_e2e_5_tools_stay_off_and_the_source_is_named(deployed: Machine) -> None:
    states = deployed.states()
    for tool in ("Grep", "Glob"):
        assert states[tool]["state"] == "refused" and states[tool]["source"] == str(deployed.managed / "managed.toml")
        done = deployed("tools", "enable", tool)
        assert done.returncode == 2 and str(deployed.managed / "managed.toml") in done.stderr
        told = deployed.call(tool, {"pattern": "x"}, "--trust", "--set", f'tools.enabled=["{tool}"]')
        assert told["exit"] != 0 and "managed.toml" in told["text"]
    assert states["Read"]["state"] == "active"


def test_e2e_5_bypass_cannot_be_reached_by_settings(deployed: Machine) -> None:
    told = deployed.call("Write", {"file_path": "new.txt", "content": "x"}, "--trust")
    assert (told["exit"], told["code"]) == (3, "no_user")
    assert not (deployed.project / "new.txt").exists()
    assert "forbids the mode bypassPermissions" in told["noise"]


def test_perm_9_the_flag_is_refused_at_the_start(deployed: Machine) -> None:
    for words in (
        ("call", "Read", "{}", "--permission-mode", "bypassPermissions"),
        ("-p", "hello", "--permission-mode", "bypassPermissions"),
        ("call", "Read", "{}", "--set", "permissions.mode=bypassPermissions"),
    ):
        done = deployed(*words)
        assert done.returncode == 2 and not done.stdout, done.stdout
        assert f"anaged policy {deployed.managed}/managed.toml forbids the mode bypassPermissions" in done.stderr


def test_e2e_5_denied_files_stay_denied_for_every_flag(deployed: Machine) -> None:
    for words in ((), ("--trust", "--allow", "Read(secret/**)"), ("--set", "permissions.deny=[]")):
        told = deployed.call("Read", {"file_path": "secret/x"}, *words)
        assert (told["exit"], told["code"]) == (3, "denied_by_policy")
        assert "managed.toml" in told["decision"]["source"] and "hidden" not in told["text"]


def test_e2e_5_one_server_is_allowed_and_no_scope_adds_another(deployed: Machine) -> None:
    done = deployed("settings", "explain", "mcp.allow", "--json")
    told = json.loads(done.stdout)
    assert told["value"] == ["docs"]
    assert {entry["scope"] for entry in told["passed"]} == {"user", "project", "local"}
    assert all("only managed policy" in entry["why_not"] for entry in told["passed"])


def test_e2e_5_explain_and_list_say_who(deployed: Machine) -> None:
    done = deployed("policy", "explain", "Read", '{"file_path": "secret/x"}', "--json", "--trust")
    told = json.loads(done.stdout)
    assert (told["verdict"], told["decided_by"]["by"]) == ("deny", "policy")
    assert told["rule"]["file"] == str(deployed.managed / "managed.toml") and told["rule"]["line"] == 4
    assert {rule["rule"] for rule in told["losers"]} >= {"Read(secret/**)", "Read"}


@pytest.mark.parametrize("words", [("tools", "list"), ("call", "Read", '{"file_path": "a.txt"}'), ("-p", "hello")])
def test_pol_managed_badjson_nothing_starts_under_a_broken_policy(machine: Machine, words: tuple[str, ...]) -> None:
    machine.write("managed", 'deny = ["Bash(curl *)"')
    done = machine(*words)
    assert done.returncode == 2 and not done.stdout
    assert "managed.toml:1" in done.stderr and "Nothing runs until this is repaired" in done.stderr


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o777])
def test_nothing_starts_under_a_policy_that_others_can_write(machine: Machine, mode: int) -> None:
    machine.write("managed", POLICY).chmod(mode)
    done = machine("call", "Read", '{"file_path": "a.txt"}')
    assert done.returncode == 2 and "can be written by others" in done.stderr and "chmod go-w" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_nothing_starts_under_a_policy_of_another_user(machine: Machine) -> None:
    os.chown(machine.write("managed", POLICY), 12345, 12345)
    assert "must belong to root" in machine("tools", "list").stderr


@pytest.mark.parametrize("name", ["PEG_MANAGED_PATH", "PEG_TRUST", "PEG_TRUSTED", "PEG_POLICY"])
def test_pol_env_redirect_no_variable_moves_the_trust_store(machine: Machine, name: str, tmp_path: Path) -> None:
    machine.write("project", 'permissions.allow = ["Read"]')
    fake = tmp_path / "trust.json"
    fake.write_text(json.dumps({"roots": {str(machine.project): {"at": "2026"}}, "approvals": {}}))
    done = machine("trust", "--json", **{name: str(fake)})
    assert json.loads(done.stdout)["trusted"] is False


def test_pol_unknown_tool_a_misspelt_rule_is_loud(machine: Machine) -> None:
    machine.write("user", 'permissions.deny = ["Bsh(rm *)"]\n')
    done = machine("policy", "lint")
    assert done.returncode == 1 and "there is no tool of this name; write Bash(rm *)" in done.stdout
    noise = machine.call("Read", {"file_path": "a.txt"})["noise"]
    assert "settings.toml:1" in noise and "there is no tool of this name; write Bash(rm *)" in noise
    machine.write("user", 'permissions.deny = ["Agent(x)", "WebFetch", "CronCreate", "mcp__x"]\n')
    assert not machine.call("Read", {"file_path": "a.txt"})["noise"]


def test_settings_of_a_lower_scope_cannot_switch_the_log_off(machine: Machine) -> None:
    machine.write("managed", "audit.required = true\n")
    machine.write("user", "audit.enabled = false\naudit.required = false\n")
    assert machine.call("Read", {"file_path": "a.txt"}, "--set", "audit.enabled=false")["exit"] == 0
    told = json.loads(machine("audit", "verify", "--json").stdout)
    assert (told["ok"], told["records"]) == (True, 1)


@pytest.mark.parametrize("word", ["audit.required", "managed.signing_key"])
def test_managed_only_keys_are_refused_below(machine: Machine, word: str) -> None:
    done = machine("settings", "set", word, "true" if "required" in word else "x")
    assert done.returncode == 2 and "only managed policy can set it" in done.stderr
