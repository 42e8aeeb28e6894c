"""Which tools a query means: exact names, or the best fits of a few words. Pure, so that it can be tested alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pegboard.names import fold, kebab, pick

SELECT = "select:"
_EMPTY = frozenset(
    {"a", "an", "and", "for", "from", "in", "of", "on", "or", "the", "to", "tool", "tools", "use", "with"}
)
_WORD = re.compile(r"[a-z0-9]+")

Fields = tuple[str, str, str]
"""What is searched of a tool: its name, its summary, and the rest that describes it."""


def selected(query: str, known: Iterable[str]) -> tuple[list[str], list[str]] | None:
    """The known and the unknown names of ``select:A,B``; None for a query of another form."""
    if not query.strip().lower().startswith(SELECT):
        return None
    names = list(known)
    wanted = [name.strip() for name in query.strip()[len(SELECT) :].split(",") if name.strip()]
    found = [(name, pick(name, names)) for name in wanted]
    return list(dict.fromkeys(own for _, own in found if own)), [name for name, own in found if own is None]


def ranked(query: str, tools: Mapping[str, Fields]) -> list[str]:
    """The names of the tools that have anything to do with the words of a query, best first.

    A hit in the name counts most, then in the summary, then in the rest; words are compared by their beginnings.
    """
    words = [word for word in _WORD.findall(kebab(query).lower()) if word not in _EMPTY]
    scores = {name: _score(words, fields) for name, fields in tools.items()}
    return sorted((name for name, score in scores.items() if score), key=lambda name: (-scores[name], name))


def _score(words: list[str], fields: Fields) -> int:
    name, folded = kebab(fields[0]).split("-"), fold(fields[0])
    summary, rest = (" " + " ".join(_WORD.findall(text.lower())) for text in fields[1:])
    score = 0
    for word in words:
        beginning = " " + (word[:-1] if len(word) > 3 and word.endswith("s") else word)
        if word in name or word == folded:
            score += 12
        elif len(word) > 2 and word in folded:
            score += 8
        else:
            score += 4 if beginning in summary else 2 if beginning in rest else 0
    return score
