"""`peg doctor`: everything that could surprise somebody here, each with what to do about it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pegboard.cli.start import Start

FOREIGN_POLICY = Path("/etc/claude-code/managed-settings.json")
"""Managed policy of another product, which is not read here."""


@dataclass(frozen=True)
class Finding:
    """One thing the doctor saw. ``level``: ok, note, or problem."""

    level: str
    area: str
    """python, settings, policy, trust, plugins, engines, rules, hooks, provider, sandbox"""
    text: str


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """Check engines, settings, rules, trust and plug-ins, and say what to do about each problem.

    Exit code 1 when there is a problem.
    """
    found = list(findings())
    bad = [item for item in found if item.level == "problem"]
    if as_json:
        click.echo(json.dumps({"ok": not bad, "findings": [asdict(item) for item in found]}, indent=1))
        return 1 if bad else 0
    marks = {
        "ok": click.style("ok     ", fg="green"),
        "note": click.style("note   ", fg="yellow"),
        "problem": click.style("problem", fg="red"),
    }
    for item in found:
        click.echo(f"{marks[item.level]}  {item.area:9} {item.text}")
    click.echo(f"\n{len(bad)} {'problem' if len(bad) == 1 else 'problems'}." if bad else "\nAll is well.")
    return 1 if bad else 0


def findings() -> Iterator[Finding]:
    """All findings for the current directory, in the order in which a start meets them."""
    from pegboard import __version__
    from pegboard.cli.start import start
    from pegboard.errors import PegError

    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("ok", "python", f"pegboard {__version__} on Python {python}")
    begun = start()
    try:
        begun.settings  # noqa: B018 - reading them is the check
    except PegError as error:
        yield Finding("problem", "policy", str(error))
        return
    yield from _settings(begun)
    yield from _trust(begun)
    yield from _plugins(begun)
    yield from _rules(begun)
    yield from _hooks(begun)
    yield from _provider(begun)
    yield from _sandbox(begun)


def _settings(begun: Start) -> Iterator[Finding]:
    problems = begun.settings.problems
    for problem in problems:
        yield Finding("problem", "settings", str(problem))
    if not problems:
        yield Finding("ok", "settings", f"settings of {begun.places.root} are sound")
    if begun.settings.suspended:
        yield Finding("note", "settings", f"No allow rule but managed ones holds: {begun.settings.suspended}.")
    if FOREIGN_POLICY.exists():
        yield Finding("note", "policy", f"{FOREIGN_POLICY} belongs to another product and is not read here.")


def _trust(begun: Start) -> Iterator[Finding]:
    held = begun.settings.held
    root = begun.places.root
    if begun.trusted:
        yield Finding("ok", "trust", f"{root} is trusted")
    elif held:
        listed = "; ".join(f"{item.key} {item.shown}" for item in held[:5])
        more = f" and {len(held) - 5} more" if len(held) > 5 else ""
        text = f"{root} is not trusted, so its files do not get: {listed}{more}. See and decide with: peg trust"
        yield Finding("problem", "trust", text)
    else:
        yield Finding("note", "trust", f"{root} is not trusted; nothing in it asks for more. To trust it: peg trust")


def _plugins(begun: Start) -> Iterator[Finding]:
    from pegboard.loader import State

    registry = begun.registry
    active = 0
    for one in registry.gather():
        standing = registry.standing(one)
        if standing.state is State.ACTIVE:
            active += 1
            continue
        off = standing.question == "switched_off"
        area = "engines" if standing.question == "missing_engine" else "plugins"
        source = f" ({standing.source})" if standing.source else ""
        yield Finding("note" if off else "problem", area, f"{one.kind} {one.name}: {standing.reason}{source}")
    yield Finding("ok", "plugins", f"{active} active, {', '.join(sorted(registry.tools())) or 'no tool'}")


def _rules(begun: Start) -> Iterator[Finding]:
    from pegboard.cli.policy_judge import rule_problems
    from pegboard.errors import UsageError
    from pegboard.rules import parse_rule

    written: list[tuple[Any, str, str, str]] = [
        (item.effect, item.text, item.scope, item.source) for item in begun.settings.rules()
    ]
    written += [
        (item.key.removeprefix("permissions."), item.shown, item.scope, item.source)
        for item in begun.settings.held
        if item.key in ("permissions.allow", "permissions.ask", "permissions.deny")
    ]
    rules = []
    for effect, text, scope, source in written:
        try:
            rules.append(parse_rule(text, effect=effect, scope=scope, source=source, line=0))
        except UsageError as error:
            yield Finding("problem", "rules", str(error))
    for problem in rule_problems(rules, begun.registry):
        yield Finding("problem", "rules", str(problem))


def _hooks(begun: Start) -> Iterator[Finding]:
    from pegboard.external import Configured
    from pegboard.external_trust import Approvals

    configured = Configured(begun.settings, begun.places)
    hooks, running = configured.all(), False
    for problem in configured.problems:
        yield Finding("problem", "hooks", problem)
    approvals = Approvals(begun.places, begun.trusted)
    for hook in hooks:
        if hook.why_not:
            yield Finding("note", "hooks", f"{hook.name} ({hook.source}) does not run: {hook.why_not}")
        elif why := approvals.why_not(hook, begun.places.cwd):
            yield Finding("problem", "hooks", f"{hook.name} ({hook.source}) does not run: {why}. See: peg trust")
        else:
            running = True
    if running and not begun.registry.manager.has_plugin("json-hooks"):
        yield Finding("problem", "hooks", "hooks are configured, and pegboard-json-hooks, which runs them, is not here")


def _provider(begun: Start) -> Iterator[Finding]:
    for name, manifest in begun.registry.providers().items():
        keys = [variable for variable in manifest.credentials if os.environ.get(variable)]
        if keys or not manifest.credentials:
            yield Finding("ok", "provider", f"{name}: {', '.join(keys) or 'needs no key'}")
        else:
            wanted = " or ".join(manifest.credentials)
            yield Finding("note", "provider", f"{name}: no key is set; a real model needs {wanted}")
    if not begun.registry.providers():
        yield Finding("problem", "provider", "no provider is installed; install pegboard-anthropic")


def _sandbox(begun: Start) -> Iterator[Finding]:
    from pegboard.cli.sandbox import look
    from pegboard.sandbox import rank, wanted

    found, level = look(begun), str(begun.settings.value("sandbox.level"))
    because = f": {'; '.join(found.reasons)}" if found.reasons else ""
    if not wanted(begun.settings):
        yield Finding("note", "sandbox", f"off (sandbox.enabled); it would reach the level {found.level}{because}")
    elif rank(found.level) < rank(level):
        required = bool(begun.settings.value("sandbox.required"))
        effect = "no process starts" if required else "processes get what there is"
        yield Finding("problem", "sandbox", f"reaches {found.level}, wanted is {level}, so {effect}{because}")
    else:
        yield Finding("ok", "sandbox", f"level {found.level} by {found.name}{because}")
