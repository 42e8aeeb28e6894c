"""`peg tour`: a scripted model, over the real wire, repairs a sample project with the real tools.

It shows in half a minute what the product does, with no account and no network.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pegboard.host import Host

if TYPE_CHECKING:
    from pegboard.session import Session

SAMPLE = Path(__file__).resolve().parent.parent / "sample"
PROMPT = "The test of this project fails. Find out why and repair it."
MODEL = "claude-sonnet-5-5"
TEST = "python -B -m unittest -q"
SHOWN_LINES = 6
"""Lines of a result that the tour prints."""


@click.command("tour")
@click.option("--keep", is_flag=True, help="Keep the sample project and its session afterwards.")
def command(keep: bool) -> int:
    """Watch a scripted model find and repair a fault with the real tools, then see what it changed."""
    import anyio

    folder = Path(tempfile.mkdtemp(prefix="pegboard-tour-"))
    try:
        project = folder / "till"
        shutil.copytree(SAMPLE, project, ignore=shutil.ignore_patterns("__pycache__"))
        ended = anyio.run(_tour, folder, project)
    finally:
        if keep:
            _say(f"Kept: {folder} (session data in {folder / 'home'}; use it with PEG_HOME)")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if ended else 1


async def _tour(folder: Path, project: Path) -> bool:
    import os

    from pegboard.agent import Agent, AgentSpec
    from pegboard.cli.start import open_session
    from pegboard.provider import ModelRef
    from pegboard.testing.messages import MessagesService

    _say("The model of this tour is scripted: it answers over the real Messages wire, on this machine.")
    _say("Everything else is real: the tools, the pipeline that judges each call, the files, the ledger.\n")
    _head("A project whose test fails")
    _show_test(project)
    os.environ["PEG_HOME"] = str(folder / "home")
    # The sample's test runs on the interpreter that runs this, whatever "python" is elsewhere on the path.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    host = TourHost(project)
    rules = [f"Edit(/{project}/**)", f"Bash({TEST})"]
    with MessagesService(script(project)) as service:
        environ = {"ANTHROPIC_BASE_URL": service.url, "ANTHROPIC_API_KEY": "tour"}
        session = open_session({"allow": rules}, host=host, cwd=project)
        transcript = session.transcript
        assert transcript is not None
        async with session:
            provider = session.registry.provider(ModelRef(MODEL), session.settings, environ)
            _head(f"The agent, on the prompt: {PROMPT}")
            _say(f"  two rules allow its edits and the test: {'  '.join(rules)}\n")
            result = await Agent(session, provider, AgentSpec(model=MODEL), transcript).run(PROMPT)
            await provider.close()
        refused = [problem for seen in service.requests for problem in seen.problems]
    _say("")
    _head("The same test, after the repair")
    passed = _show_test(project)
    _head("What this session changed")
    _show_ledger(session)
    _say("\nNow with a real model, in a project of yours:")
    _say("  export ANTHROPIC_API_KEY=...   then   peg -p 'what does this project do?'")
    if refused or result.is_error or not passed:
        _say(f"\nThe tour did not end as it should: {'; '.join([*refused, *result.errors]) or 'the test still fails'}.")
        return False
    return True


def script(project: Path) -> list[dict[str, Any]]:
    """The turns of the scripted model: look, try to edit unread (refused), read, edit, test, report."""

    def use(text: str, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}]
        return {"content": [*blocks, *({"type": "tool_use", "name": name, "input": given} for name, given in calls)]}

    config = str(project / "config.toml")
    repair = {"file_path": config, "old_string": "rate_percent = 91", "new_string": "rate_percent = 19"}
    return [
        use("I look at what is here.", ("Glob", {"pattern": "**/*.*"})),
        use(
            "The test and the code it tests.",
            ("Read", {"file_path": str(project / "tests/test_total.py")}),
            ("Read", {"file_path": str(project / "till/total.py")}),
        ),
        use(
            "The rate comes from a setting. Where is it?",
            ("Grep", {"pattern": "rate_percent", "output_mode": "content"}),
        ),
        use("91 percent: two digits were swapped. I repair it at once.", ("Edit", repair)),
        use("Right: I have only seen one line of that file. I read it first.", ("Read", {"file_path": config})),
        use("The comment says nineteen percent. Now the repair.", ("Edit", repair)),
        use("Does the test pass now?", ("Bash", {"command": TEST})),
        {"content": [{"type": "text", "text": "The tax rate in config.toml had its digits swapped; it is 19 again."}]},
    ]


class TourHost(Host):
    """Prints what the model says, what it calls, and how each call ended; paths relative to the project."""

    name = "tour"

    def __init__(self, project: Path) -> None:
        self._prefix = f"{project}/"

    async def show(self, event: Any) -> None:
        from pegboard import events

        if isinstance(event, events.Assistant):
            for block in event.content:
                if block["type"] == "text":
                    _say(click.style("● ", fg="magenta") + block["text"])
        elif isinstance(event, events.Result):
            for line in _result_lines(event):
                _say(line.replace(self._prefix, ""))


def _result_lines(event: Any) -> Iterator[str]:
    colour = "red" if event.is_error else "green"
    target = next(iter((event.input or {}).values()), "")
    verdict = event.outcome + (f" ({event.code})" if event.code else "")
    yield f"  {click.style(event.tool, bold=True)} {_short(str(target))}  {click.style(verdict, fg=colour)}"
    text = event.text if isinstance(event.text, str) else ""
    lines = text.rstrip().split("\n")
    for line in lines[:SHOWN_LINES]:
        yield click.style(f"    {_short(line, 100)}", dim=True)
    if len(lines) > SHOWN_LINES:
        yield click.style(f"    … {len(lines) - SHOWN_LINES} more lines", dim=True)
    for effect in event.effects:
        yield f"    {click.style('changed', fg='yellow')} {effect.kind} {_short(effect.target)}"
    yield ""


def _show_test(project: Path) -> bool:
    """Run the sample's own test and print its last lines; whether it passed."""
    ran = subprocess.run(
        [sys.executable, "-B", "-m", "unittest", "-q"], cwd=project, capture_output=True, text=True, check=False
    )
    for line in [line for line in ran.stderr.splitlines() if line.strip("=- ")][-3:]:
        _say(f"  {_short(line, 100)}")
    _say("  " + (click.style("passes", fg="green") if ran.returncode == 0 else click.style("fails", fg="red")) + "\n")
    return ran.returncode == 0


def _show_ledger(session: Session) -> None:
    from pegboard.account import account, text_of
    from pegboard.cli.owners import holder_of
    from pegboard.transcript import read

    assert session.transcript is not None
    found = account(session.id, read(session.transcript.path), holder_of(session.tools()))
    for line in text_of(found).splitlines():
        _say(f"  {line}")


def _short(text: str, most: int = 70) -> str:
    return text if len(text) <= most else "…" + text[1 - most :]


def _head(text: str) -> None:
    _say(click.style(text, bold=True, underline=True))


def _say(text: str) -> None:
    click.echo(text)
