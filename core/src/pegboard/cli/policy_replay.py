"""`peg policy replay`: what the policy of now would have said to the calls of a recorded session.

The transcript holds what was asked for and what became of it, so a changed rule can be tried on real work before it
holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pegboard.cli.policy_judge import Judge, Request

if TYPE_CHECKING:
    from pegboard.events import Result

DENIALS = (
    "denied_by_rule", "denied_by_hook", "denied_by_user", "denied_by_mode", "denied_by_policy", "untrusted_source",
    "no_user",
)  # fmt: skip
"""Codes of calls that were not let through; other calls ran, or never came so far."""


def run_replay(flags: Mapping[str, Any], wanted: str, everything: bool, as_json: bool) -> None:
    """Print each call whose decision would change; with ``everything`` the others too."""
    from pegboard import sessions
    from pegboard.cli.start import flags_of

    judge = Judge(trust=bool(flags.get("trust")), flags=flags_of(flags))
    folder = sessions.find(judge.start(None).places, wanted)
    found = replayed(judge, folder, mode=flags.get("permission_mode"))
    shown = [one for one in found if everything or one["changed"]]
    if as_json:
        import json

        click.echo(json.dumps(shown, ensure_ascii=False, indent=2))
        return
    from pegboard.decision import visible

    for one in shown:
        by = one["now"]["decided_by"]
        source = f" ({by['source']})" if by.get("source") else ""
        click.echo(visible(f"{one['then']} -> {one['now']['verdict']}: {one['tool']} {one['target']}"))
        click.echo(visible(f"    {by['by']}{source}: {by.get('reason', '')}"))
    changed = sum(one["changed"] for one in found)
    click.echo(f"{len(found)} calls, {changed} would be decided otherwise.")


def replayed(judge: Judge, folder: Path, *, mode: str | None = None) -> list[dict[str, Any]]:
    """Every judged call of a session with its decision then and now. ``mode``: instead of the recorded ones."""
    from pegboard import events
    from pegboard.lines import FILE_NAME, read

    logged = _logged(judge.start(None).places.user_dir / "audit", folder.name)
    cwd = here = then_mode = None
    found: list[dict[str, Any]] = []
    for record in read(folder / FILE_NAME):
        if isinstance(record, events.Started):
            cwd = here = record.cwd
        elif isinstance(record, events.Moved):
            here = record.cwd
        elif isinstance(record, events.Mode):
            then_mode = record.mode
        elif isinstance(record, events.Result) and isinstance(record.input, dict):
            then = _then(record, logged.get(record.id))
            if not then:
                continue
            asked = Request(tool=record.tool, input=record.input, mode=mode or then_mode, cwd=cwd, here=here)
            now = judge.explain(asked)
            found.append(
                {
                    "call": record.id,
                    "tool": record.tool,
                    "target": now["segment"] or "",
                    "then": then,
                    "then_by": _by(record),
                    "now": now,
                    "changed": _differs(then, now["verdict"]),
                }
            )
    return found


def _then(record: Result, logged: Mapping[str, Any] | None) -> str:
    """What became of a call: ``allow``, ``ask`` (somebody said yes), ``refused`` (nobody did), or ``deny``.

    Empty where nothing was decided. Only the decision log knows whether a person was asked; without it a call that ran
    counts as allowed.
    """
    if record.code in DENIALS:
        return "refused" if record.code in ("denied_by_user", "no_user") else "deny"
    if record.outcome == "not_started" and (logged is None or logged.get("verdict") != "allow"):
        return ""
    return "ask" if logged is not None and logged.get("asked") else "allow"


def _differs(then: str, now: str) -> bool:
    return now != {"refused": "ask"}.get(then, then)


def _by(record: Result) -> dict[str, Any] | None:
    import msgspec

    found: dict[str, Any] | None = msgspec.to_builtins(record.decision)
    return found


def _logged(folder: Path, session: str) -> dict[str, Mapping[str, Any]]:
    """The records of a session in the decision log, by call."""
    import msgspec

    from pegboard.audit import files

    found: dict[str, Mapping[str, Any]] = {}
    mark = msgspec.json.encode(session)
    for path in files(folder):
        with open(path, "rb") as file:
            for line in file:
                if mark in line:
                    try:
                        record = msgspec.json.decode(line)
                    except (msgspec.DecodeError, UnicodeDecodeError):
                        continue
                    if isinstance(record, dict) and record.get("session") == session:
                        found[str(record.get("id"))] = record
    return found
