"""Why an old_string was not found, or not just once: shown so that the next call can be right.

A bare "not found" is repeated by models for minutes; the nearest place and the difference end that.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable

from pegboard.errors import Code, Refusal
from pegboard_files.names import folded
from pegboard_files.text import Text, plain

LINES = 20_000
"""[C] Lines of a file that are compared with the text that was not found."""

LINE_CHARS = 400
"""[C] Characters of a line that are compared and shown."""

SHOWN = 12
"""[C] Lines of the nearest place that are shown."""

CLOSE = 0.6
"""[C] Likeness (0 to 1) from which on a line counts as near."""

TELLING = 5
"""[C] Characters of a new_string from which on it is worth saying that it is already there."""

_NUMBERED = re.compile(r"^\s*\d+\t", re.MULTILINE)


def ambiguous(text: Text, old: str, places: list[int], shown: str) -> Refusal:
    """The refusal of a text that occurs several times, with the number of each line."""
    numbers = [str(text.plain.count("\n", 0, place) + 1) for place in places[:50]]
    more = f" and {len(places) - 50} more" if len(places) > 50 else ""
    return Refusal(
        Code.AMBIGUOUS,
        f"old_string occurs {len(places)} times in {shown}, on lines {', '.join(numbers)}{more}. Nothing was changed.",
        hint="Add surrounding lines until it is unique, or set replace_all to change every occurrence.",
    )


def missing(text: Text, old: str, new: str, shown: str, again: bool) -> Refusal:
    """The refusal of a text that does not occur, with the nearest place and what differs there."""
    wanted = plain(old, text.ending)
    said = [f"old_string does not occur in {shown}. Nothing was changed."]
    if again:
        said.append("This is the same call as before, and it failed in the same way; repeating it cannot help.")
    hint = "Read the place again and copy the text exactly."
    done = text.plain.find(plain(new, text.ending)) if len(new.strip()) >= TELLING else -1
    numberless = _NUMBERED.sub("", wanted)
    if numberless != wanted and numberless in text.plain:
        hint = "Leave out the line numbers and tabs that Read puts in front of each line."
    elif "&lt;" in wanted and wanted.replace("&lt;", "<") in text.plain:
        hint = "The file has < where old_string has &lt;: in results, < is written so before some tags. Use <."
    elif done >= 0:
        said.append(f"new_string is already there, on line {text.plain.count(chr(10), 0, done) + 1}.")
        hint = "If that is the change you meant, it has been made; if not, read the place again and copy it exactly."
    nearest = _nearest(text.plain.split("\n")[:LINES], wanted.split("\n"))
    if nearest is not None:
        at, count, reason = nearest
        lines = text.plain.split("\n")[at : at + min(count, SHOWN)]
        said.append(f"The nearest place is line {at + 1}{reason}:")
        said += [f"{number}\t{_short(line)}" for number, line in enumerate(lines, at + 1)]
    return Refusal(Code.NOT_FOUND, "\n".join(said), hint=hint)


def _nearest(lines: list[str], wanted: list[str]) -> tuple[int, int, str] | None:
    """Index of the first line of the nearest place, its number of lines, and what differs."""
    while len(wanted) > 1 and not wanted[-1].strip():
        wanted = wanted[:-1]
    count = len(wanted)
    for test, reason in ((_blanks, "which differs in its blanks"), (_quotes, "which differs in quotes or hyphens")):
        at = _run(lines, wanted, test)
        if at is not None:
            return at, count, f", {reason} ({_first_difference(lines[at : at + count], wanted)})"
    return _likest(lines, wanted)


def _blanks(line: str) -> str:
    return "".join(line.split())


def _quotes(line: str) -> str:
    return _blanks(folded(line))


def _run(lines: list[str], wanted: list[str], test: Callable[[str], str]) -> int | None:
    """Where the wanted lines occur when both sides are seen through ``test``; one line may lie inside another."""
    keys = [test(line) for line in wanted]
    if not any(keys):
        return None
    seen = [test(line) for line in lines]
    if len(keys) == 1:
        return next((index for index, line in enumerate(seen) if keys[0] in line), None)
    for index in range(len(seen) - len(keys) + 1):
        first, last = seen[index], seen[index + len(keys) - 1]
        if (
            first.endswith(keys[0])
            and last.startswith(keys[-1])
            and seen[index + 1 : index + len(keys) - 1] == keys[1:-1]
        ):
            return index
    return None


def _likest(lines: list[str], wanted: list[str]) -> tuple[int, int, str] | None:
    """The place whose lines are most alike, found through the most telling wanted line."""
    key = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    sought = wanted[key].strip()[:LINE_CHARS]
    if len(sought) < 3:
        return None
    matcher = difflib.SequenceMatcher(b=sought, autojunk=False)
    best, where = CLOSE, -1
    for index, line in enumerate(lines):
        matcher.set_seq1(line.strip()[:LINE_CHARS])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            likeness = matcher.ratio()
            if likeness > best:
                best, where = likeness, index
    if where < 0:
        return None
    at = max(0, where - key)
    return at, len(wanted), f" ({_first_difference(lines[at : at + len(wanted)], wanted)})"


def _first_difference(there: list[str], wanted: list[str]) -> str:
    alone = len(wanted) == 1
    for one, other in zip(there, wanted, strict=False):
        if alone and other.strip() in one:
            continue
        if one != other:
            pairs = enumerate(zip(one, other, strict=False))
            at = next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))
            start = max(0, at - 20)
            return f"the file has {one[start : at + 20]!r}, old_string has {other[start : at + 20]!r}"
    return "the file ends there" if len(there) < len(wanted) else "compare the blanks around it"


def _short(line: str) -> str:
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} …"
