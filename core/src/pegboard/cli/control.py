"""What the program at the other end of the control channel may ask for.

It is the program that started this run, so it may do what its user may do: change the mode, interrupt, rewind files.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from pegboard import __version__
from pegboard.errors import Stop, UsageError

if TYPE_CHECKING:
    from pegboard.agent import Agent
    from pegboard.cli.channel import JSONObject
    from pegboard.cli.rewinding import Report

RUNS = "pegboard_tasks.runs:Runs"
"""The owner of background tasks, if its package is installed."""


class Standing(Protocol):
    """The conversation that a request is about."""

    agent: Agent
    prompts: dict[str, int]
    """Id of a message -> number of the prompt that it was part of."""

    @property
    def busy(self) -> bool:
        """Whether a prompt is being worked on."""
        ...


async def handle(request: JSONObject, now: Standing) -> JSONObject:
    """Do what a request asks for; its answer. Raises `PegError` with the reason why not."""
    subtype = str(request.get("subtype"))
    done = HANDLED.get(subtype)
    if done is None:
        raise UsageError(f"There is no request {subtype!r} here; there are {', '.join(HANDLED)}.")
    return await done(request, now)


def takes_time(request: JSONObject) -> bool:
    """Whether others need not wait until a request is done."""
    return request.get("subtype") == "stop_task"


async def _initialize(request: JSONObject, now: Standing) -> JSONObject:
    unmet = sorted(key for key, value in request.items() if value and key != "subtype")
    if unmet:
        raise UsageError(
            f"This run cannot take {', '.join(unmet)} over the control channel; hooks and servers are set in settings, "
            "everything else on the command line."
        )
    session = now.agent.session
    from pegboard.candidate import Kind

    return {
        "commands": [],
        "agents": [{"name": one.name} for one in session.registry.of_kind(Kind.AGENT)],
        "models": [{"value": now.agent.spec.model, "displayName": now.agent.spec.model}],
        "output_style": "default",
        "available_output_styles": ["default"],
        "account": {},
        "session_id": session.id,
        "version": __version__,
        "requests": list(HANDLED),
        "pid": os.getpid(),
    }


async def _interrupt(request: JSONObject, now: Standing) -> JSONObject:
    if now.busy:
        now.agent.session.abort(Stop.INTERRUPTED)
    return {}


async def _set_mode(request: JSONObject, now: Standing) -> JSONObject:
    from pegboard.policy import Mode, judge_mode_change

    session = now.agent.session
    mode = Mode.parse(str(request.get("mode")))
    decision = judge_mode_change(mode, session.snapshot(), os.geteuid() == 0)
    if decision.verdict == "deny":
        raise UsageError(f"The mode stays {session.mode}: {decision.decided_by.reason}.")
    session.set_mode(mode, "control channel")
    return {"mode": mode.value}


async def _rewind(request: JSONObject, now: Standing) -> JSONObject:
    from pegboard.cli.rewinding import go_back

    if now.busy:
        raise UsageError("A prompt is being worked on; files can be rewound between two prompts.")
    agent, dry_run = now.agent, request.get("dry_run") is True
    report = await go_back(
        agent.session, agent.transcript, _prompt(request, now), code=True, conversation=False, dry_run=dry_run
    )
    if not dry_run:
        agent.reread()
    return _told(report)


def _prompt(request: JSONObject, now: Standing) -> int:
    """The prompt before which files are wanted: by its number, or by the id of its message."""
    number, name = request.get("prompt"), request.get("user_message_id")
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    if isinstance(name, str) and name in now.prompts:
        return now.prompts[name]
    raise UsageError("Name a message of this run by its uuid as user_message_id, or a prompt by its number as prompt.")


def _told(report: Report) -> JSONObject:
    lines = [line for item in report.restored for line in item.diff.splitlines()]
    return {
        "canRewind": True,
        "filesChanged": [item.target for item in report.restored],
        "insertions": sum(line.startswith("+") and not line.startswith("+++") for line in lines),
        "deletions": sum(line.startswith("-") and not line.startswith("---") for line in lines),
        "kept": {item.target: item.reason for item in report.kept},
        "stays": [{"tool": item.tool, "kind": item.kind, "target": item.target} for item in report.stays],
        "dry_run": report.dry_run,
    }


async def _server(request: JSONObject, now: Standing) -> JSONObject:
    name = request.get("serverName") or request.get("server_name")
    raise UsageError(f"There is no server named {name!r} in this session.")


async def _stop_task(request: JSONObject, now: Standing) -> JSONObject:
    name = str(request.get("task_id"))
    runs: Any = now.agent.session.owners.named().get(RUNS)
    found = await runs.stop(name, "it was stopped over the control channel") if runs is not None else None
    if found is None:
        raise UsageError(f"There is no background task {name!r} in this session.")
    return {"task_id": name, "status": found.status}


HANDLED: dict[str, Callable[[JSONObject, Standing], Awaitable[JSONObject]]] = {
    "initialize": _initialize,
    "interrupt": _interrupt,
    "set_permission_mode": _set_mode,
    "rewind_files": _rewind,
    "mcp_reconnect": _server,
    "mcp_toggle": _server,
    "stop_task": _stop_task,
}
"""Requests that are understood."""
