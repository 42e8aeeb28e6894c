"""The lines of a session file: from record to bytes and back, and which of them a rewind took out of the conversation.

Apart from `transcript`, because listings, ledgers and exports read a file that somebody else may hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from pegboard import events
from pegboard.errors import Unreadable

FORMAT = 1
"""Version of the file format, in its first line."""

FILE_NAME = "transcript.jsonl"

FIRST_BYTES = 65_536
"""[C] Longest first line of a file."""

_encoder = msgspec.json.Encoder(enc_hook=str)
_decoder = msgspec.json.Decoder(events.Record)


class _Tag(msgspec.Struct):
    type: str


_tag_decoder = msgspec.json.Decoder(_Tag)
_TAGS = {kind.__struct_config__.tag for kind in get_args(events.Record)}
_UNREADABLE = b"\0"


def encode(record: events.Event) -> bytes:
    """One line of the file, with its newline. Raises UnicodeEncodeError for what UTF-8 cannot carry."""
    return _encoder.encode(record) + b"\n"


def decode(line: bytes) -> events.Record | None:
    """The record of one line; None for a record of a kind that this version does not know.

    Raises msgspec.DecodeError for a line that is no record.
    """
    try:
        record: events.Record = _decoder.decode(line)
        return record
    except msgspec.ValidationError:
        if _tag_decoder.decode(line).type not in _TAGS:
            return None
        raise
    except RecursionError:
        raise msgspec.DecodeError("too many levels") from None


def read(path: Path, bad: list[int] | None = None) -> Iterator[events.Record]:
    """The records of a file, one at a time. Numbers of unreadable lines (from 1) are added to ``bad``.

    Takes a byte order mark, CRLF, NUL bytes, unknown kinds and a cut last line. Raises `Unreadable` when there is no
    such file or it was written by a newer version.
    """
    return (record for _, record in numbered(path, bad))


def numbered(path: Path, bad: list[int] | None = None) -> Iterator[tuple[int, events.Record]]:
    """The records as `read` gives them, each with the number of its line."""
    for number, text in lines(path):
        try:
            record = decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            if bad is not None:
                bad.append(number)
            continue
        if isinstance(record, events.Started) and record.format > FORMAT:
            raise Unreadable(f"{path} was written by a newer version (format {record.format}); update pegboard.")
        if record is not None:
            yield number, record


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, numbered from 1, without what crashes and editors put around them.

    A line of NUL bytes alone is one NUL byte. Raises `Unreadable`.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise Unreadable(f"Cannot read the session file {path}: {error.strerror or error}.") from None
    with file:
        for number, line in enumerate(file, 1):
            text = line.strip(b"\0\r\n\t ").removeprefix(b"\xef\xbb\xbf")
            if text or b"\0" in line:
                yield number, text or _UNREADABLE


def begun(path: Path) -> bool:
    """Whether a session file got as far as its first line; a crash can leave one that did not."""
    try:
        with path.open("rb") as file:
            return file.readline(FIRST_BYTES).endswith(b"\n")
    except OSError:
        return False


class LeftOut(NamedTuple):
    """Lines that are no part of the conversation any more, and owners whose state of that time does not count."""

    first: int
    last: int
    forgotten: frozenset[str]


class Outline(NamedTuple):
    """What must be known of a file before its conversation is built."""

    gone: list[LeftOut]
    """What rewinds took out, in file order."""
    summary: int
    """The line of the summary that stands for everything before it; 0 = there is none."""


def outline(path: Path) -> Outline:
    """The outline of a file. In a file without a rewind nothing is decoded."""
    summaries, rewinds = [], False
    for number, line in lines(path):
        if _is(line, b"compacted"):
            summaries.append(number)
        rewinds = rewinds or _is(line, b"rewound")
    gone = _left_out(path) if rewinds else []
    live = [number for number in summaries if not any(span.first <= number <= span.last for span in gone)]
    return Outline(gone, live[-1] if live else 0)


def slim(record: events.Record) -> events.Record:
    """A record that a summary stands for, without its texts: only what pairs and counts is left."""
    if isinstance(record, events.Assistant):
        calls = (block for block in record.content if block.get("type") == "tool_use")
        record.content = [{**block, "input": {}} for block in calls]
    elif isinstance(record, events.Result):
        blocks = record.text if isinstance(record.text, list) else []
        record.text = [block for block in blocks if block.get("type") == "tool_reference"]
    elif isinstance(record, events.UserText):
        record.content = []
    return record


def _left_out(path: Path) -> list[LeftOut]:
    begins: dict[int, int] = {}
    found: list[LeftOut] = []
    before: list[tuple[int, dict[int, int], list[LeftOut]]] = []
    for number, line in lines(path):
        record = _record(line) if _is(line, b"user") or _is(line, b"rewound") else None
        if isinstance(record, events.UserText) and record.prompt:
            begins[record.prompt] = number
        elif isinstance(record, events.Rewound) and record.undo and before:
            at, old, found = before.pop()
            begins = {**old, **begins}
            found = [*found, LeftOut(at, number, frozenset())]
        elif isinstance(record, events.Rewound):
            before.append((number, dict(begins), found))
            first = begins.get(record.prompt, 0)
            if record.conversation and first:
                inside = [span.forgotten for span in found if span.first >= first]
                span = LeftOut(first, number, frozenset(record.forgotten).union(*inside))
                found = [*(span for span in found if span.first < first), span]
                begins = {prompt: at for prompt, at in begins.items() if prompt < record.prompt}
    return found


def _is(line: bytes, tag: bytes) -> bool:
    return line.startswith(b'{"type":"' + tag + b'"')


def _record(line: bytes) -> events.Record | None:
    try:
        return decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
