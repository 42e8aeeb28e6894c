"""`peg trust`: show what a workspace would switch on, then trust it, or take trust back.

Trust is asked for with the list in sight, because it is the list that is trusted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pegboard.cli.start import Start


@click.command(short_help="Trust this workspace, or take trust back.")
@click.argument("path", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--revoke", is_flag=True, help="Take trust back.")
@click.option("--list", "listing", is_flag=True, help="List trusted workspaces.")
@click.option("--yes", is_flag=True, help="Trust without a question.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; changes nothing without --yes or --revoke.")
def command(path: Path | None, revoke: bool, listing: bool, yes: bool, as_json: bool) -> None:
    """Trust the workspace at PATH (default: here): its repository, or outside Git its folder.

    Until then its files cannot allow calls, add directories, run hooks, start servers or load plug-ins. What it denies
    holds anyway. A repository inside a trusted one needs its own trust.
    """
    from pegboard.cli.start import start

    begun = start(path)
    if listing:
        _list(begun, as_json)
    elif revoke:
        had = begun.trust.revoke()
        _report(begun, "is no longer trusted." if had else "was not trusted.", as_json)
    else:
        _trust(begun, yes, as_json)


def _trust(begun: Start, yes: bool, as_json: bool) -> None:
    wanted = _would_activate(begun)
    known = begun.trust.trusted()
    if not as_json:
        _show(wanted, err=not yes)
    if known or (as_json and not yes):
        _report(begun, "is trusted." if known else "is not trusted.", as_json, wanted)
        return
    if not yes:
        from pegboard.errors import UsageError

        if not sys.stdin.isatty():
            raise UsageError(
                f"Nobody can be asked whether to trust {begun.trust.root}; look at the list, then add --yes."
            )
        if not click.confirm(f"Trust {begun.trust.root}?", err=True):
            _report(begun, "is not trusted.", as_json)
            return
    begun.trust.give()
    _report(begun, "is trusted now.", as_json, wanted)


def _would_activate(begun: Start) -> list[dict[str, Any]]:
    """What the workspace's files ask for: held settings, and plug-ins that lie in the project."""
    from pegboard.settings import Settings

    held = Settings.load(begun.places).held
    rows = [{"kind": one.key, "what": one.shown, "source": one.source} for one in held]
    for one in begun.registry.candidates:
        if one.origin == "project":
            rows.append({"kind": f"plug-in ({one.kind.value})", "what": one.name, "source": one.where})
    return rows


def _show(rows: list[dict[str, Any]], *, err: bool) -> None:
    if not rows:
        click.echo("Nothing in this workspace waits for trust.", err=err)
        return
    click.echo("With trust, this becomes active:", err=err)
    for row in rows:
        click.echo(f"  {row['kind']}: {row['what']}  ({row['source']})", err=err)


def _list(begun: Start, as_json: bool) -> None:
    roots = begun.trust.roots()
    if as_json:
        _print_json([{"root": root, "at": at} for root, at in roots.items()])
    else:
        for root, at in roots.items():
            click.echo(f"{root}  (since {at})")
    if begun.trust.problem:
        click.echo(f"peg: {begun.trust.problem}", err=True)


def _report(begun: Start, text: str, as_json: bool, wanted: list[dict[str, Any]] | None = None) -> None:
    root = str(begun.trust.root)
    if as_json:
        _print_json({"root": root, "trusted": begun.trust.trusted(), "would_activate": wanted or []})
    else:
        click.echo(f"{root} {text}")
    if begun.trust.problem:
        click.echo(f"peg: {begun.trust.problem}", err=True)


def _print_json(value: object) -> None:
    import json

    click.echo(json.dumps(value, ensure_ascii=False, indent=2))
