"""Output as a model can read it: no escape sequences, no overwritten progress, both ends of what is too long.

A terminal shows the last state of a line; bytes on a pipe are all of its states. Only the last one says anything.
"""

from __future__ import annotations

import re

from pegboard.shaping import cut
from pegboard_tasks.sink import HEAD, TAIL, Sink, decoded

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # strings for the terminal
    r"|\x1b[ -/]*[0-~]"
)
_OVERWRITTEN = re.compile(r"[^\n\r]*\r+(?=[^\n\r])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def readable(text: str) -> str:
    """What a terminal would show at the end: last frames, no colours; other control characters become U+FFFD."""
    text = text.replace("\r\n", "\n")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = _OVERWRITTEN.sub("", text).replace("\r", "")
    if "\b" in text:
        text = "\n".join(map(_backspaced, text.split("\n")))
    return _CONTROLS.sub("\ufffd", text)


def _backspaced(line: str) -> str:
    if "\b" not in line:
        return line
    kept: list[str] = []
    for char in line:
        if char != "\b":
            kept.append(char)
        elif kept:
            kept.pop()
    return "".join(kept)


def shown(sink: Sink, limit: int) -> tuple[str, bool]:
    """The output in at most ``limit`` characters, and whether something was left out."""
    whole = sink.whole()
    if whole is not None:
        text = _trimmed(readable(decoded(whole)))
        if len(text) <= limit:
            return text, False
        head, tail = _ends(text, text, limit)
        left = f"{len(text) - len(head) - len(tail):,} of {len(text):,} characters"
    else:
        first = readable(decoded(sink.first(HEAD), end=False))
        last = readable(decoded(sink.last(TAIL), start=False))
        head, tail = _ends(_trimmed(first), _trimmed(last), limit)
        size = len(head.encode("utf-8", "replace")) + len(tail.encode("utf-8", "replace"))
        left = f"about {max(0, sink.total - size):,} of {sink.total:,} bytes"
    return f"{head}\n\n[... {left} left out here ...]\n\n{tail}", True


def _ends(first: str, last: str, limit: int) -> tuple[str, str]:
    room = limit - 100  # for the line between them
    head = cut(first, room // 2)
    tail = last[-(room - room // 2) :]
    line = tail.find("\n")
    if 0 <= line < len(tail) // 2:
        tail = tail[line + 1 :]
    return head, tail


def _trimmed(text: str) -> str:
    lead = re.match(r"(?:[ \t]*\n)+", text)
    return text[lead.end() if lead else 0 :].rstrip()
