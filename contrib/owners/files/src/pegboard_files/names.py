"""Names that look alike: the same name in another Unicode form, or one that was probably meant.

A model types composed letters and straight quotes; file systems hold what somebody else typed.
"""

from __future__ import annotations

import difflib
import os
import unicodedata

ENTRIES = 5_000
"""[C] Names of a folder that are looked at."""

_FOLDED = str.maketrans(
    {
        "‘": "'", "’": "'", "‛": "'", "“": '"', "”": '"', "‟": '"',
        "\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u200b": None,
        "‐": "-", "‑": "-", "–": "-",
    }
)  # fmt: skip


def folded(name: str) -> str:
    """A name in composed form with plain quotes, blanks and hyphens."""
    return unicodedata.normalize("NFC", name).translate(_FOLDED)


def alike(path: str) -> list[str]:
    """Existing paths that differ from a missing one only in Unicode form, quotes, blanks or hyphens.

    No component that is found this way is a link, so the result lies where the path says.
    """
    bases = ["/"]
    for part in path.strip("/").split("/"):
        found = []
        for base in bases:
            exact = os.path.join(base, part)
            if os.path.lexists(exact):
                found.append(exact)
                continue
            others = (os.path.join(base, name) for name in _names(base) if folded(name) == folded(part))
            found += [other for other in others if not os.path.islink(other)]
        bases = found
    return bases


def similar(path: str, most: int = 5) -> list[str]:
    """Names in the folder of a missing path that are close to its name, best first."""
    name = os.path.basename(path)
    there = _names(os.path.dirname(path))
    close = [other for other in there if other.lower() == name.lower()]
    close += difflib.get_close_matches(name, there, n=most, cutoff=0.6)
    stem = os.path.splitext(name)[0]
    close += [other for other in there if stem and os.path.splitext(other)[0] == stem]
    return list(dict.fromkeys(close))[:most]


def _names(folder: str) -> list[str]:
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) == ENTRIES:
                    break
    except OSError:
        return []
    return sorted(names)
