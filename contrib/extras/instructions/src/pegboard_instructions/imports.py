"""``@path`` in the text of an instruction file: which files it names, and what is left without those lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

_FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})")
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_NAME = re.compile(r"(?<!\S)@((?:\\ |[^\s`])+)")
_AFTER = ".,;:!?)]}'\"*_"
"""Characters that end a sentence around a name, not the name."""


def names(text: str) -> list[str]:
    """The names behind ``@``, in order, each once; not in code, not in a comment."""
    found = (match[1].replace("\\ ", " ") for line in _prose(text) for match in _NAME.finditer(line))
    return list(dict.fromkeys(found))


def spellings(name: str) -> Iterator[str]:
    """What a name may mean: as it stands, then without the punctuation of the sentence that it ends."""
    yield name
    while name and name[-1] in _AFTER:
        name = name[:-1]
        yield name


def without(text: str, given: set[str]) -> str:
    """The text without the lines that say nothing but one of these names."""
    kept = [line for line in text.splitlines(keepends=True) if line.strip().removeprefix("- ").strip() not in given]
    return "".join(kept)


def _prose(text: str) -> Iterator[str]:
    """The text without fenced code, indented code, code in lines, and comments."""
    text = re.sub(r"<!--.*?(?:-->|\Z)", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    fence, blank = "", True
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            continue
        if mark:
            fence = mark[1]
        if mark or not line.strip():
            yield from _CODE.sub(" ` ", "\n".join(paragraph)).splitlines()
            paragraph, blank = [], True
            continue
        if blank and line.startswith(("    ", "\t")):
            continue
        blank = False
        paragraph.append(line)
    yield from _CODE.sub(" ` ", "\n".join(paragraph)).splitlines()
