"""Server-sent events from bytes as they arrive, in pieces of any size.

Only the data is kept: in this protocol the name of an event is also inside its JSON.
"""

from __future__ import annotations

BOM = b"\xef\xbb\xbf"


class EventReader:
    """Feed it bytes, take whole events. Lines may end in LF, CRLF or CR."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._start = b""
        self._begun = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of every event that is complete with this chunk."""
        if not self._begun:
            chunk = self._without_mark(chunk)
        searched = len(self._rest)
        self._rest += chunk
        end = self._end(searched)
        if not end:
            return []
        lines = bytes(memoryview(self._rest)[:end]).splitlines()
        del self._rest[:end]
        found: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line == b"data":
                self._data.append(b"")
            elif not line and self._data:
                found.append(b"\n".join(self._data))
                self._data.clear()
        return found

    def _end(self, searched: int) -> int:
        """How many bytes are whole lines. A CR at the very end may be half of a CRLF and waits."""
        newline = self._rest.rfind(b"\n", searched) + 1
        carriage = self._rest.rfind(b"\r", max(0, searched - 1), len(self._rest) - 1) + 1
        return max(newline, carriage)

    def _without_mark(self, chunk: bytes) -> bytes:
        """Drop a byte order mark at the start, which may come in pieces."""
        self._start += chunk
        if len(self._start) < len(BOM) and BOM.startswith(self._start):
            return b""
        self._begun = True
        return self._start.removeprefix(BOM)
