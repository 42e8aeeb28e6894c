"""`peg settings` and `peg trust`, run as programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class Shell:
    """A project and a home to run `peg` in."""

    project: Path
    home: Path
    managed: Path

    def __call__(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        environ = {"HOME": str(self.home), "PATH": os.environ["PATH"], "PEG_MANAGED_DIR": str(self.managed)}
        command = [sys.executable, "-m", "pegboard", *words]
        return subprocess.run(
            command, cwd=cwd or self.project, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )

    def json(self, *words: str) -> object:
        done = self(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def peg(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path / "project", tmp_path / "home", tmp_path / "managed")
    for folder in (shell.project / ".peg", shell.home, shell.managed):
        folder.mkdir(parents=True)
    return shell


def test_set_get_and_explain_a_value(peg: Shell) -> None:
    assert peg("settings", "get", "permissions.mode").stdout == "default\n"
    done = peg("settings", "set", "permissions.mode", "plan")
    path = peg.home / ".peg/settings.toml"
    assert (done.returncode, done.stdout, done.stderr) == (0, f'permissions.mode = "plan"  ({path})\n', "")
    assert peg("settings", "get", "permissions.mode").stdout == "plan\n"
    assert peg.json("settings", "get", "permissions.mode") == {
        "key": "permissions.mode", "value": "plan", "scope": "user", "source": str(path), "line": 2,
    }  # fmt: skip
    (peg.managed / "managed.toml").write_text('permissions.mode = "default"\n')
    shown = peg("settings", "explain", "permissions.mode").stdout
    assert f"from managed: {peg.managed}/managed.toml:1" in shown
    assert f'shadowed user: {path}:2: "plan"' in shown
    done = peg("settings", "set", "permissions.mode", "dontAsk")
    assert "saved, but not in force here: managed settings" in done.stderr


def test_project_scope_keeps_comments_and_waits_for_trust(peg: Shell) -> None:
    path = peg.project / ".peg/settings.toml"
    path.write_text('# ours\n[permissions] # rules\ndeny = ["Bash"]\n')
    done = peg("settings", "set", "permissions.allow", '["Read"]', "--scope", "project")
    assert done.returncode == 0
    assert "the workspace is not trusted" in done.stderr
    assert path.read_text() == '# ours\n[permissions] # rules\ndeny = ["Bash"]\nallow = ["Read"]\n'
    assert peg.json("settings", "get", "permissions.allow")["value"] == []  # type: ignore[index]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["get", "permission.mode"], "Did you mean permissions.mode?"),
        (["set", "permissions.mode", "yolo"], "permissions.mode takes default, acceptEdits"),
        (["set", "permissions.deny", "Bash"], 'permissions.deny takes a list such as ["a", "b"], not "Bash"'),
        (["set", "sandbox.required", "true"], "only managed policy can set it"),
        (["set", "permissions.mode", "auto", "--scope", "project"], "a project cannot choose auto"),
        (["set", "provider.base_url", "x", "--scope", "local"], "a project cannot set it"),
        (["set", "env", '{ PATH = "x" }', "--scope", "project"], "a project cannot set PATH"),
        (["set", "models.fallback", '["x"]'], "locks it"),
    ],
)
def test_what_cannot_be_set_is_refused_with_the_reason(peg: Shell, words: list[str], says: str) -> None:
    (peg.managed / "managed.toml").write_text('lock = ["models.fallback"]\n')
    done = peg("settings", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert not (peg.home / ".peg/settings.toml").exists()


def test_broken_files_are_named_and_never_overwritten(peg: Shell) -> None:
    path = peg.project / ".peg/settings.toml"
    path.write_text("\n{ broken")
    done = peg("settings", "get", "model")
    assert done.returncode == 0
    assert f"peg: {path}:2: cannot be read" in done.stderr
    done = peg("settings", "set", "model", "m", "--scope", "project")
    assert done.returncode == 2
    assert f"{path}:2" in done.stderr
    assert path.read_text() == "\n{ broken"
    (peg.managed / "managed.toml").write_text("{")
    done = peg("settings", "get", "model")
    assert (done.returncode, done.stdout) == (2, "")
    assert "managed.toml:1" in done.stderr


def test_list_shows_what_is_set_and_where(peg: Shell) -> None:
    (peg.project / ".peg/settings.toml").write_text('model = "m"\n')
    assert peg("settings", "list").stdout == f'model = "m"  (project {peg.project}/.peg/settings.toml:1)\n'
    assert len(peg.json("settings", "list", "--all")) > 30  # type: ignore[arg-type]


def test_set_5_and_6_trust_shows_the_list_and_activates_it(peg: Shell) -> None:
    (peg.project / ".peg/settings.toml").write_text(
        'permissions.allow = ["Bash(ls)"]\n[mcp.servers.x]\ncommand = "sh"\n'
    )
    before = peg.json("trust")
    assert isinstance(before, dict)
    assert (before["root"], before["trusted"]) == (str(peg.project), False)
    assert [(row["kind"], row["what"]) for row in before["would_activate"]] == [
        ("mcp.servers", 'x: {"command":"sh"}'),
        ("permissions.allow", "Bash(ls)"),
    ]
    done = peg("trust")
    assert done.returncode == 2
    assert "permissions.allow: Bash(ls)" in done.stderr
    assert "Nobody can be asked" in done.stderr
    assert peg.json("settings", "get", "permissions.allow")["value"] == []  # type: ignore[index]
    assert peg("trust", "--yes").returncode == 0
    assert peg.json("settings", "get", "permissions.allow")["value"] == ["Bash(ls)"]  # type: ignore[index]
    assert [row["root"] for row in peg.json("trust", "--list")] == [str(peg.project)]  # type: ignore[attr-defined]
    assert "no longer trusted" in peg("trust", "--revoke").stdout
    assert "was not trusted" in peg("trust", "--revoke").stdout
    assert peg.json("settings", "get", "permissions.allow")["value"] == []  # type: ignore[index]


def test_set_7_trust_of_a_nested_repository_is_its_own(peg: Shell) -> None:
    inner = peg.project / "vendor/sub"
    for folder in (peg.project, inner):
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (peg.project / ".peg/settings.toml").write_text('permissions.allow = ["Read"]')
    assert peg("trust", "--yes").returncode == 0
    done = peg("settings", "get", "permissions.allow", cwd=inner)
    assert (done.stdout, done.returncode) == ("[]\n", 0)


def test_values_typed_for_texts_stay_texts(peg: Shell) -> None:
    assert peg("settings", "set", "model", "4").returncode == 0
    assert peg("settings", "set", "provider.base_url", '"http://localhost:1"').returncode == 0
    found = tomllib.loads((peg.home / ".peg/settings.toml").read_text())
    assert found == {"model": "4", "provider": {"base_url": "http://localhost:1"}}
