"""`--input-format stream-json`: a session that stays open for messages and requests until stdin closes.

Each message of a person ends with its own ``result`` line. One that comes while a prompt is worked on is said behind
the results of the calls that run just then; one that comes too late for that is the next prompt.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from pegboard import events
from pegboard.cli import control, stdin
from pegboard.cli.channel import Channel
from pegboard.errors import PegError
from pegboard.grants import Granter

if TYPE_CHECKING:
    from pegboard.agent import Agent
    from pegboard.cli.answering import Answered
    from pegboard.cli.channel import JSONObject
    from pegboard.cli.run import Ending
    from pegboard.cli.structured import Structured

BLOCKS = ("text", "image", "document")
"""Kinds of content that a message may have."""


@dataclass(frozen=True)
class Message:
    """Something to say to the model. ``id``: the message's own ``uuid``, or empty."""

    text: events.UserText
    id: str = ""


class Conversation:
    """The prompts of one session, one after the other, and the requests in between."""

    def __init__(
        self, agent: Agent, host: Answered, ending: Ending, structured: Structured | None, *, asks: bool
    ) -> None:
        """``asks``: permission questions go to the other side."""
        self.agent = agent
        self.prompts: dict[str, int] = {}
        self.busy = False
        self._host = host
        self._channel = Channel(host.line)
        self._ending = ending
        self._structured = structured
        self._queue: deque[Message] = deque()
        self._joined: list[Message] = []
        self._wake = anyio.Event()
        self._odd: set[str] = set()
        host.heard = self._heard
        if asks:
            host.answer = self._channel.ask
            host.granter = Granter("your answer", "user", session_only=False)

    async def run(self, opening: Iterable[events.UserText]) -> bool:
        """Work on what comes until nothing more does. Whether the last prompt failed."""
        failed = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, tasks)
            if self.agent.history.deferred:
                self._queue.appendleft(Message(events.UserText(content=[])))
            while (message := await self._next()) is not None:
                failed = await self._work(message, opening)
                opening = ()
            tasks.cancel_scope.cancel()
        return failed

    async def _next(self) -> Message | None:
        session = self.agent.session
        while not self._ending.ended:
            if self._queue:
                return self._queue.popleft()
            if posts := session.take_posts():
                for text in posts[1:]:
                    session.post(text)
                return Message(posts[0])
            if self._channel.closed:
                return None
            self._wake = anyio.Event()
            with session.abortable():
                await self._wake.wait()
        return None

    async def _work(self, message: Message, opening: Iterable[events.UserText]) -> bool:
        self.busy, self._joined, failed = True, [], False
        self._host.prompt()
        run = await self.agent.run(message.text, opening=opening)
        fields = self._structured.fields(run) if self._structured is not None else {}
        for one in (message, *self._joined):
            if one.id:
                self.prompts[one.id] = self.agent.transcript.prompts
            failed = await self._host.finish(run, self.agent.spending, fields)
        self.busy = False
        if not self._ending.ended:
            self.agent.session.resume()
        return failed

    def _heard(self, event: events.Event) -> None:
        """A call has ended, so what waits can be said behind its result; or something happened while nobody worked."""
        if not self.busy:
            self._wake.set()
        elif isinstance(event, events.Result) and event.agent == "main":
            self._joined += self._queue
            self.agent.inbox += (message.text for message in self._queue)
            self._queue.clear()

    async def _listen(self, tasks: Any) -> None:
        async for line in stdin.lines():
            try:
                given = json.loads(line)
                if not isinstance(given, dict):
                    raise ValueError("it is no object")
            except ValueError as error:
                self._host.say(f"A line on stdin is left out, because it is no JSON object: {error}.")
                continue
            await self._take(given, tasks)
        self._channel.close()
        self._wake.set()

    async def _take(self, given: JSONObject, tasks: Any) -> None:
        kind = given.get("type")
        if kind == "user":
            self._say(given)
        elif kind == "control_request":
            request = given.get("request")
            done = self._request, given.get("request_id"), request if isinstance(request, dict) else {}
            if control.takes_time(done[2]):
                tasks.start_soon(*done)
            else:
                await self._request(*done[1:])
        elif kind == "control_response":
            if not self._channel.answered(given.get("response")):
                self._host.say("An answer on stdin belongs to no open question; it is left out.")
        elif kind not in ("keep_alive", "control_cancel_request") and str(kind) not in self._odd:
            self._odd.add(str(kind))
            self._host.say(f"Lines of the type {kind!r} on stdin are left out; nobody here understands them.")

    def _say(self, given: JSONObject) -> None:
        message = given.get("message")
        try:
            blocks = _content(message)
        except ValueError as error:
            self._host.say(f"A message on stdin is left out: {error}.")
            return
        name = given.get("uuid")
        self._queue.append(Message(events.UserText(content=blocks), name if isinstance(name, str) else ""))
        self._wake.set()

    async def _request(self, request_id: object, request: JSONObject) -> None:
        if not isinstance(request_id, str) or not request_id:
            self._host.say("A control request on stdin has no request_id; it is left out.")
            return
        try:
            done = await control.handle(request, self)
        except PegError as error:
            await self._channel.refuse(request_id, str(error))
        else:
            await self._channel.reply(request_id, done)


def _content(message: object) -> list[dict[str, Any]]:
    """The blocks of a user message. Raises ValueError with what is wrong with it."""
    given = message if isinstance(message, dict) else {}
    if given.get("role", "user") != "user":
        raise ValueError("only messages of the role user can be said")
    content = given.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not blocks:
        raise ValueError("message.content must be a text or a list of blocks")
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind not in BLOCKS or (kind == "text" and not isinstance(block.get("text"), str)):
            raise ValueError(f"message.content may hold blocks of the types {', '.join(BLOCKS)}")
    if not any(block["type"] != "text" or block["text"].strip() for block in blocks):
        raise ValueError("it is empty")
    return [{"type": "text", "text": block["text"]} if block["type"] == "text" else block for block in blocks]
