"""`peg policy explain`: one call, or a stream of them, judged and explained without being run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from pegboard.cli.policy_judge import Judge, Request
from pegboard.errors import PegError, UsageError


def run_explain(
    flags: Mapping[str, Any], tool: str | None, given: str | None, jsonl: bool, cwd: Path | None, as_json: bool
) -> None:
    """Explain one call on stdout, or answer stdin line by line."""
    from pegboard.cli.start import flags_of

    judge = Judge(trust=bool(flags.get("trust")), flags=flags_of(flags))
    if jsonl:
        if tool is not None:
            raise UsageError("--jsonl reads its calls from stdin; leave out TOOL and JSON.")
        stream(judge, str(cwd) if cwd else None)
        return
    if tool is None:
        raise UsageError('Name a tool, e.g.: peg policy explain Read \'{"file_path": ".env"}\', or use --jsonl.')
    try:
        values = json.loads(sys.stdin.read() if given == "-" else given or "{}")
    except ValueError as error:
        raise UsageError(f"The input of {tool} is not valid JSON: {error}.") from None
    if not isinstance(values, dict):
        raise UsageError(f"The input of {tool} must be a JSON object.")
    told = judge.explain(Request(tool=tool, input=values, cwd=str(cwd) if cwd else None))
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False, indent=2))
    else:
        for line in in_words(told):
            click.echo(line)


def stream(judge: Judge, cwd: str | None) -> None:
    """Answer each request line with one verdict line, flushed at once. A line that is no request is denied."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        if not line.strip():
            continue
        try:
            request = msgspec.json.decode(line, type=Request)
            if request.cwd is None and cwd is not None:
                request = msgspec.structs.replace(request, cwd=cwd)
            told = judge.explain(request)
        except (PegError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            reason = f"Line {number} of the input cannot be judged: {error}"
            told = {"verdict": "deny", "decided_by": {"by": "validation", "reason": reason}, "error": reason}
        sys.stdout.write(json.dumps(told, ensure_ascii=True) + "\n")
        sys.stdout.flush()


def in_words(told: Mapping[str, Any]) -> list[str]:
    """An explanation for people: the verdict, who decided, each thing the call touches, and what lost."""
    from pegboard.decision import visible

    by = told["decided_by"]
    source = f" ({by['source']})" if by.get("source") else ""
    lines = [f"{told['verdict']}: {told['tool']}, decided by {by['by']}{source}: {by.get('reason', '')}"]
    if told["rule"]:
        lines.append(f"  rule     {_rule(told['rule'])}")
    for one in told["accesses"]:
        if one["target"] is not None:
            reason = one["decided_by"].get("reason", "")
            lines.append(f"  {one['verdict']:5}    {one['kind']} {one['target']}: {reason}")
            moved = [name for name in one["names"] if name != one["target"]]
            lines += [f"           also known as {name}" for name in moved]
    lines += [f"  lost     {_rule(rule)}" for rule in told["losers"]]
    lines += [f"  void     {_rule(rule)}" for rule in told.get("void", ())]
    if told["verdict"] == "ask":
        lines.append("  headless this is a refusal")
        for text in told.get("would_save", {}).get("always", ()):
            lines.append(f"  a yes for always would save: allow {text}")
    lines += [f"  note     {text}" for text in told["problems"]]
    return [visible(line) for line in lines]


def _rule(rule: Mapping[str, Any]) -> str:
    place = f"{rule['file']}:{rule['line']}" if rule["line"] else rule["file"] or rule["scope"]
    return f"{rule['effect']} {rule['rule']}  ({rule['scope']}, {place})"
