"""Headless: the host that nobody sits at, and the stdout that carries its format and nothing else.

It is in the core because scripts, tests and other programs build on it.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import msgspec

from pegboard import events, output
from pegboard.call import json_safe
from pegboard.host import Host

if TYPE_CHECKING:
    from pegboard.agent import RunResult
    from pegboard.session import Session
    from pegboard.spending import Spending

PIPE_CHUNK = 4096
"""Bytes that a pipe takes without blocking once it is ready (POSIX: PIPE_BUF)."""

TARGET = 60
"""[C] Characters of a call's first field that a notice shows."""

PATIENCE = 2.0
"""[C] Seconds that an ended run waits for a reader that does not read."""


class Out:
    """The claimed stdout. Whole lines, in order; a slow reader is waited for, a reader that left ends it quietly."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._blocks = not stat.S_ISREG(os.fstat(handle).st_mode)
        self._lock = anyio.Lock(fast_acquire=True)
        self.gone = False
        """Nobody reads any more."""
        self.left: Callable[[], None] = lambda: None
        """Called once, when the reader has left."""
        self.hurry = False
        """Wait no longer than `PATIENCE` for a reader from now on."""

    @classmethod
    def claim(cls) -> Out:
        """Take stdout for the format alone: what anything else prints there goes to stderr from now on."""
        sys.stdout.flush()
        handle = os.dup(1)
        os.set_inheritable(handle, False)
        os.dup2(2, 1)
        return cls(handle)

    async def write(self, line: bytes) -> None:
        """Write one line with its newline."""
        async with self._lock:
            with anyio.CancelScope(shield=True):
                view = memoryview(line)
                while view and not self.gone:
                    if self._blocks:
                        await self._ready()
                    if not self.gone:
                        view = view[self._some(view) :]

    def _some(self, view: memoryview) -> int:
        try:
            return os.write(self._handle, view[:PIPE_CHUNK] if self._blocks else view)
        except OSError:
            self._leave()
            return 0

    async def _ready(self) -> None:
        """Return when a chunk can be written without blocking the session."""
        begin = 0.0
        while not select.select([], [self._handle], [], 0)[1]:
            begin = begin or time.monotonic()
            if self.hurry and time.monotonic() - begin > PATIENCE:
                self._leave()
                return
            with anyio.move_on_after(0.25):
                await anyio.wait_writable(self._handle)

    def _leave(self) -> None:
        if not self.gone:
            self.gone = True
            self.left()


class Headless(Host):
    """Prints a run in one of the formats. Every question is answered by nobody, so what would ask is denied."""

    name = "headless"

    def __init__(self, form: output.Form, out: Out, *, partial: bool = False, verbose: bool = False) -> None:
        self._form = form
        self._out = out
        self._partial = partial
        self._verbose = verbose or (form == "text" and os.isatty(2))
        """Tell each call as it ends: a person at a terminal sees that something goes on."""
        self._session_id = ""
        self._begin = time.monotonic()
        self.denials: list[events.Result] = []
        """Results of calls that were not permitted."""

    async def begin(self, session: Session, model: str) -> None:
        """Say what is here; the first line of a stream."""
        self._session_id = session.id
        if self._form == "stream-json":
            await self.line(output.init(session, model))

    async def show(self, event: events.Event) -> None:
        """One event: a line of the stream, or a notice on stderr."""
        if isinstance(event, events.Result) and output.is_denial(event):
            self.denials.append(event)
        if isinstance(event, events.Notice):
            self.say(event.text)
        if self._form == "stream-json":
            for line in output.lines(event, self._session_id, partial=self._partial):
                await self.line(line)
        elif isinstance(event, events.Retry):
            self.say(f"The model service failed ({event.error}); try {event.attempt} of {event.max_attempts} follows.")
        elif self._verbose and isinstance(event, events.Result):
            target = str(next(iter((event.input or {}).values()), "")).replace("\n", " ")[:TARGET]
            self.say(
                f"{event.tool} {target}".rstrip() + f": {event.outcome}" + (f" ({event.code})" if event.code else "")
            )

    async def notify(self, text: str, kind: str = "info") -> None:
        """A notice for the person: stderr."""
        self.say(text)

    def say(self, text: str) -> None:
        """Write a notice to stderr; a closed stderr is no reason to stop."""
        try:
            os.write(2, f"peg: {text}\n".encode("utf-8", "replace"))
        except OSError:
            return

    def prompt(self) -> None:
        """A prompt begins: its result counts from here."""
        self._begin, self.denials = time.monotonic(), []

    async def finish(self, run: RunResult, spending: Spending, fields: output.JSONObject | None = None) -> bool:
        """Print the end of the run: the answer, or the object that every JSON format ends with.

        ``fields`` are added to that object, or replace what it says. Returns whether it says that the run failed.
        """
        seconds = time.monotonic() - self._begin
        ended = output.result(run, spending, self._session_id, self.denials, seconds) | (fields or {})
        if self._form == "text":
            if run.text.strip():
                await self._out.write((run.text.rstrip("\n") + "\n").encode("utf-8", "replace"))
            for denied in self.denials:
                self.say(f"{denied.tool} was not permitted ({denied.code}).")
        else:
            await self.line(ended)
        for error in ended.get("errors", ()):
            self.say(error)
        return bool(ended["is_error"])

    async def line(self, line: output.JSONObject) -> None:
        """Write one object."""
        try:
            encoded = msgspec.json.encode(line, enc_hook=str)
        except UnicodeEncodeError:
            encoded = msgspec.json.encode(json_safe(msgspec.to_builtins(line, enc_hook=str)))
        await self._out.write(encoded + b"\n")
