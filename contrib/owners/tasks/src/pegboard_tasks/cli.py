"""`peg tasks`: the background runs of a session, their output, and how to stop one from outside."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pegboard_tasks.runs import Run

OUTPUT_BYTES = 32_000


@click.group("tasks")
def command() -> None:
    """Background tasks of a session: commands, agents, workflows."""


session = click.option("--session", "session_id", metavar="ID", help="Session; default is the latest of this project.")


@command.command("list")
@session
@click.option("--json", "json_", is_flag=True, help="Print JSON, one task a line.")
def list_(session_id: str | None, json_: bool) -> None:
    """List the tasks of a session, oldest first."""
    import msgspec

    _, runs = _runs(session_id)
    for run in runs:
        if json_:
            _print(msgspec.json.encode(run).decode())
            continue
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started))
        code = f" ({run.exit_code})" if run.exit_code is not None else ""
        _print(f"{run.id}  {when}  {run.kind:<8}  {run.status}{code}  {_clean(run.description)[:100]}")
    if not runs and not json_:
        _print("There was no background task in this session.")


@command.command("output")
@click.argument("id")
@session
@click.option("--all", "whole", is_flag=True, help="All of it, not only the last 32,000 bytes.")
def output(id: str, session_id: str | None, whole: bool) -> None:
    """Print the output of task ID."""
    from pegboard.errors import UsageError

    run = _find(id, session_id)
    try:
        with open(run.output, "rb") as file:
            if not whole:
                size = file.seek(0, 2)
                file.seek(max(0, size - OUTPUT_BYTES))
            while data := file.read(1 << 16):
                _print(data.decode("utf-8", "replace"), end="")
    except OSError as error:
        raise UsageError(f"The output of {id} cannot be read ({run.output}): {error.strerror or error}.") from None


@command.command("stop")
@click.argument("id")
@session
def stop(id: str, session_id: str | None) -> None:
    """Stop a running command from outside its session; the session then sees it end by a signal."""
    import anyio
    from pegboard.errors import UsageError

    from pegboard_tasks import trees
    from pegboard_tasks.runs import GRACE

    run = _find(id, session_id)
    if not run.running:
        raise UsageError(f"{id} does not run any more; it {run.status}.")
    if not run.mark:
        raise UsageError(f"{id} is no command of its own processes; stop it in its session.")
    ended = anyio.run(trees.Tree(run.mark).end, GRACE)
    click.echo(f"peg: ended {len(ended)} process(es) of {id}", err=True)


def _find(id: str, session_id: str | None) -> Run:
    from pegboard.errors import UsageError

    name, runs = _runs(session_id)
    found = [run for run in runs if run.id == id]
    if not found:
        known = ", ".join(run.id for run in runs[-10:]) or "none"
        raise UsageError(f"Session {name} has no background task {id!r}; it has: {known}.")
    return found[0]


def _runs(session_id: str | None) -> tuple[str, list[Run]]:
    from pegboard import events, sessions
    from pegboard.errors import UsageError
    from pegboard.places import find_places
    from pegboard.transcript import FILE_NAME, read

    from pegboard_tasks.runs import state_of

    places = find_places()
    folder: Path | None = sessions.find(places, session_id) if session_id else sessions.latest(places)
    if folder is None:
        raise UsageError("There is no session in this project yet.")
    states = [record.owners for record in read(folder / FILE_NAME) if isinstance(record, events.State)]
    return folder.name, state_of(states)


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _print(text: str, end: str = "\n") -> None:
    sys.stdout.write(text.encode("utf-8", "replace").decode() + end)
