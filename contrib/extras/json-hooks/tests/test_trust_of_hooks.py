"""What comes with a workspace runs only as it was approved: the command, and every script behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard.external import Hook
from pegboard.external_trust import content, paths, scripts
from pegboard.places import Places

CALL = ("call", "Glob", '{"pattern": "*"}', "--text")


class World:
    """A repository with a hook that refuses, and a home; runs `peg` there."""

    def __init__(self, room: Path) -> None:
        self.work, self.home = room / "work", room / "home"
        for folder in (self.work / ".peg", self.work / "hooks", self.home / ".peg"):
            folder.mkdir(parents=True)
        subprocess.run(["git", "init", "-q"], cwd=self.work, check=True)
        self.script = self.work / "hooks/guard.sh"
        self.script.write_text("#!/bin/sh\necho refused >&2\nexit 2\n")
        self.script.chmod(0o755)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PEG_MANAGED_DIR": str(room / "managed")}

    def project(self, command: str, file: str = "settings.toml", **fields: Any) -> None:
        self._write(self.work / ".peg" / file, command, **fields)

    def user(self, command: str) -> None:
        self._write(self.home / ".peg/settings.toml", command)

    def _write(self, path: Path, command: str, **fields: Any) -> None:
        hook = {"type": "command", "command": command, **fields}
        path.write_text(tomli_w.dumps({"hooks": {"PreToolUse": [{"matcher": "Glob", "hooks": [hook]}]}}))

    def __call__(self, *words: str, cwd: Path | None = None, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pegboard", *words]
        return subprocess.run(
            command, cwd=cwd or self.work, env=self.env, capture_output=True, text=True, input=given, timeout=60
        )

    def refuses(self, *flags: str, cwd: Path | None = None) -> bool:
        done = self(*CALL, *flags, cwd=cwd)
        self.notice = done.stderr
        assert done.returncode in (0, 3), done.stderr
        return done.stdout.strip() == "refused"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_trust_lists_approves_and_then_runs(world: World) -> None:
    world.project("hooks/guard.sh")
    assert not world.refuses()
    told = world("trust", "--json")
    (row,) = json.loads(told.stdout)["would_activate"]
    assert row["kind"] == "hook" and row["what"] == "PreToolUse(Glob): hooks/guard.sh"
    assert "hooks/guard.sh" in row["covers"] and row["source"] == str(world.work / ".peg/settings.toml")
    done = world("trust", "--yes")
    assert "PreToolUse(Glob): hooks/guard.sh" in done.stdout and "with hooks/guard.sh" in done.stdout
    assert world.refuses() and world.notice == ""


def test_a_changed_script_is_held_until_it_is_approved_with_a_diff(world: World) -> None:
    world.project("hooks/guard.sh")
    world("trust", "--yes")
    world.script.write_text(world.script.read_text().replace("refused", "changed"))
    assert not world.refuses()
    assert "does not run: it changed since it was approved (~ hooks/guard.sh). See: peg trust" in world.notice
    asked = world("trust")
    assert asked.returncode == 2 and "-echo refused >&2" in asked.stderr and "+echo changed >&2" in asked.stderr
    assert not world.refuses()
    world("trust", "--yes")
    assert world(*CALL).stdout.strip() == "changed"


@pytest.mark.parametrize(
    "change",
    [
        {"command": "hooks/guard.sh --all"},
        {"command": "hooks/guard.sh", "timeout": 5},
        {"command": "sh hooks/guard.sh"},
    ],
)
def test_a_changed_definition_is_held(world: World, change: dict[str, Any]) -> None:
    world.project("hooks/guard.sh")
    world("trust", "--yes")
    world.project(**change)
    assert not world.refuses() and "does not run" in world.notice


def test_trust_for_one_run_takes_what_is_new_but_not_what_changed(world: World) -> None:
    world.project("hooks/guard.sh")
    assert world.refuses("--trust")
    world("trust", "--yes")
    world.script.write_text("#!/bin/sh\ntouch evil\n")
    assert not world.refuses("--trust") and not (world.work / "evil").exists()
    assert "changed since it was approved" in world.notice


def test_a_hook_that_came_after_the_trust_is_held(world: World) -> None:
    world("trust", "--yes")
    world.project("hooks/guard.sh")
    assert not world.refuses() and "nobody has approved it yet" in world.notice


def test_a_guard_cannot_be_shaken_off_by_changing_its_script(world: World) -> None:
    world.project("hooks/guard.sh", onFailure="block")
    world("trust", "--yes")
    world.script.write_text("#!/bin/sh\nexit 0\n")
    done = world(*CALL)
    assert done.returncode == 3 and "is held: it changed since it was approved" in done.stdout


def test_local_settings_need_the_same(world: World) -> None:
    world.project("hooks/guard.sh", file="settings.local.toml")
    assert not world.refuses()
    world("trust", "--yes")
    assert world.refuses()
    world.script.write_text("#!/bin/sh\n")
    assert not world.refuses()


def test_the_users_own_hooks_need_nothing_but_for_scripts_of_a_project(world: World) -> None:
    world.user("echo refused >&2; exit 2")
    assert world.refuses()
    mine = world.home / "mine.sh"
    mine.write_text(world.script.read_text())
    mine.chmod(0o755)
    world.user(str(mine))
    assert world.refuses()
    for command in ("./hooks/guard.sh", '"$CLAUDE_PROJECT_DIR"/hooks/guard.sh', f"sh {world.script}"):
        world.user(command)
        assert not world.refuses() and "comes with the workspace, which is not trusted" in world.notice, command
    world("trust", "--yes")
    assert world.refuses()


def test_a_link_that_leads_to_another_script_is_a_change(world: World) -> None:
    link = world.work / "hooks/link.sh"
    link.symlink_to("guard.sh")
    world.project("hooks/link.sh")
    world("trust", "--yes")
    assert world.refuses()
    other = world.work / "hooks/other.sh"
    other.write_text("#!/bin/sh\ntouch evil\n")
    other.chmod(0o755)
    link.unlink()
    link.symlink_to("other.sh")
    assert not world.refuses() and not (world.work / "evil").exists()


def test_a_file_of_the_same_name_elsewhere_is_not_the_approved_one(world: World) -> None:
    world.project("hooks/guard.sh")
    world("trust", "--yes")
    inner = world.work / "sub/hooks"
    inner.mkdir(parents=True)
    (inner / "guard.sh").write_text("#!/bin/sh\ntouch evil\n")
    (inner / "guard.sh").chmod(0o755)
    world(*CALL, cwd=world.work / "sub")
    assert not (world.work / "sub/evil").exists()


def test_a_script_that_changes_while_a_session_runs_stops_running(world: World) -> None:
    world.project("hooks/guard.sh")
    world("trust", "--yes")
    look = json.dumps({"tool": "Glob", "input": {"pattern": "*"}})
    text = "#!/bin/sh\ntouch evil\n"
    change = json.dumps({"tool": "Write", "input": {"file_path": str(world.script), "content": text}})
    read = json.dumps({"tool": "Read", "input": {"file_path": str(world.script)}})
    done = world("call", "--jsonl", "--allow", "Edit", given="\n".join([look, read, change, look]) + "\n")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["code"] for one in told] == ["denied_by_hook", None, None, None], done.stdout
    assert not (world.work / "evil").exists() and "changed since it was approved" in done.stderr


def test_foreign_hooks_run_only_where_the_user_wants_it(world: World) -> None:
    foreign = world.work / ".claude/settings.json"
    foreign.parent.mkdir()
    hook = {"matcher": "Glob", "hooks": [{"type": "command", "command": "$CLAUDE_PROJECT_DIR/hooks/guard.sh"}]}
    foreign.write_text(json.dumps({"hooks": {"PreToolUse": [hook]}}))
    world("trust", "--yes")
    assert not world.refuses()
    (world.home / ".peg/settings.toml").write_text("compat.hooks = true\n")
    assert not world.refuses() and "nobody has approved it yet" in world.notice
    world("trust", "--yes")
    assert world.refuses()
    (world.home / ".peg/settings.toml").write_text("compat.hooks = true\ncompat.claude = false\n")
    assert not world.refuses()
    world("trust", "--revoke")
    (world.home / ".peg/settings.toml").write_text("compat.hooks = true\n")
    assert not world.refuses()


def test_a_project_cannot_switch_foreign_hooks_on(world: World) -> None:
    (world.work / ".claude").mkdir()
    hook = {"hooks": [{"type": "command", "command": f"touch {world.work}/evil"}]}
    (world.work / ".claude/settings.json").write_text(json.dumps({"hooks": {"PreToolUse": [hook]}}))
    (world.work / ".peg/settings.toml").write_text("compat.hooks = true\n")
    world(*CALL, "--trust")
    assert not (world.work / "evil").exists()


# -- which files an approval covers -------------------------------------------------------------------------------


@pytest.fixture
def places(tmp_path: Path) -> Places:
    root = tmp_path / "work"
    for name in ("h.sh", "my hooks/x.py", "hooks/a.sh", "notes.md", "src/app.js"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / "h.sh").chmod(0o755)
    (root / "hooks/a.sh").write_text("#!/bin/sh\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/n.sh").write_text("n")
    return Places(root, tmp_path / "home", root, tmp_path / "home/.peg", tmp_path / "managed")


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("./h.sh", ["h.sh"]),
        ("sh h.sh arg", ["h.sh"]),
        ("h.sh&&true", ["h.sh"]),
        ("X=1 sh ./h.sh | tee out; sh hooks/a.sh", ["h.sh", "hooks/a.sh"]),
        ('python3 "$CLAUDE_PROJECT_DIR/my hooks/x.py" --quiet', ["my hooks/x.py"]),
        ("${CLAUDE_PROJECT_DIR}/h.sh", ["h.sh"]),
        ("${PEG_PROJECT_DIR:-.}/h.sh", ["h.sh"]),
        ("bash -c '. ./h.sh; go'", ["h.sh"]),
        ('bash -c "$(cat h.sh)"', ["h.sh"]),
        ("cd hooks && ./a.sh", ["hooks/a.sh"]),
        ("sh ~/n.sh", ["n.sh"]),
        ("sh $HOME/n.sh", ["n.sh"]),
        ("sh < h.sh", ["h.sh"]),
        ("jq -r .x >> log.txt", []),
        ("prettier --check notes.md", []),
        ("npx eslint src/app.js", []),
        ("node src/app.js", ["src/app.js"]),
        ("uv run src/app.js", ["src/app.js"]),
        ("cat notes.md | sh", ["notes.md"]),
        ("/usr/bin/python3.11 notes.md", ["notes.md"]),
        ("/bin/sh -c true", []),
        ("it's unclosed h.sh", ["h.sh"]),
    ],
)
def test_every_file_that_a_command_names_is_covered(places: Places, command: str, files: list[str]) -> None:
    hook = Hook(event="Stop", what=command)
    reached = list(scripts(hook, places, places.cwd))
    found = [os.path.relpath(path, places.root if "home" not in path else places.home) for path in reached]
    assert sorted(found) == sorted(files)
    labels = {os.path.relpath(path, places.root) if "home" not in path else path for path in reached}
    assert set(content(hook, places, places.cwd)) - {"definition"} == labels


def test_arguments_without_a_shell_are_covered(places: Places) -> None:
    hook = Hook(event="Stop", what="python3", args=("${CLAUDE_PROJECT_DIR}/my hooks/x.py", "--file=h.sh"))
    assert sorted(os.path.relpath(path, places.root) for path in scripts(hook, places, places.cwd)) == [
        "h.sh",
        "my hooks/x.py",
    ]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_no_command_breaks_the_search(text: str) -> None:
    root = Path("/nowhere/work")
    places = Places(root, Path("/nowhere/home"), root, Path("/nowhere/home/.peg"), Path("/nowhere/managed"))
    hook = Hook(event="Stop", what=text)
    assert all(os.path.isabs(path) for path in paths(hook, places, root))
    assert "definition" in content(hook, places, root)


@pytest.mark.parametrize("switch", ['plugins.sources = ["user"]\n', "plugins.deny"])
def test_managed_hooks_cannot_be_lost_with_the_plug_in_that_runs_them(world: World, switch: str) -> None:
    managed = Path(world.env["PEG_MANAGED_DIR"]) / "managed.toml"
    managed.parent.mkdir()
    guard = '[[hooks.PreToolUse]]\nhooks = [{ type = "command", command = "exit 2" }]\n'
    managed.write_text(guard)
    assert world(*CALL).returncode == 3
    if switch == "plugins.deny":
        managed.write_text('plugins.deny = ["json-hooks"]\n' + guard)
    else:
        (world.home / ".peg/settings.toml").write_text(switch)
    done = world(*CALL)
    assert done.returncode == 2 and "Managed policy has hooks, but json-hooks cannot run them" in done.stderr
