"""`peg policy add` and `peg policy remove`: one rule in one settings file; comments and order of the file stay."""

from __future__ import annotations

import click

from pegboard.errors import UsageError


def run_add(effect: str, text: str, scope: str) -> None:
    """Add a rule. Raises `UsageError` for one that is none, or that the scope may not set."""
    from pegboard.cli.policy_judge import rule_problems
    from pegboard.cli.start import start
    from pegboard.rules import parse_rule
    from pegboard.settings import settings_file
    from pegboard.settings_save import edit_list

    begun = start()
    settings = begun.settings
    path = settings_file(settings.places, scope)
    rule = parse_rule(text, effect=effect, scope=scope, source=str(path))
    for problem in rule_problems([rule], begun.registry):
        raise UsageError(
            f"{text}: {problem.text}{f'; write {problem.fix}' if problem.fix else ''}. Nothing was changed."
        )
    key = f"permissions.{effect}"
    settings.check_settable(key, scope, [rule.text])
    edit_list(path, key, add=[rule.text], personal=scope == "user")
    settings.refresh()
    click.echo(f"{effect} {rule.text}  ({path})")
    for entry in settings.entries(key):
        if entry.source == str(path) and entry.why_not:
            click.echo(f"peg: saved, but it does not count yet: {entry.why_not}.", err=True)


def run_remove(text: str, scope: str) -> None:
    """Remove a rule. Raises `UsageError` when the scope's file does not hold it."""
    from pegboard.cli.start import start
    from pegboard.settings import settings_file
    from pegboard.settings_save import edit_lists

    settings = start().settings
    path = settings_file(settings.places, scope)
    found = [
        key
        for key in ("permissions.deny", "permissions.ask", "permissions.allow")
        for entry in settings.entries(key)
        if entry.source == str(path) and text in (entry.value or ())
    ]
    if not found:
        raise UsageError(f"{path} holds no rule {text}; see: peg policy list")
    edit_lists(path, {key: ((), [text]) for key in found}, personal=scope == "user")
    for key in found:
        click.echo(f"removed {key.rpartition('.')[2]} {text}  ({path})")
