"""What the tasks owner hears of a session: its resumption. And the command `peg tasks`.

Imported at every start, so it imports nothing itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegboard.hooks import hook

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click
    from pegboard.hooks import Fragment
    from pegboard.session import Session


@hook
async def peg_session_start(session: Session, kind: str) -> Iterable[Fragment] | None:
    """Close what an earlier process of this session left running, and tell of it once."""
    if kind == "resume":
        from pegboard_tasks.runs import Runs

        runs = await session.owners.get(Runs, session.place("main"))
        await runs.settle(sweep=True)
    return None


@hook
def peg_commands(cli: click.Group) -> None:
    from pegboard_tasks.cli import command

    cli.add_command(command)
