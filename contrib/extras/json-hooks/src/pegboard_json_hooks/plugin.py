"""The hooks of pegboard, answered by what the settings configure.

Importing this costs next to nothing, and an event that nothing is configured for costs one look into the settings; the
rest is imported when the first hook is for something.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pegboard import events
from pegboard.hooks import hook

if TYPE_CHECKING:
    from pegboard.call import Call, Outcome
    from pegboard.hooks import Fragment, Note, Verdict
    from pegboard.host import Question, Reply
    from pegboard.session import Session
    from pegboard.tool import Context

    from pegboard_json_hooks.room import Room

HOOK_SECONDS = math.inf
"""Every configured hook has a time limit of its own."""

PROMPTS: dict[str, int] = {}
"""How many prompts each open session has had; kept here, so that counting them costs no more than that."""


def _for(session: Session, *names: str) -> bool:
    """Whether any hook may be configured for one of these events."""
    settings = session.settings
    return bool(settings.value("compat.hooks")) or not settings.value("hooks").keys().isdisjoint(names)


async def _room(session: Session) -> Room:
    from pegboard_json_hooks.room import Room

    return await session.owners.get(Room, session.place("main"))


async def _own_room(ctx: Context) -> Room:
    from pegboard_json_hooks.room import Room

    return await ctx.own(Room)


@hook
async def peg_session_start(session: Session, kind: str) -> Iterable[Fragment] | None:
    from pegboard.external import EVENTS, LATER

    unknown = session.settings.value("hooks").keys() - EVENTS.keys() - LATER.keys()
    if not unknown and not _for(session, "SessionStart", "SessionEnd"):
        return None
    from pegboard_json_hooks import sessions

    return await sessions.start(await _room(session), kind)


@hook
async def peg_session_end(session: Session, reason: str) -> None:
    PROMPTS.pop(session.id, None)
    if any(owner.__module__ == "pegboard_json_hooks.room" for owner, _, _ in session.owners):
        from pegboard_json_hooks import sessions

        await sessions.end(await _room(session), reason)


@hook
async def peg_before_call(call: Call, ctx: Context) -> Verdict | None:
    if not _for(ctx._session, "PreToolUse"):
        return None
    from pegboard_json_hooks import calls

    return await calls.before(await _own_room(ctx), call, ctx)


@hook
async def peg_after_call(call: Call, outcome: Outcome, ctx: Context) -> Note | None:
    if not _for(ctx._session, "PostToolUse", "PostToolUseFailure"):
        return None
    from pegboard_json_hooks import calls

    return await calls.after(await _own_room(ctx), call, outcome, ctx)


@hook
async def peg_answer(question: Question, ctx: Context) -> Reply | None:
    if not _for(ctx._session, "PermissionRequest", "Notification"):
        return None
    from pegboard_json_hooks import questions

    return await questions.answer(await _own_room(ctx), question, ctx)


@hook
async def peg_before_event(event: events.Event, session: Session) -> Verdict | None:
    if isinstance(event, events.UserText) and event.origin == "human":
        PROMPTS[session.id] = PROMPTS.get(session.id, 0) + 1
    if not _for(session, *_names(event)):
        return None
    from pegboard_json_hooks import sessions

    return await sessions.before(await _room(session), event)


@hook
async def peg_event(event: events.Event, session: Session) -> None:
    names = ("StopFailure",) if isinstance(event, events.Ended) else _names(event)
    if names and _for(session, *names):
        from pegboard_json_hooks import sessions

        await sessions.heard(await _room(session), event)


def _names(event: events.Event) -> tuple[str, ...]:
    """What hooks may know an event as."""
    if event.hook:
        return (event.hook,)
    if isinstance(event, events.UserText):
        return ("UserPromptSubmit",)
    if isinstance(event, events.Ended):
        return ("Stop", "SubagentStop", "PostToolUse")
    if isinstance(event, events.Batch):
        return ("PostToolBatch", "PostToolUse")
    if isinstance(event, events.Moved):
        return ("CwdChanged",)
    return ("Stop",) if type(event).__struct_config__.tag == "run" else ()
