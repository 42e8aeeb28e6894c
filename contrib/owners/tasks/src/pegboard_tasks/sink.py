"""Where the output of a run goes: the two ends of it in memory, all of it up to a cap in a file.

A command may write for ever, so neither memory nor disk may grow with it; and what was written last matters most.
"""

from __future__ import annotations

import codecs
import os
from pathlib import Path

HEAD = TAIL = 256 * 1024
"""[C] Bytes of each end that are kept in memory; less output than both is never written to a file unasked."""

CAP = 64 * 1024 * 1024
"""[D] Bytes of a file of output."""

MOST = 5_000_000_000
"""[D] Bytes after which a command is ended."""


class Sink:
    """The output of one run. Blocking, but only for writes to a local file."""

    def __init__(self, path: Path, *, cap: int = CAP, most: int = MOST) -> None:
        self.path = path
        """Where the file is, or would be."""
        self.total = 0
        """Bytes that were written to it."""
        self.fault = ""
        """Why the file is not whole, where the disk was the reason."""
        self._cap = cap
        self._most = most
        self._head = bytearray()
        self._tail = bytearray()
        self._handle = -1
        self._kept = 0
        self.filed = False
        """Whether there is a file."""

    @property
    def over(self) -> bool:
        """Whether there was more than any command may write."""
        return self.total > self._most

    @property
    def capped(self) -> bool:
        """Whether the file holds less than was written."""
        return self.filed and self.total > self._kept

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        room = HEAD - len(self._head)
        if not self.filed and not self.fault and self.total + len(data) > HEAD + TAIL:
            self.open()
        self.total += len(data)
        if self._handle >= 0:
            self._write(data)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]

    def open(self) -> None:
        """Begin the file, with what there is so far; also after the end, as long as memory holds all of it."""
        if self.filed:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            self._handle = os.open(self.path, flags, 0o600)
        except OSError as error:
            self.fault = error.strerror or str(error)
            return
        self.filed = True
        self._write(bytes(self._head + self._tail))

    def close(self) -> None:
        """End the file; where it is cut, its last words are those of the output."""
        if self._handle < 0:
            return
        if self.total > self._kept and not self.fault:
            last = bytes(self._tail[-TAIL:])
            self._put(f"\n[The last {len(last):,} of {self.total:,} bytes:]\n".encode() + last)
        os.close(self._handle)
        self._handle = -1

    def whole(self) -> bytes | None:
        """All of the output, or None when it is more than is kept in memory."""
        return bytes(self._head + self._tail) if self.total == len(self._head) + len(self._tail) else None

    def first(self, size: int) -> bytes:
        """The first bytes, at most ``size`` and what memory holds."""
        return bytes((self._head if self.total > HEAD else self._head + self._tail)[:size])

    def last(self, size: int) -> bytes:
        """The last bytes, at most ``size`` and what memory holds."""
        whole = self.whole()
        return (whole if whole is not None else bytes(self._tail))[-size:] if size else b""

    def _write(self, data: bytes) -> None:
        room = self._cap - self._kept
        if room <= 0 or self.fault:
            return
        self._put(data[:room])
        self._kept += min(len(data), room)
        if len(data) > room:
            self._put(
                f"\n[Output limit reached: {self._cap:,} bytes are kept, what follows is counted only.]\n".encode()
            )

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view and not self.fault:
                view = view[os.write(self._handle, view) :]
        except OSError as error:
            self.fault = error.strerror or str(error)


def decoded(data: bytes, *, start: bool = True, end: bool = True) -> str:
    """Bytes as text; what is no UTF-8 shows as U+FFFD.

    ``start`` and ``end``: False where the bytes begin or end in the middle of something; half a character is dropped.
    """
    if not start:
        nothing = len(data) if len(data) < 4 else 0  # a rest of one character, or no UTF-8 at all
        skipped = next((index for index, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), nothing)
        data = data[skipped:]
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=end)
