"""`peg agents`: which agents are defined here, and where."""

from __future__ import annotations

import click


@click.group("agents")
def command() -> None:
    """Definitions of agents: who they are, what they may use, where they come from."""


@command.command("list")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def list_(json_: bool) -> None:
    """List the agents that are defined here; problems go to stderr."""
    import msgspec
    from pegboard.cli.start import start

    from pegboard_agents.found import find

    begun = start()
    found = find(begun.places, compat=bool(begun.settings.value("compat.claude")), trusted=begun.trusted)
    if json_:
        shown = [{**msgspec.to_builtins(one), "hidden_by": None} for one in found.agents.values()]
        shown += [{**msgspec.to_builtins(one), "hidden_by": by.path} for one, by in found.hidden]
        click.echo(msgspec.json.encode(shown).decode())
    else:
        for one in sorted(found.agents.values(), key=lambda one: one.name):
            tools = "all tools" if one.tools is None else ", ".join(one.tools) or "no tools"
            click.echo(f"{_plain(one.name):20} {one.scope:8} {_plain(one.description)} ({_plain(tools)})")
        for one, by in found.hidden:
            click.echo(f"{_plain(one.name):20} {one.scope:8} hidden by {_plain(by.path)}: {_plain(one.path)}")
    for problem in found.problems:
        click.echo(f"peg: {_plain(problem)}", err=True)


def _plain(text: str) -> str:
    """Text for a terminal: characters that could drive it are shown as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
