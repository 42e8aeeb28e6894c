"""CLI-3: what each `--json` listing prints in a well-filled world fits its published schema, with no field unnamed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from pegboard.cli import peg
from pegboard.cli.schema import published

sys.path.insert(0, str(Path(__file__).parent))
from shells import SCHEMAS, Shell, call, fits, shell

__all__ = ["shell"]

ONE = [
    ("agents-list", "agents list"),
    ("audit-show", "audit show"),
    ("audit-verify", "audit verify"),
    ("cost", "cost"),
    ("doctor", "doctor"),
    ("import", "import claude --dry-run"),
    ("import", "import mcp --dry-run"),
    ("plugins-list", "plugins list"),
    ("plugins-explain", "plugins explain Read"),
    ("policy-can", "policy can"),
    ("policy-explain", 'policy explain Bash {"command":"git\tpush"}'),
    ("policy-explain", 'policy explain Read {"file_path":".env"} --permission-mode bypassPermissions'),
    ("policy-lint", "policy lint"),
    ("policy-list", "policy list"),
    ("policy-replay", "policy replay {id} --all"),
    ("policy-starter", "policy starter"),
    ("policy-test", "policy test cases.toml"),
    ("sandbox-status", "sandbox status"),
    ("schema", "schema"),
    ("sessions-ledger", "sessions ledger {id}"),
    ("sessions-list", "sessions list"),
    ("sessions-points", "sessions rewind {id}"),
    ("sessions-rewind", "sessions rewind {id} --last --dry-run"),
    ("settings-list", "settings list --all"),
    ("settings-get", "settings get model"),
    ("settings-set", "settings set limits.turns 9"),
    ("settings-explain", "settings explain permissions.deny"),
    ("tools-list", "tools list"),
    ("tools-explain", "tools explain Bash"),
    ("trust", "trust"),
    ("trust-list", "trust --list"),
]
"""Schema -> the command whose one document it describes. Spaces part the words, a tab stands for one inside."""

LINES = [("sessions-show", "sessions show {id}"), ("tasks-list", "tasks list")]
"""The same for commands that print one document a line."""

CASES = '[[test]]\ntool = "Read"\ninput = { file_path = "a" }\nexpect = "ask"\n'
HOOK = '[[hooks.PreToolUse]]\nmatcher = "Bash"\nhooks = [{ type = "command", command = "true" }]\n'
AGENT = "---\nname: tester\ndescription: Runs tests.\ntools: Bash, Read\n---\nRun the tests.\n"


def world(it: Shell) -> None:
    """Settings of every scope, hooks, an agent, files of another product, and a session with calls of all kinds."""
    for name, text in {
        "work/.peg/settings.toml": 'permissions.allow = ["Bash(make *)"]\npermissions.deny = ["Read(.env)"]\n' + HOOK,
        "work/.peg/agents/tester.md": AGENT,
        "work/.claude/agents/tester.md": AGENT,
        "work/.claude/settings.json": json.dumps({"permissions": {"allow": ["Bash(ls)"], "deny": ["Reed(x)"]}}),
        "work/.mcp.json": json.dumps({"mcpServers": {"db": {"command": "db", "args": ["x"]}}}),
        "work/cases.toml": CASES,
        "home/.claude/settings.json": json.dumps({"permissions": {"deny": ["Bash(rm *)"]}, "model": "opus"}),
        "home/.peg/settings.toml": 'tools.disabled = ["Glob"]\npermissions.deny = ["Reed"]\n',
    }.items():
        path = it.work.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert it.run("trust", "--yes").returncode == 0
    code, lines = it.stream("--permission-mode", "acceptEdits", "--verbose", "--include-partial-messages")
    assert code == 0, lines[-1]


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "tool_use", "name": "Bash", "input": {"command": command, **more}}]}


@pytest.fixture
def filled(shell: Callable[..., Shell]) -> Shell:
    write = {"type": "tool_use", "name": "Write", "input": {"file_path": "a.txt", "content": "new\n"}}
    it = shell(
        call("Touch", "t"), {"content": [write, *bash("echo hi > b")["content"]]}, bash("make all"),
        bash("sleep 0.2; echo done", run_in_background=True), {"http_status": 529}, call("Teach", "knots"),
        call("Picture"), call("Echo", "no"), call("Nothing"), "done",
    )  # fmt: skip
    world(it)
    assert it.refused == []
    return it


def test_cli_3_every_listing_fits_its_schema(filled: Shell) -> None:
    for name, words in [*ONE, *LINES]:
        argv = [word.replace("\t", " ").replace("{id}", filled.id) for word in words.split(" ")]
        done = filled.run(*argv, "--json")
        assert done.returncode in (0, 1) and done.stdout, (words, done)
        for found in done.stdout.splitlines() if (name, words) in LINES else [done.stdout]:
            fits(name, json.loads(found), published()[name].parent)


def test_cli_3_listings_are_not_empty(filled: Shell) -> None:
    for words in ("agents list", "audit show", "policy list", "policy lint", "sessions list", "tools list"):
        assert json.loads(filled.run(*words.split(), "--json").stdout), words


def test_every_schema_is_held_against_something() -> None:
    elsewhere = {"stream", "input", "result", "call"}
    assert {name for name, _ in [*ONE, *LINES]} | elsewhere == published().keys()


def test_cli_3_every_json_option_has_a_schema() -> None:
    names = set(with_json(peg, click.Context(peg), ()))
    assert names and names <= published().keys()


def with_json(command: click.Command, ctx: click.Context, words: tuple[str, ...]) -> Iterator[str]:
    """Names of the commands that have --json, as schemas are named."""
    if any("--json" in param.opts for param in command.params):
        yield "-".join(words)
    if isinstance(command, click.Group):
        brought = ["tasks", "agents"] if command is peg else []
        for name in [*command.list_commands(ctx), *brought]:
            found = command.get_command(ctx, name)
            assert found is not None
            yield from with_json(found, ctx, (*words, name))


def test_a_field_that_no_schema_names_is_noticed() -> None:
    row = {"root": "/", "at": "now"}
    fits("trust-list", [row])
    for wrong in ([{**row, "more": 1}], [{"root": "/"}], [{"root": 1, "at": "now"}]):
        with pytest.raises(jsonschema.ValidationError):
            fits("trust-list", wrong)


def test_calls_fit_their_schema(shell: Callable[..., Shell]) -> None:
    it = shell()
    (it.work / "f").write_text("x\n")
    for words in (("Read", '{"file_path": "f"}'), ("Read", '{"file_path": "none"}'), ("Bash", '{"command": "rm f"}')):
        fits("call", json.loads(it.run("call", *words).stdout))


def test_schemas_are_printed_and_listed(shell: Callable[..., Shell]) -> None:
    it = shell()
    assert it.run("schema", "stream").stdout == (SCHEMAS / "stream.json").read_bytes()
    assert b"tools-list" in it.run("schema").stdout
    assert json.loads(it.run("schema", "agents-list").stdout)["title"] == "peg agents list --json"
    unknown = it.run("schema", "nothing")
    assert unknown.returncode == 2 and b"Schemas: audit-show" in unknown.stderr
