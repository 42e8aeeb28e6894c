"""What changed between two texts: hunks for programs, a few lines for the model.

Built for large files: everything outside the changed region is set aside before any line is compared.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from pegboard_files.text import common_head, common_tail

CONTEXT = 3
"""Unchanged lines around a change."""

FINE = 1_000_000
"""[C] Old lines times new lines up to which a changed region is compared line by line."""

PATCH_LINES = 2_000
"""[C] Lines of all hunks together; what is beyond is left out."""

NO_NEWLINE = "\\ No newline at end of file"


@dataclass(frozen=True)
class Hunk:
    """One changed region; ``lines`` begin with a blank, ``-`` or ``+``."""

    oldStart: int
    oldLines: int
    newStart: int
    newLines: int
    lines: list[str]


@dataclass(frozen=True)
class _Region:
    """The smallest run of whole lines that holds every difference, with its context."""

    first: int
    """Lines before it."""
    old: list[str]
    new: list[str]


def lines_of(text: str) -> list[str]:
    """The lines of a text with LF ends; a final line end begins no further line."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def hunks(old: str, new: str) -> list[Hunk]:
    """The difference between two texts with LF line ends, in the shape of a structured patch."""
    if old == new:
        return []
    region = _region(old, new)
    made: list[Hunk] = []
    room = PATCH_LINES
    for group in _grouped(_changes(region.old, region.new)):
        hunk = _hunk(region, group)
        room -= len(hunk.lines)
        if room < 0 and made:
            break
        made.append(hunk)
    return made


def short(old: str, new: str, limit: int) -> tuple[list[str], bool]:
    """The changed lines of two texts with numbers, at most ``limit``; and whether these are all."""
    said: list[str] = []
    for hunk in hunks(old, new):
        before, after = hunk.oldStart, hunk.newStart
        for line in hunk.lines:
            if line.startswith("-"):
                said.append(f"{before}\t{line}")
            elif line.startswith("+"):
                said.append(f"{after}\t{line}")
            before += line[:1] in ("-", " ")
            after += line[:1] in ("+", " ")
    return said[:limit], len(said) <= limit and sum(map(len, said[:limit])) <= limit * 400


def _region(old: str, new: str) -> _Region:
    head = old.rfind("\n", 0, common_head(old, new)) + 1
    for _ in range(CONTEXT):
        head = old.rfind("\n", 0, max(0, head - 1)) + 1
    tail = common_tail(old[head:], new[head:])
    end = len(old) - tail
    for _ in range(CONTEXT + 1):
        at = old.find("\n", end)
        end = len(old) if at < 0 else at + 1
    kept = len(old) - end
    return _Region(old.count("\n", 0, head), _keyed(old[head:end], kept), _keyed(new[head : len(new) - kept], kept))


def _keyed(text: str, kept: int) -> list[str]:
    """Lines that compare equal only if their ends do: a last line without an end carries a mark."""
    lines = lines_of(text)
    if not kept and text and not text.endswith("\n"):
        lines[-1] += "\n" + NO_NEWLINE
    return lines


def _changes(old: list[str], new: list[str]) -> list[tuple[int, int, int, int]]:
    """Changed runs as (old from, old to, new from, new to)."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(left) == len(right) and len(left) > 50:
        return _same_length(left, right, head)
    if len(left) * len(right) > FINE:
        return [(head, head + len(left), head, head + len(right))]
    codes = difflib.SequenceMatcher(None, left, right).get_opcodes()
    return [(head + a, head + b, head + c, head + d) for tag, a, b, c, d in codes if tag != "equal"]


def _same_length(left: list[str], right: list[str], head: int) -> list[tuple[int, int, int, int]]:
    runs: list[tuple[int, int, int, int]] = []
    for index, (one, other) in enumerate(zip(left, right, strict=True), head):
        if one == other:
            continue
        if runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1, runs[-1][2], index + 1)
        else:
            runs.append((index, index + 1, index, index + 1))
    return runs


def _grouped(changes: list[tuple[int, int, int, int]]) -> list[list[tuple[int, int, int, int]]]:
    groups: list[list[tuple[int, int, int, int]]] = []
    for change in changes:
        if groups and change[0] - groups[-1][-1][1] <= 2 * CONTEXT:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _hunk(region: _Region, group: list[tuple[int, int, int, int]]) -> Hunk:
    old, new = region.old, region.new
    first = max(0, group[0][0] - CONTEXT)
    start = group[0][2] - (group[0][0] - first)
    last = min(len(old), group[-1][1] + CONTEXT)
    lines: list[str] = []
    at = first
    for a, b, c, d in group:
        lines += [" " + line for line in old[at:a]]
        lines += ["-" + line for line in old[a:b]]
        lines += ["+" + line for line in new[c:d]]
        at = b
    lines += [" " + line for line in old[at:last]]
    removed, added = sum(b - a for a, b, _, _ in group), sum(d - c for _, _, c, d in group)
    kept = last - first - removed
    return Hunk(
        oldStart=region.first + first + (1 if kept + removed else 0),
        oldLines=kept + removed,
        newStart=region.first + start + (1 if kept + added else 0),
        newLines=kept + added,
        lines=[part for line in lines for part in line.split("\n")],
    )
