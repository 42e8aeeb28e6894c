"""A Markdown file as fields and body.

Fields are read leniently: a file that a person wrote for another product must not be lost for one odd line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pegboard_frontmatter.fields import Lines, read_fields

FENCE = "---"
LARGEST = 64 * 1024
"""[C] Most characters of the fields of one file; what is larger is no front matter."""


@dataclass
class Document:
    """What a file says: its fields, the text below them, and what could not be read."""

    fields: dict[str, Any] = field(default_factory=dict)
    body: str = ""
    problems: list[str] = field(default_factory=list)
    """One sentence for each line that was passed over, with its number."""


def split(text: str) -> Document:
    """Take a file apart. One without fields is all body; never raises."""
    text = text.removeprefix("\ufeff")
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != FENCE:
        return Document(body=text)
    size = 0
    for number, line in enumerate(lines[1:], 1):
        size += len(line)
        if line.rstrip() in (FENCE, "..."):
            source = Lines([one.rstrip("\r\n") for one in lines[1:number]])
            fields = read_fields(source)
            return Document(fields, "".join(lines[number + 1 :]), source.problems)
        if size > LARGEST:
            break
    return Document(body=text, problems=["line 1: the fields that begin here have no end"])


def texts(value: Any) -> list[str]:
    """A field that may be one text, several with commas between them, or a list: as a list of texts."""
    if value is None or isinstance(value, bool | dict):
        return []
    if isinstance(value, list):
        return [str(item).strip() for item in value if isinstance(item, str | int | float) and str(item).strip()]
    return [part for part in _parts(str(value)) if part]


def _parts(text: str) -> list[str]:
    """Cut at commas that stand outside of brackets: ``Bash(git a, b), Read`` has two parts."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth <= 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]
