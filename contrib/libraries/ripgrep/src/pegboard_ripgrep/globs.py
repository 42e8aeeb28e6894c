"""From the pattern of a call to globs that the engine anchors at the folder.

The engine reads globs as gitignore lines, where a pattern without a slash matches at any depth; here it must not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pegboard.errors import Code, Refusal

MAX_ALTERNATIVES = 256

_META = re.compile(r"[*?\[\]{}\\]")


@dataclass(frozen=True)
class Plan:
    """What a pattern asks the engine for."""

    globs: tuple[str, ...]
    """Anchored globs; a file matches when one of them does."""
    start: str
    """Folder below the root in which the walk can start; empty for the root."""
    named: frozenset[str]
    """Names that the pattern spells out; folders of these names are entered even if they are left out otherwise."""
    exact: tuple[str, ...]
    """Alternatives without any wildcard, which need no walk."""


def plan(pattern: str, root: str) -> Plan:
    """Prepare a pattern for a walk in ``root``, an absolute path.

    Raises `Refusal` (invalid_input) when the pattern leaves the folder or has too many alternatives.
    """
    alternatives = [_inside(part, root, pattern) for part in _expand(pattern)]
    globs: dict[str, None] = {}
    for part in alternatives:
        globs[_anchored(part)] = None
        if "[" in part.replace(r"\[", ""):
            # Folders are really called `[id]`; a class that matches nothing else must not hide them.
            globs[_anchored(_literal_brackets(part))] = None
    starts = [_start(part, root) for part in alternatives]
    return Plan(
        globs=tuple(globs),
        start="/".join(_common(starts)),
        named=frozenset(name for part in alternatives for name in part.split("/")),
        exact=tuple(part for part in alternatives if not _META.search(part)),
    )


def _expand(pattern: str) -> list[str]:
    found: list[str] = []
    for part in _braces(pattern):
        if len(found) == MAX_ALTERNATIVES:
            raise _bad(pattern, f"it has more than {MAX_ALTERNATIVES} alternatives")
        found.append(part)
    return found


def _braces(pattern: str) -> Iterator[str]:
    """Every reading of ``{a,b}``, outermost first; a brace without its partner stays as it is."""
    span = _first_brace(pattern)
    if span is None:
        yield pattern
        return
    begin, commas, end = span
    cuts = [begin, *commas, end]
    for left, right in pairwise(cuts):
        for inner in _braces(pattern[left + 1 : right]):
            for rest in _braces(pattern[end + 1 :]):
                yield pattern[:begin] + inner + rest


def _first_brace(pattern: str) -> tuple[int, list[int], int] | None:
    begin, depth, at = -1, 0, 0
    commas: list[int] = []
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif char == "{":
            depth += 1
            begin = at if depth == 1 else begin
        elif char == "}" and depth:
            depth -= 1
            if depth == 0:
                return begin, commas, at
        elif char == "," and depth == 1:
            commas.append(at)
        at += 1
    return None


def _inside(part: str, root: str, pattern: str) -> str:
    """One alternative relative to the root, its ``.`` and ``..`` folded."""
    if part.startswith("/"):
        part = _relative(part, root, pattern)
    folded: list[str] = []
    for segment in part.split("/"):
        if segment in ("", "."):
            continue
        if segment != "..":
            folded.append(segment)
        elif folded and not _META.search(folded[-1]):
            folded.pop()
        else:
            raise _bad(pattern, f"it leaves the folder {root}")
    if part.endswith("/") or not folded:
        folded.append("**")
    return "/".join(folded)


def _relative(part: str, root: str, pattern: str) -> str:
    base = root.rstrip("/")
    if part.startswith(base + "/"):
        return part[len(base) + 1 :]
    literal = [segment for segment in _before_wildcard(part) if segment]
    real = os.path.realpath("/" + "/".join(literal))
    real_base = os.path.realpath(root).rstrip("/")
    if f"{real}/".startswith(real_base + "/"):
        rest = "/".join(part.strip("/").split("/")[len(literal) :])
        return f"{real[len(real_base) + 1 :]}/{rest}"
    raise _bad(pattern, f"it is absolute and outside of {root}")


def _before_wildcard(part: str) -> list[str]:
    segments = part.split("/")[:-1]
    for at, segment in enumerate(segments):
        if _META.search(segment):
            return segments[:at]
    return segments


def _anchored(part: str) -> str:
    # A gitignore line loses its trailing blanks unless they are escaped.
    return "/" + (part[:-1] + "\\ " if part.endswith(" ") and not part.endswith("\\ ") else part)


def _literal_brackets(part: str) -> str:
    return re.sub(r"(?<!\\)[\[\]]", lambda found: "\\" + found[0], part)


def _start(part: str, root: str) -> list[str]:
    """Literal leading folders that exist. Stops at a link: links are not followed."""
    kept: list[str] = []
    path = root
    for segment in _before_wildcard(part):
        path = os.path.join(path, segment)
        if os.path.islink(path) or not os.path.isdir(path):
            break
        kept.append(segment)
    return kept


def _common(starts: list[list[str]]) -> list[str]:
    first, last = min(starts), max(starts)
    for at, segment in enumerate(first):
        if at >= len(last) or segment != last[at]:
            return first[:at]
    return first


def _bad(pattern: str, why: str) -> Refusal:
    return Refusal(
        Code.INVALID_INPUT,
        f"The pattern {pattern!r} cannot be used: {why}.",
        hint="Give the folder in `path` and a pattern relative to it.",
    )
