"""`peg import` as a program: IMP-1 to IMP-5, managed policy, instructions, servers."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pegboard.cli import import_claude
from pegboard.cli.import_claude import rule


@dataclass
class World:
    """A project, a home and a managed folder."""

    project: Path
    home: Path
    managed: Path

    def __call__(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        environ = {"HOME": str(self.home), "PATH": os.environ["PATH"], "PEG_MANAGED_DIR": str(self.managed)}
        command = [sys.executable, "-m", "pegboard", *words]
        return subprocess.run(command, cwd=self.project, env=environ, capture_output=True, text=True, input=given)

    def json(self, *words: str) -> dict[str, Any]:
        done = self(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def foreign(self, found: object, *, name: str = "settings.json", project: bool = False) -> Path:
        path = (self.project if project else self.home) / ".claude" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(found if isinstance(found, str) else json.dumps(found))
        return path

    @property
    def ours(self) -> Path:
        return self.home / ".peg/settings.toml"

    def tree(self) -> dict[str, bytes]:
        """Every file but the index of plug-ins, which is a hint and no setting."""
        found = (path for folder in (self.project, self.home, self.managed) for path in folder.rglob("*"))
        return {str(path): path.read_bytes() for path in found if path.is_file() and "cache" not in path.parts}


@pytest.fixture
def peg(tmp_path: Path) -> World:
    world = World(tmp_path / "project", tmp_path / "home", tmp_path / "managed")
    for folder in (world.project, world.home, world.managed):
        folder.mkdir()
    return world


WHOLE = {
    "$schema": "https://example.test/schema.json",
    "model": "claude-opus-5",
    "permissions": {
        "allow": ["Write(src/**)", "Bash(git *)", "mcp__*", "Nope(a)"],
        "deny": ["Read(.env)"],
        "defaultMode": "acceptEdits",
        "additionalDirectories": ["/data"],
        "somethingElse": 1,
    },
    "hooks": {
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "guard --all \u202e 'x y'", "timeout": 5}]},
            {"hooks": [{"type": "nonsense"}, {"type": "http", "url": "https://a.test", "headers": {"X": "secret"}}]},
        ],
        "Setup": [{"hooks": [{"type": "command", "command": "x"}]}],
    },
    "env": {"FOO": "1", "MY_API_KEY": "s3cret", "N": 5, "bad name": "x", "NULL": None},
    "apiKeyHelper": "key.sh",
    "statusLine": {"type": "command", "command": "line.sh"},
    "cleanupPeriodDays": 30,
}


def test_imp_1_a_dry_run_writes_nothing(peg: World) -> None:
    peg.foreign(WHOLE)
    before = peg.tree()
    done = peg("import", "claude", "--dry-run")
    assert done.returncode == 0 and "Nothing was written (--dry-run)." in done.stdout
    assert peg.tree() == before
    assert peg.json("import", "claude", "--dry-run")["written"] == [] and peg.tree() == before


def test_imp_2_a_second_run_changes_nothing(peg: World) -> None:
    peg.foreign(WHOLE)
    assert "hooks.PreToolUse" in peg.json("import", "claude")["written"]
    before = peg.tree()
    again = peg.json("import", "claude")
    assert again["written"] == [] and again["plans"][0]["mapped"] == [] and peg.tree() == before
    assert "permissions.allow" in again["plans"][0]["same"]


def test_imp_3_a_dead_form_is_mapped_and_said(peg: World) -> None:
    peg.foreign({"permissions": {"allow": ["Write(x)", "Edit(x)", "Bash(ls)"]}})
    done = peg("import", "claude")
    assert "Write(x) is written Edit(x)" in done.stdout
    assert tomllib.loads(peg.ours.read_text())["permissions"]["allow"] == ["Edit(x)", "Bash(ls)"]


def test_imp_4_hook_commands_are_shown_in_full_before_anything_is_stored(peg: World) -> None:
    long = "python3 -c '" + "x = 1; " * 200 + "'"
    peg.foreign({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": long}]}]}})
    peg.ours.parent.mkdir()
    peg.ours.write_text("this is no TOML")
    done = peg("import", "claude")
    assert done.returncode == 2 and long not in done.stdout
    peg.ours.unlink()
    done = peg("import", "claude")
    shown, written = done.stdout.index(long), done.stdout.index("Written:")
    assert shown < written


def test_imp_4_what_hides_is_made_visible(peg: World) -> None:
    peg.foreign(WHOLE)
    done = peg("import", "claude")
    assert "\u202e" not in done.stdout and "guard --all \\u{202e} 'x y'" in done.stdout
    assert "runs: https://a.test with the headers X" in done.stdout and "secret" not in done.stdout


def test_imp_5_a_key_that_is_there_is_kept_and_listed(peg: World) -> None:
    peg.foreign(WHOLE)
    peg.ours.parent.mkdir()
    mine = '# mine\nmodel = "other"\n[permissions]\nallow = ["Bash(make)"]\n\n[hooks]\nPreToolUse = []\n'
    peg.ours.write_text(mine)
    told = peg.json("import", "claude")
    kept = [one["what"].partition(" ")[0] for one in told["plans"][0]["decide"] if "kept" in one["why"]]
    assert kept == ["model", "permissions.allow", "hooks.PreToolUse"]
    found = tomllib.loads(peg.ours.read_text())
    assert found["model"] == "other" and found["permissions"]["allow"] == ["Bash(make)"]
    assert found["hooks"]["PreToolUse"] == [] and found["permissions"]["deny"] == ["Read(.env)"]
    assert peg.ours.read_text().startswith("# mine\n")


def test_what_was_removed_after_an_import_does_not_come_back(peg: World) -> None:
    source = peg.foreign({"model": "m", "env": {"A": "1"}})
    peg("import", "claude")
    peg.ours.write_text('[env]\nA = "1"\n')
    told = peg.json("import", "claude")
    assert told["written"] == [] and "removed since" in told["plans"][0]["decide"][0]["why"]
    source.write_text(json.dumps({"model": "n", "env": {"A": "1"}}))
    assert peg.json("import", "claude")["written"] == ["model"]


def test_every_key_ends_in_one_of_the_lists(peg: World) -> None:
    peg.foreign(WHOLE)
    (plan,) = peg.json("import", "claude")["plans"]
    assert {one["key"] for one in plan["mapped"]} == {
        "model", "permissions.allow", "permissions.deny", "permissions.mode", "permissions.directories",
        "hooks.PreToolUse", "env.FOO", "env.N", "status_line",
    }  # fmt: skip
    assert {one["what"] for one in plan["decide"]} == {"env.MY_API_KEY", "apiKeyHelper"}
    assert {one["what"] for one in plan["dropped"]} == {
        "permissions.allow: mcp__*", "permissions.allow: Nope(a)", "permissions.somethingElse", "hooks.PreToolUse",
        "hooks.Setup", "env.bad name", "env.NULL", "cleanupPeriodDays",
    }  # fmt: skip
    assert all(one["why"] for one in plan["decide"] + plan["dropped"])
    found = tomllib.loads(peg.ours.read_text())
    assert found["hooks"]["PreToolUse"] == [
        {"matcher": "Bash", "hooks": WHOLE["hooks"]["PreToolUse"][0]["hooks"]},  # type: ignore[index]
        {"hooks": [{"type": "http", "url": "https://a.test", "headers": {"X": "secret"}}]},
    ]
    assert found["env"] == {"FOO": "1", "N": "5"} and "s3cret" not in peg.ours.read_text()
    record = peg.home / ".peg/imports.json"
    (entry,) = json.loads(record.read_text()).values()
    assert entry["digest"].startswith("sha256:") and stat.S_IMODE(record.stat().st_mode) == 0o600
    assert peg("settings", "list").stderr == ""


def test_a_project_takes_over_what_a_project_may_set(peg: World) -> None:
    peg.foreign(WHOLE, project=True)
    peg.foreign({"permissions": {"allow": ["Bash(make)"]}}, name="settings.local.json", project=True)
    told = peg.json("import", "claude", "--scope", "project")
    shared, local = told["plans"]
    assert Path(shared["target"]).name == "settings.toml" and Path(local["target"]).name == "settings.local.toml"
    assert "permissions.deny" not in {one["key"] for one in shared["mapped"]}
    assert "holds without an import" in next(one["why"] for one in shared["dropped"] if "deny" in one["what"])
    assert not peg.ours.exists() and (peg.project / ".peg/settings.local.toml").exists()
    assert (peg.project / ".claude/settings.json").read_text() == json.dumps(WHOLE)


@pytest.mark.parametrize(
    ("found", "what"),
    [
        ({"permissions": {"defaultMode": "bypassPermissions"}}, "a project cannot set bypassPermissions"),
        ({"env": {"LD_PRELOAD": "x.so"}}, "a project cannot set LD_PRELOAD"),
        ({"allowManagedHooksOnly": True}, "managed policy only"),
        ({"permissions": {"disableBypassPermissionsMode": "disable"}}, "managed policy only"),
        ({"model": 5}, "takes a text"),
        ({"permissions": {"defaultMode": "wild"}}, "takes"),
        ({"hooks": []}, "no table"),
    ],
)
def test_what_a_project_cannot_have_is_dropped_with_the_reason(peg: World, found: object, what: str) -> None:
    peg.foreign(found, project=True)
    told = peg.json("import", "claude", "--scope", "project")
    assert told["written"] == [] and what in told["plans"][0]["dropped"][0]["why"]


@pytest.mark.parametrize("text", ["{", '{"a": 1', "\x00", '"\\ud800"'])
def test_a_broken_file_is_said_and_nothing_is_written(peg: World, text: str) -> None:
    peg.foreign(text)
    before = peg.tree()
    done = peg("import", "claude")
    assert done.returncode == 2 and "settings.json" in done.stderr and peg.tree() == before


def test_nothing_to_import_is_said(peg: World) -> None:
    for source in ("claude", "mcp", "instructions", "schedules"):
        done = peg("import", source)
        assert done.returncode == 0 and "There is nothing to import" in done.stdout
    assert peg("import", "elsewhere").returncode == 2


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("Write(x)", "Edit(x)"),
        ("NotebookEdit(x.ipynb)", "Edit(x.ipynb)"),
        ("MultiEdit", "Edit"),
        ("Grep(src/**)", "Read(src/**)"),
        ("LS(src)", "Read(src)"),
        ("Read(/docs/**)", "Read(~/.claude/docs/**)"),
        ("Read(//etc/**)", "Read(//etc/**)"),
        ("Read(~/x)", "Read(~/x)"),
        ("Bash(git push:*)", "Bash(git push:*)"),
        ("WebSearch", "WebSearch"),
        ("mcp__memory__store", "mcp__memory__store"),
        ("mcp__*", None),
        ("Bash(", None),
        ("not a rule", None),
        ("", None),
    ],
)
def test_rules_of_the_user(text: str, new: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PEG_MANAGED_DIR", str(tmp_path / "managed"))
    found, why = rule(text, "allow", "user")
    assert found == new and (why or found == text)


def test_managed_policy_for_operators(peg: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pegboard.cli.import_plan import Record, settle, write
    from pegboard.places import find_places
    from pegboard.settings import Settings

    folder = tmp_path / "etc"
    (folder / "managed-settings.d").mkdir(parents=True)
    monkeypatch.setattr(import_claude, "FOREIGN_POLICY", folder)
    found = {
        "permissions": {"deny": ["WebFetch", "Write(/etc/**)"], "disableBypassPermissionsMode": "disable"},
        "allowManagedHooksOnly": True,
        "deniedMcpServers": [{"serverName": "evil"}, {"serverUrl": "https://x"}],
        "hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "guard"}]}]},
    }
    (folder / "managed-settings.json").write_text(json.dumps(found))
    (folder / "managed-settings.d/10-more.json").write_text(json.dumps({"disableWorkflows": True}))
    environ = {"HOME": str(peg.home), "PEG_MANAGED_DIR": str(peg.managed)}
    monkeypatch.setenv("HOME", str(peg.home))
    places = find_places(peg.project, environ)
    plans = list(import_claude.plans(places, "managed"))
    for plan in plans:
        settle(plan, Record(places))
        write(plan)
    assert any("list those servers by hand" in one.why for one in plans[0].decide)
    settings = Settings.load(places)
    assert settings.value("permissions.disable_bypass") and settings.value("hooks.managed_only")
    assert settings.value("workflows.disabled") and settings.value("mcp.deny") == ["evil"]
    assert "WebFetch" in settings.value("permissions.deny") and "Edit(/etc/**)" in settings.value("permissions.deny")
    assert settings.value("hooks")["PreToolUse"][0]["hooks"][0]["command"] == "guard" and settings.problems == []


def test_instructions_are_added_after_a_yes_only(peg: World) -> None:
    (peg.project / "GEMINI.md").write_text("Use tabs.\n")
    rules = peg.project / ".cursor/rules"
    rules.mkdir(parents=True)
    (rules / "b.mdc").write_text("---\ndescription: x\nglobs: *.py\n---\nType everything.\n")
    (rules / "c.md").write_text("---\nalwaysApply: true\n---\n")
    agents = peg.project / "AGENTS.md"
    agents.write_text("# Ours")
    done = peg("import", "instructions")
    assert agents.read_text() == "# Ours" and "nobody can be asked" in done.stderr and "Use tabs." in done.stdout
    done = peg("import", "instructions", "--yes")
    text = agents.read_text()
    assert (
        text.startswith("# Ours\n") and "Use tabs." in text and "For files that match *.py:\n\nType everything." in text
    )
    assert "description: x" not in text and (peg.project / "GEMINI.md").read_text() == "Use tabs.\n"
    assert "Nothing was written." in peg("import", "instructions", "--yes").stdout and agents.read_text() == text
    (peg.project / "GEMINI.md").write_text("Use spaces.\n")
    told = peg.json("import", "instructions", "--yes")
    assert agents.read_text() == text
    assert any("earlier version" in one["why"] for plan in told["plans"] for one in plan["decide"])


def test_instructions_never_go_through_a_link(peg: World) -> None:
    (peg.project / "GEMINI.md").write_text("Use tabs.\n")
    (peg.project / "CLAUDE.md").write_text("theirs\n")
    (peg.project / "AGENTS.md").symlink_to("CLAUDE.md")
    peg("import", "instructions", "--yes")
    assert (peg.project / "CLAUDE.md").read_text() == "theirs\n"
    (peg.project / "GEMINI.md").unlink()
    (peg.home / "secret.md").write_text("secret\n")
    (peg.project / "GEMINI.md").symlink_to(peg.home / "secret.md")
    assert "secret" not in peg("import", "instructions", "--yes").stdout


def test_servers_and_jobs_are_listed_and_left_alone(peg: World) -> None:
    server = {"command": "npx", "args": ["-y", "memory"], "env": {"TOKEN": "s3cret"}}
    (peg.home / ".claude.json").write_text(
        json.dumps({"mcpServers": {"memory": server}, "projects": {str(peg.project): {"mcpServers": {"own": server}}}})
    )
    (peg.project / ".vscode").mkdir()
    (peg.project / ".vscode/mcp.json").write_text(json.dumps({"servers": {"web": {"url": "https://x.test"}}}))
    (peg.home / ".codex").mkdir()
    (peg.home / ".codex/config.toml").write_text('[mcp_servers.files]\ncommand = "files"\n')
    before = peg.tree()
    done = peg("import", "mcp")
    for text in (
        "server memory: npx -y memory (with TOKEN)",
        "server own:",
        "server web: https://x.test",
        "server files",
    ):
        assert text in done.stdout
    assert "s3cret" not in done.stdout and peg.tree() == before
    peg.foreign({"tasks": [{"cron": "0 9 * * *", "prompt": "look"}]}, name="scheduled_tasks.json", project=True)
    assert "job 0 9 * * *: look" in peg("import", "schedules").stdout
