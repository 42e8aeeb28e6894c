"""`peg settings`: read a value, say where it comes from and what it shadows, change one and keep every comment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pegboard.settings import Entry, Explanation, Settings

SCOPES = ("user", "project", "local")


@click.group(short_help="Read, explain and change settings.")
def command() -> None:
    """Read, explain and change settings.

    A value comes from the highest of these scopes that sets it: managed policy, command line, local
    (.peg/settings.local.toml), project (.peg/settings.toml), user (~/.peg/settings.toml), built-in.
    """


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--all", "everything", is_flag=True, help="Also settings that no scope sets.")
def list_(as_json: bool, everything: bool) -> None:
    """List the settings that are set here, each with its value and where it comes from."""
    settings = _settings()
    found = [settings.explain(key) for key in settings.names()]
    rows = [one for one in found if everything or one.used or one.passed]
    if as_json:
        _print_json([_brief(one) for one in rows])
        return
    for one in rows:
        click.echo(f"{one.key} = {_shown(one.value)}  ({_origin(one)})")


@command.command()
@click.argument("key")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def get(key: str, as_json: bool) -> None:
    """Print the value of KEY: a text as it is, everything else as JSON."""
    found = _settings().explain(key)
    if as_json:
        _print_json(_brief(found))
    else:
        click.echo(found.value if isinstance(found.value, str) else _shown(found.value))


@command.command()
@click.argument("key")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(key: str, as_json: bool) -> None:
    """Say what KEY is, its value, the file and line it comes from, and what it shadows."""
    settings = _settings()
    found = settings.explain(key)
    if as_json:
        declared = settings.key(key)
        _print_json(
            {
                **_brief(found),
                "summary": found.summary,
                "type": declared.kind,
                "default": declared.unset(),
                "locked_by": found.locked_by or None,
                "used": [_row(entry) for entry in found.used],
                "passed": [_row(entry) for entry in found.passed],
            }
        )
        return
    click.echo(f"{key} = {_shown(found.value)}")
    click.echo(f"  {found.summary}")
    if found.locked_by:
        click.echo(f"  locked by {found.locked_by}")
    for entry in found.used:
        click.echo(f"  from {entry.scope}: {_place(entry)}: {_shown(entry.value)}")
    if not found.used:
        click.echo("  from built-in")
    for entry in found.passed:
        why = entry.why_not or "a higher scope sets it"
        click.echo(f"  shadowed {entry.scope}: {_place(entry)}: {_shown(entry.value)} ({why})")


@command.command("set")
@click.argument("key")
@click.argument("value")
@click.option("--scope", type=click.Choice(SCOPES), default="user", show_default=True, help="Whose settings to change.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def set_(key: str, value: str, scope: str, as_json: bool) -> None:
    """Set KEY to VALUE, a TOML value or a plain text, in the user's, the project's or the local settings file."""
    from pegboard.settings import settings_file
    from pegboard.settings_keys import parse_as
    from pegboard.settings_save import save_value

    settings = _settings()
    typed = parse_as(settings.key(key), key, value)
    settings.check_settable(key, scope, typed)
    path = settings_file(settings.places, scope)
    save_value(path, key, typed, personal=scope == "user")
    settings.refresh()
    found = settings.explain(key)
    if as_json:
        _print_json({**_brief(found), "saved": str(path)})
    else:
        click.echo(f"{key} = {_shown(typed)}  ({path})")
    ours = [entry for entry in (*found.used, *found.passed) if entry.source == str(path)]
    for entry in ours:
        if entry in found.passed:
            why = entry.why_not or f"{found.used[0].scope} settings ({_place(found.used[0])}) decide"
            click.echo(f"peg: saved, but not in force here: {why}.", err=True)


def _settings() -> Settings:
    """The settings of this directory; everything that is wrong with them goes to stderr."""
    from pegboard.cli.start import start

    settings = start().settings
    for problem in settings.problems:
        click.echo(f"peg: {problem}", err=True)
    return settings


def _brief(found: Explanation) -> dict[str, Any]:
    first = found.used[0] if found.used else None
    return {
        "key": found.key,
        "value": found.value,
        "scope": first.scope if first else "builtin",
        "source": first.source if first else None,
        "line": first.line if first else None,
    }


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "scope": entry.scope,
        "source": entry.source,
        "line": entry.line,
        "value": entry.value,
        "why_not": entry.why_not or None,
    }


def _origin(found: Explanation) -> str:
    return ", ".join(f"{entry.scope} {_place(entry)}" for entry in found.used) or "built-in"


def _place(entry: Entry) -> str:
    return f"{entry.source}:{entry.line}" if entry.line else entry.source


def _shown(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, default=str)


def _print_json(value: object) -> None:
    import json

    click.echo(json.dumps(value, ensure_ascii=False, indent=2, default=str))
