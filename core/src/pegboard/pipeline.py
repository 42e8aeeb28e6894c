"""The thirteen steps of a tool call, one function each, in the order of the specification (1.1).

The pipeline decides whether a call may start and writes down how it ended. It never claims more than the ledger of
effects shows.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio.lowlevel import checkpoint_if_cancelled

from pegboard import endings, permission, shaping
from pegboard.call import Call, DecidedBy, Ledger, Outcome, Retry, Status
from pegboard.errors import Broken, Code, Refusal
from pegboard.hooks import fold
from pegboard.tool import Access, Context, Launched

if TYPE_CHECKING:
    from pegboard.loader import Found
    from pegboard.policy import Decision, Snapshot
    from pegboard.session import Session
    from pegboard.tool import Tool


class CallEnded(Exception):
    """A step ended the call with this outcome; the later steps up to the hooks are skipped."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.code)
        self.outcome = outcome


@dataclass
class CallState:
    """The only mutable object of a call."""

    call: Call
    session: Session
    agent: str
    snapshot: Snapshot
    """The policy under which the call is judged and run."""
    ledger: Ledger = field(default_factory=Ledger)
    found: Found | None = None
    tool: Tool[Any, Any] | None = None
    ctx: Context | None = None
    raw: dict[str, Any] = field(default_factory=dict)
    """The input that is judged: the model's, or a hook's."""
    input: Any = None
    accesses: list[Access] = field(default_factory=list)
    rewritten: bool = False
    hook_says: str | None = None
    hook: str = ""
    """The before-hook that decided, and its word."""
    decision: Decision | None = None
    """What the policy said, before anybody was asked."""
    answered: DecidedBy | None = None
    """Who said yes to the question."""
    logged: str = ""
    """The verdict that is in the decision log."""
    began: bool = False
    step: str = ""
    """Name of the step that runs, so that a fault is blamed on the right part."""
    started: float = field(default_factory=time.monotonic)
    result: Any = None
    outcome: Outcome | None = None

    @property
    def name(self) -> str:
        """The tool's own name, also when the call used an alias."""
        return self.found.manifest.name if self.found else self.call.tool

    def parts(self) -> tuple[Found, Tool[Any, Any], Context]:
        """What `resolve` and `validate` have found; steps after them rely on it."""
        assert self.found is not None and self.tool is not None and self.ctx is not None
        return self.found, self.tool, self.ctx


async def run_call(call: Call, session: Session, agent: str = "main") -> Outcome:
    """Take one call through all steps. Never raises for a failing call; a cancelled one ends as ``cancelled``."""
    state = CallState(call, session, agent, session.snapshot())
    with session.abortable():
        await checkpoint_if_cancelled()
        await _through(state)
    if state.outcome is None:
        state.outcome = endings.cancelled(state)
    with anyio.CancelScope(shield=True):
        await fit_budget(state)
        await record(state)
    return state.outcome


async def _through(state: CallState) -> None:
    try:
        for step in BEFORE:
            state.step = step.__name__
            await step(state)
        async with state.session.locks.hold(state.accesses):
            for step in DURING:
                state.step = step.__name__
                await step(state)
    except CallEnded as ended:
        state.outcome = ended.outcome
    except Exception as error:
        state.outcome = endings.failed(state, error)
    await after_hooks(state)


async def resolve(state: CallState) -> None:
    """1. Find the tool by its name or one of its aliases."""
    call, session = state.call, state.session
    state.found = session.find_tool(call.tool)
    if state.found is None:
        reason = session.toolbox.absent(call.tool)
        names = [found.manifest.name for found in session.tools().values()]
        close = difflib.get_close_matches(call.tool, names, n=5, cutoff=0.5) or sorted(
            name for name in names if name.lower() == call.tool.lower()
        )
        hint = f"Close names: {', '.join(close)}." if close else f"Tools here: {', '.join(sorted(names)) or 'none'}."
        raise Refusal(Code.UNKNOWN_TOOL, reason or f"There is no tool named {call.tool!r}.", hint=hint)
    state.ctx = Context(
        session,
        call_id=call.id,
        tool=state.found.manifest.name,
        ledger=state.ledger,
        snapshot=state.snapshot,
        agent=state.agent,
    )
    if call.incomplete:
        raise Refusal(
            Code.INVALID_INPUT,
            f"The input of {call.tool} is incomplete: the answer was cut at the output limit. Nothing was run.",
            hint="Call again in smaller parts.",
        )
    if isinstance(call.input, str):
        raise Refusal(
            Code.INVALID_INPUT,
            f"The input of {call.tool} is not valid JSON ({len(call.input)} characters): {call.input[:400]}",
            hint="Send the input again as one JSON object.",
        )
    if call.input is not None and not isinstance(call.input, dict):
        raise Refusal(Code.INVALID_INPUT, f"The input of {call.tool} must be a JSON object.")
    state.raw = dict(call.input or {})


async def validate(state: CallState) -> None:
    """2. Parse the raw input against the tool's model; safe coercions are made, unknown fields refused."""
    found, session = state.found, state.session
    assert found is not None
    if state.tool is None:
        try:
            state.tool = session.toolbox.load(found)
        except Broken as error:
            raise Refusal(Code.NOT_AVAILABLE, f"The plug-in of {found.manifest.name} cannot be used: {error}") from None
    places = {"cwd": str(session.cwd), "home": str(session.places.home)}
    try:
        state.input, coerced = shaping.parse_input(state.tool.Input, state.raw, found.manifest, places)
    except Refusal as refusal:
        if found.manifest.load == "deferred" and found.manifest.name not in session.loaded.get(state.agent, ()):
            schema = msgspec.json.encode(session.toolbox.schema(found).input).decode()
            refusal.hint += f"\n{found.manifest.name} was not loaded. The schema of its input: {schema}"
        raise
    state.raw = state.input.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if coerced and state.ctx is not None:
        session.trace("coerced", state.call.id, coerced)


async def check(state: CallState) -> None:
    """3. The tool's own checks, which need no permission."""
    _, tool, ctx = state.parts()
    await tool.check(state.input, ctx)


async def before_hooks(state: CallState) -> None:
    """4. Hooks that speak before the call: deny > defer > ask > allow; changed input goes back to step 2 once."""
    session = state.session
    if not session.bus.has("peg_before_call"):
        return
    if session.halted:
        raise Refusal(Code.CANCELLED, f"{state.name} was not run, because a hook ends the run: {session.halted}")
    _, _, ctx = state.parts()
    seen = Call(id=state.call.id, tool=state.name, input=dict(state.raw), origin=state.call.origin)
    verdict, by = fold(await session.bus.ask("peg_before_call", call=seen, ctx=ctx))
    if verdict.note:
        ctx.note(verdict.note)
    state.hook = f"{by}: {verdict.decision}" if verdict.decision else ""
    if verdict.decision == "defer" and session.put_off(state.call, state.agent, by, verdict.reason):
        raise Refusal(Code.CANCELLED, f"{state.name} was put off by the hook {by}; nothing was run yet.")
    if verdict.decision in ("deny", "defer"):
        decision = DecidedBy(by="hook", source=by, reason=verdict.reason)
        hint = "It can be put off only as the one call of an answer." if verdict.decision == "defer" else ""
        text = verdict.reason or f"The hook {by} refused the call."
        raise Refusal(Code.DENIED_BY_HOOK, text, hint=hint, decision=decision)
    state.hook_says = verdict.decision
    if verdict.input is not None and not state.rewritten:
        state.rewritten = True
        state.raw = dict(verdict.input)
        await _again(state)


async def decide(state: CallState) -> None:
    """5. Deny rules, ask rules, floors, mode, allow rules, then the question to the person."""
    found, _, _ = state.parts()
    decision = permission.judge(state)
    asks = decision.verdict == "ask" and not (state.hook_says == "allow" and decision.question_only)
    if found.manifest.person and decision.winner is None:
        asks = False  # the tool puts its own question to the person
    if asks or state.hook_says == "ask":
        await permission.ask(state, decision, _again)


async def _again(state: CallState) -> None:
    """Steps 2 and 3 for an input that a hook or an answer replaced."""
    await validate(state)
    await check(state)


async def trust(state: CallState) -> None:
    """6. The gate again, under today's settings: a tool that was switched off meanwhile does not start."""
    found, _, _ = state.parts()
    refused = state.session.toolbox.gate(found)
    if refused is not None:
        by = DecidedBy(by=refused.question, source=refused.source, reason=refused.reason)
        code = Code.UNTRUSTED_SOURCE if refused.question in ("untrusted", "changed") else Code.DENIED_BY_POLICY
        raise Refusal(code, f"{state.name} may not be used here: {refused.reason}", decision=by)


async def sandbox(state: CallState) -> None:
    """7. A box for tools that start processes. Without a required box the call does not start.

    Now everything is decided, so the decision goes into the log.
    """
    found, _, ctx = state.parts()
    if "process" in found.manifest.effects:
        ctx.box = await state.session.box()
    from pegboard import audit

    audit.note(state, None)


async def recheck(state: CallState) -> None:
    """8. The volatile checks again: time has passed while a hook ran, a person answered or a lock was waited for."""
    _, tool, ctx = state.parts()
    await tool.check(state.input, ctx)
    await state.session.refuse_unsettled(state.parts()[0], state.accesses, tool, ctx)


async def run(state: CallState) -> None:
    """9. Execute. From here on the ledger decides the class of the call."""
    found, tool, ctx = state.parts()
    state.session.toolbox.count(state.name)
    if found.manifest.effects:
        state.session.note_began(state.call.id, state.name, found.manifest.effects)
    state.began = True
    begin = time.monotonic()
    try:
        state.result = await tool.run(state.input, ctx)
    finally:
        ctx.seconds = time.monotonic() - begin


async def map_output(state: CallState) -> None:
    """10. Check the result against the output model and put it in words. A failure here is ``unmapped``."""
    _, tool, ctx = state.parts()
    launched = isinstance(state.result, Launched)
    try:
        output = tool.Output.model_validate(state.result.output if launched else state.result)
        data = shaping.dump_output(output)
        text = tool.render(output, ctx)
    except Exception as error:
        state.session.toolbox.broke_contract(state.name)
        raise CallEnded(endings.unmapped(state, error)) from None
    state.outcome = Outcome(
        status=Status.LAUNCHED if launched else Status.OK,
        retry=Retry.CHECK_FIRST if launched else Retry.SAFE,
        text=text,
        data=data,
        effects=state.ledger.standing(),
    )


async def after_hooks(state: CallState) -> None:
    """11. Hooks that speak after the call. They add notes; they cannot change what happened."""
    session, outcome = state.session, state.outcome
    if not state.began or outcome is None or not session.bus.has("peg_after_call"):
        return
    _, tool, ctx = state.parts()
    seen = Call(id=state.call.id, tool=state.name, input=dict(state.raw), origin=state.call.origin)
    for heard in await session.bus.ask("peg_after_call", call=seen, outcome=outcome, ctx=ctx):
        if heard.error is not None:
            ctx.note(f"The hook {heard.plugin} failed after the call ({heard.error}); the result above stands.")
        elif heard.value is not None:
            note = heard.value
            if getattr(note, "output", None) is not None:
                _replace(outcome, note.output, tool, ctx, heard.plugin)
            if getattr(note, "text", ""):
                ctx.note(note.text)
            if getattr(note, "block", ""):
                ctx.note(f"The hook {heard.plugin} objects: {note.block}")


def _replace(outcome: Outcome, output: Any, tool: Tool[Any, Any], ctx: Context, plugin: str) -> None:
    try:
        checked = tool.Output.model_validate(output)
        outcome.text, outcome.data = tool.render(checked, ctx), shaping.dump_output(checked)
    except Exception:
        ctx.note(f"The hook {plugin} returned an output that does not fit {ctx.tool}; it was ignored.")


async def fit_budget(state: CallState) -> None:
    """12. Cut what is over the tool's budget, keep the whole beside the transcript, add the notes."""
    outcome, ctx = state.outcome, state.ctx
    if outcome is None or ctx is None or state.found is None:
        return
    try:
        outcome.text = shaping.fit(outcome.text, _budget(state), ctx)
    except Exception as error:
        if outcome.is_error:  # it did not work; that its text cannot be kept makes it no other end
            outcome.text = shaping.cut(outcome.plain(), _budget(state))
            ctx.note(f"The text was cut here, and the whole could not be kept: {shaping.one_line(error)}")
        else:
            state.outcome = outcome = endings.unmapped(state, error)
    outcome.text = shaping.add_notes(outcome.text, ctx.notes)
    outcome.attachments = list(ctx.attachments)


def _budget(state: CallState) -> int:
    """Characters that the result may have: the tool's own ``result_chars`` setting, or its manifest's budget."""
    assert state.found is not None
    manifest = state.found.manifest
    named = next((key for key in manifest.settings if key.endswith(".result_chars")), None)
    return int(state.session.settings.value(named)) if named else manifest.budget


async def record(state: CallState) -> None:
    """13. Pair and persist: one result for the call, in the transcript and for the next request."""
    outcome = state.outcome
    assert outcome is not None
    if outcome.decision is not None and outcome.decision.by != "validation":
        from pegboard import audit

        audit.note(state, outcome.decision)
    await state.session.record(state, outcome)


Step = Callable[[CallState], Awaitable[None]]
BEFORE: tuple[Step, ...] = (resolve, validate, check, before_hooks, decide, trust, sandbox)
DURING: tuple[Step, ...] = (recheck, run, map_output)
STEPS: tuple[Step, ...] = (*BEFORE, *DURING, after_hooks, fit_budget, record)
"""All thirteen, in order. ``DURING`` runs under the locks of the call's accesses."""
