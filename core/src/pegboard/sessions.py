"""The sessions of a project on disk: find one, list them all.

Listing reads the head and the tail of each file only, so that a huge transcript costs no more than a small one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pegboard import events
from pegboard.errors import UsageError
from pegboard.lines import FILE_NAME, begun, decode
from pegboard.places import Places

EDGE_BYTES = 65_536
"""[C] How much of the head and of the tail of a file a listing reads."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One session in a listing. Times are seconds since the epoch."""

    id: str
    name: str
    parent: str
    """Session that it is a copy of; empty when it is none."""
    cwd: str
    started: float
    updated: float
    bytes: int
    prompt: str
    """The first prompt, on one line, cut."""
    ended: str
    """How the last run ended; empty when it is still on or was killed."""


def find(places: Places, wanted: str) -> Path:
    """The folder of a session by its id, the beginning of its id, or its name. Raises `UsageError` otherwise."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", wanted):
        exact = places.sessions_dir / wanted
        if begun(exact / FILE_NAME):
            return exact
        alike = [path.parent for path in _files(places) if path.parent.name.startswith(wanted)]
        if len(alike) == 1:
            return alike[0]
        if alike:
            raise UsageError(f"{len(alike)} sessions begin with {wanted}; write more of the id.")
    named = [places.sessions_dir / item.id for item in listing(places) if item.name == wanted]
    if len(named) > 1:
        raise UsageError(f"{len(named)} sessions are named {wanted}: {', '.join(path.name for path in named)}.")
    if named:
        return named[0]
    raise UsageError(f"There is no session {wanted} in this project; see: peg sessions list")


def latest(places: Places) -> Path:
    """The folder of the session that was written to last. Raises `UsageError` when there is none."""
    files = sorted(_files(places), key=lambda path: path.stat().st_mtime)
    if not files:
        raise UsageError("There is no session to continue in this project yet.")
    return files[-1].parent


def listing(places: Places) -> list[Summary]:
    """The sessions of the project, newest first."""
    return sorted(map(_summary, _files(places)), key=lambda item: -item.updated)


def _files(places: Places) -> Iterator[Path]:
    folder = places.sessions_dir
    if folder.is_dir():
        yield from (path / FILE_NAME for path in folder.iterdir() if begun(path / FILE_NAME))


def _summary(path: Path) -> Summary:
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(EDGE_BYTES)
        file.seek(max(0, size - EDGE_BYTES))
        tail = file.read(EDGE_BYTES)
    started = next((item for item in _records(head) if isinstance(item, events.Started)), None)
    texts = (item for item in _records(head) if isinstance(item, events.UserText) and item.origin == "human")
    last = [item for item in _records(tail) if isinstance(item, events.Ended | events.UserText | events.Assistant)]
    return Summary(
        id=path.parent.name,
        name=started.name if started else "",
        parent=started.parent if started else "",
        cwd=started.cwd if started else "",
        started=started.time if started else path.stat().st_mtime,
        updated=path.stat().st_mtime,
        bytes=size,
        prompt=_short(next(texts, None)),
        ended=last[-1].reason if last and isinstance(last[-1], events.Ended) else "",
    )


def _records(data: bytes) -> Iterator[events.Record]:
    for line in data.split(b"\n"):
        try:
            record = decode(line.strip(b"\0\r\t ").removeprefix(b"\xef\xbb\xbf")) if line.strip() else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if record is not None:
            yield record


def _short(text: events.UserText | None, most: int = 80) -> str:
    words = " ".join(block.get("text", "") for block in text.content).split() if text else []
    line = " ".join(words)
    return line if len(line) <= most else line[: most - 1] + "…"
