"""The file of a session: typed records, one JSON line each, appended and never rewritten.

It is the only memory that survives a crash, so a line is in the kernel before the next step begins, and reading
takes whatever a crash can leave behind.

    Transcript.create(folder, ...)   new file, first line `Started`, locked by this process
    Transcript.resume(file)          read it, close what a crash left open, locked by this process
    transcript.open(answer)          a Turn: one slot for each call of the answer
    turn.close(texts)                the only way to the next user message
"""

from __future__ import annotations

import fcntl
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pegboard import events
from pegboard.call import Block, Call, Outcome, Status, json_safe
from pegboard.errors import Locked, TranscriptError, Unreadable
from pegboard.history import History, Slot, digest, repair, tombstone
from pegboard.lines import FILE_NAME, FORMAT, LeftOut, Outline, begun, encode, numbered, outline, read, slim
from pegboard.provider import Answer, Message

__all__ = ["FILE_NAME", "FORMAT", "Transcript", "Turn", "encode", "read"]


class Transcript:
    """One open session file and the conversation in it. Held by one process at a time."""

    def __init__(self, path: Path, handle: int, session: str) -> None:
        self.path = path
        self.session = session
        self.notices: list[str] = []
        """What the person should know about a resumed file."""
        self.mode: str | None = None
        """The permission mode that the session was last in."""
        self.cwd = ""
        """The directory that the session was last moved to; empty when it never was."""
        self.states: list[dict[str, Any]] = []
        """What the owners of a resumed session want to be told, piece by piece, oldest first."""
        self.approved: list[str] = []
        """Rules that a person's answers added for the session."""
        self.using: events.Using | None = None
        """The model and the agent of the last run."""
        self.prompts = 0
        """Number of the last prompt."""
        self.unsettled: dict[str, str] = {}
        """Remote targets whose state is not known -> the tool that touched them."""
        self.started: events.Started | None = None
        self._handle = handle
        self._history = History()
        self._turn: Turn | None = None

    @classmethod
    def create(
        cls, session_dir: Path, *, cwd: Path, version: str, session: str = "", parent: str = "", name: str = ""
    ) -> Transcript:
        """Make the folder (0700) and the file (0600) of a new session and write its first line.

        A file that never got as far as its first line is begun anew.
        """
        path = session_dir / FILE_NAME
        try:
            session_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            transcript = cls(path, os.open(path, flags, 0o600), session or session_dir.name)
        except OSError as error:
            raise TranscriptError(f"Cannot make the session file {path}: {error.strerror or error}.") from None
        try:
            if not begun(path):
                transcript._lock()
            if begun(path):  # looked at again, because another process may have begun it in between
                raise TranscriptError(f"There is a session at {session_dir} already; resume it.")
            os.ftruncate(transcript._handle, 0)
        except BaseException:
            transcript.close()
            raise
        transcript.started = events.Started(
            format=FORMAT, session=transcript.session, cwd=str(cwd), version=version, parent=parent, name=name
        )
        transcript.append(transcript.started)
        return transcript

    @classmethod
    def resume(cls, path: Path, *, mend: bool = True) -> Transcript:
        """Open the file of an earlier session and close what it left open; without ``mend`` in memory alone.

        Raises `Locked` while another process holds it, `Unreadable` when it is no session file.
        """
        transcript = cls.hold(path)
        try:
            transcript._load(mend)
        except BaseException:
            transcript.close()
            raise
        return transcript

    @classmethod
    def hold(cls, path: Path) -> Transcript:
        """Open a file and lock it, without reading it. Raises `Locked` and `Unreadable`."""
        if path.is_dir():
            path = path / FILE_NAME
        try:
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise Unreadable(f"Cannot open the session file {path}: {error.strerror or error}.") from None
        transcript = cls(path, handle, path.parent.name)
        try:
            transcript._lock()
        except BaseException:
            transcript.close()
            raise
        return transcript

    @property
    def history(self) -> History:
        """The conversation as the model sees it."""
        return self._history

    @property
    def messages(self) -> list[Message]:
        """The messages for the next request. Raises ValueError while a turn is open."""
        return self._history.messages

    def append(self, record: events.Event) -> None:
        """Write one record and take it into the conversation. Raises `TranscriptError` when it cannot be written."""
        self._history.feed(self._write(record))

    def _write(self, record: events.Event) -> events.Event:
        if not record.time:
            record.time = time.time()
        try:
            line = encode(record)
        except UnicodeEncodeError:
            record = msgspec.convert(json_safe(msgspec.to_builtins(record)), type(record))
            line = encode(record)
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._handle, view) :]
        except OSError as error:
            raise TranscriptError(f"Cannot write to {self.path}: {error.strerror or error}.") from None
        return record

    def say(self, *texts: events.UserText) -> None:
        """Add texts to the next user message. Inside a turn they wait behind the results."""
        for text in texts:
            self.append(text)

    def open(self, answer: Answer) -> Turn:
        """Write an answer and open a slot for each of its calls."""
        if self._turn is not None and not self._turn.closed:
            raise ValueError("the last turn is still open")
        record = events.Assistant(
            content=self._history.unique(answer.content),
            stop_reason=answer.stop_reason,
            model=answer.model,
            usage=answer.usage,
            id=answer.id,
            broken=answer.broken,
            cut=answer.cut,
        )
        self.append(record)
        self._turn = Turn(self, self._history, record)
        return self._turn

    def remove(self, place: tuple[int, ...], note: str) -> bool:
        """Leave out a block that the service refuses; ``place`` is message, block and, in a result, inner block.

        False when there is no such block or it cannot be missed, such as a call.
        """
        try:
            block: Block = self.messages[place[0]].content[place[1]]
            if len(place) > 2:
                block = block["content"][place[2]]
            if block.get("type") == "tool_use":
                return False
        except (IndexError, KeyError, TypeError, AttributeError):
            return False
        self.append(events.Removed(digest=digest(block), note=note))
        return True

    def rewind(self, record: events.Rewound) -> None:
        """Write that the session went back, and read the conversation anew. Raises ValueError inside a turn."""
        if self._history.in_turn:
            raise ValueError("a turn is open")
        self._write(record)
        self.states, self.approved, self.unsettled, self._turn = [], [], {}, None
        self._load()

    def close(self) -> None:
        """Release the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _lock(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Locked(
                f"Session {self.session} is in use by another process; end that one first, or add --fork to go on "
                "in a copy."
            ) from None

    def _load(self, mend: bool = True) -> None:
        bad: list[int] = []
        self._history, added = repair(self._noted(numbered(self.path, bad), outline(self.path)))
        if self.started is None and self._history.empty:
            raise Unreadable(f"{self.path} is not a session file.")
        if mend:
            self._end_line()
        if bad:
            lines = ", ".join(map(str, bad[:20])) + (" ..." if len(bad) > 20 else "")
            count = "1 line" if len(bad) == 1 else f"{len(bad)} lines"
            self.notices.append(f"{count} of {self.path} could not be read and left out: {lines}.")
        for record in added if mend else ():
            self._write(record)
        acted = [
            record.tool
            for record in added
            if isinstance(record, events.Result) and record.outcome != Status.NOT_STARTED
        ]
        if acted:
            self.notices.append(f"The last run ended while {', '.join(acted)} ran; effects may exist.")

    def _noted(self, records: Iterable[tuple[int, events.Record]], plan: Outline) -> Iterator[events.Record]:
        """Pass on what the conversation is made of, and keep what a resumed session must know beside it."""
        left = deque(plan.gone)
        for number, record in records:
            while left and left[0].last < number:
                left.popleft()
            span = left[0] if left and left[0].first <= number else None
            self._note(record, span)
            if span is None:
                yield slim(record) if number < plan.summary else record

    def _note(self, record: events.Record, span: LeftOut | None) -> None:
        if isinstance(record, events.Started):
            self.started = self.started or record
            self.session = self.started.session
        elif isinstance(record, events.Mode):
            self.mode = record.mode
        elif isinstance(record, events.Moved):
            self.cwd = record.cwd
        elif isinstance(record, events.Using):
            self.using = record
        elif isinstance(record, events.UserText | events.Marked):
            self.prompts = max(self.prompts, record.prompt)
        elif isinstance(record, events.Approved) and span is None:
            self.approved += record.rules
        elif isinstance(record, events.State):
            forgotten = span.forgotten if span else ()
            self.states.append({name: piece for name, piece in record.owners.items() if name not in forgotten})
        elif isinstance(record, events.Settled):
            self.unsettled.pop(record.target, None)
        elif isinstance(record, events.Result) and record.outcome == "unknown":
            open_remote = [item for item in record.effects if item.kind == "remote" and item.state == "open"]
            self.unsettled.update((effect.target, record.tool) for effect in open_remote)

    def _end_line(self) -> None:
        size = os.fstat(self._handle).st_size
        if size and os.pread(self._handle, 1, size - 1) != b"\n":
            os.write(self._handle, b"\n")


class Turn:
    """The calls of one answer. Every one gets exactly one result before the conversation can go on."""

    def __init__(self, transcript: Transcript, history: History, answer: events.Assistant) -> None:
        self._transcript = transcript
        self._history = history
        self.answer = answer
        """The answer as it was written, with ids that are unique in the session."""
        self.closed = False
        self.calls: list[Call] = [
            Call(
                id=block["id"],
                tool=block["name"],
                input=answer.broken.get(index, block.get("input")),
                incomplete=answer.cut and index == len(answer.content) - 1,
            )
            for index, block in enumerate(answer.content)
            if block.get("type") == "tool_use"
        ]
        """The calls, in order; the last one is incomplete when the answer was cut inside it."""

    @property
    def missing(self) -> list[str]:
        """Ids of the calls without a result."""
        return [slot.id for slot in self._slots()]

    def fill(self, call_id: str, outcome: Outcome) -> events.Result:
        """Write the result of one call. Raises ValueError for a foreign id and for a second result."""
        slot = next((slot for slot in self._slots() if slot.id == call_id), None)
        if slot is None:
            raise ValueError(f"{call_id} is not an open call of this turn")
        record = events.Result.of(call_id, slot.tool, outcome)
        self._transcript.append(record)
        return record

    def close(self, texts: Iterable[events.UserText] = ()) -> None:
        """End the turn: empty slots get a tombstone, ``texts`` come after all results in the same message."""
        if self.closed:
            raise ValueError("the turn is closed already")
        for slot in self._slots():
            self._transcript.append(tombstone(slot))
        if self.calls:
            self._transcript.append(events.Closed())
        self.closed = True
        self._transcript.say(*texts)

    def _slots(self) -> list[Slot]:
        return [] if self.closed else self._history.open_slots
