"""`peg trust`: show what a workspace would switch on, then trust it, or take trust back.

Trust is asked for with the list in sight, because it is the list that is trusted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pegboard.cli.start import Start
    from pegboard.external import Hook


@click.command(short_help="Trust this workspace, or take trust back.")
@click.argument("path", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--revoke", is_flag=True, help="Take trust back.")
@click.option("--list", "listing", is_flag=True, help="List trusted workspaces.")
@click.option("--yes", is_flag=True, help="Trust without a question.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; changes nothing without --yes or --revoke.")
def command(path: Path | None, revoke: bool, listing: bool, yes: bool, as_json: bool) -> None:
    """Trust the workspace at PATH (default: here): its repository, or outside Git its folder.

    Until then its files cannot allow calls, add directories, run hooks, start servers or load plug-ins. What it denies
    holds anyway. A repository inside a trusted one needs its own trust. Hooks are approved with the scripts behind
    them, as they are now; what changed since is shown, and held until this command approves it again.
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
    known = begun.trust.trusted()
    hooks = list(_hooks(begun))
    wanted = [] if known else _would_activate(begun)
    wanted += [row for _, row in hooks]
    if not as_json and (wanted or not known):
        _show(wanted, err=not yes)
    if (known and not hooks) or (as_json and not yes):
        _report(begun, "is trusted." if known else "is not trusted.", as_json, wanted)
        return
    if not yes:
        from pegboard.errors import UsageError

        if not sys.stdin.isatty():
            raise UsageError(
                f"Nobody can be asked whether to trust {begun.trust.root}; look at the list, then add --yes."
            )
        if not click.confirm("Approve these hooks?" if known else f"Trust {begun.trust.root}?", err=True):
            _report(begun, "is trusted; these hooks stay off." if known else "is not trusted.", as_json)
            return
    if not known:
        begun.trust.give()
    _approve(begun, hooks)
    _report(begun, "is trusted; its hooks are approved." if known else "is trusted now.", as_json, wanted)


def _hooks(begun: Start) -> Iterator[tuple[Hook, dict[str, Any]]]:
    """The hooks that come with the workspace and are not approved as they are now."""
    from pegboard.external import Configured
    from pegboard.external_trust import UNSEEN, compared, content, difference, needs_approval
    from pegboard.settings import Settings

    places, trust = begun.places, begun.trust
    for hook in Configured(Settings.load(places, trusted=True), places).all():
        if hook.why_not or not needs_approval(hook, places, places.root):
            continue
        told = compared(hook, places, trust, places.root)
        if told != "":
            row = {"kind": "hook", "what": hook.name, "source": hook.source, "why": UNSEEN if told is None else told}
            diff = list(difference(hook, places, trust))
            yield hook, {**row, "covers": content(hook, places, places.root), "diff": diff}


def _approve(begun: Start, hooks: list[tuple[Hook, dict[str, Any]]]) -> None:
    from pegboard.errors import UsageError
    from pegboard.external_trust import approve

    for hook, row in hooks:
        try:
            approve(hook, row["covers"], begun.places, begun.trust)
        except OSError as error:
            raise UsageError(f"{hook.name} is not approved: {error.filename}: {error.strerror}.") from None


def _would_activate(begun: Start) -> list[dict[str, Any]]:
    """What the workspace's files ask for: held settings, and plug-ins that lie in the project."""
    from pegboard.settings import Settings

    held = Settings.load(begun.places).held
    rows = [{"kind": one.key, "what": one.shown, "source": one.source} for one in held if one.key != "hooks"]
    for one in begun.registry.candidates:
        if one.origin == "project":
            rows.append({"kind": f"plug-in ({one.kind.value})", "what": one.name, "source": one.where})
    return rows


def _show(rows: list[dict[str, Any]], *, err: bool) -> None:
    from pegboard.decision import visible

    if not rows:
        click.echo("Nothing in this workspace waits for trust.", err=err)
        return
    click.echo("With trust, this becomes active:", err=err)
    for row in rows:
        click.echo(f"  {row['kind']}: {visible(row['what'])}  ({row['source']})", err=err)
        files = [name for name in row.get("covers", ()) if name != "definition"]
        if files:
            click.echo(f"    with {visible(', '.join(files))}", err=err)
        for line in row.get("diff", ()):
            click.echo(f"    {visible(line)}", err=err)


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
