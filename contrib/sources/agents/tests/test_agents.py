"""Definitions of agents: their fields, where they lie, which one counts, what is taken from whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard.places import Places, find_places
from pegboard.testing.sessions import set_room
from pegboard_agents.cli import command
from pegboard_agents.definition import Definition, NoDefinition, parse
from pegboard_agents.found import Found, built_in, find

HEAD = "name: a\ndescription: Does a.\n"


def definition(fields: str = "", **how: Any) -> Definition:
    return parse(f"---\n{HEAD}{fields}---\nYou do a.\n", "/x/a.md", how.pop("scope", "user"), **how)


def test_all_fields() -> None:
    found = definition(
        "tools: Read, Bash(git log *)\ndisallowedTools: [Write]\nmodel: haiku\npermissionMode: plan\nmaxTurns: 3\n"
        "skills: [x, y]\nmcpServers: [one, {two: {command: z}}]\nhooks: {PreToolUse: []}\nmemory: project\n"
        "background: true\neffort: high\nisolation: worktree\ncolor: blue\ninitialPrompt: Begin.\n"
    )
    assert found == Definition(
        name="a",
        description="Does a.",
        prompt="You do a.",
        scope="user",
        path="/x/a.md",
        tools=["Read", "Bash(git log *)"],
        disallowed=["Write"],
        model="haiku",
        permission_mode="plan",
        max_turns=3,
        skills=["x", "y"],
        servers=["one", {"two": {"command": "z"}}],
        hooks={"PreToolUse": []},
        memory="project",
        background=True,
        effort="high",
        isolation="worktree",
        color="blue",
        initial_prompt="Begin.",
    )


def test_what_is_not_said_is_the_parents() -> None:
    found = definition("model: inherit\ntools: '*'\nmaxTurns:\n")
    assert (found.tools, found.model, found.max_turns, found.problems) == (None, "", None, [])
    assert definition("tools: []\n").tools == []
    assert definition("mcpServers:\n  two:\n    command: z\n").servers == [{"two": {"command": "z"}}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Just text.", ""),
        ("---\ndescription: x\n---\n", ""),
        ("---\nname: 5\ndescription: x\n---\n", "no text"),
        ("---\nname: a:b\ndescription: x\n---\n", "colon"),
        ("---\nname: '-a'\ndescription: x\n---\n", "dash"),
        ("---\nname: a\n---\n", "no description"),
    ],
)
def test_files_that_define_no_agent(text: str, said: str) -> None:
    with pytest.raises(NoDefinition) as caught:
        parse(text, "/x", "user")
    assert bool(said) == bool(caught.value.said) and said in caught.value.said


@pytest.mark.parametrize(
    "field",
    [
        "maxTurns: 0", "maxTurns: many", "background: maybe", "permissionMode: yolo", "memory: all", "effort: 11",
        "isolation: box", "hooks: [a]", "mcpServers: 5", "tools: {a: b}", "color: [x]", "model: 5", "unknown: x",
    ],
)  # fmt: skip
def test_a_field_that_cannot_be_used_is_left_out_and_said(field: str) -> None:
    found = definition(f"{field}\n")
    assert len(found.problems) == 1 and field.split(":")[0] in found.problems[0]
    plain = definition()
    assert _plain(found) == _plain(plain)


def _plain(found: Definition) -> dict[str, Any]:
    return {key: value for key, value in msgspec.to_builtins(found).items() if key != "problems"}


def test_a_project_that_nobody_trusts_gets_no_servers_hooks_and_wider_modes() -> None:
    fields = "hooks: {Stop: [x]}\nmcpServers: [one, {two: {command: z}}]\npermissionMode: acceptEdits\n"
    found = definition(fields, scope="project", trusted=False)
    assert (found.hooks, found.servers, found.permission_mode) == ({}, ["one"], "")
    assert len(found.problems) == 3 and "peg trust" in found.problems[0]
    trusted = definition(fields, scope="project", trusted=True)
    assert trusted.servers and trusted.hooks and trusted.permission_mode == "acceptEdits"
    assert definition("permissionMode: plan\n", scope="project", trusted=False).permission_mode == "plan"
    never = definition("permissionMode: bypassPermissions\n", scope="project", trusted=True)
    assert never.permission_mode == "" and never.problems


def test_agents_of_plug_ins_are_scoped_and_narrowed() -> None:
    found = definition("hooks: {Stop: [x]}\nmcpServers: [one]\npermissionMode: plan\n", scope="plugin", plugin="acme")
    assert (found.name, found.hooks, found.servers, found.permission_mode) == ("acme:a", {}, [], "")
    assert len(found.problems) == 3


def test_built_in_agents_are_sound() -> None:
    found = {one.name: one for one in built_in()}
    assert set(found) == {"general-purpose", "explore", "plan"}
    assert found["general-purpose"].tools is None
    for name in ("explore", "plan"):
        assert not {"Write", "Edit", "Bash", "NotebookEdit"} & set(found[name].tools or ["Write"])
    assert all(not one.problems and one.prompt for one in found.values())


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=120))
def test_any_text_is_a_definition_or_none(text: str) -> None:
    for source in (text, f"---\n{HEAD}{text}\n---\n"):
        try:
            parse(source, "/x", "project", trusted=False)
        except NoDefinition:
            continue


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    set_room(tmp_path, monkeypatch.setenv)
    work = tmp_path / "work" / "inner"
    work.mkdir(parents=True)
    (tmp_path / "work" / ".git").mkdir()
    monkeypatch.chdir(work)
    return find_places(work)


def put(folder: Path, name: str = "a", said: str = "x", fields: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    path.write_text(f"---\nname: {name}\ndescription: {said}\n{fields}---\nText.\n")
    return path


def look(places: Places, **how: Any) -> Found:
    return find(places, **{"compat": True, "trusted": True, **how})


def test_the_order_of_scopes(places: Places) -> None:
    order = [
        places.managed_dir / "agents",
        places.cwd / ".peg/agents",
        places.cwd / ".claude/agents/deep",
        places.root / ".peg/agents",
        places.root / ".claude/agents",
        places.user_dir / "agents",
        places.home / ".claude/agents",
    ]
    paths = [put(folder, "explore", f"number {number}") for number, folder in enumerate(order)]
    for number, path in enumerate(paths):
        found = look(places)
        assert found.agents["explore"].description == f"number {number}"
        assert found.get("Explore") is found.agents["explore"] and found.get("nobody") is None
        assert len(found.hidden) == len(order) - number
        assert all(by is found.agents["explore"] for _, by in found.hidden)
        path.unlink()
    assert look(places).agents["explore"].scope == "builtin"


def test_without_compat_the_other_products_folders_are_left_out(places: Places) -> None:
    put(places.root / ".claude/agents")
    put(places.home / ".claude/agents", "b")
    assert not {"a", "b"} & look(places, compat=False).agents.keys()
    assert {"a", "b"} <= look(places).agents.keys()


def test_a_link_out_of_the_project_is_no_definition(places: Places) -> None:
    target = put(places.home, "secret")
    (places.root / ".peg/agents").mkdir(parents=True)
    (places.root / ".peg/agents/a.md").symlink_to(target)
    found = look(places)
    assert "secret" not in found.agents and "out of the project" in found.problems[0]


def test_plug_ins_bring_agents_of_their_own(places: Places, tmp_path: Path) -> None:
    put(tmp_path / "acme")
    found = look(places, plugins={"acme": str(tmp_path / "acme")})
    assert found.agents["acme:a"].scope == "plugin" and "a" not in found.agents


def test_peg_agents_list(places: Places) -> None:
    put(places.root / ".peg/agents", "a", "Ours \x1b[31m.", "tools: Read\nhooks: {Stop: [x]}\n")
    put(places.user_dir / "agents", "a", "Mine.")
    put(places.user_dir / "agents", "bad", "x", "maxTurns: -1\n")
    done = CliRunner().invoke(command, ["list"])
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert any(
        line.startswith("a ") and "project" in line and "(Read)" in line and "\x1b" not in line for line in lines
    )
    assert any("hidden by" in line and str(places.user_dir) in line for line in lines)
    assert "peg trust" in done.stderr and "maxTurns takes a whole number" in done.stderr
    shown = json.loads(CliRunner().invoke(command, ["list", "--json"]).stdout)
    assert [one["hidden_by"] is None for one in shown if one["name"] == "a"] == [True, False]
    assert {"general-purpose", "explore", "plan", "bad"} <= {one["name"] for one in shown}
