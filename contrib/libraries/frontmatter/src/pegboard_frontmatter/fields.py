"""The part of YAML that people write at the top of Markdown files, read line by line.

It exists because a full YAML reader refuses what is common there (a colon in a description) and accepts what nobody
should rely on there (anchors, tags, dates).
"""

from __future__ import annotations

import re
from typing import Any

DEEPEST = 20
"""[C] Most levels of nesting."""

_KEY = re.compile(
    r"""(?P<quote>["']?)(?P<key>[^\s"'\[\]{},:#&*!|>%@`-][^"'\[\]{},:#]*?|[^"']+?)(?P=quote)\s*:(?=\s|$)"""
)
_NUMBER = re.compile(r"[-+]?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_WORDS = {"true": True, "false": False, "null": None, "~": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", '"': '"', "\\": "\\", "/": "/", " ": " ", "e": "\x1b"}


class Lines:
    """The lines of the fields, with a place, and what was wrong with them."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 0
        self.problems: list[str] = []

    def peek(self) -> str | None:
        """The next line that is neither blank nor a comment, still to be taken."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip() and not line.lstrip().startswith("#"):
                return line
            self.at += 1
        return None

    def odd(self, why: str) -> None:
        """Pass over the current line and say why."""
        self.problems.append(f"line {self.at + 2}: {why}")
        self.at += 1


def indent_of(line: str) -> int:
    """How far a line is indented; a tab counts as eight."""
    expanded = line.expandtabs(8)
    return len(expanded) - len(expanded.lstrip())


def read_fields(source: Lines) -> dict[str, Any]:
    """The table at the top level. Lines that make no sense are passed over and named in ``source.problems``."""
    found: dict[str, Any] = {}
    while source.peek() is not None:
        before = source.at
        _table(source, 0, 0, found)
        if source.at == before:
            source.odd("this is no field of the form name: value")
    return found


def _table(source: Lines, indent: int, depth: int, found: dict[str, Any] | None = None) -> dict[str, Any]:
    found = {} if found is None else found
    while (line := source.peek()) is not None and indent_of(line) == indent:
        match = _KEY.match(line.strip())
        if match is None or line.lstrip().startswith("- "):
            break
        key, rest = match["key"].strip(), line.strip()[match.end() :].strip()
        if key in found:
            source.problems.append(f"line {source.at + 2}: {key} is there twice; the last one counts")
        source.at += 1
        found[key] = _value(source, rest, indent, depth)
    return found


def _value(source: Lines, rest: str, indent: int, depth: int) -> Any:
    """What stands behind a name or a dash, on its line and on the lines below that belong to it."""
    plain = _COMMENT.sub("", rest).strip()
    if re.fullmatch(r"[|>][-+]?\d?[-+]?", plain):
        return _block_text(source, plain, indent)
    if plain:
        return _scalar(source, rest, indent)
    line = source.peek()
    if line is None or depth >= DEEPEST:
        return None
    inner = indent_of(line)
    if line.lstrip().startswith(("- ", "-\t")) or line.strip() == "-":
        return _list(source, inner, depth + 1) if inner >= indent else None
    if inner <= indent:
        return None
    if _KEY.match(line.strip()):
        return _table(source, inner, depth + 1)
    return _scalar(source, "", indent)


def _list(source: Lines, indent: int, depth: int) -> list[Any]:
    found: list[Any] = []
    while (line := source.peek()) is not None and indent_of(line) == indent:
        stripped = line.strip()
        if stripped != "-" and not stripped.startswith(("- ", "-\t")):
            break
        rest = stripped[1:].strip()
        if depth < DEEPEST and _KEY.match(rest) and not rest.startswith(('"', "'", "[", "{")):
            inner = indent + len(line.expandtabs(8).strip()) - len(line.expandtabs(8).strip()[1:].lstrip())
            source.lines[source.at] = " " * inner + rest
            found.append(_table(source, inner, depth + 1))
            continue
        source.at += 1
        found.append(_value(source, rest, indent, depth))
    return found


def _block_text(source: Lines, mark: str, indent: int) -> str:
    """A text that keeps its lines (``|``) or folds them (``>``)."""
    lines: list[str] = []
    while source.at < len(source.lines):
        line = source.lines[source.at]
        if line.strip() and indent_of(line) <= indent:
            break
        lines.append(line.expandtabs(8))
        source.at += 1
    while lines and not lines[-1].strip():
        lines.pop()
    inner = min((indent_of(line) for line in lines if line.strip()), default=0)
    lines = [line[inner:] for line in lines]
    text = "\n".join(lines) if mark[0] == "|" else _folded(lines)
    return text if "-" in mark or not text else text + "\n"


def _folded(lines: list[str]) -> str:
    text, blank = "", 0
    for line in lines:
        if not line.strip():
            blank += 1
            continue
        text += ("\n" * blank or " " if text else "") + line.strip()
        blank = 0
    return text


def _scalar(source: Lines, rest: str, indent: int) -> Any:
    """One value; further indented lines go on with it."""
    text = rest
    while not _complete(text) and source.at < len(source.lines):
        line = source.lines[source.at]
        if line.strip() and indent_of(line) <= indent:
            break
        text += " " + line.strip()
        source.at += 1
    if text[:1] in ('"', "'", "[", "{"):
        value, end = _flow(text, 0, 0)
        if end is not None and not _COMMENT.sub("", text[end:]).strip():
            return value
        return _COMMENT.sub("", text).strip()
    while (line := source.lines[source.at] if source.at < len(source.lines) else "").strip() and indent_of(
        line
    ) > indent:
        text = f"{_COMMENT.sub('', text).strip()} {line.strip()}"
        source.at += 1
    return _word(_COMMENT.sub("", text).strip())


def _complete(text: str) -> bool:
    """Whether quotes and brackets that begin a value are closed in it."""
    if text[:1] not in ('"', "'", "[", "{"):
        return True
    return _flow(text, 0, 0)[1] is not None


def _flow(text: str, at: int, depth: int) -> tuple[Any, int | None]:
    """A value in brackets or quotes from ``at`` on, and where it ends; None when it does not."""
    if text[at] in "\"'":
        return _quoted(text, at)
    close = {"[": "]", "{": "}"}[text[at]]
    found: list[Any] = []
    table: dict[str, Any] = {}
    key: str | None = None
    at += 1
    while depth <= DEEPEST:
        at += len(text[at:]) - len(text[at:].lstrip(" \t,"))
        if at >= len(text):
            return None, None
        if text[at] == close:
            return (table if close == "}" else found), at + 1
        if text[at] in "\"'[{":
            value, end = _flow(text, at, depth + 1)
            if end is None:
                return None, None
        else:
            ends = re.compile(r":(?=\s|$)|[,\]}]" if close == "}" else r"[,\]]").search(text, at)
            if ends is None:
                return None, None
            value, end = _word(text[at : ends.start()].strip()), ends.start()
        at = end
        rest = text[at:].lstrip()
        if close == "}" and key is None and rest.startswith(":"):
            key, at = str(value), at + len(text[at:]) - len(rest) + 1
            continue
        if close == "}":
            table[str(value) if key is None else key] = None if key is None else value
            key = None
        else:
            found.append(value)
        if not rest.startswith((",", close)):
            return None, None
    return None, None


def _quoted(text: str, at: int) -> tuple[str, int | None]:
    quote, made, here = text[at], [], at + 1
    while here < len(text):
        char = text[here]
        if char == quote:
            if quote == "'" and text[here + 1 : here + 2] == "'":
                made.append("'")
                here += 2
                continue
            return "".join(made), here + 1
        if char == "\\" and quote == '"' and here + 1 < len(text):
            made.append(_ESCAPES.get(text[here + 1], char + text[here + 1]))
            here += 2
            continue
        made.append(char)
        here += 1
    return "", None


def _word(text: str) -> Any:
    """A plain word as what it says."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.fullmatch(text) and len(text) < 20:
        return float(text) if any(char in text for char in ".eE") else int(text)
    return text
