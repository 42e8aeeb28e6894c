"""Which lines of a text are shown: pages, ranges, the token cap and the cut of long lines."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from pegboard.errors import Code, Refusal

BYTES_PER_TOKEN = 4
"""[C] Estimate of tokens: UTF-8 bytes of the shown text by this. Close for code and prose; no model is asked."""


@dataclass(frozen=True)
class Limits:
    """The settings that bound one view."""

    tokens: int
    page: int
    """Lines."""
    line: int
    """Characters."""


@dataclass
class Selection:
    """The lines that are shown."""

    first: int
    """Number of the first line, from 1."""
    lines: list[str]
    """As shown: long ones are cut."""
    total: int | None
    """Lines of the file, where known."""
    cut: int = 0
    """How many of the lines are cut."""
    whole_runs: list[tuple[int, int]] | None = None
    """Runs of lines that are shown uncut, by number."""
    capped: bool = False
    """The token cap, not the page, ended the selection."""
    more: bool = False
    """There are lines behind the last one."""

    @property
    def last(self) -> int:
        """Number of the last line."""
        return self.first + len(self.lines) - 1

    def numbered(self) -> str:
        """The lines as the model reads them."""
        return "\n".join([f"{number}\t{line}" for number, line in enumerate(self.lines, self.first)])


def tokens(text: str) -> int:
    """The estimated tokens of a text."""
    return -(-(len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) // BYTES_PER_TOKEN)


class Shown:
    """Collects lines until the page or the cap is full."""

    def __init__(self, limits: Limits, first: int, limit: int | None) -> None:
        self._limits = limits
        self._room = limits.tokens * BYTES_PER_TOKEN
        self._most = limits.page if limit is None else limit
        self.selection = Selection(first, [], None, whole_runs=[])

    def add(self, line: str, *, cut_already: bool = False) -> bool:
        """Take one more line; False when it does not fit, and then `selection` says why."""
        chosen = self.selection
        if len(chosen.lines) == self._most:
            chosen.more = True
            return False
        number = chosen.first + len(chosen.lines)
        cut = cut_already or len(line) > self._limits.line
        shown = clip(line, self._limits.line, cut_already) if cut else line
        size = (len(shown) if shown.isascii() else len(shown.encode("utf-8", "replace"))) + len(str(number)) + 2
        if size > self._room:
            chosen.capped = chosen.more = True
            return False
        self._room -= size
        chosen.lines.append(shown)
        chosen.cut += cut
        runs = chosen.whole_runs
        if not cut and runs is not None:
            if runs and runs[-1][1] == number - 1:
                runs[-1] = (runs[-1][0], number)
            else:
                runs.append((number, number))
        return True


def select(lines: list[str], limits: Limits, offset: int | None, limit: int | None) -> Selection:
    """The lines to show. An explicit range that does not fit under the cap is refused (too_large)."""
    first = offset or 1
    shown = Shown(limits, first, limit)
    for index in range(first - 1, len(lines)):
        if not shown.add(lines[index]):
            break
    chosen = shown.selection
    chosen.total = len(lines)
    if chosen.capped and (offset is not None or limit is not None):
        raise over_cap(chosen, limits)
    return chosen


def over_cap(chosen: Selection, limits: Limits) -> Refusal:
    """The refusal of a range that is larger than one view."""
    fits = len(chosen.lines)
    advice = f"Ask for at most {fits} lines from there (limit {fits})" if fits else "Even its first line is too long"
    return Refusal(
        Code.TOO_LARGE,
        f"The range from line {chosen.first} does not fit into one view ({limits.tokens:,} tokens). Nothing is shown.",
        hint=f"{advice}, or find the place with Grep.",
    )


def clip(line: str, limit: int, cut_already: bool) -> str:
    """A long line's beginning with a mark; never half a character that is made of several."""
    end = min(limit, len(line))
    while 0 < end < len(line) and (unicodedata.combining(line[end]) or line[end] in "\u200d\ufe0e\ufe0f"):
        end -= 1
    while end > 1 and line[end - 1] == "\u200d":
        end -= 2
    length = "more than " + f"{len(line):,}" if cut_already else f"{len(line):,}"
    return f"{line[:end]} … [line cut: {end:,} of {length} characters are shown]"
