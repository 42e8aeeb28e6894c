"""The headless output formats as data: what each event and the end of a run look like as JSON.

Pure functions, so that every format can be tested without a run. Readers ignore types and keys they do not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pegboard import events
from pegboard.errors import Stop
from pegboard.history import result_block, user_blocks

if TYPE_CHECKING:
    from pegboard.agent import RunResult
    from pegboard.session import Session
    from pegboard.spending import Spending

Form = Literal["text", "json", "stream-json"]
JSONObject = dict[str, Any]

FORMAT = 1
"""Version of the JSON formats; in the first line and in the result."""

CAPABILITIES = (
    "outcome", "api_retry", "hook_response", "permission_denied", "stream_event", "control_request", "tool_deferred",
    "structured_output",
)  # fmt: skip

DENIALS = frozenset(
    {
        "denied_by_rule",
        "denied_by_hook",
        "denied_by_user",
        "denied_by_mode",
        "denied_by_policy",
        "untrusted_source",
        "no_user",
    }
)
"""Codes of results that count as permission denials."""

_SUBTYPES = {Stop.MAX_TURNS: "error_max_turns", Stop.BUDGET: "error_max_budget_usd"}


def init(session: Session, model: str) -> JSONObject:
    """The first line of a stream: what is here, and what could not be loaded."""
    from pegboard import __version__
    from pegboard.candidate import Kind
    from pegboard.loader import State

    registry = session.registry
    names: dict[Kind, list[str]] = {kind: [] for kind in Kind}
    plugins: dict[str, str] = {}
    faults: list[JSONObject] = []
    for candidate in registry.candidates:
        standing = registry.standing(candidate)
        if standing.state is State.BROKEN:
            faults.append({"name": candidate.name, "kind": candidate.kind, "error": standing.reason})
        elif standing.state is State.ACTIVE:
            names[candidate.kind].append(candidate.name)
            if candidate.distribution:
                plugins[candidate.distribution] = candidate.version
    return {
        "type": "system",
        "subtype": "init",
        "format": FORMAT,
        "session_id": session.id,
        "cwd": str(session.cwd),
        "model": model,
        "permissionMode": session.mode.value,
        "tools": [spec.name for spec in session.tool_specs()],
        "mcp_servers": [{"name": name, "status": "pending"} for name in names[Kind.SERVER]],
        "agents": names[Kind.AGENT],
        "skills": names[Kind.SKILL],
        "plugins": [{"name": name, "version": version} for name, version in sorted(plugins.items())],
        "errors": faults,
        "version": __version__,
        "capabilities": list(CAPABILITIES),
    }


def lines(event: events.Event, session_id: str, *, partial: bool = False) -> list[JSONObject]:
    """The stream lines of one event; empty for what the stream does not carry."""
    if isinstance(event, events.Assistant):
        return [_from("assistant", _message(event), session_id)]
    if isinstance(event, events.Result):
        return [_result(event, session_id), *_denial_line(event, session_id)]
    if isinstance(event, events.UserText) and event.origin not in ("human", "unclassified"):
        line = _from("user", {"role": "user", "content": user_blocks(event)}, session_id)
        return [{**line, "origin": event.origin, "author": event.author}]
    if isinstance(event, events.Delta) and partial:
        kind = "text_delta" if event.kind == "text" else "thinking_delta"
        delta = {"type": kind, event.kind: event.text}
        given = {"type": "content_block_delta", "index": event.index, "delta": delta}
        return [{"type": "stream_event", "event": given, "parent_tool_use_id": None, "session_id": session_id}]
    if isinstance(event, events.Retry):
        return [_retry(event, session_id)]
    if isinstance(event, events.HookRan):
        return [_hook(event, session_id)]
    if isinstance(event, events.Compacted):
        done = {"trigger": event.trigger, "pre_tokens": event.before}
        return [_system("compact_boundary", session_id, compact_metadata=done)]
    if isinstance(event, events.Notice):
        return [_system("notice", session_id, text=event.text, kind=event.kind)]
    said = event.line()
    return [{"type": "system", **said, "session_id": session_id}] if said else []


def result(
    run: RunResult, spending: Spending, session_id: str, denials: list[events.Result], seconds: float
) -> JSONObject:
    """The last line of a stream and the one object of the ``json`` format. ``seconds`` is the whole wall time."""
    subtype = "error_during_execution" if run.is_error else "success"
    if run.stopped is not None:
        subtype = _SUBTYPES.get(run.stopped, subtype)
    ended: JSONObject = {
        "type": "result",
        "subtype": subtype,
        "format": FORMAT,
        "is_error": run.is_error,
        "result": run.text,
        "session_id": session_id,
        "num_turns": run.turns,
        "duration_ms": round(seconds * 1000),
        "duration_api_ms": round(spending.api_seconds * 1000),
        "total_cost_usd": spending.cost,
        "usage": msgspec.to_builtins(spending.usage),
        "modelUsage": {model: _model_usage(spending, model) for model in spending.models},
        "permission_denials": [_denial(event) for event in denials],
        "stop_reason": run.stop_reason or None,
        "terminal_reason": run.stopped.value if run.stopped else "provider_error" if run.is_error else "completed",
    }
    if run.errors:
        ended["errors"] = run.errors
    if run.deferred is not None:
        ended["stop_reason"] = run.stopped
        ended["deferred_tool_use"] = {"id": run.deferred.id, "name": run.deferred.tool, "input": run.deferred.input}
    return ended


def is_denial(event: events.Event) -> bool:
    """Whether this is the result of a call that was not permitted."""
    return isinstance(event, events.Result) and event.code in DENIALS


def _from(kind: str, message: JSONObject, session_id: str) -> JSONObject:
    return {"type": kind, "message": message, "parent_tool_use_id": None, "session_id": session_id}


def _system(subtype: str, session_id: str, **fields: Any) -> JSONObject:
    return {"type": "system", "subtype": subtype, "session_id": session_id, **fields}


def _message(event: events.Assistant) -> JSONObject:
    return {
        "id": event.id,
        "type": "message",
        "role": "assistant",
        "model": event.model,
        "content": event.content,
        "stop_reason": event.stop_reason,
        "stop_sequence": None,
        "usage": msgspec.to_builtins(event.usage),
    }


def _result(event: events.Result, session_id: str) -> JSONObject:
    line = _from("user", {"role": "user", "content": [result_block(event)]}, session_id)
    line["outcome"] = event.outcome
    line["tool_use_result"] = {
        "tool": event.tool,
        "outcome": event.outcome,
        "code": event.code,
        "retry": event.retry,
        "decision": msgspec.to_builtins(event.decision),
        "effects": [msgspec.to_builtins(effect) for effect in event.effects],
        "attachments": event.attachments,
        "data": event.data,
    }
    return line


def _denial(event: events.Result) -> JSONObject:
    return {
        "tool_name": event.tool,
        "tool_use_id": event.id,
        "tool_input": event.input,
        "code": event.code,
        "decision": msgspec.to_builtins(event.decision),
    }


def _denial_line(event: events.Result, session_id: str) -> list[JSONObject]:
    return [_system("permission_denied", session_id, **_denial(event))] if is_denial(event) else []


def _hook(event: events.HookRan, session_id: str) -> JSONObject:
    return _system(
        "hook_response",
        session_id,
        hook_id=event.id,
        hook_name=event.name,
        hook_event=event.event,
        outcome=event.outcome,
        exit_code=event.exit_code,
        output=event.said,
        duration_ms=round(event.seconds * 1000),
    )


def _retry(event: events.Retry, session_id: str) -> JSONObject:
    return _system(
        "api_retry",
        session_id,
        attempt=event.attempt,
        max_retries=event.max_attempts,
        retry_delay_ms=round(event.delay * 1000),
        error_status=event.status,
        error=event.error,
    )


def _model_usage(spending: Spending, model: str) -> JSONObject:
    usage = spending.models[model]
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cacheReadInputTokens": usage.cache_read_input_tokens,
        "cacheCreationInputTokens": usage.cache_creation_input_tokens,
        "costUSD": spending.costs[model],
    }
