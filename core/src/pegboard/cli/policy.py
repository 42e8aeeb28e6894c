"""`peg policy`: the rules that decide about calls, listed, explained, tested, replayed and checked.

A policy that cannot be asked is believed, and a policy that is believed is wrong sooner or later.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pegboard.cli.options import policy_options

as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")
SCOPE = click.option(
    "--scope",
    type=click.Choice(["user", "project", "local"]),
    default="local",
    show_default=True,
    help="Whose settings to change.",
)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(short_help="List, explain, test and replay the rules that decide about calls.")
def command() -> None:
    """List, explain, test and replay the rules that decide about calls.

    Order: deny, ask, floors, mode, allow, question. Nothing here runs a tool.
    """


@command.command("list")
@click.option("--conflicts", is_flag=True, help="Only rules that lose to another one, or do not count, and why.")
@as_json
@policy_options
def list_(conflicts: bool, json_: bool, **flags: Any) -> None:
    """List the rules in force: effect, rule, level, scope, file and line, and what each loses to."""
    from pegboard.cli.policy_rules import run_list

    run_list(flags, conflicts, json_)


@command.command()
@click.argument("tool", required=False)
@click.argument("input", required=False, metavar="[JSON]")
@click.option("--jsonl", is_flag=True, help="Read one request a line on stdin, write one verdict a line on stdout.")
@click.option("--cwd", type=click.Path(path_type=Path), help="The session's directory; it need not exist.")
@as_json
@policy_options
def explain(tool: str | None, input: str | None, jsonl: bool, cwd: Path | None, json_: bool, **flags: Any) -> None:
    """Say how a call of TOOL with the JSON input would be decided, by which rule of which file, and what lost.

    With --jsonl each line is {"tool", "input", "mode"?, "cwd"?, "trusted"?, "root_user"?, "rules"?: {"allow", "ask",
    "deny"}, "id"?}; "rules" stand for all configured ones. Hooks are not asked, and nothing is executed.
    """
    from pegboard.cli.policy_explain import run_explain

    run_explain(flags, tool, input, jsonl, cwd, json_)


@command.command()
@click.argument("files", nargs=-1, type=FILE, metavar="FILE...")
@as_json
@policy_options
def test(files: tuple[Path, ...], json_: bool, **flags: Any) -> int:
    """Run the tests of a policy, and the examples that rules carry. Exit code 1 when one fails.

    A FILE holds [[test]] tables: name, tool, input, expect (allow, ask, deny), and mode, trusted, cwd, rules, rule (the
    deciding one) as wanted.
    """
    from pegboard.cli.policy_test import run_test

    return run_test(flags, files, json_)


@command.command()
@click.argument("session")
@click.option("--all", "everything", is_flag=True, help="Also calls that would be decided as they were.")
@as_json
@policy_options
def replay(session: str, everything: bool, json_: bool, **flags: Any) -> None:
    """Judge the calls of a recorded SESSION under the policy of now, and show which decisions would change.

    SESSION is an id, the beginning of one, or a name. Paths are followed as the files are today.
    """
    from pegboard.cli.policy_replay import run_replay

    run_replay(flags, session, everything, json_)


@command.command()
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="Only this tool. Repeatable.")
@as_json
@policy_options
def can(tools: tuple[str, ...], json_: bool, **flags: Any) -> None:
    """Say for each tool what could ever run without a question, what is always asked, and what never runs."""
    from pegboard.cli.policy_can import run_can

    run_can(flags, tools, json_)


@command.command("lint")
@as_json
@policy_options
def lint_(json_: bool, **flags: Any) -> int:
    """Find rules that can match nothing, are misspelt, or are covered by others. Exit code 1 when there are any."""
    from pegboard.cli.policy_rules import run_lint

    return run_lint(flags, json_)


@command.command()
@click.argument("effect", type=click.Choice(["allow", "ask", "deny"]))
@click.argument("rule")
@SCOPE
def add(effect: str, rule: str, scope: str) -> None:
    """Add a RULE to the settings of a scope. What is wrong with it is said before anything is written."""
    from pegboard.cli.policy_edit import run_add

    run_add(effect, rule, scope)


@command.command()
@click.argument("rule")
@SCOPE
def remove(rule: str, scope: str) -> None:
    """Take a RULE out of the settings of a scope, whatever its effect: also what an "always" has saved."""
    from pegboard.cli.policy_edit import run_remove

    run_remove(rule, scope)


@command.command()
@click.option("--write", "scope", type=click.Choice(["user", "project", "local"]), help="Add it to these settings.")
@as_json
def starter(scope: str | None, json_: bool) -> None:
    """Print a policy to start with: common development work runs, pushes ask, secrets stay closed."""
    from pegboard.cli.policy_starter import run_starter

    run_starter(scope, json_)


@command.command()
@click.argument("files", nargs=-1, type=FILE, metavar="FILE...")
@click.option("--key", required=True, type=click.Path(path_type=Path), help="Private Ed25519 key, PEM.")
@click.option("--new-key", is_flag=True, help="Make the key first.")
def sign(files: tuple[Path, ...], key: Path, new_key: bool) -> None:
    """Sign managed policy FILES: write FILE.sig beside each, and print the line for managed.toml.

    Once managed.toml holds managed.signing_key, a file of managed.d without a good signature stops every start.
    """
    from pegboard.cli.policy_sign import run_sign

    run_sign(files, key, new_key)
