"""Command-line options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def policy_options(function: F) -> F:
    """Add --allow, --deny, --ask, --permission-mode, --trust and --set: they speak for this run alone."""
    for option in (
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a setting."),
        click.option("--trust", is_flag=True, help="Trust this workspace for this run."),
        click.option(
            "--permission-mode", metavar="MODE", help="default, acceptEdits, plan, dontAsk, bypassPermissions."
        ),
        click.option("--ask", multiple=True, metavar="RULE", help="Add an ask rule."),
        click.option("--deny", multiple=True, metavar="RULE", help="Add a deny rule."),
        click.option("--allow", multiple=True, metavar="RULE", help="Add an allow rule, e.g. 'Edit(src/**)'."),
    ):
        function = option(function)
    return function
