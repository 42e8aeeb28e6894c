"""How full an agent's context is, and what is done before it overflows: old results are cleared, then all is summed up.

Sizes are estimated from characters, with the rate that the service's own counts gave, so that no turn costs a count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pegboard import context, events
from pegboard.answers import aside
from pegboard.errors import ProviderError, TooLong
from pegboard.framing import framed
from pegboard.history import said
from pegboard.provider import Answer, Message, Request, Usage

if TYPE_CHECKING:
    from pegboard.agent import Agent
    from pegboard.call import Block

SLOWEST, FASTEST = 1.5, 8.0
"""[C] Characters of a token that are believed; a count outside of this is not one of the whole request."""

SUMMARY_TOKENS = 20_000
"""[C] Longest summary, where the window is large enough."""

TRIES = 3
"""[C] Requests for one summary: all of it, without old results, a digest."""

ATTACHED = 0.1
"""[C] Share of the window for what is said again after a summary."""


class Window:
    """The context window of one agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._room = agent.abilities.window
        self._rate = context.CHARACTERS
        self._counted, self._size = 0, 0
        self._sent = 0
        self._tight = False
        self._failed = 0
        self._described: tuple[Any, int] = (None, 0)

    # -- how full it is ----------------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """Estimated tokens of the next request."""
        size = self._agent.history.size
        if self._counted:
            return max(0, self._counted + int((size - self._size) / self._rate))
        return int((size + self._fixed) / self._rate)

    @property
    def ahead(self) -> Usage:
        """The least that the next request will use: what was sent before may come from a cache."""
        cached = min(self._counted, self.tokens)
        return Usage(cache_read_input_tokens=cached, input_tokens=self.tokens - cached, output_tokens=1)

    @property
    def output(self) -> int:
        """Tokens that an answer may have: what the model can give, and what is left of the window."""
        left = self._room - self.tokens - self._room // 100
        return max(min(self._agent.abilities.max_output, left), min(1_024, self._agent.abilities.max_output))

    def sending(self) -> None:
        """A request is about to be sent."""
        self._sent = self._agent.history.size

    def counted(self, answer: Answer) -> None:
        """Take the service's count of the request that was just answered."""
        usage = answer.usage
        total = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
        size = self._sent + self._fixed
        if SLOWEST <= size / max(1, total) <= FASTEST:
            self._rate, self._counted, self._size = size / total, total, self._sent
        self._tight = self._tight and answer.stop_reason == "model_context_window_exceeded"

    @property
    def _fixed(self) -> int:
        """Characters of the tools and the system text."""
        tools = self._agent.tools
        if self._described[0] is not tools:
            size = sum(len(tool.description) + len(msgspec.json.encode(tool.input_schema)) for tool in tools)
            size += sum(len(block["text"]) for block in context.system_blocks(self._agent.spec.system))
            self._described = (tools, size)
        return self._described[1]

    # -- what is done about it ---------------------------------------------------------------------------------

    async def fit(self) -> None:
        """Before a request: clear old results or sum up, where the limits of the settings are passed."""
        setting = self._agent.session.settings.value
        _ = self._agent.transcript.messages  # takes in what was said since
        if self.tokens > min(setting("context.clear_at"), self._room // 2):
            await self.clear(setting("context.keep"), min(setting("context.clear_gain"), self._room // 20))
        if self.tokens > max(self._room * setting("context.compact_at"), self._failed * 1.05):
            await self.compact("auto")

    async def overflow(self) -> bool:
        """The service says that the conversation is too long. True when it is shorter now and worth another try."""
        if self._tight:
            return False
        self._tight = True
        self._room = min(self._room, max(1_000, int(self.tokens * 0.9)))
        before = self._agent.history.size
        await self.clear(self._agent.session.settings.value("context.keep"))
        return not await self.compact("auto", tries=TRIES - 1) or self._agent.history.size < before

    async def clear(self, keep: int, least: int = 0) -> bool:
        """Clear all but the newest ``keep`` results that can be had again, if it gains ``least`` tokens."""
        agent = self._agent
        older = list(agent.history.bodies.older(keep))
        if not older or sum(body.weight for _, body in older) / self._rate < least:
            return False
        calls = [call for call, _ in older]
        for owner in agent.owners():
            owner.cleared(calls)
        agent.session.save_state()
        await agent.log(events.Cleared(calls=calls))
        return True

    async def compact(self, trigger: Literal["manual", "auto"], instructions: str = "", *, tries: int = TRIES) -> str:
        """Replace the conversation by a summary of the model; returns why it was not done, or an empty text.

        Where no summary can be had, older results are cleared and the conversation stays.
        """
        agent = self._agent
        if not agent.transcript.messages:
            return "There is nothing to sum up yet."
        asking = events.Compacting(trigger=trigger, custom_instructions=instructions, agent=agent.spec.id)
        denied, notes = await agent._may(asking)
        if denied:
            return denied
        wishes = [instructions, *(block["text"] for note in notes for block in note.content)]
        before = self.tokens
        summary = await self._summary("\n\n".join(filter(None, [context.prompt("compact"), *wishes])), tries)
        if not summary:
            self._failed = before
            await self.clear(agent.session.settings.value("context.keep"))
            text = "The model gave no summary of the conversation; it stays as it is, without older results."
            await agent.log(events.Notice(text=text, kind="compaction"))
            return text
        most = int(self._room * self._rate / 3)
        texts = [block["text"] for block in agent.history.asked if block.get("type") == "text"]
        kept: list[Block] = [{"type": "text", "text": _cut(text, most)} for text in texts]
        summary = f"{context.prompt('summary')}\n\n{summary}"
        done = events.Compacted(summary=summary, kept=kept, trigger=trigger, before=before, agent=agent.spec.id)
        await agent.log(done)
        self._counted = self._failed = 0
        await self._attach(trigger)
        return ""

    async def _attach(self, trigger: str) -> None:
        """Say again what must not be lost: what owners hold, what plug-ins say at a start, the changing facts."""
        agent = self._agent
        room = int(self._room * ATTACHED * self._rate)
        texts = []
        for owner in agent.owners():
            texts += [said(item.text, author=item.author) for item in await owner.compacted(room)]
        agent.session.save_state()
        texts += await context.openings(agent.session, "compact")
        texts += agent.tail()
        if trigger == "auto":
            texts.append(said(context.prompt("resume"), author="pegboard", origin="auto-continuation"))
        for text in texts:
            await agent.log(text)

    async def _summary(self, wanted: str, tries: int) -> str:
        """The model's summary, in a few tries that each send less; empty when none came."""
        ways: list[Callable[[str], Request]] = [*[self._whole] * (tries - 1), self._digest]
        failed = ""
        for way in ways:
            if failed == "empty" and way == self._whole:
                continue
            try:
                answer = await aside(self._agent, way(wanted))
            except TooLong:
                failed = "long"
                await self.clear(self._agent.session.settings.value("context.keep"))
                continue
            except ProviderError as error:
                await self._agent.log(events.Notice(text=f"No summary could be had: {error}", kind="compaction"))
                return ""
            await self._agent.spent(answer, "compaction")
            text = "".join(block["text"] for block in answer.content if block.get("type") == "text").strip()
            if text and answer.stop_reason != "model_context_window_exceeded":
                return text
            failed = "empty"
        return ""

    def _whole(self, wanted: str) -> Request:
        """The conversation as it was sent before, so that a cache knows it, and the wish behind it."""
        tools = self._agent.tools
        *earlier, last = self._agent.messages()
        ask: list[Block] = [{"type": "text", "text": wanted}]
        if last.role == "user":
            messages = [*earlier, Message("user", [*last.content, *ask])]
        else:
            messages = [*earlier, last, Message("user", ask)]
        return self._request(messages, tools=tools)

    def _digest(self, wanted: str) -> Request:
        """A quarter of the conversation as one text: every part of it shortened, then its middle left out."""
        messages = self._agent.transcript.messages
        most = int(min(self.tokens, self._room) * self._rate / 4)
        parts = [part for message in messages for part in _told(message)]
        each = max(200, most // max(1, len(parts)))
        text = "\n".join(_cut(part, each) for part in parts)
        told = framed(_cut(text, most), author="pegboard", origin="unclassified")
        return self._request([Message("user", [{"type": "text", "text": f"{told}\n\n{wanted}"}])], tools=[])

    def _request(self, messages: list[Message], *, tools: Any) -> Request:
        spec = self._agent.spec
        if over := self._agent.limits.over(self.ahead):
            raise over
        most = min(SUMMARY_TOKENS, max(1_024, self._room // 10), self.output)
        budget = (spec.thinking or {}).get("budget_tokens", 0)
        return Request(
            model=spec.model,
            system=context.system_blocks(spec.system),
            tools=tools,
            messages=messages,
            max_tokens=min(most + budget, self._agent.abilities.max_output),
            thinking=spec.thinking,
            extra={key: value for key, value in spec.extra.items() if key not in ("output_config", "tool_choice")},
        )


def _told(message: Message) -> list[str]:
    """The parts of a message in words."""
    who = "Person or program" if message.role == "user" else "You"
    parts = []
    for block in message.content:
        kind = block.get("type")
        if kind == "text":
            parts.append(f"{who}: {block['text']}")
        elif kind == "tool_use":
            given = msgspec.json.encode(block.get("input"), enc_hook=str).decode()
            parts.append(f"You called {block.get('name')} {given}")
        elif kind == "tool_result":
            inner = block.get("content", "")
            items = inner if isinstance(inner, list) else [{"type": "text", "text": inner}]
            parts.append("Result: " + " ".join(item.get("text", f"[{item.get('type')}]") for item in items))
    return parts


def _cut(text: str, most: int) -> str:
    """A text with its middle left out where it is too long."""
    if len(text) <= most:
        return text
    end = most * 2 // 3
    return f"{text[: most - end]} […] {text[-end:]}"
