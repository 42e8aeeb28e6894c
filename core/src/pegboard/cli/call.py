"""`peg call`: one tool call, or a stream of them over pipes, through the whole pipeline.

The door for scripts and other programs: the same judging, locking and recording as inside an agent.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from pegboard.cli.options import policy_options

if TYPE_CHECKING:
    from pegboard.call import Call, Outcome
    from pegboard.session import Session

EXIT_TOOL_ERROR, EXIT_REFUSED, EXIT_UNKNOWN = 1, 3, 4
LINE_BYTES = 64 * 1024 * 1024
"""[C] Longest request line. A longer one is answered as invalid, not kept in memory."""

REFUSALS = {
    "denied_by_rule", "denied_by_hook", "denied_by_user", "denied_by_mode", "denied_by_policy",
    "untrusted_source", "no_user",
}  # fmt: skip


@click.command("call")
@click.argument("tool", required=False)
@click.argument("input", required=False, metavar="[JSON]")
@click.option("--jsonl", is_flag=True, help="Read one request a line on stdin, write one result a line on stdout.")
@click.option("--session", "session_id", metavar="ID", help="Keep state between calls under this session id.")
@click.option("--text", is_flag=True, help="Print what the model would read instead of the whole envelope.")
@policy_options
def command(tool: str | None, input: str | None, jsonl: bool, session_id: str | None, text: bool, **flags: Any) -> int:
    """Run TOOL with the JSON input (or - for stdin) and print its result envelope.

    With --jsonl: lines of {"tool","input","id"?}, or {"calls":[...]} for calls of one message.
    Exit code: 0 ok or launched, 1 tool error, 2 usage, 3 refused, 4 unknown outcome.
    """
    from pegboard.errors import UsageError

    if session_id is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", session_id):
        raise UsageError(f"{session_id!r} is no session id: use letters, digits, '.', '_' and '-', at most 64.")
    if jsonl:
        if tool is not None:
            raise UsageError("--jsonl reads its calls from stdin; leave out TOOL and JSON.")
        requests: list[dict[str, Any]] | None = None
    else:
        if tool is None:
            raise UsageError('Name a tool, e.g.: peg call Read \'{"file_path": "README.md"}\', or use --jsonl.')
        raw = sys.stdin.read() if input == "-" else input
        requests = [{"tool": tool, "input": raw if raw is not None else {}, "text": True}]
    import anyio

    return anyio.run(_serve, requests, session_id, text, flags)


async def _serve(
    requests: list[dict[str, Any]] | None, session_id: str | None, text: bool, flags: dict[str, Any]
) -> int:
    import anyio

    from pegboard.cli.start import open_session

    host = None
    if requests is not None and sys.stdin.isatty():
        from pegboard.cli.asking import AtTerminal

        host = AtTerminal.if_any()
    session = open_session(flags, session_id=session_id, host=host)
    code = 0
    stopped = None
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            nonlocal stopped
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for number in signals:
                    from pegboard.errors import Stop

                    stopped = number
                    session.abort(Stop.TERMINATED if number == signal.SIGTERM else Stop.INTERRUPTED)
                    reading.cancel()

        tasks.start_soon(watch)
        with anyio.CancelScope() as reading:
            async with session:
                if requests is not None:
                    code = await _one(session, requests[0], text)
                else:
                    await _stream(session, reading)
        tasks.cancel_scope.cancel()
    return 128 + stopped if stopped is not None else code


async def _one(session: Session, request: dict[str, Any], text: bool) -> int:
    call = _call(request, 0, parse=True)
    outcome = (await session.run_calls([call]))[0]
    sys.stdout.write((outcome.plain() if text else _line(call, outcome)).rstrip("\n") + "\n")
    sys.stdout.flush()
    return exit_code(outcome)


async def _stream(session: Session, reading: Any) -> None:
    import anyio
    import anyio.to_thread

    number = 0
    while session.aborted is None:
        line = await anyio.to_thread.run_sync(sys.stdin.buffer.readline, LINE_BYTES, abandon_on_cancel=True)
        if not line:
            return
        if not line.strip():
            continue
        calls, problem = _requests(line, number)
        number += max(1, len(calls))
        session.halted = ""
        with anyio.CancelScope(shield=True):
            outcomes = await session.run_calls(calls) if problem is None else [problem]
        for call, outcome in zip(calls, outcomes, strict=True):
            sys.stdout.write(_line(call, outcome) + "\n")
            sys.stdout.flush()


def _requests(line: bytes, number: int) -> tuple[list[Call], Outcome | None]:
    """The calls of one request line; a line that is no request gives one empty call and its outcome."""
    from pegboard.call import Call, DecidedBy, Outcome, Status
    from pegboard.errors import Code

    try:
        request = json.loads(line.decode("utf-8"))
        if not isinstance(request, dict):
            raise ValueError("a request is a JSON object")
        if "calls" in request:
            many = request["calls"]
            if not isinstance(many, list) or not many or not all(isinstance(item, dict) for item in many):
                raise ValueError('"calls" must be a list of {"tool", "input"} objects')
            calls = [_call(item, number + index) for index, item in enumerate(many)]
            if len({call.id for call in calls}) != len(calls):
                raise ValueError("two calls of one batch have the same id")
            return calls, None
        return [_call(request, number)], None
    except (ValueError, RecursionError) as error:
        text = (
            f"Line {number + 1} of the input is no request: {error}. Send one JSON object with tool and input a line."
        )
        outcome = Outcome(
            status=Status.NOT_STARTED, code=Code.INVALID_INPUT, text=text, decision=DecidedBy(by="validation")
        )
        return [Call(id=f"line-{number + 1}", tool="", input={})], outcome


def _call(request: dict[str, Any], index: int, *, parse: bool = False) -> Call:
    from pegboard.call import Call

    tool, given, call_id = request.get("tool"), request.get("input", {}), request.get("id", f"call-{index + 1}")
    if not isinstance(tool, str):
        raise ValueError('"tool" must be the name of a tool')
    if not isinstance(call_id, str | int):
        raise ValueError('"id" must be a text')
    if parse and isinstance(given, str):
        with contextlib.suppress(ValueError):  # the pipeline answers broken JSON, and quotes it
            given = json.loads(given)
    return Call(id=str(call_id), tool=tool, input=given, origin="user")


def _line(call: Call, outcome: Outcome) -> str:
    from pegboard.call import json_safe

    return json.dumps(json_safe(outcome.envelope(call)), ensure_ascii=False)


def exit_code(outcome: Outcome) -> int:
    """The exit code that `peg call` promises for an outcome."""
    if outcome.status.value == "unknown":
        return EXIT_UNKNOWN
    if not outcome.is_error:
        return 0
    return EXIT_REFUSED if outcome.code and outcome.code.value in REFUSALS else EXIT_TOOL_ERROR
