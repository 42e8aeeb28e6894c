"""Hooks around everything that is no call: the session, the prompt, the batch, the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from pegboard import events
from pegboard.external import EVENTS, LATER
from pegboard.hooks import Fragment, Verdict

from pegboard_json_hooks.matching import reported
from pegboard_json_hooks.ran import program_of

if TYPE_CHECKING:
    from pegboard_json_hooks.room import Room
    from pegboard_json_hooks.said import Said

REASONS = {"clear", "resume", "logout", "prompt_input_exit"}
"""[D] Reasons of an end that have a word of their own."""

ERRORS = {
    "rate_limit_error": "rate_limit", "authentication_error": "authentication_failed",
    "permission_error": "authentication_failed", "billing_error": "billing_error",
    "invalid_request_error": "invalid_request", "not_found_error": "invalid_request",
    "request_too_large": "invalid_request", "api_error": "server_error", "overloaded_error": "server_error",
}  # fmt: skip
"""[D] Kinds of errors of a model service, as hooks know them."""

RENAMED = {"PostCompact": {"summary": "compact_summary"}}
"""[D] Fields of events that hooks know under another name."""

STOPPED = {"too_long": "invalid_request", "incomplete": "max_output_tokens"}
"""Ends of a run that are failures of the model service too."""


async def start(room: Room, kind: str) -> list[Fragment]:
    """SessionStart: text for the context."""
    room.begun = True
    said = await room.fire("SessionStart", {"source": kind}, names=(kind,))
    found = []
    for one in said:
        if one.blocked:
            await room.tell(f"The hook {program_of(one.hook)}: {one.why}")
            continue
        for text in (one.text, one.context, one.specific.get("initialUserMessage", "")):
            if text:
                found.append(Fragment("hook SessionStart", room.fitted(text)))
    return found


async def end(room: Room, reason: str) -> None:
    """SessionEnd, and the end of what runs beside the session."""
    await room.settle()
    if room.begun:
        word = reason if reason in REASONS else "other"
        await room.fire("SessionEnd", {"reason": word}, names=(word,))


async def before(room: Room, event: events.Event) -> Verdict | None:
    """Events that may be refused."""
    if isinstance(event, events.UserText):
        return await _prompt(room, event) if event.origin == "human" else None
    if isinstance(event, events.Ended):
        return await _stop(room, event)
    if isinstance(event, events.Batch):
        return await _batch(room, event)
    if event.hook:
        return _verdict(room, await _raised(room, event))
    return None


async def heard(room: Room, event: events.Event) -> None:
    """Events that have happened."""
    if isinstance(event, events.Ended):
        kind = STOPPED.get(event.reason) or (ERRORS.get(event.kind, "unknown") if event.error and event.kind else "")
        if kind:
            fields = {"error": kind, "error_details": event.error, "last_assistant_message": event.error}
            await room.fire("StopFailure", fields, names=(kind,))
    elif isinstance(event, events.Moved):
        await room.fire("CwdChanged", {"old_cwd": event.before, "new_cwd": event.cwd})
    elif type(event).__struct_config__.tag == "run":
        _follow(room, msgspec.to_builtins(getattr(event, "run", {}), enc_hook=str))
    elif event.hook:
        await _raised(room, event)


async def _prompt(room: Room, event: events.UserText) -> Verdict | None:
    text = "\n".join(block["text"] for block in event.content if block.get("type") == "text")
    return _verdict(room, await room.fire("UserPromptSubmit", {"prompt": text}), plain=True)


async def _stop(room: Room, event: events.Ended) -> Verdict | None:
    fields: dict[str, Any] = {
        "stop_hook_active": 0 < room.stopping == room.prompt,
        "last_assistant_message": event.text,
        "background_tasks": list(room.runs.values()),
        "session_crons": [],
    }
    name = "Stop"
    if event.agent != "main":
        name, fields["agent_id"] = "SubagentStop", event.agent
    said = await room.fire(name, fields)
    woken, room.woken = room.woken, []
    if any(one.ends for one in said):
        return None
    verdict = _verdict(room, said)
    if woken:
        verdict = Verdict("deny", "\n".join([*woken, *([verdict.reason] if verdict and verdict.reason else [])]))
    if verdict is not None and verdict.decision == "deny":
        room.stopping = room.prompt
    return verdict


async def _batch(room: Room, event: events.Batch) -> Verdict | None:
    calls = [
        {
            "tool_name": reported(one.tool),
            "tool_input": one.input,
            "tool_use_id": one.id,
            "tool_response": one.text,
        }
        for one in event.results
    ]
    verdict = _verdict(room, await room.fire("PostToolBatch", {"tool_calls": calls}))
    woken, room.woken = room.woken, []
    if not woken:
        return verdict
    known = verdict or Verdict()
    return Verdict(known.decision, known.reason, note="\n".join([*woken, *([known.note] if known.note else [])]))


async def _raised(room: Room, event: events.Event) -> list[Said]:
    """An event of another part, which says itself what hooks know it as."""
    fields = msgspec.to_builtins(event, enc_hook=str)
    names = RENAMED.get(event.hook, {})
    fields = {names.get(name, name): value for name, value in fields.items() if name not in ("type", "time")}
    agent = fields.pop("agent", "main")
    if agent != "main":
        fields["agent_id"] = agent
    subject = {**EVENTS, **LATER}.get(event.hook, "")
    return await room.fire(event.hook, fields, names=(str(fields.get(subject, "")),))


def _verdict(room: Room, said: list[Said], *, plain: bool = False) -> Verdict | None:
    """What the replies come to together. ``plain``: text on stdout counts as context."""
    if not said:
        return None
    texts = [text for one in said for text in ((one.text, one.context) if plain else (one.context,)) if text]
    note = "\n".join(room.fitted(text) for text in texts)
    refusal = next((one for one in said if one.refuses), None)
    if refusal is not None:
        source = f"{program_of(refusal.hook)} ({refusal.hook.source})"
        return Verdict("deny", room.fitted(refusal.why), note=note, source=source)
    return Verdict(note=note) if note else None


def _follow(room: Room, run: Mapping[str, Any]) -> None:
    """Keep track of background work, which the end of a run is told about."""
    name = str(run.get("id", ""))
    if run.get("status") == "running":
        told = {"id": name, "type": run.get("kind"), "status": "running", "description": run.get("description")}
        room.runs[name] = told
    else:
        room.runs.pop(name, None)
