"""The control channel: requests and answers between this run and the program that started it, beside the messages.

Each request carries an id, and each is answered once. When the other side is gone, so is everybody who could answer.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

JSONObject = dict[str, Any]
Send = Callable[[JSONObject], Awaitable[None]]


class Channel:
    """Asks the other side, and takes its answers. ``send`` writes one line."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._open: dict[str, _Asked] = {}
        self.closed = False
        """Nothing will come any more."""

    async def ask(self, request: JSONObject) -> JSONObject | None:
        """The answer to a request; None when there is none: an error, or nobody is there.

        A question that is not wanted any more is taken back.
        """
        if self.closed:
            return None
        name, asked = str(uuid.uuid4()), _Asked()
        self._open[name] = asked
        try:
            await self._send({"type": "control_request", "request_id": name, "request": request})
            await asked.done.wait()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._send({"type": "control_cancel_request", "request_id": name})
            raise
        finally:
            del self._open[name]
        return asked.answer

    def answered(self, response: object) -> bool:
        """Take the answer to a question; False when nobody waits for it."""
        given = response if isinstance(response, dict) else {}
        asked = self._open.get(str(given.get("request_id")))
        if asked is None or asked.done.is_set():
            return False
        answer = given.get("response")
        asked.answer = answer if given.get("subtype") == "success" and isinstance(answer, dict) else None
        asked.done.set()
        return True

    async def reply(self, request_id: str, response: JSONObject) -> None:
        """Say that a request of the other side was done."""
        await self._respond({"subtype": "success", "request_id": request_id, "response": response})

    async def refuse(self, request_id: str, error: str) -> None:
        """Say why a request of the other side was not done."""
        await self._respond({"subtype": "error", "request_id": request_id, "error": error})

    def close(self) -> None:
        """The other side is gone: whoever waits gets no answer."""
        self.closed = True
        for asked in self._open.values():
            asked.done.set()

    async def _respond(self, response: JSONObject) -> None:
        await self._send({"type": "control_response", "response": response})


class _Asked:
    """A question that waits for its answer."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.answer: JSONObject | None = None
