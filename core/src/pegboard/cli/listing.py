"""What the listing commands share: a start whose problems are told, and JSON for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pegboard.cli.start import Start


def begin() -> Start:
    """The start for the current directory; what is wrong with its settings goes to stderr."""
    from pegboard.cli.start import start

    begun = start()
    for problem in begun.settings.problems:
        click.echo(f"peg: {problem}", err=True)
    return begun


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    import json

    click.echo(json.dumps(value, ensure_ascii=False, indent=2))
