"""`peg sessions`: list the sessions of a project, show one, print its effect ledger, export or delete it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pegboard.account import Holder
    from pegboard.loader import Registry


@click.group("sessions")
def command() -> None:
    """Sessions of this project: what was said, what was changed, clean-up.

    ID may be the beginning of an id, or a name.
    """


as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")


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
@click.argument("id")
@as_json
def show(id: str, json_: bool) -> None:
    """Show a session: prompts, answers, calls and how they ended."""
    bad: list[int] = []
    for record in _read(id, bad):
        if json_:
            _print_json(record)
        else:
            for line in _lines(record):
                _print(line)
    _warn(bad)


@command.command("ledger")
@click.argument("id")
@as_json
def ledger(id: str, json_: bool) -> None:
    """Print what a session changed, who holds it now, what a rewind restores, and what is unknown."""
    from pegboard.account import account, text_of
    from pegboard.cli.start import start

    bad: list[int] = []
    folder = _folder(id)
    found = account(folder.name, _read(id, bad), holder_of(start().registry))
    if json_:
        _print_json(found)
    else:
        _print(_clean(text_of(found), keep="\n"))
    _warn(bad)


@command.command("export")
@click.argument("id")
def export(id: str) -> None:
    """Print a session as Markdown."""
    bad: list[int] = []
    for record in _read(id, bad):
        text = _markdown(record)
        if text:
            _print(text + "\n")
    _warn(bad)


@command.command("delete")
@click.argument("id")
def delete(id: str) -> None:
    """Delete a session and everything stored with it. A session in use is refused."""
    import shutil

    from pegboard.transcript import Transcript

    folder = _folder(id)
    Transcript.hold(folder).close()
    shutil.rmtree(folder)
    click.echo(f"peg: deleted session {folder.name}", err=True)


def holder_of(registry: Registry) -> Callable[[str], Holder | None]:
    """Who holds what a tool changes: the first owner of its manifest that can go back, else its first owner."""
    from functools import cache

    from pegboard.account import Holder

    @cache
    def holder(tool: str) -> Holder | None:
        found = registry.tools().get(tool)
        owners = [_holder(name) for name in found.manifest.owners] if found is not None else []
        return next((owner for owner in owners if owner.rewinds), owners[0] if owners else None)

    def _holder(name: str) -> Holder:
        import importlib

        from pegboard.state import Owner

        module, _, cls = name.partition(":")
        try:
            owner = getattr(importlib.import_module(module), cls)
        except Exception:  # an owner that cannot be imported holds nothing that could be brought back
            return Holder(name, False)
        return Holder(name, owner.mark is not Owner.mark)

    return holder


def _places() -> Any:
    from pegboard.places import find_places

    return find_places()


def _folder(id: str) -> Path:
    from pegboard.sessions import find

    return find(_places(), id)


def _read(id: str, bad: list[int]) -> Any:
    from pegboard.transcript import FILE_NAME, read

    return read(_folder(id) / FILE_NAME, bad)


def _warn(bad: list[int]) -> None:
    if bad:
        click.echo(f"peg: lines that could not be read: {', '.join(map(str, bad))}", err=True)


def _lines(record: Any) -> list[str]:
    from pegboard import events

    if isinstance(record, events.Started):
        return [f"session {record.session} in {_clean(record.cwd)}, pegboard {record.version}"]
    if isinstance(record, events.UserText):
        who = "user" if record.origin == "human" else f"{record.origin} {record.author}".strip()
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
