"""One rule for all names: tool ``WebFetch``, folder ``web-fetch``, ``pegboard_web_fetch`` of ``pegboard-web-fetch``.

Thirty distributions, their folders, modules and tools stay in step only if a single place derives one from the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

ACRONYMS = frozenset({"lsp"})
"""Words that a tool name writes in capitals only."""

_bundled: dict[str, str] = {}


def kebab(tool: str) -> str:
    """``WebFetch`` -> ``web-fetch``, ``LSP`` -> ``lsp``, ``LSPTool`` -> ``lsp-tool``; kebab and snake stay kebab."""
    out: list[str] = []
    for index, char in enumerate(tool):
        if char in "_- .":
            out.append("-")
            continue
        if char.isupper() and index:
            before, after = tool[index - 1], tool[index + 1 : index + 2]
            if before.islower() or before.isdigit() or (before.isupper() and after.islower()):
                out.append("-")
        out.append(char.lower())
    return "-".join(part for part in "".join(out).split("-") if part)


def snake(tool: str) -> str:
    """``WebFetch`` -> ``web_fetch``."""
    return kebab(tool).replace("-", "_")


def pascal(name: str) -> str:
    """``web-fetch`` -> ``WebFetch``, ``lsp`` -> ``LSP``."""
    words = kebab(name).split("-")
    return "".join(word.upper() if word in ACRONYMS else word.capitalize() for word in words)


def distribution(tool: str) -> str:
    """``WebFetch`` -> ``pegboard-web-fetch``."""
    return f"pegboard-{kebab(tool)}"


def module(tool: str) -> str:
    """``WebFetch`` -> ``pegboard_web_fetch``."""
    return f"pegboard_{snake(tool)}"


def fold(name: str) -> str:
    """What two spellings of a name have in common: ``Web-Fetch``, ``web_fetch`` and ``WebFetch`` -> ``webfetch``."""
    return name.replace("-", "").replace("_", "").replace(" ", "").lower()


def normal(dist: str) -> str:
    """Name of a distribution as package indexes compare it: lower case, runs of ``-_.`` as one ``-``."""
    return "-".join(part for part in dist.lower().replace("_", "-").replace(".", "-").split("-") if part)


def bundled() -> dict[str, str]:
    """Distributions that are part of the product -> the tool each brings, empty for those that bring none."""
    if not _bundled:
        with open(os.path.join(os.path.dirname(__file__), "bundled.txt"), encoding="utf-8") as file:
            for line in file:
                if line.strip() and not line.startswith("#"):
                    dist, _, tool = line.strip().partition(" ")
                    _bundled[dist] = tool.strip()
    return _bundled


def close(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that look like ``name``, for messages about unknown ones."""
    import difflib

    by_fold = {fold(each): each for each in known}
    return [by_fold[each] for each in difflib.get_close_matches(fold(name), by_fold, 3, 0.5)]


def pick(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` means: exactly it, or the only one that is spelt alike (``bash`` -> ``Bash``)."""
    names = list(known)
    if name in names:
        return name
    alike = [each for each in names if fold(each) == fold(name)]
    return alike[0] if len(alike) == 1 else None
