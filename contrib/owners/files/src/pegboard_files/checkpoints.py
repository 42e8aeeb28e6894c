"""The checkpoint store on disk: contents by digest, and one line for each file that a span of work touched first.

It is written before the change it is about, so that a crash at any point leaves a way back.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec

from pegboard_files.disk import digest_of

SPANS = 100
"""[D] Newest spans that are kept."""


class Touch(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became of one file in one span."""

    span: int
    path: str
    """Real path."""
    before: str | None
    """Digest of the content before the first change; None = the file did not exist."""
    after: str | None
    """Digest of the content that the last change wrote; None = the file was removed."""
    mode: int = 0o644
    """Permission bits before the change."""
    agent: str = "main"
    """Who changed it; a subagent as soon as one did."""
    link: bool = False
    """The file was reached through a symbolic link."""
    names: int = 1
    """Number of hard links before the change."""


class Span(msgspec.Struct, kw_only=True):
    """The work between two marks."""

    id: int
    """Nanoseconds since the epoch when it began, so that ids of all processes of a session are in order."""
    touched: dict[str, Touch] = {}


class Floor(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """First line of an index that was shortened: older spans are gone, so nothing before can be restored."""

    floor: int


class Checkpoints:
    """The folder ``checkpoints/`` of one session: ``index.jsonl`` and one file for each content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spans: list[Span] = []
        self.floor = 0
        """Id of the oldest span of which everything is kept."""
        self._load()

    @property
    def current(self) -> Span:
        """The span that changes are recorded in; made when there is none."""
        return self.spans[-1] if self.spans else self.begin()

    def begin(self) -> Span:
        """Start a span. Drops the oldest ones beyond the limit."""
        span = Span(id=max(time.time_ns(), self.spans[-1].id + 1 if self.spans else 0))
        self.spans.append(span)
        if len(self.spans) > SPANS:
            self._prune()
        return span

    def path_of(self, digest: str) -> Path:
        """Where a content is kept."""
        return self.folder / digest

    def content(self, digest: str) -> bytes | None:
        """A kept content, or None when it is missing or damaged."""
        try:
            raw = self.path_of(digest).read_bytes()
        except OSError:
            return None
        return raw if digest_of(raw) == digest else None

    def keep(self, touch: Touch, before: bytes | None) -> None:
        """Store a content and the line about it. The first change of a span decides what ``before`` is.

        Raises `OSError` when the store cannot be written.
        """
        span = self.current
        first = span.touched.get(touch.path)
        if first is not None:
            touch = msgspec.structs.replace(
                first,
                after=touch.after,
                link=first.link or touch.link,
                names=max(first.names, touch.names),
                agent=touch.agent if touch.agent != "main" else first.agent,
            )
        elif before is not None and touch.before is not None:
            self._store(touch.before, before)
        touch = msgspec.structs.replace(touch, span=span.id)
        self._append(touch)
        span.touched[touch.path] = touch

    def _store(self, digest: str, raw: bytes) -> None:
        path = self.path_of(digest)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size == len(raw):
                return
        self._make()
        part = self.folder / f".{digest}.{os.getpid()}.part"
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(raw)
            part.rename(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def _append(self, touch: Touch) -> None:
        self._make()
        handle = os.open(self._index, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(handle).st_size
            torn = size and os.pread(handle, 1, size - 1) != b"\n"
            line = (b"\n" if torn else b"") + msgspec.json.encode(touch) + b"\n"
            if os.write(handle, line) != len(line):
                raise OSError("the index of the checkpoints could not be written whole")
        finally:
            os.close(handle)

    @property
    def _index(self) -> Path:
        return self.folder / "index.jsonl"

    def _make(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _load(self) -> None:
        try:
            lines = self._index.read_bytes().splitlines()
        except OSError:
            return
        spans: dict[int, Span] = {}
        for line in lines:
            with contextlib.suppress(msgspec.DecodeError):
                if line.startswith(b'{"floor"'):
                    self.floor = msgspec.json.decode(line, type=Floor).floor
                    continue
                touch = msgspec.json.decode(line, type=Touch)
                span = spans.setdefault(touch.span, Span(id=touch.span))
                span.touched[touch.path] = touch
        self.spans = [spans[key] for key in sorted(spans)]

    def _prune(self) -> None:
        self.spans = self.spans[-SPANS:]
        self.floor = self.spans[0].id
        needed = {touch.before for span in self.spans for touch in span.touched.values()}
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                if path.name != self._index.name and path.name not in needed:
                    path.unlink()
            lines = [msgspec.json.encode(Floor(floor=self.floor))]
            lines += [msgspec.json.encode(touch) for span in self.spans for touch in span.touched.values()]
            part = self.folder / ".index.part"
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.writelines(line + b"\n" for line in lines)
            part.rename(self._index)
