"""PermissionRequest: hooks that answer a permission question, and what they may change beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pegboard.call import Call
from pegboard.grants import Granter, change, suggestions
from pegboard.host import Choice, Host, Question, Reply

from pegboard_json_hooks.calls import about
from pegboard_json_hooks.ran import program_of

if TYPE_CHECKING:
    from pegboard.external import Hook
    from pegboard.tool import Context

    from pegboard_json_hooks.room import Room
    from pegboard_json_hooks.said import Said


async def answer(room: Room, question: Question, ctx: Context) -> Reply | None:
    """The answer of the hooks: a "no" of any of them, else the first "yes" that may count."""
    call = Call(id=question.call_id, tool=question.tool, input=question.input)
    fields, names, covered = about(room, call, ctx)
    fields["permission_suggestions"] = suggestions(question)
    said = await room.fire("PermissionRequest", fields, names=names, fits=covered)
    decided = [(one, _decision(one)) for one in said]
    for one, decision in decided:
        if decision.get("behavior") == "deny" or one.ends:
            return await _no(room, one, decision)
    for one, decision in decided:
        if decision.get("behavior") == "allow" and _counts(one, question):
            return await _yes(room, one, decision)
    if type(room.session.host).ask is not Host.ask:
        text = f"{question.tool} needs permission: {'; '.join(question.lines)}"
        kind = "permission_prompt"
        await room.fire("Notification", {"message": text, "notification_type": kind}, names=(kind,))
    return None


def _decision(said: Said) -> Mapping[str, Any]:
    found = said.specific.get("decision")
    return found if isinstance(found, Mapping) else {}


def _counts(said: Said, question: Question) -> bool:
    """Whether a "yes" may stand for the person's: it never lifts an ask rule of somebody above the hook."""
    rule = question.decision.winner
    if question.decision.question_only or rule is None:
        return True
    scope = said.hook.scope
    return scope == "managed" or (scope in ("user", "flag") and rule.scope != "managed")


async def _no(room: Room, said: Said, decision: Mapping[str, Any]) -> Reply:
    message = decision.get("message")
    text = message if isinstance(message, str) and message else f"The hook {program_of(said.hook)} refused."
    if decision.get("interrupt") is True:
        room.session.halted = room.session.halted or room.fitted(text)
    return Reply(Choice.NO, room.fitted(text), source=_source(said))


async def _yes(room: Room, said: Said, decision: Mapping[str, Any]) -> Reply:
    changed = decision.get("updatedInput")
    updates = decision.get("updatedPermissions")
    by = granter(said.hook)
    for update in updates if isinstance(updates, list) else []:
        fault = await change(room.session, update, by)
        if fault:
            await room.tell(f"The hook {program_of(said.hook)} asked for a permission change that is not made: {fault}")
    return Reply(Choice.ONCE, input=dict(changed) if isinstance(changed, Mapping) else None, source=_source(said))


def _source(said: Said) -> str:
    return f"{program_of(said.hook)} ({said.hook.source})"


def granter(hook: Hook) -> Granter:
    """A hook as somebody who asks for permission updates; one of a project changes its session alone."""
    return Granter(f"hook {hook.shown[:60]}", hook.scope or "project", session_only=bool(hook.own))
