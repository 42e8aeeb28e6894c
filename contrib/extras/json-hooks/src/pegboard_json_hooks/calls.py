"""Hooks around a tool call: PreToolUse, PostToolUse, PostToolUseFailure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pegboard.call import Call, Outcome
from pegboard.errors import Code
from pegboard.hooks import PRECEDENCE, Note, Verdict

from pegboard_json_hooks.matching import fits, names_of, reported
from pegboard_json_hooks.ran import program_of

if TYPE_CHECKING:
    from pegboard.tool import Context

    from pegboard_json_hooks.room import Room
    from pegboard_json_hooks.said import Said

_OLD = {"approve": "allow", "block": "deny"}
"""[D] Decisions of the first form of the contract."""


def about(room: Room, call: Call, ctx: Context) -> tuple[dict[str, Any], tuple[str, ...], Callable[[str], bool]]:
    """What every hook about a call is told, the names of its tool, and how a rule is held against it."""
    found = room.session.find_tool(call.tool)
    names = names_of(found.manifest) if found is not None else (reported(call.tool),)
    fields: dict[str, Any] = {"tool_name": names[0], "tool_input": call.input, "tool_use_id": call.id}
    if ctx.agent != "main":
        fields["agent_id"] = ctx.agent
    return fields, names, lambda rule: fits(rule, call, ctx)


async def before(room: Room, call: Call, ctx: Context) -> Verdict | None:
    """PreToolUse: deny > defer > ask > allow; the first changed input counts."""
    fields, names, covered = about(room, call, ctx)
    said = await room.fire("PreToolUse", fields, names=names, fits=covered)
    if not said:
        return None
    decided = [(decision, one) for one in said if (decision := _decision(one))]
    first = min(decided, key=lambda pair: PRECEDENCE.index(pair[0]), default=None)
    note = "\n".join(room.fitted(one.context) for one in said if one.context)
    inputs = (one.specific.get("updatedInput") for one in said)
    changed = next((dict(given) for given in inputs if isinstance(given, Mapping)), None)
    if first is None:
        return Verdict(input=changed, note=note) if changed is not None or note else None
    decision, one = first
    return Verdict(decision, _reason(room, one), changed, note, source=f"{program_of(one.hook)} ({one.hook.source})")


def _decision(said: Said) -> str:
    if said.blocked or said.ends:
        return "deny"
    asked = said.specific.get("permissionDecision") or _OLD.get(said.fields.get("decision", ""), "")
    return asked if asked in PRECEDENCE else ""


def _reason(room: Room, said: Said) -> str:
    reason = said.reason or said.specific.get("permissionDecisionReason", "") or said.fields.get("reason", "")
    if said.ends:
        reason = reason or said.fields.get("stopReason", "")
    return room.fitted(reason or f"The hook {program_of(said.hook)} decided so.")


async def after(room: Room, call: Call, outcome: Outcome, ctx: Context) -> Note | None:
    """PostToolUse or PostToolUseFailure: notes, an objection, another output to show."""
    fields, names, covered = about(room, call, ctx)
    fields["duration_ms"] = round(ctx.seconds * 1000)
    if outcome.is_error:
        fields |= {"error": outcome.plain(), "is_interrupt": outcome.code is Code.CANCELLED}
        return _note(room, await room.fire("PostToolUseFailure", fields, names=names, fits=covered), shown=False)
    fields["tool_response"] = outcome.data if outcome.data is not None else outcome.plain()
    return _note(room, await room.fire("PostToolUse", fields, names=names, fits=covered), shown=True)


def _note(room: Room, said: Sequence[Said], *, shown: bool) -> Note | None:
    if not said:
        return None
    texts = [room.fitted(one.context) for one in said if one.context]
    blocks = [room.fitted(one.why) for one in said if one.refuses]
    new = next((one.specific["updatedToolOutput"] for one in said if "updatedToolOutput" in one.specific), None)
    return Note(text="\n".join(texts), output=new if shown else None, block="\n".join(blocks))
