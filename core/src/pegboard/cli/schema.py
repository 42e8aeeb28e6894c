"""`peg schema`: the published JSON schemas of everything that pegboard prints as JSON.

Programs that read an output can check it, and a test holds every output against its schema. Readers must take fields
that no schema names: a later version may add some.
"""

from __future__ import annotations

from pathlib import Path

import click

from pegboard.errors import UsageError

FOLDER = "schemas"
"""Where a distribution that prints JSON keeps its schemas, one file each, named after the command."""


@click.command(short_help="Print the published JSON schema of an output.")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(name: str | None, as_json: bool) -> None:
    """Print the JSON schema of output NAME; without NAME, list all of them.

    `stream` is every line of --output-format stream-json, `input` every line of --input-format stream-json, and the
    others are named after their command: tools-list is the schema of peg tools list --json.
    """
    import json

    found = published()
    if name is not None:
        path = found.get(name)
        if path is None:
            raise UsageError(f"There is no schema {name!r}. Schemas: {', '.join(found)}.")
        click.echo(path.read_text("utf-8"), nl=False)
        return
    rows = [{"name": each, "title": json.loads(path.read_text("utf-8"))["title"]} for each, path in found.items()]
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        click.echo(f"{row['name']:<{width}}  {row['title']}")


def published() -> dict[str, Path]:
    """The file of every schema by its name: those of the core, and of each distribution that brings a command."""
    from pegboard.candidate import Kind
    from pegboard.cli.start import start

    folders = [Path(__file__).parent.parent / FOLDER]
    registry = start().registry
    folders += [Path(one.folder) / FOLDER for one in registry.of_kind(Kind.COMMAND) if one.folder]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.json"))}
