"""The loop: request, answer, calls, results, next request, until an answer asks for nothing more.

There is one loop for everything that talks to a model: a headless run, a terminal session, a child agent. Every way
out of it leaves a conversation in which each call is answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from pegboard import context, events
from pegboard.answers import ask
from pegboard.call import Outcome, Status
from pegboard.errors import Code, ProviderError, RunStopped, Stop, TooLong, UsageError
from pegboard.hooks import fold
from pegboard.lacking import Lacks
from pegboard.provider import Answer, Message, Provider, Request
from pegboard.spending import Limits, Spending

if TYPE_CHECKING:
    from pegboard.session import Session
    from pegboard.transcript import Transcript, Turn

CONTINUE = "Your answer was cut at the output limit. Go on exactly where it ended."
EMPTY = "Your last answer was empty. Go on with the task, or say that you are done."
VETOES = 8
"""[D] How often in a row a hook may keep a run from ending."""

ORDER = ("human", "task-notification", "peer", "coordinator", "scheduled")
"""Who is heard first when several messages wait."""


@dataclass(frozen=True, kw_only=True)
class AgentSpec:
    """What makes one agent differ from another."""

    model: str
    id: str = "main"
    system: str = ""
    """Text after the product's own system prompt."""
    tools: frozenset[str] | None = None
    """Names of the tools it sees; None = all."""
    max_turns: int | None = None
    max_seconds: float | None = None
    max_budget_usd: float | None = None
    max_tokens: int | None = None
    """Output limit of one answer; None = what the model can do."""
    thinking: dict[str, Any] | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    """Further top-level fields of the request."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """How a run ended. ``stopped`` is None when the model was done."""

    text: str
    """Text of the last answer."""
    stop_reason: str
    stopped: Stop | None = None
    errors: list[str] = field(default_factory=list)
    turns: int = 0
    seconds: float = 0.0

    @property
    def is_error(self) -> bool:
        """Whether the run did not come to its own end."""
        return self.stopped is not None or bool(self.errors)


class Agent:
    """One agent: a session's tools, a model, a conversation. ``run`` may be called again for the next prompt."""

    def __init__(self, session: Session, provider: Provider, spec: AgentSpec, transcript: Transcript) -> None:
        self.session = session
        self.provider = provider
        self.spec = spec
        self.transcript = transcript
        self.inbox: deque[events.UserText] = deque()
        """Messages that arrive while a run is on; delivered between batches of calls."""
        self.spending = Spending()
        self.abilities = provider.abilities(spec.model)
        self._history = transcript.history
        self._lacks = Lacks(spec.model, self.abilities)
        self._offer = context.Offer(session, self.abilities, spec.tools)
        self._tail = context.Tail(self._offer)
        session.loaded[spec.id] = self._history.found
        if not self.abilities.tool_references:
            self._history.references = False
            self._history.dissolve()
        self._text, self._joins, self._reason = "", False, ""
        self.limits = Limits(spec.max_turns, spec.max_seconds, spec.max_budget_usd)
        self._nudged = ""
        if spec.max_budget_usd is not None and self.abilities.price is None:
            raise UsageError(f"The price of {spec.model} is not known, so no budget in USD can be kept; limit turns.")

    async def run(self, prompt: str | events.UserText, *, opening: Iterable[events.UserText] = ()) -> RunResult:
        """Say ``prompt`` and go on until the model is done or a limit is reached. ``opening`` texts follow it.

        Raises `TranscriptError` when the session file cannot be written; everything else is in the result.
        """
        self._text, self._joins, self._reason, self._nudged = "", False, "", ""
        before = self.spending.turns
        self.limits.begin(self.spending)
        text = context.said(prompt, author="", origin="human") if isinstance(prompt, str) else prompt
        stopped: Stop | None = None
        errors: list[str] = []
        kind = ""
        try:
            await self._start(text, opening)
            await self._loop()
        except RunStopped as stop:
            stopped, errors = stop.reason, [str(stop)]
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
        )

    async def _start(self, prompt: events.UserText, opening: Iterable[events.UserText]) -> None:
        self._check_halt()
        denied, note = await self._may(prompt)
        if denied:
            raise RunStopped(Stop.REFUSAL, f"The prompt was refused: {denied}")
        if prompt.origin == "human" and self.transcript is self.session.transcript:
            prompt = msgspec.structs.replace(prompt, prompt=await self.session.begin_span())
        posted = self.session.take_posts(self.spec.id)
        for text in (prompt, *opening, *note, *posted, *self._tail.news(self.session)):
            await self.log(text)

    async def _loop(self) -> None:
        vetoes = 0
        while True:
            if over := self.limits.over(self.spending):
                raise over
            answer = await self._answer()
            if await self._follow(answer):
                continue
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
            raise RunStopped(Stop.TOO_LONG, "The conversation no longer fits the model's context window.")
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
        over = self.limits.over(self.spending)
        if not over and answer.stop_reason == "refusal":
            over = RunStopped(Stop.REFUSAL, "The model declined to go on.")
        try:
            if over is not None:
                await self._answer_unrun(turn, over)
            else:
                outcomes = await self.session.run_calls(turn.calls, agent=self.spec.id)
                for call, outcome in zip(turn.calls, outcomes, strict=True):
                    if call.id in turn.missing:
                        turn.fill(call.id, outcome)
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
        code = Code.BUDGET_EXCEEDED if over.reason is Stop.BUDGET else Code.LIMIT_REACHED
        for call in turn.calls:
            outcome = Outcome(status=Status.NOT_STARTED, code=code, text=f"{call.tool} was not run. {over}")
            await self.session.tell(turn.fill(call.id, outcome))

    async def _answer(self) -> Answer:
        """The next answer of the model, counted. Raises `RunStopped` when there is none."""
        spec = self.spec
        request = Request(
            model=spec.model,
            system=context.system_blocks(spec.system),
            tools=self._lacks.tools(self._offer.specs(self._history)),
            messages=self.messages(),
            max_tokens=spec.max_tokens or self.abilities.max_output,
            thinking=spec.thinking,
            extra=spec.extra,
        )
        for text in self._lacks.news():
            await self.log(events.Notice(text=text))
        answer = await ask(self, request)
        if answer is None:
            self._check_abort()
            raise self.limits.over(self.spending) or RunStopped(Stop.INTERRUPTED, "The run was interrupted.")
        self.spending.add(answer.model or spec.model, answer.usage, self.abilities.price)
        self._text = (self._text if self._joins else "") + _text(answer)
        self._joins, self._reason = False, answer.stop_reason
        return answer

    def messages(self) -> list[Message]:
        """The conversation, as the model can take it."""
        return self._lacks.messages(self.transcript.messages)

    def _check_abort(self) -> None:
        if self.session.aborted is not None:
            raise RunStopped(self.session.aborted, "The run was interrupted.")
        self._check_halt()

    def _check_halt(self) -> None:
        """End the run where a hook wants that; the reason is used up by it."""
        text, self.session.halted = self.session.halted, ""
        if text:
            raise RunStopped(Stop.HOOK, text)

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
