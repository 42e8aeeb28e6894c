"""What the parser must not be believed about: text refused before it is parsed, and marks it must account for.

A parser for people's editors may leave things out. Each mark that starts a command is counted against the tree, and
the end of every here-document is found a second time.
"""

from __future__ import annotations

import re
from bisect import bisect_right

MOST = 10_000
"""[D] Characters of a command that is read at all."""

_BAD = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f"
    "\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ue000-\uf8ff\ufe00-\ufe0e\ufeff\uffa0\ufff0-\uffff"
    "\U000e0000-\U0010ffff\ud800-\udfff]|(?<![\u2000-\U0001ffff])\ufe0f"
)
"""Characters that show nothing, look like a space, or turn the reading direction."""

_GLUED = re.compile(r"(?<![ \t\n])\\\n|\\[ \t]\\\n")
"""A line continuation that is part of a word."""

_MARK = re.compile(rb"\\.|\$[(\[]|`|[<>]\(", re.DOTALL)
_REST = re.compile(rb"'[^'\n]*'|\"[^\"\\$`\n]*\"")
_TAG = re.compile(rb"(['\"]?)([A-Za-z0-9_.+-]+)\1|\\([A-Za-z0-9_.+-]+)")


def refuse(command: str) -> str:
    """Why a command is not even parsed; empty if it may be."""
    if not command.strip():
        return "there is no command"
    if len(command) > MOST:
        return f"it is longer than {MOST:,} characters"
    if bad := _BAD.search(command):
        return f"it holds the character U+{ord(bad[0]):04X}, which does not show what it is"
    if _GLUED.search(command):
        return "a line continuation stands inside a word"
    return ""


def uncovered(src: bytes, seen: set[int], literals: list[tuple[int, int]], quoted: list[tuple[int, int]]) -> str:
    """The first mark of a substitution that was not walked and is no plain text either; empty if there is none."""
    if b"$" not in src and b"`" not in src and b"(" not in src:
        return ""
    literals, quoted = sorted(literals), sorted(quoted)
    for match in _MARK.finditer(src):
        mark, at = match[0], match.start()
        if mark[:1] == b"\\" or at in seen or _within(at, literals):
            continue
        if mark in (b"<(", b">(") and _within(at, quoted):
            continue
        return src[at : at + 40].decode(errors="replace")
    return ""


def _within(at: int, ranges: list[tuple[int, int]]) -> bool:
    index = bisect_right(ranges, (at, len(ranges) + (1 << 62))) - 1
    return index >= 0 and ranges[index][0] <= at < ranges[index][1]


def heredoc(src: bytes, operator: int, tag_end: int, tag: bytes, tabs: bool) -> tuple[int, int, int, bool] | None:
    """Find the body of a here-document as the shell does.

    ``operator``: byte of the ``<<``; ``tag_end``: behind the delimiter as written, ``tag``. Gives where the body
    starts and ends, where the delimiter line ends, and whether it is literal; None where this cannot be said for sure.
    """
    match = _TAG.fullmatch(tag)
    line_end = src.find(b"\n", tag_end)
    if match is None or line_end < 0 or src[tag_end : tag_end + 1] not in b" \t\n;|&<>":
        return None
    line_start = src.rfind(b"\n", 0, operator) + 1
    rest = _REST.sub(b"", src[tag_end:line_end])
    if re.search(rb"['\"`\\({#]|<<", rest) or src[line_start:line_end].count(b"<<") != 1:
        return None
    wanted = match[2] or match[3]
    at = line_end + 1
    while at <= len(src):
        end = src.find(b"\n", at)
        end = len(src) if end < 0 else end
        line = src[at:end]
        if (line.lstrip(b"\t") if tabs else line) == wanted:
            return line_end + 1, at, end, tag[:1] in b"'\"\\"
        at = end + 1
    return None
