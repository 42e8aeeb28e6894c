"""`peg sessions`: list the sessions of a project, show one, print its effect ledger, export or delete it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click


@click.group("sessions")
def command() -> None:
    """Sessions of this project: what was said, what was changed, the way back, clean-up.

    ID may be the beginning of an id, or a name. Where it can be left out, the latest session is meant.
    """


as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")
which = click.argument("id", required=False, default="")


@command.command("list")
@as_json
def list_(json_: bool) -> None:
    """List the sessions of this project, newest first."""
    import time

    from pegboard import sessions

    found = sessions.listing(_places())
    if json_:
        _print_json(found)
        return
    for item in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(item.updated))
        _print(f"{item.id}  {when}  {item.bytes // 1024:>6} KiB  {_clean(item.name or item.prompt)}")
    if not found:
        _print("There is no session in this project yet.")


@command.command("show")
@which
@as_json
def show(id: str, json_: bool) -> None:
    """Show a session: prompts, answers, calls and how they ended."""
    bad: list[int] = []
    for record in _read(_folder(id), bad):
        if json_:
            _print_json(record)
        else:
            for line in _lines(record):
                _print(line)
    _warn(bad)


@command.command("ledger")
@which
@click.option(
    "--since", metavar="WHEN", help="From a prompt's number on, a time (2026-05-01T14:00), or an age (30m, 2h, 1d)."
)
@as_json
def ledger(id: str, since: str | None, json_: bool) -> None:
    """Print what a session changed, who holds it now, what a rewind restores, and what is unknown."""
    from pegboard.account import account, since_prompt, since_time, text_of
    from pegboard.cli.owners import holder_of
    from pegboard.cli.start import start

    bad: list[int] = []
    folder = _folder(id)
    records = _read(folder, bad)
    if since is not None:
        records = since_prompt(records, int(since)) if since.isdecimal() else since_time(records, _moment(since))
    found = account(folder.name, records, holder_of(start().registry.tools()))
    if json_:
        _print_json(found)
    else:
        _print(_clean(text_of(found), keep="\n"))
    _warn(bad)


@command.command("rewind")
@which
@click.option("--to", "prompt", type=click.IntRange(min=0), metavar="N", help="Back to before this prompt.")
@click.option("--last", is_flag=True, help="Back to before the last prompt.")
@click.option("--undo", is_flag=True, help="Take the last rewind back.")
@click.option("--both", "what", flag_value="both", default="both", help="Code and conversation (the default).")
@click.option("--code", "what", flag_value="code", help="What tools changed, not the conversation.")
@click.option("--conversation", "what", flag_value="conversation", help="The conversation, not what tools changed.")
@click.option("--force", is_flag=True, help="Also over what somebody else changed since.")
@click.option("--dry-run", is_flag=True, help="Only show what would happen, with the lines that change.")
@as_json
def rewind(id: str, json_: bool, **options: Any) -> None:
    """Go back to before a prompt: files, conversation, or both. Without --to, --last or --undo, list the prompts.

    What cannot be brought back is named: effects of commands, remote objects, messages, files that others changed.
    """
    from pegboard.cli import rewind as to

    folder = _folder(id)
    if not options["last"] and not options["undo"] and options["prompt"] is None:
        points = to.points(folder)
        if json_:
            _print_json(points)
        for line in () if json_ else to.listed(points):
            _print(_clean(line))
        return
    report = to.run(folder, **options)
    if json_:
        _print_json(report)
    for line in () if json_ else to.told(report):
        _print(_clean(line, keep="\t"))


@command.command("export")
@which
def export(id: str) -> None:
    """Print a session as Markdown."""
    bad: list[int] = []
    for record in _read(_folder(id), bad):
        text = _markdown(record)
        if text:
            _print(text + "\n")
    _warn(bad)


@command.command("delete")
@click.argument("id")
def delete(id: str) -> None:
    """Delete a session and everything stored with it. A session in use is refused."""
    from pegboard.cli.keeping import remove
    from pegboard.errors import Locked

    folder = _folder(id)
    if not remove(folder):
        raise Locked(f"Session {folder.name} is in use by another process; end that one first.")
    click.echo(f"peg: deleted session {folder.name}", err=True)


def _places() -> Any:
    from pegboard.places import find_places

    return find_places()


def _folder(id: str) -> Path:
    from pegboard.sessions import find, latest

    return find(_places(), id) if id else latest(_places())


def _read(folder: Path, bad: list[int]) -> Any:
    from pegboard.lines import FILE_NAME, read

    return read(folder / FILE_NAME, bad)


def _moment(text: str) -> float:
    """Seconds since the epoch of a time or an age. Raises `UsageError`."""
    import datetime
    import re
    import time

    from pegboard.errors import UsageError

    if age := re.fullmatch(r"(\d+)([smhd])", text):
        return time.time() - int(age[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[age[2]]
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise UsageError(
            f"{text!r} is no prompt's number, no time and no age; write 3, 2026-05-01T14:00 or 2h."
        ) from None


def _warn(bad: list[int]) -> None:
    if bad:
        click.echo(f"peg: lines that could not be read: {', '.join(map(str, bad))}", err=True)


def _lines(record: Any) -> list[str]:
    from pegboard import events

    if isinstance(record, events.Started):
        return [f"session {record.session} in {_clean(record.cwd)}, pegboard {record.version}"]
    if isinstance(record, events.UserText):
        who = "user" if record.origin == "human" else f"{record.origin} {record.author}".strip()
        who = f"[{record.prompt}] {who}" if record.prompt else who
        return [f"{who}: {_clean(_plain(record.content))}"]
    if isinstance(record, events.Assistant):
        said = [f"assistant: {_clean(_plain(record.content))}"] if _plain(record.content).strip() else []
        return said + [_call(block) for block in record.content if block.get("type") == "tool_use"]
    if isinstance(record, events.Result):
        code = f" ({record.code})" if record.code else ""
        first = _plain(record.text).split("\n", 1)[0]
        return [f"  result {record.tool}: {record.outcome}{code}: {_clean(first)[:200]}"]
    if isinstance(record, events.Mode):
        return [f"mode: {record.mode} by {record.by}"]
    if isinstance(record, events.Ended):
        return [f"ended: {record.reason} after {record.turns} turns"]
    if isinstance(record, events.Rewound):
        what = " and ".join(filter(None, ("code" * record.code, "conversation" * record.conversation)))
        return [f"rewind of {what} to before [{record.prompt}]" + (" taken back" if record.undo else "")]
    return [f"notice: {_clean(record.text)}"] if isinstance(record, events.Notice) else []


def _call(block: dict[str, Any]) -> str:
    import json

    return f"  call {block.get('name')} {_clean(json.dumps(block.get('input'), ensure_ascii=False))[:200]}"


def _markdown(record: Any) -> str:
    from pegboard import events

    if isinstance(record, events.Started):
        return f"# Session {record.session}"
    if isinstance(record, events.UserText):
        return f"## {'User' if record.origin == 'human' else record.origin}\n\n{_plain(record.content)}"
    if isinstance(record, events.Assistant):
        calls = "\n".join(f"- `{_call(block).strip()}`" for block in record.content if block.get("type") == "tool_use")
        return f"## Assistant\n\n{_plain(record.content)}\n\n{calls}".strip()
    if isinstance(record, events.Result):
        text = _plain(record.text)
        fence = "`" * max(3, *(len(run) + 1 for run in _ticks(text)))
        return f"{record.tool}: {record.outcome}\n\n{fence}\n{text}\n{fence}"
    return ""


def _ticks(text: str) -> list[str]:
    import re

    return re.findall(r"`+", text) or [""]


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] if block.get("type") == "text" else "" for block in content).strip()


def _clean(text: str, keep: str = "") -> str:
    """Text for a terminal: control characters, which could drive it, are shown as escapes."""
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in text
    )


def _print(text: str) -> None:
    sys.stdout.write(text.encode("utf-8", "replace").decode() + "\n")


def _print_json(value: Any) -> None:
    import msgspec

    _print(msgspec.json.encode(value).decode())
