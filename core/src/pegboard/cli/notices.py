"""The host of commands that have nobody to ask: what a person should know goes to stderr."""

from __future__ import annotations

import click

from pegboard.host import Host


class Notices(Host):
    """Answers no question and shows notices."""

    name = "notices"

    async def notify(self, text: str, kind: str = "info") -> None:
        click.echo(f"peg: {text}", err=True)
