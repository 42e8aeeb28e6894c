"""What the engine printed, sorted into files and rows in an order that does not change between calls.

The engine searches in parallel and prints files in any order; paging needs one order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pegboard_ripgrep.view import plain, shown_name

BINARY = b": binary file matches"
OMITTED = "[Omitted long "

_NUMBERED = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)
_LIKE_BINARY = re.compile(rb"(.*): binary file matches(?: \(found .*\))?\Z", re.DOTALL)


@dataclass(frozen=True)
class Row:
    """One row of a result. ``line`` is 0 where there is no line number."""

    name: bytes
    line: int
    text: str
    """As it is shown, without the name's prefix."""

    @property
    def omitted(self) -> bool:
        """The engine left a matching line out because it is too long."""
        return OMITTED in self.text and not self.text.endswith(OMITTED + "context line]")


@dataclass
class Lines:
    """Rows of ``content`` mode, kept raw until they are shown."""

    numbers: bool
    context: bool
    files: dict[bytes, list[bytes | None]] = field(default_factory=dict)
    """Printed bodies by name; None is a gap between groups, ``BINARY`` a file that is not shown."""
    _carry: bytes = b""
    _gap: bool = False

    def take(self, records: list[bytes]) -> None:
        """Sort the engine's lines by file."""
        last, bodies = b"", None
        for record in records:
            name, found, body = record.partition(b"\0")
            if not found:
                self._without_name(record)
                continue
            if self._carry:
                name, self._carry = self._carry + name, b""
            if bodies is None or name != last:
                last, bodies = name, self.files.setdefault(plain(name), [])
                self._gap = False
            if self._gap:
                bodies.append(None)
                self._gap = False
            bodies.append(body)

    def _without_name(self, record: bytes) -> None:
        binary = _LIKE_BINARY.match(record)
        if record == b"--" and self.context:
            self._gap = True
        elif binary:
            self.files.setdefault(plain(binary[1]), []).append(BINARY)
        elif record:
            self._carry += record + b"\n"  # a file name with a line end in it

    def matches(self) -> int:
        """Matching lines among the rows."""
        if not self.context:
            return self.total()
        return sum(self._is_match(body) for bodies in self.files.values() for body in bodies if body is not None)

    def total(self) -> int:
        """All rows: matching lines and the lines around them."""
        return sum(len(bodies) - bodies.count(None) for bodies in self.files.values())

    def rows(self, skip: int) -> Iterator[Row | None]:
        """Rows by name of file, without the first ``skip``; None is a gap between groups."""
        shown = False
        for name in sorted(self.files):
            bodies = self.files[name]
            size = len(bodies) - bodies.count(None)
            if size <= skip:
                skip -= size
                continue
            gap = self.context and shown
            for body in bodies:
                if body is None:
                    gap = shown
                elif skip:
                    skip -= 1
                else:
                    if gap:
                        yield None
                    gap, shown = False, True
                    yield self._row(name, body)

    def _row(self, name: bytes, body: bytes) -> Row:
        file = shown_name(name)
        if body is BINARY:
            return Row(name, 0, f"{file}: binary file matches")
        found = _NUMBERED.match(body)
        if found is None:
            return Row(name, 0, f"{file}:{text_of(body)}")
        mark = found[2].decode()
        number = found[1].decode() + mark if self.numbers else ""
        return Row(name, int(found[1]), f"{file}{mark}{number}{text_of(found[3])}")

    @staticmethod
    def _is_match(body: bytes) -> bool:
        found = _NUMBERED.match(body)
        return found is None or found[2] == b":"


@dataclass
class Counts:
    """Rows of ``count`` mode."""

    files: dict[bytes, int] = field(default_factory=dict)
    _carry: bytes = b""

    def take(self, records: list[bytes]) -> None:
        """Sort the engine's lines by file."""
        for record in records:
            name, found, number = record.partition(b"\0")
            if found and number.isdigit():
                self.files[plain(self._carry + name)] = int(number)
                self._carry = b""
            elif record:
                self._carry += record + b"\n"

    def rows(self) -> Iterable[Row]:
        """Rows by name of file."""
        return (Row(name, 0, f"{shown_name(name)}:{self.files[name]}") for name in sorted(self.files))


def text_of(line: bytes) -> str:
    """A line as text: bytes that are no UTF-8 become U+FFFD, the carriage return of a line end goes."""
    return line.decode("utf-8", "replace").removesuffix("\r")
