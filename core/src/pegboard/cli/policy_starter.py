"""`peg policy starter`: a policy to start with, printed as it is or added to the rules that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


def run_starter(scope: str | None, as_json: bool) -> None:
    """Print the policy, or add it to a scope's settings file; what is there stays."""
    from pegboard.settings_files import parse_toml

    text = (Path(__file__).parents[1] / "starter.toml").read_text("utf-8")
    permissions: dict[str, list[Any]] = parse_toml(text)["permissions"]
    if scope is not None:
        _write(scope, text, permissions)
    elif as_json:
        import json

        click.echo(json.dumps({"permissions": permissions}, ensure_ascii=False, indent=2))
    else:
        click.echo(text, nl=False)


def _write(scope: str, text: str, permissions: dict[str, list[Any]]) -> None:
    from pegboard import atomic
    from pegboard.cli.start import start
    from pegboard.settings import settings_file
    from pegboard.settings_save import edit_lists

    settings = start().settings
    path = settings_file(settings.places, scope)
    personal = scope == "user"
    for effect, rules in permissions.items():
        settings.check_settable(f"permissions.{effect}", scope, [_text(rule) for rule in rules])
    if not path.exists() and not path.is_symlink():
        path.parent.mkdir(mode=0o700 if personal else 0o755, parents=True, exist_ok=True)
        with atomic.locked(path):
            if not path.exists():
                atomic.replace(path, text.encode(), mode=0o600 if personal else 0o644)
    lists = {f"permissions.{effect}": ([_text(rule) for rule in rules], ()) for effect, rules in permissions.items()}
    edit_lists(path, lists, personal=personal)
    settings.refresh()
    click.echo(f"The starter policy is in {path}; see: peg policy can")
    waiting = [one for one in settings.held if one.source == str(path)]
    if waiting:
        click.echo(f"peg: {len(waiting)} of its rules wait until this workspace is trusted: peg trust", err=True)


def _text(rule: Any) -> str:
    return str(rule["rule"]) if isinstance(rule, dict) else str(rule)
