"""Somebody who answers for the person of a headless run: the program at the other end, or a tool.

What they say counts as the person's word, so it is bound to the call that was asked about, and nothing is guessed from
an answer that cannot be understood: that is a no.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from pegboard import events
from pegboard.errors import Stop, UsageError
from pegboard.grants import Granter, change, suggestions
from pegboard.headless import Headless
from pegboard.host import Choice, Question, Reply

if TYPE_CHECKING:
    from pegboard import output
    from pegboard.cli.channel import JSONObject
    from pegboard.headless import Out
    from pegboard.session import Session

AGENT = "permission"
"""The agent in whose name a tool that answers is called."""

Answer = Callable[["JSONObject"], Awaitable["JSONObject | None"]]
"""From a ``can_use_tool`` request to ``behavior`` and what belongs to it; None = nobody answers."""


async def _nobody(request: JSONObject) -> JSONObject | None:
    return None


class Answered(Headless):
    """A headless run whose questions somebody answers."""

    session: Session

    def __init__(self, form: output.Form, out: Out, *, partial: bool = False, verbose: bool = False) -> None:
        super().__init__(form, out, partial=partial, verbose=verbose)
        self.answer: Answer = _nobody
        """Who answers."""
        self.granter = Granter("nobody", "user", session_only=True)
        """With whose authority answers change permissions."""
        self.heard: Callable[[events.Event], None] = lambda event: None
        """Told of every event after it was shown."""

    async def show(self, event: events.Event) -> None:
        """One event; calls of a tool that answers are not part of the conversation."""
        if not (isinstance(event, events.Result) and event.agent == AGENT):
            await super().show(event)
        self.heard(event)

    async def ask(self, question: Question) -> Reply | None:
        """Permission for one call, as whoever answers gives it."""
        request: JSONObject = {
            "subtype": "can_use_tool",
            "tool_name": question.tool,
            "input": question.input,
            "tool_use_id": question.call_id,
            "permission_suggestions": suggestions(question),
            "decision_reason": question.decision.decided_by.reason,
            "lines": question.lines,
        }
        return await self._reply(await self.answer(request), question.tool)

    async def question(self, questions: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Answers to the model's own questions: what comes back as ``updatedInput``."""
        given = await self.answer(_asked("AskUserQuestion", {"questions": questions}))
        reply = await self._reply(given, "AskUserQuestion")
        return reply.input if reply is not None and reply.choice is not Choice.NO else None

    async def approve_plan(self, plan: str) -> Reply | None:
        """Approval of a plan."""
        given = await self.answer(_asked("ExitPlanMode", {"plan": plan}))
        return await self._reply(given, "ExitPlanMode")

    async def _reply(self, given: JSONObject | None, tool: str) -> Reply | None:
        if given is None:
            return None
        message = given.get("message")
        comment = message if isinstance(message, str) else ""
        if given.get("behavior") == "allow":
            await self._change(given.get("updatedPermissions"))
            changed = given.get("updatedInput")
            return Reply(Choice.ONCE, input=dict(changed) if isinstance(changed, Mapping) else None)
        if given.get("behavior") != "deny":
            self.say(f"The answer about {tool} has no behavior allow or deny, so it counts as a no.")
        if given.get("interrupt") is True:
            self.session.abort(Stop.INTERRUPTED)
        return Reply(Choice.NO, comment)

    async def _change(self, updates: object) -> None:
        for update in updates if isinstance(updates, list) else []:
            if fault := await change(self.session, update, self.granter):
                self.say(f"An answer asked for a permission change that is not made: {fault}")


def _asked(tool: str, given: JSONObject) -> JSONObject:
    return {"subtype": "can_use_tool", "tool_name": tool, "input": given, "requires_user_interaction": True}


def by_tool(host: Answered, session: Session, name: str) -> None:
    """Let a tool answer: it gets ``tool_name``, ``input`` and ``tool_use_id``, and says its answer as JSON.

    What it does is judged like every other call, but about its own calls nobody is asked. Raises `UsageError`.
    """
    if session.find_tool(name) is None:
        known = ", ".join(sorted(session.tools()))
        raise UsageError(f"--permission-prompt-tool: there is no tool {name!r}. Tools here: {known}.")

    async def answer(request: JSONObject) -> JSONObject | None:
        from pegboard.call import Call
        from pegboard.pipeline import run_call

        if request["tool_name"] == name:
            return None
        given = {key: request[key] for key in ("tool_name", "input", "tool_use_id") if key in request}
        call = Call(id=f"{given.get('tool_use_id', name)}-permission", tool=name, input=given, origin="client")
        outcome = await run_call(call, session, AGENT)
        found = None if outcome.is_error else _json_of(outcome.plain())
        if found is None:
            host.say(f"{name} gave no answer about {request['tool_name']}: {outcome.plain()[:500]}")
        return found

    host.answer = answer
    host.granter = Granter(f"the tool {name}", "plugin", session_only=True)


def _json_of(text: str) -> JSONObject | None:
    import json

    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
