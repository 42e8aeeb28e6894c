"""`peg import`: bring over what users of other tools have on disk, shown before it is stored.

Files of other products are read and never written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from pegboard.cli.import_plan import Left, Plan, Record, settle, write
from pegboard.decision import visible

SOURCES = {
    "claude": "settings and hooks of Claude Code",
    "managed": "the organisation's policy for Claude Code",
    "mcp": "servers that other programs know",
    "instructions": "instructions for other agents, into AGENTS.md",
    "schedules": "durable jobs of Claude Code",
}


@click.command("import", short_help="Bring over settings, hooks and instructions of other tools.")
@click.argument("source", type=click.Choice(list(SOURCES)))
@click.option("--scope", type=click.Choice(["user", "project"]), default="user", show_default=True, help="Whose files.")
@click.option("--dry-run", is_flag=True, help="Show what would be done and write nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(source: str, scope: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Bring over what another tool has on disk: claude (settings and hooks), managed, mcp, instructions, schedules.

    Three lists are shown: what is mapped, what needs a decision, what is dropped and why. Only keys that your file does
    not have are written, and hooks are listed in full before that. A second run changes nothing.
    """
    from pegboard.cli.start import start

    places = start().places
    plans = list(_plans(source, scope, places))
    record = Record(places)
    if source in ("claude", "managed"):
        for plan in plans:
            settle(plan, record)
    if not as_json:
        _show(plans, SOURCES[source])
    written = [] if dry_run else _do(source, plans, record, yes)
    if as_json:
        import json

        shown = {"source": source, "dry_run": dry_run, "plans": [plan.rows() for plan in plans], "written": written}
        click.echo(json.dumps(shown, ensure_ascii=False, indent=2))
    elif dry_run:
        click.echo("Nothing was written (--dry-run).")
    else:
        click.echo(f"Written: {', '.join(written)}." if written else "Nothing was written.")
    if any(key.startswith("hooks.") for key in written) and scope == "project":
        click.echo("peg: hooks of a project run after they were approved: peg trust", err=True)


def _plans(source: str, scope: str, places: Any) -> Iterator[Plan]:
    from pegboard.cli import import_claude, import_others

    if source in ("claude", "managed"):
        return import_claude.plans(places, "managed" if source == "managed" else scope)
    found: dict[str, Callable[[Any], Iterator[Plan]]] = {
        "mcp": import_others.server_plans,
        "schedules": import_others.schedule_plans,
        "instructions": import_others.instruction_plans,
    }
    return found[source](places)


def _do(source: str, plans: list[Plan], record: Record, yes: bool) -> list[str]:
    """Write what is mapped; instructions only after a yes, for they steer the model from then on."""
    from pegboard.cli import import_others

    todo = [plan for plan in plans if plan.mapped]
    if not todo:
        return []
    asks = not yes and (sys.stdin.isatty() or source == "instructions")
    if asks and not (sys.stdin.isatty() and click.confirm("Write this?", err=True)):
        if not sys.stdin.isatty():
            click.echo("peg: nobody can be asked; look at the list, then add --yes.", err=True)
        return []
    written = []
    for plan in todo:
        keys = import_others.append(plan) if source == "instructions" else write(plan)
        record.add(plan, keys)
        written += keys
    return written


def _show(plans: list[Plan], what: str) -> None:
    if not plans:
        click.echo(f"There is nothing to import: no {what} here.")
    for plan in plans:
        click.echo(f"{plan.source} -> {plan.target}")
        _list("Mapped", [line for one in plan.mapped for line in _lines(one)])
        _list("Needs a decision", [_left(one) for one in plan.decide])
        _list("Dropped", [_left(one) for one in plan.dropped])
        if plan.same:
            click.echo(f"  There already: {', '.join(plan.same)}")


def _lines(one: Any) -> Iterator[str]:
    import json

    note = f"  ({one.note})" if one.note else ""
    value = "" if one.lines else f" = {json.dumps(one.value, ensure_ascii=False)}"
    origin = f"  from {one.origin}" if one.origin != one.key else ""
    yield visible(f"{one.key}{value}{origin}{note}")
    for line in one.lines:
        yield f"  {visible(line)}"


def _left(one: Left) -> str:
    return visible(f"{one.what}: {one.why}")


def _list(head: str, lines: list[str]) -> None:
    if lines:
        click.echo(f"  {head}:")
        for line in lines:
            click.echo(f"    {line}")
