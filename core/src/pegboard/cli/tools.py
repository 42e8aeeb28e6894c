"""`peg tools`: which tools exist here, the one reason for each state, and the switch of each scope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pegboard.cli.listing import begin, print_json

if TYPE_CHECKING:
    from pegboard.candidate import Candidate
    from pegboard.gate import Switch
    from pegboard.loader import Registry

SCOPES = click.Choice(["user", "project", "local"])


@click.group(short_help="List tools, switch them on and off, and explain their state.")
def command() -> None:
    """List tools, switch them on and off in one scope, and say why a tool is or is not here."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List every tool that was found, the unusable ones with their reason."""
    registry = begin().registry
    rows = [_row(registry, one) for one in _tools(registry)]
    if as_json:
        print_json(rows)
        return
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        if row["state"] == "active":
            note = "" if row["origin"] == "bundled" else f"  ({row['origin']} {row['distribution']})"
            click.echo(f"{row['name']:{width}}  {row['load'] or '':8}  {row['summary'] or ''}{note}")
        else:
            source = f" ({row['source']})" if row["source"] else ""
            click.echo(f"{row['name']:{width}}  {row['state']:8}  {row['reason']}{source}")
    if not rows:
        click.echo("No tool is installed.")


@command.command()
@click.argument("name")
@click.option("--scope", type=SCOPES, default="user", show_default=True, help="Whose settings to change.")
def enable(name: str, scope: str) -> None:
    """Switch the tool NAME on in one settings scope."""
    _switch(name, scope, on=True)


@command.command()
@click.argument("name")
@click.option("--scope", type=SCOPES, default="user", show_default=True, help="Whose settings to change.")
def disable(name: str, scope: str) -> None:
    """Switch the tool NAME off in one settings scope."""
    _switch(name, scope, on=False)


@command.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(name: str, as_json: bool) -> None:
    """Say for the tool NAME: version, source, switches, trust, policy, conflict, load class, and its state."""
    begun = begin()
    registry = begun.registry
    name = _known(registry, name)
    found = [one for one in _tools(registry) if one.name == name]
    if as_json:
        print_json({"name": name, "installed": bool(found), "offers": [_facts(registry, one) for one in found]})
    elif not found:
        click.echo(f"{name} is not installed; the distribution that brings it is {_distribution(name)}.")
    for one in found if not as_json else ():
        facts = _facts(registry, one)
        reason = f": {facts['reason']}" if facts["reason"] else ""
        click.echo(f"{name}: {facts['state']}{reason}" + (f" ({facts['decided_by']})" if facts["decided_by"] else ""))
        for title in ("version", "source", "switches", "trust", "policy", "conflict", "load", "aliases", "needs"):
            shown = facts[title]
            if isinstance(shown, list):
                shown = "; ".join(map(_said, shown)) or "none"
            click.echo(f"  {title + ':':10} {shown or 'none'}")


def _switch(name: str, scope: str, *, on: bool) -> None:
    from pegboard.errors import PolicyError
    from pegboard.gate import decided
    from pegboard.names import fold
    from pegboard.settings import settings_file
    from pegboard.settings_save import edit_lists

    begun = begin()
    settings, registry = begun.settings, begun.registry
    name = _known(registry, name)
    switch, is_on = decided([name], registry.snapshot.switches)
    if switch is not None and switch.scope == "managed" and is_on is not on:
        state = "on" if is_on else "off"
        raise PolicyError(f"Managed policy holds {name} {state} ({switch.source}); no other scope can change that.")
    path = settings_file(settings.places, scope)
    into, out_of = ("tools.enabled", "tools.disabled") if on else ("tools.disabled", "tools.enabled")
    settings.check_settable(into, scope, [name])
    lists: dict[str, tuple[list[str], list[str]]] = {}
    for key in (out_of, into):
        held = [item for entry in settings.entries(key) if entry.source == str(path) for item in entry.value or ()]
        alike = [item for item in held if fold(item) == fold(name)]
        lists[key] = ([name] if key == into else [], alike)
    edit_lists(path, lists, personal=scope == "user")
    settings.refresh()
    click.echo(f"{name} is {'on' if on else 'off'} in the {scope} settings ({path}).")
    switch, is_on = decided([name], registry.snapshot.switches)
    if is_on is not on:
        why = f"{switch.scope} settings ({switch.source}) decide" if switch else "the workspace is not trusted"
        click.echo(f"peg: saved, but not in force here: {why}.", err=True)


def _facts(registry: Registry, one: Candidate) -> dict[str, Any]:
    from pegboard.gate import GATE
    from pegboard.names import fold

    now = registry.snapshot
    standing = registry.standing(one)
    answers = {question.__name__: question(one, now) for question in GATE}

    def reason(*questions: str) -> str:
        return next((refused.reason for name in questions if (refused := answers[name]) is not None), "")

    return {
        **_row(registry, one),
        "version": one.version,
        "source": f"{one.origin}, {one.where}" + (f", {one.folder}" if one.folder else ""),
        "switches": [_setting(switch, fold(one.name)) for switch in now.switches if _names(switch, one.name)]
        or [{"scope": "default", "source": now.default_source or "built-in", "state": now.default}],
        "trust": reason("untrusted", "changed") or "nothing to ask",
        "policy": reason("denied", "not_allowed", "origin_off") or "nothing against it",
        "conflict": reason("clashes") or "none",
        "needs": list(one.tool.needs) if one.manifest is not None else [],
        "aliases": list(one.tool.aliases) if one.manifest is not None else [],
        "decided_by": standing.question or ("load" if standing.reason else ""),
        "decided_in": standing.source,
    }


def _setting(switch: Switch, name: str) -> dict[str, str]:
    from pegboard.gate import decided

    forced = " (forced)" if switch.forced else ""
    return {"scope": switch.scope + forced, "source": switch.source, "state": _on(decided([name], (switch,))[1])}


def _names(switch: Switch, name: str) -> bool:
    from pegboard.gate import decided

    return decided([name], (switch,))[0] is not None


def _on(state: bool | None) -> str:
    return "on" if state else "off"


def _said(item: Any) -> str:
    return f"{item['scope']} {item['state']} ({item['source']})" if isinstance(item, dict) else str(item)


def _row(registry: Registry, one: Candidate) -> dict[str, Any]:
    standing = registry.standing(one)
    manifest = one.tool if one.manifest is not None else None
    return {
        "name": one.name,
        "state": standing.state.value,
        "reason": standing.reason,
        "source": standing.source,
        "summary": manifest.summary if manifest else None,
        "load": manifest.load if manifest else None,
        "concurrency": manifest.concurrency if manifest else None,
        "effects": list(manifest.effects) if manifest else None,
        "origin": one.origin.value,
        "distribution": one.distribution,
        "version": one.version,
    }


def _tools(registry: Registry) -> list[Candidate]:
    _ = registry.snapshot
    return sorted((one for one in registry.candidates if one.kind == "tool"), key=lambda one: one.name)


def _known(registry: Registry, name: str) -> str:
    """The tool that the user means; also one of the product that is not installed."""
    from pegboard.errors import UsageError
    from pegboard.gate import own_names
    from pegboard.names import close, pick

    known = {one.name for one in _tools(registry)} | own_names()
    aliases = {alias: one.name for one in _tools(registry) if one.manifest for alias in one.tool.aliases}
    found = pick(name, known) or aliases.get(pick(name, aliases) or "")
    if found is None:
        alike = close(name, known)
        raise UsageError(f"There is no tool {name}." + (f" Did you mean {' or '.join(alike)}?" if alike else ""))
    return found


def _distribution(name: str) -> str:
    from pegboard.names import bundled

    return next((dist for dist, tool in bundled().items() if tool == name), "unknown")
