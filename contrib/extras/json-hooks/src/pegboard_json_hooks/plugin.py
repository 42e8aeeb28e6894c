"""The hooks of pegboard, answered by what the settings configure.

Importing this costs next to nothing; what an event needs is imported when the first hook hears of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pegboard.hooks import hook

if TYPE_CHECKING:
    from pegboard.call import Call, Outcome
    from pegboard.events import Event
    from pegboard.hooks import Fragment, Note, Verdict
    from pegboard.host import Question, Reply
    from pegboard.session import Session
    from pegboard.tool import Context

    from pegboard_json_hooks.room import Room

HOOK_SECONDS = math.inf
"""Every configured hook has a time limit of its own."""


async def _room(session: Session) -> Room:
    from pegboard_json_hooks.room import Room

    return await session.owners.get(Room, session.place("main"))


async def _own_room(ctx: Context) -> Room:
    from pegboard_json_hooks.room import Room

    return await ctx.own(Room)


@hook
async def peg_session_start(session: Session, kind: str) -> Iterable[Fragment] | None:
    from pegboard_json_hooks import sessions

    return await sessions.start(await _room(session), kind)


@hook
async def peg_session_end(session: Session, reason: str) -> None:
    from pegboard_json_hooks import sessions

    await sessions.end(await _room(session), reason)


@hook
async def peg_before_call(call: Call, ctx: Context) -> Verdict | None:
    from pegboard_json_hooks import calls

    return await calls.before(await _own_room(ctx), call, ctx)


@hook
async def peg_after_call(call: Call, outcome: Outcome, ctx: Context) -> Note | None:
    from pegboard_json_hooks import calls

    return await calls.after(await _own_room(ctx), call, outcome, ctx)


@hook
async def peg_answer(question: Question, ctx: Context) -> Reply | None:
    from pegboard_json_hooks import questions

    return await questions.answer(await _own_room(ctx), question, ctx)


@hook
async def peg_before_event(event: Event, session: Session) -> Verdict | None:
    from pegboard_json_hooks import sessions

    return await sessions.before(await _room(session), event)


@hook
async def peg_event(event: Event, session: Session) -> None:
    from pegboard_json_hooks import sessions

    await sessions.heard(await _room(session), event)
