"""The decision log of a user: one record for each decision, each with the hash of the record before it.

It answers later why a call ran, and no record can be changed or taken out without breaking the chain behind it.
`peg audit verify` reads it; what is checked there is written down here.

    {"call": "call-1", ..., "prev_hash": <hash of the last record>, "seq": 42, ..., "hash": <SHA-256>}

``hash`` is taken over the record without it, as JSON with sorted keys and no spaces. A line that is no record was cut
by a crash; the next record lists its SHA-256 in ``skipped``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pegboard.call import DecidedBy, json_safe

if TYPE_CHECKING:
    from pegboard.decision import Finding
    from pegboard.pipeline import CallState

FILE_NAME = "decisions.jsonl"
ROTATE = 32 * 1024 * 1024
"""[C] Bytes. A file this large is set aside as ``decisions.<number>.jsonl``, and the chain goes on in a new one."""

PATIENCE = 2.0
"""[C] Seconds to wait for a process that holds the log."""

SEGMENTS, TEXT, RULES = 32, 400, 8
"""[C] Most segments, characters of a text and rules of a segment in one record, so that its size is bounded."""

SECRET = re.compile(
    rb"\b(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|AKIA[0-9A-Z]{16}|xox[abeprs]-[\w-]{10,}"
    rb"|AIza[\w-]{30,}|npm_\w{30,}|pypi-[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,})"
    rb"|(?i:(?<=bearer )|(?<=password[=:]))[^\s\"'\\]{4,}|://[^\s/\"'\\:@]+:[^\s/\"'\\@]+@"
)
"""Known shapes of keys and passwords. They are never written, also where a command held them."""

_HINTS = (
    b"sk-", b"gh", b"glpat-", b"AKIA", b"xox", b"AIza", b"npm_", b"pypi-", b"eyJ", b"earer ", b"EARER ", b"assword",
    b"ASSWORD", b"://",
)  # fmt: skip
"""A text without any of these has no such shape; looking for them costs a tenth of the pattern."""

_TAIL = 4096

_encoder = msgspec.json.Encoder(order="sorted", enc_hook=str)


class Segment(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing that the call touches, and what was said about it alone."""

    kind: str
    target: str
    verdict: str
    decided_by: DecidedBy
    rules: list[dict[str, Any]] = []
    """The rules that match, strongest first."""


class Record(msgspec.Struct, kw_only=True):
    """One decision, as it is written. ``seq`` and ``prev_hash`` are set when it is appended."""

    id: str
    """Id of the call."""
    ts: str
    """UTC, with milliseconds."""
    session: str
    agent: str
    tool: str
    input_digest: str
    """SHA-256 of the judged input, as JSON with sorted keys and no spaces."""
    cwd: str
    mode: str
    verdict: str
    """``allow`` or ``deny``: what became of the call."""
    decided_by: DecidedBy
    asked: bool = False
    """The policy alone wanted a question."""
    answer: str = ""
    """The person's choice, and the digest of what they were shown."""
    hook: str = ""
    """The hook that had a say, and what it said."""
    segments: list[Segment] = []
    losers: list[str] = []
    """Ids of matching rules that did not decide."""
    sandbox_level: str = ""
    """Empty: the call starts no process, or none in a box."""
    seq: int = 0
    prev_hash: str = ""
    skipped: list[str] = []
    """SHA-256 of each line since the last record that is none: what a crash left behind."""


class Link(msgspec.Struct):
    """The part of a record that the next one hangs on."""

    seq: int
    hash: str


_link = msgspec.json.Decoder(Link)


class DecisionLog:
    """The log in one folder. Any number of processes append to it; none of them ever changes what is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE_NAME
        self.last = Link(0, "")
        """The last record that this process knows of."""
        self._handle = -1
        self._size = -1

    def append(self, record: Record) -> Link:
        """Write a record behind the last one of any process. Raises OSError; then nothing relies on the record.

        One ``write``, no fsync: it survives the death of the process, not that of the machine.
        """
        with self._held():
            record.skipped, begin = self._catch_up()
            record.seq, record.prev_hash = self.last.seq + 1, self.last.hash
            body = _masked(_encode(record))
            link = Link(record.seq, hashlib.sha256(body).hexdigest())
            line = memoryview(begin + body[:-1] + b',"hash":"' + link.hash.encode() + b'"}\n')
            while line:
                line = line[os.write(self._handle, line) :]
            self.last, self._size = link, os.fstat(self._handle).st_size
        return link

    def close(self) -> None:
        """Release the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the lock of the file that is at the path now; a full one is set aside first."""
        end = time.monotonic() + PATIENCE
        while True:
            if self._handle < 0:
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._handle, self._size = os.open(self.path, flags, 0o600), -1
            while not _locked(self._handle):
                if time.monotonic() > end:
                    raise TimeoutError(f"another process holds {self.path}")
                time.sleep(0.001)
            try:
                here = os.fstat(self._handle)
                if _same(here, self.path):
                    if here.st_size < ROTATE:
                        yield
                        return
                    os.rename(self.path, self.path.with_name(f"decisions.{_number(self.folder) + 1:06}.jsonl"))
            finally:
                fcntl.flock(self._handle, fcntl.LOCK_UN)
            self.close()

    def _catch_up(self) -> tuple[list[str], bytes]:
        """Find the last record, where others have written since. Returns the skipped lines and what must come first.

        A chain that is shorter than this process knows was cut: it goes on behind what is known, so that it shows.
        """
        size = os.fstat(self._handle).st_size
        if size == self._size:
            return [], b""
        found, skipped, torn = last_link(self._handle, size)
        if found is None and (older := files(self.folder)[:-1]):
            handle = os.open(older[-1], os.O_RDONLY | os.O_CLOEXEC)
            try:
                found, before, _ = last_link(handle, os.fstat(handle).st_size)
                skipped = before + skipped
            finally:
                os.close(handle)
        if found is not None and found.seq >= self.last.seq:
            self.last = found
        return skipped, b"\n" if torn else b""


def note(state: CallState, decided: DecidedBy | None) -> None:
    """Log the final decision of a call: who refused it, or None when it may run now.

    Where managed policy wants a log (``audit.required``) and there can be none, a call that may run is refused.
    """
    session, verdict = state.session, "deny" if decided is not None else "allow"
    if state.logged == verdict:
        return
    if not (session.settings.value("audit.enabled") or session.settings.value("audit.required")):
        return
    state.logged = verdict
    if session.log is None:
        session.log = DecisionLog(session.places.user_dir / "audit")
    try:
        session.log.append(_record(state, decided))
    except OSError as error:
        from pegboard.errors import Code, Refusal

        text = f"The decision log {session.log.path} cannot be written: {error.strerror or error}."
        if decided is None and session.settings.value("audit.required"):
            by = DecidedBy(by="policy", source="audit.required", reason="the decision cannot be logged")
            hint = "Managed policy wants every decision in the log; the operator has to repair it."
            raise Refusal(Code.DENIED_BY_POLICY, f"{text} Nothing was run.", hint=hint, decision=by) from None
        session.trace("audit", state.call.id, text)


def anchor(log: DecisionLog, session: str, extra: str) -> str:
    """Say where the chain stands, for the transcript; also add it to the file ``extra``, if one is named."""
    link = log.last
    log.close()
    if extra and link.seq:
        line = _encoder.encode({"at": _now(), "hash": link.hash, "seq": link.seq, "session": session}) + b"\n"
        try:
            handle = os.open(extra, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(handle, line)
            finally:
                os.close(handle)
        except OSError as error:
            return f"decision log: record {link.seq}, hash {link.hash}; {extra} cannot be written: {error.strerror}"
    return f"decision log: record {link.seq}, hash {link.hash}"


def files(folder: Path) -> list[Path]:
    """The files of a log, oldest first."""
    older = sorted(folder.glob("decisions.*[0-9].jsonl"))
    return [*older, *([folder / FILE_NAME] if (folder / FILE_NAME).exists() else [])]


def last_link(handle: int, size: int) -> tuple[Link | None, list[str], bool]:
    """The last record of an open file, digests of the lines behind it, and whether the last line lacks its end.

    Reads from the end, and only as far as it must.
    """
    length = min(size, _TAIL)
    while True:
        lines = os.pread(handle, length, size - length).split(b"\n")
        skipped: list[str] = []
        for index in range(len(lines) - 1, -1 if length == size else 0, -1):
            if not lines[index]:
                continue
            if (link := _linked(lines[index])) is not None:
                return link, skipped[::-1], bool(lines[-1])
            skipped.append(hashlib.sha256(lines[index]).hexdigest())
        if length == size:
            return None, skipped[::-1], bool(lines[-1])
        length = min(size, length * 8)


def _record(state: CallState, decided: DecidedBy | None) -> Record:
    decision, session = state.decision, state.session
    by = decided or state.answered or (decision.decided_by if decision else DecidedBy(by="mode"))
    answered = state.answered or (decided if decided is not None and decided.by == "user" else None)
    return Record(
        id=state.call.id,
        ts=_now(),
        session=session.id,
        agent=state.agent,
        tool=state.name,
        input_digest=hashlib.sha256(_encode(state.raw)).hexdigest(),
        cwd=str(session.cwd),
        mode=state.snapshot.mode.value,
        verdict=state.logged,
        decided_by=DecidedBy(by=by.by, source=by.source[:TEXT], reason=by.reason[:TEXT]),
        asked=decision is not None and decision.verdict == "ask",
        answer=f"{answered.source} {answered.reason}".strip()[:TEXT] if answered is not None else "",
        hook=state.hook[:TEXT],
        segments=[_segment(found) for found in decision.findings[:SEGMENTS] if found.access] if decision else [],
        losers=[rule.id[:TEXT] for rule in decision.losers[:SEGMENTS]] if decision else [],
        sandbox_level=state.ctx.box.level if state.ctx is not None and state.ctx.box is not None else "",
    )


def _segment(found: Finding) -> Segment:
    assert found.access is not None
    return Segment(
        kind=found.access.kind.value,
        target=found.access.target[:TEXT],
        verdict=found.verdict,
        decided_by=DecidedBy(by=found.by.by, source=found.by.source[:TEXT], reason=found.by.reason[:TEXT]),
        rules=[rule.shown() for rule in found.rules[:RULES]],
    )


def _encode(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(json_safe(msgspec.to_builtins(value)))


def _masked(body: bytes) -> bytes:
    return SECRET.sub(b"[masked]", body) if any(hint in body for hint in _HINTS) else body


def _linked(line: bytes) -> Link | None:
    try:
        return _link.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _same(found: os.stat_result, path: Path) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (found.st_ino, found.st_dev) == (there.st_ino, there.st_dev)


def _number(folder: Path) -> int:
    """The number of the newest file that was set aside."""
    return max((int(path.name.split(".")[1]) for path in folder.glob("decisions.*[0-9].jsonl")), default=0)


def _now() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"
