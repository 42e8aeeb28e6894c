"""Lines out of a file that is too large to be loaded: one pass, bounded memory, no byte read that is not needed."""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import anyio.from_thread
from pegboard.errors import Code, Refusal
from pegboard.tool import Context
from pegboard_files.disk import CHUNK, EDIT_BYTES, check_aborted, reading, same_version, size_text
from pegboard_files.text import SNIFF

from pegboard_read.lines import Limits, Selection, Shown, over_cap

SCAN = 64 * 1024 * 1024
"""[C] Bytes after which the first page of a file ends, even if it is not full."""

TELL = 256 * 1024 * 1024
"""[C] Bytes between two words of progress."""

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


@dataclass
class Streamed:
    """The part of a large file that is shown."""

    selection: Selection
    stat: os.stat_result
    digest: str
    """SHA-256 of the file; empty where it was not read to its end."""
    encoding: str
    mark: bool
    intact: bool
    steady: bool


def stream(ctx: Context, real: str, shown: str, limits: Limits, offset: int | None, limit: int | None) -> Streamed:
    """Select lines of a large text file. Blocking; call it in a thread.

    The first page of a file ends the reading. A range is followed, up to the size that can be edited, by a count of
    all lines and the digest, so that the view counts for Edit. Raises `Refusal` (too_large, precondition_failed).
    """
    explicit = offset is not None or limit is not None
    with reading(real, shown) as handle:
        before = os.fstat(handle)
        source = _Source(ctx, handle, before.st_size, shown, most=None if explicit else SCAN)
        chosen = Shown(limits, offset or 1, limit)
        chunks = source.chunks()
        intact = _take(chunks, chosen, limits.line * 4 + 4)
        selection = chosen.selection
        if selection.capped and explicit:
            raise over_cap(selection, limits)
        if explicit and before.st_size <= EDIT_BYTES:
            for _ in chunks:
                pass
        if source.ended:
            selection.total = source.lines
        else:
            selection.more = True
        steady = same_version(before, os.fstat(handle))
        return Streamed(selection, before, source.digest(), source.encoding, source.mark, intact, steady)


class _Source:
    """The chunks of a file as UTF-8, counted and hashed on the way."""

    def __init__(self, ctx: Context, handle: int, size: int, shown: str, most: int | None) -> None:
        self._ctx = ctx
        self._handle = handle
        self._size = size
        self._shown = shown
        self._most = most
        self._hash = hashlib.sha256() if size <= EDIT_BYTES else None
        self._newlines = 0
        self._open_line = False
        self.ended = False
        self.encoding = "utf-8"
        self.mark = False

    @property
    def lines(self) -> int:
        """Lines so far."""
        return self._newlines + self._open_line

    def digest(self) -> str:
        """SHA-256 of the file, if all of it was read."""
        return self._hash.hexdigest() if self._hash is not None and self.ended else ""

    def chunks(self) -> Iterator[bytes]:
        """Chunk after chunk; stops early at the limit."""
        done = 0
        while self._most is None or done < self._most:
            raw = os.read(self._handle, CHUNK)
            if not raw:
                self.ended = True
                return
            if not done:
                raw, decoder = self._begin(raw)
            if self._hash is not None:
                self._hash.update(raw)
            if not done:
                raw = raw[self._skipped :]
            done += len(raw)
            piece = raw if decoder is None else decoder.decode(raw).encode("utf-8")
            self._newlines += piece.count(b"\n")
            self._open_line = bool(piece) and not piece.endswith(b"\n")
            yield piece
            check_aborted()
            if done // TELL != (done - len(raw)) // TELL:
                self._tell(done)

    def _begin(self, raw: bytes) -> tuple[bytes, codecs.IncrementalDecoder | None]:
        self._skipped = 0
        for mark, encoding in _MARKS:
            if raw.startswith(mark):
                self.encoding, self.mark, self._skipped = encoding, True, len(mark)
        if self.encoding == "utf-8":
            if b"\0" in raw[:SNIFF]:
                raise binary(self._shown)
            return raw, None
        return raw, codecs.getincrementaldecoder(self.encoding)("replace")

    def _tell(self, done: int) -> None:
        text = f"read {size_text(done)} of {size_text(self._size)}"
        try:
            anyio.from_thread.run(self._ctx.progress, text)
        except RuntimeError:
            return


def _take(chunks: Iterator[bytes], chosen: Shown, keep: int) -> bool:
    """Give lines to the selection until it is full; whether every shown byte could be decoded."""
    first, number, intact = chosen.selection.first, 1, True
    kept, cut = b"", False
    for chunk in chunks:
        at = 0
        if number < first:
            at, number = _skip(chunk, number, first)
        if number < first:
            continue
        while (end := chunk.find(b"\n", at)) >= 0:
            cut = cut or len(kept) + end - at > keep
            line, fine = _text(kept + chunk[at : min(end, at + keep)], cut)
            intact = intact and fine
            if not chosen.add(line, cut_already=cut):
                return intact
            kept, cut, at = b"", False, end + 1
        cut = cut or len(kept) + len(chunk) - at > keep
        kept += chunk[at : at + max(0, keep - len(kept))]
    if kept:
        line, fine = _text(kept, cut)
        intact = intact and fine
        chosen.add(line, cut_already=cut)
    return intact


def _skip(chunk: bytes, number: int, first: int) -> tuple[int, int]:
    """Where line ``first`` begins in a chunk that begins in line ``number``; or the end of the chunk."""
    inside = chunk.count(b"\n")
    if number + inside < first:
        return len(chunk), number + inside
    at = 0
    while number < first:
        at = chunk.index(b"\n", at) + 1
        number += 1
    return at, number


def _text(raw: bytes, cut: bool) -> tuple[str, bool]:
    text = raw.decode("utf-8", "replace")
    if cut:
        return text, text[:-4].count("\ufffd") == raw[:-16].count(b"\xef\xbf\xbd") or "\ufffd" not in text[:-4]
    fine = text.count("\ufffd") == raw.count(b"\xef\xbf\xbd") and "\0" not in text
    return text.removesuffix("\r").replace("\0", "\ufffd"), fine


def binary(shown: str) -> Refusal:
    """The refusal of data that is no text, no image, no PDF and no notebook."""
    return Refusal(
        Code.PRECONDITION_FAILED,
        f"{shown} holds binary data of a kind that cannot be shown.",
        hint="Look at it with a shell command such as file, xxd or strings.",
    )
