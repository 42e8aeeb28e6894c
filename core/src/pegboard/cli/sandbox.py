"""`peg sandbox`: which sandbox processes get here, found by trying it, and why no better one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pegboard.cli.start import Start
    from pegboard.sandbox import Status


@click.group("sandbox", short_help="Show which sandbox processes get here, and why no better one.")
def command() -> None:
    """Processes of tools run in a sandbox where sandbox.enabled is set, or a policy requires one."""


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> int:
    """Try the sandbox and show the level that is reached.

    full: files, processes, and network by host. no-proxy: the same without any network. landlock: files and network by
    kernel rules alone. none. Exit code 1 when a wanted level is not reached.
    """
    from pegboard.cli.start import start
    from pegboard.sandbox import rank, wanted

    begun = start()
    found, level = look(begun), str(begun.settings.value("sandbox.level"))
    on, required = wanted(begun.settings), bool(begun.settings.value("sandbox.required"))
    enough = rank(found.level) >= rank(level)
    if as_json:
        told = {"level": found.level, "sandbox": found.name or None, "reasons": list(found.reasons)}
        click.echo(
            json.dumps({**told, "enabled": on, "required": required, "wanted": level, "enough": enough}, indent=1)
        )
    else:
        click.echo(f"level     {found.level}{f' ({found.name})' if found.name else ''}, wanted: {level}")
        for reason in found.reasons:
            click.echo(f"because   {reason}")
        click.echo(f"in use    {_use(on, required, enough)}")
    return 0 if enough or not on else 1


def _use(on: bool, required: bool, enough: bool) -> str:
    if not on:
        return "no: sandbox.enabled is false; turn it on with: peg settings set sandbox.enabled true"
    if required and not enough:
        return "no process starts: sandbox.required is set, and the wanted level is not reached"
    return "yes, and required" if required else "yes" if enough else "as far as it reaches; a warning says so"


def look(begun: Start) -> Status:
    """Try every sandbox plug-in and give what the best one reaches."""
    from pegboard.needs import blank_need
    from pegboard.sandbox import reached

    places = begun.places
    return reached(begun.registry, blank_need(places.home, places.cwd, begun.settings))
