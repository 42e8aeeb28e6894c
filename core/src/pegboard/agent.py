"""The loop: request, answer, calls, results, next request, until an answer asks for nothing more.

There is one loop for everything that talks to a model: a headless run, a terminal session, a child agent. Every way
out of it leaves a conversation in which each call is answered.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from pegboard import context, events
from pegboard.call import Outcome, Status
from pegboard.errors import BadRequest, Code, ProviderError, RunStopped, Stop, TooLong, UsageError
from pegboard.hooks import fold
from pegboard.provider import Answer, BlockDone, Provider, Request, Retrying, TextDelta, ThinkingDelta
from pegboard.spending import Spending

if TYPE_CHECKING:
    from pegboard.session import Session
    from pegboard.transcript import Transcript, Turn

CONTINUE = "Your answer was cut at the output limit. Go on exactly where it ended."
EMPTY = "Your last answer was empty. Go on with the task, or say that you are done."
REFUSED_BLOCK = "(A block that the model service refused was removed here.)"
VETOES = 3
"""[C] How often in a row a hook may keep a run from ending."""

ORDER = ("human", "task-notification", "peer", "coordinator", "scheduled")
"""Who is heard first when several messages wait."""

_PLACE = re.compile(r"messages\.(\d+)\.content\.(\d+)(?:\.tool_result\.content\.(\d+))?")


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
        self._tail = context.Tail()
        self._last: Answer | None = None
        self._turns = 0
        self._began = 0.0
        self._nudged = ""
        if spec.max_budget_usd is not None and self.abilities.price is None:
            raise UsageError(
                f"The price of {spec.model} is not known, so a budget in USD cannot be kept; leave it out, "
                "or limit the turns."
            )

    async def run(self, prompt: str | events.UserText, *, opening: Iterable[events.UserText] = ()) -> RunResult:
        """Say ``prompt`` and go on until the model is done or a limit is reached. ``opening`` texts follow it.

        Raises `TranscriptError` when the session file cannot be written; everything else is in the result.
        """
        self._began, self._turns, self._last, self._nudged = time.monotonic(), 0, None, ""
        text = events.UserText(content=[{"type": "text", "text": prompt}]) if isinstance(prompt, str) else prompt
        stopped: Stop | None = None
        errors: list[str] = []
        try:
            await self._start(text, opening)
            await self._loop()
        except RunStopped as stop:
            stopped, errors = stop.reason, [str(stop)]
        except TooLong as error:
            stopped, errors = Stop.TOO_LONG, [str(error)]
        except ProviderError as error:
            errors = [str(error)]
        reason = stopped.value if stopped else "provider_error" if errors else "completed"
        await self._log(events.Ended(reason=reason, turns=self._turns))
        return RunResult(
            text=_text(self._last),
            stop_reason=self._last.stop_reason if self._last else "",
            stopped=stopped,
            errors=errors,
            turns=self._turns,
            seconds=time.monotonic() - self._began,
        )

    async def _start(self, prompt: events.UserText, opening: Iterable[events.UserText]) -> None:
        denied, note = await self._may(prompt)
        if denied:
            raise RunStopped(Stop.REFUSAL, f"The prompt was refused: {denied}")
        for text in (prompt, *opening, *note, *self._tail.news(self.session)):
            await self._log(text)

    async def _loop(self) -> None:
        vetoes = 0
        while True:
            self._check_limits()
            answer = await self._answer()
            if await self._follow(answer):
                continue
            if self.inbox:
                self.transcript.say(*self._waiting())
                continue
            denied, note = await self._may(events.Ended(reason="completed", turns=self._turns))
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
            return True
        if answer.stop_reason == "refusal":
            raise RunStopped(Stop.REFUSAL, "The model declined to answer.")
        if answer.stop_reason == "model_context_window_exceeded":
            raise RunStopped(Stop.TOO_LONG, "The conversation no longer fits the model's context window.")
        if answer.stop_reason == "max_tokens":
            if self._nudged == CONTINUE:
                raise RunStopped(Stop.INCOMPLETE, "The answer was cut at the output limit, twice in a row.")
            return self._nudge(CONTINUE)
        return not _text(answer).strip() and not self._nudged and self._nudge(EMPTY)

    def _nudge(self, text: str) -> bool:
        self._nudged = text
        self.transcript.say(context.said(text, author="pegboard", origin="auto-continuation"))
        return True

    async def _calls(self, turn: Turn, answer: Answer) -> None:
        """Run the calls of an answer, or answer them as not run when the run ends here."""
        self._nudged = ""
        over = self._exhausted()
        if over is None and answer.stop_reason == "refusal":
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
            turn.close(self._waiting())
        if over is not None:
            raise over
        self._check_abort()
        self.transcript.say(*self._tail.news(self.session))

    async def _answer_unrun(self, turn: Turn, over: RunStopped) -> None:
        code = Code.BUDGET_EXCEEDED if over.reason is Stop.BUDGET else Code.LIMIT_REACHED
        for call in turn.calls:
            outcome = Outcome(status=Status.NOT_STARTED, code=code, text=f"{call.tool} was not run. {over}")
            await self.session.tell(turn.fill(call.id, outcome))

    async def _answer(self) -> Answer:
        """The next answer of the model. One block that the service refuses is removed, once, and asked again."""
        try:
            answer = await self._stream()
        except BadRequest as error:
            place = _PLACE.search(str(error))
            numbers = tuple(int(number) for number in place.groups() if number is not None) if place else ()
            if not numbers or not self.transcript.remove(numbers, REFUSED_BLOCK):
                raise
            await self._log(events.Notice(text=f"The model service refused a part of the conversation: {error}"))
            answer = await self._stream()
        self._turns += 1
        self.spending.turns += 1
        self.spending.add(answer.model or self.spec.model, answer.usage, self.abilities.price)
        self._last = answer
        return answer

    async def _stream(self) -> Answer:
        request = Request(
            model=self.spec.model,
            system=context.system_blocks(self.spec.system),
            tools=context.tools_for(self.session, self.spec.tools),
            messages=self.transcript.messages,
            max_tokens=self.spec.max_tokens or self.abilities.max_output,
            thinking=self.spec.thinking,
            extra=self.spec.extra,
        )
        begin, blocks = time.monotonic(), 0
        try:
            with self.session.abortable(), anyio.move_on_after(self._left()):
                async for part in self.provider.stream(request):
                    if isinstance(part, Answer):
                        return part
                    if isinstance(part, BlockDone):
                        blocks += 1
                    elif isinstance(part, Retrying):
                        blocks = 0
                        await self._log(_event(part))
                    else:
                        await self.session.tell(_event(part, blocks))
        finally:
            self.spending.api_seconds += time.monotonic() - begin
        self._check_abort()
        self._check_limits()
        raise ProviderError("The model service ended its stream without an answer.")

    def _check_limits(self) -> None:
        over = self._exhausted()
        if over is not None:
            raise over

    def _check_abort(self) -> None:
        if self.session.aborted is not None:
            raise RunStopped(self.session.aborted, "The run was interrupted.")

    def _exhausted(self) -> RunStopped | None:
        """The limit that is reached, if one is."""
        spec = self.spec
        if spec.max_turns is not None and self._turns >= spec.max_turns:
            return RunStopped(Stop.MAX_TURNS, f"The run reached its limit of {spec.max_turns} turns.")
        if spec.max_budget_usd is not None and (self.spending.cost or 0.0) >= spec.max_budget_usd:
            return RunStopped(Stop.BUDGET, f"The run reached its budget of {spec.max_budget_usd:g} USD.")
        if spec.max_seconds is not None and self._left() == 0.0:
            return RunStopped(Stop.DURATION, f"The run reached its limit of {spec.max_seconds:g} seconds.")
        return None

    def _left(self) -> float | None:
        if self.spec.max_seconds is None:
            return None
        return max(0.0, self.spec.max_seconds - (time.monotonic() - self._began))

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
        note = [context.said(verdict.note, author="hook", origin="hook")] if verdict.note else []
        return (verdict.reason or f"{by} said no.") if verdict.decision == "deny" else "", note

    async def _log(self, event: events.Event) -> None:
        self.transcript.append(event)
        await self.session.tell(event)


def _text(answer: Answer | None) -> str:
    return "".join(block["text"] for block in answer.content if block.get("type") == "text") if answer else ""


def _event(part: Retrying | TextDelta | ThinkingDelta, index: int = 0) -> events.Event:
    if isinstance(part, TextDelta | ThinkingDelta):
        return events.Delta(text=part.text, kind="text" if isinstance(part, TextDelta) else "thinking", index=index)
    return events.Retry(
        attempt=part.attempt,
        max_attempts=part.max_attempts,
        delay=part.delay,
        status=part.status,
        error=part.error,
    )
