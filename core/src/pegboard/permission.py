"""The question behind step 5: who answers whether a call may start, and what an answer changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pegboard.call import DecidedBy
from pegboard.errors import Code, Refusal
from pegboard.host import Choice, Question, Reply

if TYPE_CHECKING:
    from pegboard.pipeline import CallState
    from pegboard.policy import Decision

Again = Callable[["CallState"], Awaitable[None]]


def judge(state: CallState) -> Decision:
    """Decide about the call as its input stands now. Raises `Refusal` for a denial."""
    from pegboard import policy

    found, tool, ctx = state.parts()
    state.accesses = list(tool.accesses(state.input, ctx))
    judged = policy.resolve_accesses(state.accesses, state.snapshot)
    state.decision = decision = policy.decide(found.manifest, state.raw, judged, state.snapshot)
    if decision.verdict == "deny":
        raise _denied(state, decision)
    return decision


async def _automatic(state: CallState, question: Question) -> Reply | None:
    """The answer of a plug-in. None says yes in place of a person where a floor wants one."""
    decision, session = question.decision, state.session
    floor = decision.verdict == "ask" and decision.winner is None and not decision.question_only
    if session.bus.has("peg_answer"):
        for heard in await session.bus.ask("peg_answer", question=question, ctx=state.ctx):
            reply: Reply | None = heard.value
            if reply is not None and (reply.choice is Choice.NO or not floor):
                return replace(reply, source=reply.source or heard.plugin)
    return None


async def ask(state: CallState, decision: Decision, again: Again, *, hooks: bool = True) -> None:
    """Put the question, and keep the answer. ``again`` validates an input that the answer replaced.

    Raises `Refusal`: denied_by_user, denied_by_hook, no_user, or a denial that came up meanwhile.
    """
    from pegboard import policy

    found, _, _ = state.parts()
    session = state.session
    question = session.question(state.call.id, found, state.raw, state.accesses, decision)
    reply = await _automatic(state, question) if hooks else None
    who = "user" if reply is None else "hook"
    if reply is None and session.mode != policy.Mode.DONT_ASK:
        reply = await session.host.ask(question)
    if reply is None:
        raise Refusal(
            Code.NO_USER,
            f"{state.name} needs permission, and nobody can be asked here: {decision.decided_by.reason}.",
            hint=f"Go on without it, or have the user allow it with a rule: {' and '.join(question.rules)}"
            if question.rules
            else "Go on without it; no rule can allow this.",
            decision=decision.decided_by,
        )
    if reply.choice is Choice.NO:
        raise _said_no(state, reply)
    if reply.input is not None and reply.input != state.raw:
        state.answered = DecidedBy(by=who, source=question.digest, reason=f"{reply.choice.value}, with another input")
        state.raw = dict(reply.input)
        await again(state)
        judged = judge(state)
        if who == "hook" and judged.verdict == "ask" and not judged.question_only:
            await ask(state, judged, again, hooks=False)
        return
    if reply.choice is not Choice.ONCE:
        session.approve(question, reply)
    state.answered = DecidedBy(by=who, source=question.digest, reason=reply.choice.value)
    fresh = session.snapshot()
    if fresh.generation != state.snapshot.generation:
        judged = policy.decide(found.manifest, state.raw, policy.resolve_accesses(state.accesses, fresh), fresh)
        if judged.verdict == "deny":
            raise _denied(state, judged)


def _said_no(state: CallState, reply: Reply) -> Refusal:
    if reply.source:
        decision = DecidedBy(by="hook", source=reply.source, reason=reply.comment)
        text = reply.comment or f"The hook {reply.source} refused this call of {state.name}."
        return Refusal(Code.DENIED_BY_HOOK, text, decision=decision)
    comment = f" They said: {reply.comment}" if reply.comment else ""
    decision = DecidedBy(by="user", reason=reply.comment)
    return Refusal(
        Code.DENIED_BY_USER, f"The user did not allow this call of {state.name}.{comment}", decision=decision
    )


def _denied(state: CallState, decision: Decision) -> Refusal:
    codes = {
        "mode": Code.DENIED_BY_MODE,
        "policy": Code.DENIED_BY_POLICY,
        "trust": Code.UNTRUSTED_SOURCE,
    }
    by = decision.decided_by
    text = f"{state.name} is denied: {by.reason or by.by}"
    if by.source:
        text += f" ({by.source})"
    return Refusal(codes.get(by.by, Code.DENIED_BY_RULE), text + ".", decision=by)
