"""The loop: request, answer, calls, results, next request, until an answer asks for nothing more.

There is one loop for everything that talks to a model: a headless run, a terminal session, a child agent. Every way
out of it leaves a conversation in which each call is answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pegboard import context, events
from pegboard.agentspec import AgentSpec, RunResult
from pegboard.answers import ask
from pegboard.call import Call, Outcome, Status
from pegboard.errors import Code, ProviderError, RunStopped, Stop, TooLong, UsageError
from pegboard.history import user_blocks
from pegboard.hooks import fold
from pegboard.lacking import Lacks
from pegboard.provider import Abilities, Answer, Message, ModelRef, Provider, Request, ToolSpec, refuse_unlisted
from pegboard.spending import Limits, Spending, price_of
from pegboard.window import Window

if TYPE_CHECKING:
    from pegboard.session import Session
    from pegboard.state import Owner
    from pegboard.transcript import Transcript, Turn

__all__ = ["Agent", "AgentSpec", "RunResult"]

CONTINUE = "Your answer was cut at the output limit. Go on exactly where it ended."
TOO_LONG = (
    "The conversation does not fit the model's context window, and it could not be made short enough. Start anew."
)
EMPTY = "Your last answer was empty. Go on with the task, or say that you are done."
VETOES = 8
"""[D] How often in a row a hook may keep a run from ending."""

ORDER = ("human", "task-notification", "peer", "coordinator", "scheduled")
"""Who is heard first when several messages wait."""


class Agent:
    """One agent: a session's tools, a model, a conversation. ``run`` may be called again for the next prompt."""

    def __init__(
        self,
        session: Session,
        provider: Provider,
        spec: AgentSpec,
        transcript: Transcript,
        *,
        parent: Agent | None = None,
    ) -> None:
        """``parent``: the agent whose budget this one shares. Raises `UsageError`: model not listed, price unknown."""
        refuse_unlisted(ModelRef(spec.model, provider.name), session.settings.value("models.available"))
        self.session = session
        self.provider = provider
        self.spec = spec
        self.transcript = transcript
        self.inbox: deque[events.UserText] = deque()
        """Messages that arrive while a run is on; delivered between batches of calls."""
        self.spending: Spending = Spending(parent.spending if parent is not None else None)
        self.abilities: Abilities = provider.abilities(spec.model)
        self.window = Window(self)
        self._lacks = Lacks(spec.model, self.abilities)
        self._offer = context.Offer(session, self.abilities, spec.tools)
        self.reread()
        self._text, self._joins, self._reason = "", False, ""
        self.limits = self._limits(parent)
        self._nudged = ""

    def reread(self) -> None:
        """Take the conversation from the transcript, which was read anew: at the beginning, and after a rewind."""
        self.history = self.transcript.history
        self._tail = context.Tail(self._offer, self.history.told)
        self.session.loaded[self.spec.id] = self.history.found
        if not self.abilities.tool_references:
            self.history.references = False
            self.history.dissolve()

    async def run(self, prompt: str | events.UserText, *, opening: Iterable[events.UserText] = ()) -> RunResult:
        """Say ``prompt`` and go on until the model is done or a limit is reached. ``opening`` texts follow it.

        A call that was put off is run first; where there is one, the prompt may be empty. Raises `TranscriptError` when
        the session file cannot be written; everything else is in the result.
        """
        self._text, self._joins, self._reason, self._nudged = "", False, "", ""
        before = self.spending.turns
        self.limits.begin()
        if self.transcript is self.session.transcript:
            self.session.sole, self.session.deferred = "", None
        text = context.said(prompt, author="", origin="human") if isinstance(prompt, str) else prompt
        stopped: Stop | None = None
        errors: list[str] = []
        kind = ""
        try:
            await self._offer_again()
            await self._start(text, opening)
            await self._loop()
        except RunStopped as stop:
            stopped, errors = stop.reason, [str(stop)] if stop.reason is not Stop.DEFERRED else []
        except TooLong as error:
            stopped, errors = Stop.TOO_LONG, [str(error)]
        except ProviderError as error:
            errors, kind = [str(error)], error.kind
        reason = stopped.value if stopped else "provider_error" if errors else "completed"
        turns = self.spending.turns - before
        ended = events.Ended(reason=reason, turns=turns, error="\n".join(errors), kind=kind, agent=self.spec.id)
        await self.log(ended)
        return RunResult(
            text=self._text,
            stop_reason=self._reason,
            stopped=stopped,
            errors=errors,
            turns=turns,
            seconds=self.limits.passed,
            deferred=self.session.deferred if stopped is Stop.DEFERRED else None,
        )

    async def _offer_again(self) -> None:
        """Run the call that a hook put off at the end of the last run, as if the model had just made it."""
        for slot in list(self.history.deferred.values()):
            self.session.sole = slot.id
            await self.session.run_calls([Call(id=slot.id, tool=slot.tool, input=slot.input)], agent=self.spec.id)
            self._check_abort()

    async def _start(self, prompt: events.UserText, opening: Iterable[events.UserText]) -> None:
        self._check_halt()
        said = bool(user_blocks(prompt))
        denied, note = await self._may(prompt) if said else ("", [])
        if denied:
            raise RunStopped(Stop.REFUSAL, f"The prompt was refused: {denied}")
        if said and prompt.origin == "human" and self.transcript is self.session.transcript:
            prompt = msgspec.structs.replace(prompt, prompt=await self.session.begin_span())
        posted = self.session.take_posts(self.spec.id)
        for text in (*([prompt] if said else []), *opening, *note, *posted, *self._tail.news(self.session)):
            await self.log(text)

    async def _loop(self) -> None:
        vetoes = 0
        while True:
            if over := self.limits.over():
                raise over
            await self.window.fit()
            answer = await self._answer()
            if await self._follow(answer):
                continue
            await self._screen()
            if waiting := self._waiting():
                for said in waiting:
                    await self.log(said)
                continue
            turns, agent = self.spending.turns, self.spec.id
            ended = events.Ended(reason="completed", turns=turns, text=self._text, agent=agent)
            denied, note = await self._may(ended)
            if denied and vetoes == VETOES:
                text = f"A hook kept the run from ending {VETOES} times in a row; it ends all the same. {denied}"
                await self.log(events.Notice(text=text, kind="hook"))
            if not denied or vetoes == VETOES:
                return
            vetoes += 1
            self.transcript.say(context.said(denied, author="hook", origin="hook"), *note)

    async def _follow(self, answer: Answer) -> bool:
        """Do what an answer asks for. True when another request has to follow."""
        turn = self.transcript.open(answer)
        await self.session.tell(turn.answer)
        if turn.calls:
            await self._calls(turn, answer)
            return True
        turn.close()
        if answer.stop_reason == "pause_turn":
            self._joins = True
            return True
        if answer.stop_reason == "refusal":
            raise RunStopped(Stop.REFUSAL, "The model declined to answer.")
        if answer.stop_reason == "model_context_window_exceeded":
            if not await self.window.overflow():
                raise RunStopped(Stop.TOO_LONG, TOO_LONG)
            self._joins = True
            return True
        if answer.stop_reason == "max_tokens":
            if self._nudged == CONTINUE:
                raise RunStopped(Stop.INCOMPLETE, "The answer was cut at the output limit, twice in a row.")
            self._joins = True
            return self._nudge(CONTINUE)
        return not _text(answer).strip() and not self._nudged and self._nudge(EMPTY)

    def _nudge(self, text: str) -> bool:
        self._nudged = text
        self.transcript.say(context.said(text, author="pegboard", origin="auto-continuation"))
        return True

    async def _calls(self, turn: Turn, answer: Answer) -> None:
        """Run the calls of an answer, or answer them as not run when the run ends here."""
        self._nudged = ""
        outcomes: list[Outcome] = []
        over = self.limits.over()
        if not over and answer.stop_reason == "refusal":
            over = RunStopped(Stop.REFUSAL, "The model declined to go on.")
        try:
            if over is not None:
                await self._answer_unrun(turn, over)
            else:
                if self.transcript is self.session.transcript:
                    self.session.sole = turn.calls[0].id if len(turn.calls) == 1 else ""
                outcomes = await self.session.run_calls(turn.calls, agent=self.spec.id)
                for call, outcome in zip(turn.calls, outcomes, strict=True):
                    if call.id in turn.missing:
                        turn.fill(call.id, outcome)
                await self._screen()
        finally:
            turn.close(waiting := self._waiting())
        for text in waiting:
            await self.session.tell(text)
        if over is not None:
            raise over
        self._check_abort()
        await self._after_batch(turn, outcomes)
        self.transcript.say(*self._tail.news(self.session))

    async def _after_batch(self, turn: Turn, outcomes: list[Outcome]) -> None:
        """Show a whole batch to the hooks; one of them may end the run before the next request."""
        if not self.session.bus.has("peg_before_event"):
            return
        results = [
            events.Result(
                id=call.id,
                tool=call.tool,
                outcome=outcome.status.value,
                text=outcome.text,
                is_error=outcome.is_error,
                input=call.input,
            )
            for call, outcome in zip(turn.calls, outcomes, strict=True)
        ]
        denied, note = await self._may(events.Batch(results=results, agent=self.spec.id))
        for text in note:
            await self.log(text)
        if denied:
            raise RunStopped(Stop.HOOK, denied)

    async def _answer_unrun(self, turn: Turn, over: RunStopped) -> None:
        code = Code.BUDGET_EXCEEDED if over.reason in (Stop.BUDGET, Stop.TOKENS) else Code.LIMIT_REACHED
        for call in turn.calls:
            outcome = Outcome(status=Status.NOT_STARTED, code=code, text=f"{call.tool} was not run. {over}")
            await self.session.tell(turn.fill(call.id, outcome))

    async def _answer(self) -> Answer:
        """The next answer of the model, counted. Raises `RunStopped` when there is none."""
        while True:
            request = self._request()
            for text in self._lacks.news():
                await self.log(events.Notice(text=text))
            try:
                answer = await ask(self, request)
                break
            except TooLong as error:
                if not await self.window.overflow():
                    raise TooLong(f"{error}\n{TOO_LONG}", status=error.status, kind=error.kind) from None
        if answer is None:
            raise self.interruption()
        self.window.counted(answer)
        self.spending.add(answer.model or self.spec.model, answer.usage, self.limits.price)
        self._text = (self._text if self._joins else "") + _text(answer)
        self._joins, self._reason = False, answer.stop_reason
        return answer

    def _request(self) -> Request:
        """The next request, within what the limits leave. Raises `RunStopped` when they leave too little."""
        spec, tools, messages = self.spec, self.tools, self.messages()
        ahead = self.window.ahead
        if over := self.limits.over(ahead):
            raise over
        room = self.window.output
        most = min(spec.max_tokens or room, room, self.limits.output(ahead) or room)
        if most <= (spec.thinking or {}).get("budget_tokens", 0):
            raise RunStopped(Stop.BUDGET, "What is left of the budget does not suffice for the model to think.")
        self.window.sending()
        return Request(
            model=spec.model,
            system=context.system_blocks(spec.system),
            tools=tools,
            messages=messages,
            max_tokens=most,
            thinking=spec.thinking,
            extra=spec.extra,
        )

    def _limits(self, parent: Agent | None) -> Limits:
        spec, setting = self.spec, self.session.settings.value
        given = {"turns": spec.max_turns, "seconds": spec.max_seconds, "usd": spec.max_budget_usd}
        given["tokens"] = spec.max_total_tokens
        own = {} if parent is not None else {name: setting(f"limits.{name}") for name in given}
        kept: dict[str, Any] = {name: own.get(name) or None if one is None else one for name, one in given.items()}
        price = price_of(spec.model, self.abilities.price, setting("prices"))
        limits = Limits(self.spending, **kept, price=price, parent=parent.limits if parent is not None else None)
        around = limits
        while around.usd is None and around.parent is not None:
            around = around.parent
        if around.usd is not None and price is None:
            raise UsageError(
                f"The price of {spec.model} is not known, so no budget in USD can be kept; limit turns, or set prices."
            )
        return limits

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """The tools of the next request."""
        return self._lacks.tools(self._offer.specs(self.history))

    def messages(self) -> list[Message]:
        """The conversation, as the model can take it. Ask for the tools first: they may change what it refers to."""
        return self._lacks.messages(self.transcript.messages)

    async def compact(self, instructions: str = "") -> str:
        """Replace the conversation by a summary, between two runs; returns why it was not done, or an empty text.

        Raises `RunStopped` when it was interrupted.
        """
        return await self.window.compact("manual", instructions)

    def owners(self) -> list[Owner]:
        """The open owners that this agent's conversation concerns."""
        return [owner for _, agent, owner in self.session.owners if agent in ("", self.spec.id)]

    def tail(self) -> list[events.UserText]:
        """All the changing facts, said anew."""
        return self._tail.again(self.session)

    async def spent(self, answer: Answer, what: str) -> None:
        """Count an answer beside the conversation, and write it down."""
        model = answer.model or self.spec.model
        self.spending.add(model, answer.usage, self.limits.price, turns=0)
        await self.log(events.Spent(model=model, usage=answer.usage, what=what))

    def interruption(self) -> RunStopped:
        """Why there is no answer: an abort, or a limit."""
        self._check_abort()
        return self.limits.over() or RunStopped(Stop.INTERRUPTED, "The run was interrupted.")

    def _check_abort(self) -> None:
        if self.session.aborted is not None:
            raise RunStopped(self.session.aborted, "The run was interrupted.")
        if self.session.deferred is not None and self.transcript is self.session.transcript:
            raise RunStopped(Stop.DEFERRED, f"{self.session.deferred.tool} was put off.")
        self._check_halt()

    def _check_halt(self) -> None:
        """End the run where a hook wants that; the reason is used up by it."""
        text, self.session.halted = self.session.halted, ""
        if text:
            raise RunStopped(Stop.HOOK, text)

    async def _screen(self) -> None:
        """Ask the hooks about what a person said meanwhile; what they refuse is left out, and that is told."""
        for text in [text for text in self.inbox if text.origin == "human"]:
            denied, note = await self._may(text)
            if denied:
                self.inbox.remove(text)
                await self.log(events.Notice(text=f"A prompt was refused: {denied}", kind="hook"))
            self.inbox.extend(note)

    def _waiting(self) -> list[events.UserText]:
        """Take the waiting messages: the person first, machines after."""
        waiting = [*self.session.take_posts(self.spec.id), *self.inbox]
        self.inbox.clear()
        return sorted(waiting, key=lambda text: ORDER.index(text.origin) if text.origin in ORDER else -1)

    async def _may(self, event: events.Event) -> tuple[str, list[events.UserText]]:
        """Ask the hooks whether this may happen: the reason against it, or an empty text, and what they add."""
        if not self.session.bus.has("peg_before_event"):
            return "", []
        verdict, by = fold(await self.session.bus.ask("peg_before_event", event=event, session=self.session))
        self._check_halt()
        note = [context.said(verdict.note, author="hook", origin="hook")] if verdict.note else []
        return (verdict.reason or f"{by} said no.") if verdict.decision == "deny" else "", note

    async def log(self, event: events.Event) -> None:
        """Write an event to the transcript and tell who listens."""
        self.transcript.append(event)
        await self.session.tell(event)


def _text(answer: Answer) -> str:
    return "".join(block["text"] for block in answer.content if block.get("type") == "text")
