"""The command `peg`: a click group whose sub-commands are modules, imported only when they are called."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, NoReturn

import click

COMMANDS = {
    "audit": "Check and show the log of decisions.",
    "call": "Run one tool call, or a stream of them, through the whole pipeline.",
    "cost": "Show what sessions have used, by model, tool and agent.",
    "doctor": "Check engines, settings, trust and plug-ins, and say what is wrong.",
    "import": "Bring over settings, hooks and instructions of other tools.",
    "plugins": "List, explain, make and check plug-ins.",
    "policy": "List, explain, test and replay the rules that decide about calls.",
    "schema": "Print the published JSON schema of an output.",
    "sandbox": "Show which sandbox processes get here, and why no better one.",
    "sessions": "List sessions, show one, and print its effect ledger.",
    "settings": "Read, explain and change settings.",
    "tools": "List tools, switch them on and off, and explain their state.",
    "tour": "Watch a scripted agent repair a sample project with the real tools.",
    "trust": "Trust this workspace, or take trust back.",
}
"""Sub-commands of the core: name -> one line. Each is the module of its name in this package."""


class Lazy(click.Group):
    """A group that imports a sub-command's module only when it runs, and asks plug-ins only for unknown names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let -p stand alone, where the next word is an option or nothing: the prompt comes from elsewhere."""
        known = {name for one in self.get_params(ctx) for name in one.opts}
        for place, word in enumerate(args):
            if word in COMMANDS:
                break
            if word in ("-p", "--print"):
                if place + 1 == len(args) or args[place + 1].partition("=")[0] in known:
                    args = [*args[: place + 1], "", *args[place + 1 :]]
                break
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            import importlib

            module = "import_" if name == "import" else name
            found: click.Command = importlib.import_module(f"pegboard.cli.{module}").command
            return found
        return _plugin_command(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted({**_brought(), **COMMANDS}.items()))


def _brought() -> dict[str, str]:
    """Sub-commands that plug-ins bring by entry points, with where they come from; nothing is imported."""
    from pegboard.candidate import Kind
    from pegboard.cli.start import start

    return {one.name: f"From {one.distribution or one.where}." for one in start().registry.of_kind(Kind.COMMAND)}


def _plugin_command(name: str) -> click.Command | None:
    """A sub-command that an approved plug-in brings: by an entry point of its name, or through `peg_commands`."""
    from pegboard.candidate import Kind
    from pegboard.cli.start import start

    registry = start().registry
    for one in registry.of_kind(Kind.COMMAND):
        if one.name == name:
            found: click.Command = registry.load(one)
            return found
    group = click.Group("peg")
    registry.manager.hook.peg_commands(cli=group)
    return group.commands.get(name)


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from pegboard import __version__

        click.echo(f"pegboard {__version__}")
        ctx.exit()


@click.group(
    cls=Lazy,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("-p", "--print", "prompt", metavar="PROMPT", help="Run headless on this prompt and print the answer.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "stream-json"]),
    default="text",
    show_default=True,
    help="What stdout carries: the answer, one object, or one object a line as it happens.",
)
@click.option(
    "--input-format",
    type=click.Choice(["text", "stream-json"]),
    default="text",
    show_default=True,
    help="What stdin carries: text behind the prompt, or messages and control requests, one object a line.",
)
@click.option(
    "--permission-prompt-tool", metavar="TOOL", help="Who answers permission questions: stdio, or the name of a tool."
)
@click.option("--json-schema", metavar="SCHEMA", help="Shape of the answer: a JSON schema, or the file with one.")
@click.option(
    "--bare", is_flag=True, help="Only what is bundled: no plug-ins, hooks, instructions or project settings."
)
@click.option("--model", help="Model to use, e.g. claude-sonnet-5.")
@click.option("--permission-mode", metavar="MODE", help="default, acceptEdits, plan, dontAsk or bypassPermissions.")
@click.option("--allow", multiple=True, metavar="RULE", help="Add an allow rule, e.g. 'Edit(src/**)'. Repeatable.")
@click.option("--deny", multiple=True, metavar="RULE", help="Add a deny rule. Repeatable.")
@click.option("--ask", multiple=True, metavar="RULE", help="Add an ask rule. Repeatable.")
@click.option("--max-turns", type=click.IntRange(min=1), help="Stop after this many model turns.")
@click.option("--max-budget-usd", type=click.FloatRange(min=0), help="Stop before spending more than this.")
@click.option("--resume", metavar="ID", help="Go on with this session: its id, the beginning of it, or its name.")
@click.option("-c", "--continue", "latest", is_flag=True, help="Go on with the latest session of this project.")
@click.option("--fork", is_flag=True, help="With --resume or --continue: go on in a copy; the original stays as it is.")
@click.option("--name", default="", help="Name of the new session, to find it by.")
@click.option("--trust", is_flag=True, help="Trust this workspace for this run.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a setting. Repeatable.")
@click.option("--include-partial-messages", "partial", is_flag=True, help="stream-json: also print text as it streams.")
@click.option("--verbose", is_flag=True, help="More notices on stderr.")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
@click.pass_context
def peg(ctx: click.Context, /, **options: Any) -> None:
    """A coding agent made of plug-ins. Every call is judged, locked, run and recorded by one pipeline.

    peg -p "fix the failing test" runs it without a terminal UI; peg tour shows it on a sample project.
    """
    if ctx.invoked_subcommand is not None:
        return
    if options["prompt"] is None:
        click.echo(ctx.get_help())
        raise SystemExit(0 if len(sys.argv) == 1 else 2)
    from pegboard.cli.run import run_headless

    _leave(run_headless(**options))


def main() -> NoReturn:
    """Entry point of the command. Exit codes: 0 ok, 1 failed, 2 usage, 3 refused, 4 unknown, 130 and 143 signals."""
    _open_streams()
    try:
        code = peg.main(standalone_mode=False)
        _leave(code if isinstance(code, int) else 0)
    except SystemExit as exit_:
        _leave(exit_.code if isinstance(exit_.code, int) else 1)
    except BaseException as error:
        _leave(_told(_sole(error)))


def _open_streams() -> None:
    """Give closed standard streams an end: else the next file that is opened would become stdout."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                os.fstat(number)
                continue
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is the closed one
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
            if name == "stdout":
                _LOST.append(name)


_LOST: list[str] = []
"""Standard streams that were closed at the start: what goes there is lost, so the exit code cannot be 0."""


def _sole(error: BaseException) -> BaseException:
    """The one error inside nested groups; a group of several as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _told(error: BaseException) -> int:
    """Say on stderr what ended the command; returns the exit code."""
    from pegboard.errors import PegError, PolicyError, UsageError

    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return 130
    if isinstance(error, BrokenPipeError):
        return 0
    if isinstance(error, PegError):
        click.echo(f"peg: {error}", err=True)
        return 2 if isinstance(error, UsageError | PolicyError) else 1
    if os.environ.get("PEG_DEBUG"):
        import traceback

        traceback.print_exception(error)
    said = " ".join(str(error).split()) or "no message"
    click.echo(f"peg: an unexpected fault ({type(error).__name__}: {said}). PEG_DEBUG=1 shows where.", err=True)
    return 1


def _leave(code: int) -> NoReturn:
    """Flush and go: interpreter teardown takes longer than most commands."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if _LOST and not code:
        click.echo("peg: stdout is closed, so the result went nowhere.", err=True)
        code = 1
    os._exit(code)
