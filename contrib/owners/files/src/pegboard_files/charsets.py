"""A guess at the encoding of text that is not Unicode, and how far the guess can be trusted.

A wrong guess must be harmless: callers show its name, and an unsure one never decides which bytes get written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

SURE_PAIRS = 4
"""[C] Double-byte characters from which on a fitting East Asian guess counts as sure."""

SURE_LETTERS = 12
"""[C] Letters from which on a Cyrillic guess counts as sure."""


@dataclass(frozen=True)
class Guess:
    """A codec name, and whether text of it can be written back in other words."""

    encoding: str
    sure: bool


SAMPLE = 65_536
"""[C] Bytes that are looked at, from the first line on that is not ASCII."""

_HIGH = re.compile(rb"[\x80-\xff]")


def guess(raw: bytes) -> Guess | None:
    """The likely encoding of bytes that are not UTF-8, or None when none fits."""
    sample = _sample(raw)
    if sample:
        for attempt in (_japanese, _double_byte, _cyrillic, _western):
            found = attempt(sample)
            if found is not None:
                return found
    return None


def _sample(raw: bytes) -> bytes:
    first = _HIGH.search(raw)
    if first is None:
        return b""
    start = raw.rfind(b"\n", 0, first.start()) + 1
    if len(raw) - start <= SAMPLE:
        return raw[start:]
    end = raw.rfind(b"\n", start, start + SAMPLE)
    return raw[start : end if end > first.start() else start + SAMPLE]


def _decoded(raw: bytes, encoding: str) -> str | None:
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if any("\x80" <= char < "\xa0" for char in text) else text


def _share(text: str, test: Callable[[str], bool]) -> tuple[int, float]:
    strange = [char for char in text if char >= "\x80"]
    return len(strange), (sum(map(test, strange)) / len(strange) if strange else 0.0)


def _japanese(raw: bytes) -> Guess | None:
    for encoding in ("euc_jp", "cp932"):
        text = _decoded(raw, encoding)
        if text is None or any("\uff61" <= char <= "\uff9f" for char in text):
            continue
        count, share = _share(text, lambda char: "\u3041" <= char <= "\u30fe")
        if share >= 0.2 and count >= 2:
            return Guess(encoding, count >= SURE_PAIRS)
    return None


def _double_byte(raw: bytes) -> Guess | None:
    """Chinese and Korean, told apart by where the lead bytes of frequent characters lie."""
    pairs, runs = _pairs(raw)
    count = len(pairs)
    if not pairs or count < 2 * runs:  # Western letters stand alone among ASCII
        return None
    marks = sum(0xA1 <= lead <= 0xA3 for lead, _ in pairs)
    hangul = sum(0xB0 <= lead <= 0xC8 and trail >= 0xA1 for lead, trail in pairs)
    simple = sum(0xB0 <= lead <= 0xD7 and trail >= 0xA1 for lead, trail in pairs)
    common = sum(0xA4 <= lead <= 0xC6 for lead, _ in pairs)
    low = any(trail < 0xA1 for _, trail in pairs)
    for encoding, fits in (
        ("cp949", hangul + marks == count and hangul >= 8),
        ("cp950", low and common + marks >= 0.9 * count),
        ("gb18030", simple > 0 and simple + marks >= 0.8 * count),
    ):
        text = _decoded(raw, encoding) if fits else None
        if text is not None:
            known = sum(char in _FREQUENT[encoding] for char in text)
            if known or encoding == "gb18030":
                return Guess(encoding, count >= SURE_PAIRS and known >= 0.05 * count)
    return None


_FREQUENT = {
    "cp949": frozenset("이다는의에을를은가한하고지입니로도기서자사시"),
    "cp950": frozenset("的是一不在有了和中為這個人用上大來以文字資檔數取設定"),
    "gb18030": frozenset("的是一不在有了和中为这个人用上大来以文字数取设定件"),
}
"""Characters of which any text of the language holds some; a text without them is only a guess."""


def _pairs(raw: bytes) -> tuple[list[tuple[int, int]], int]:
    """The double-byte characters of a text and the number of runs they form; none if the high bytes do not pair."""
    pairs: list[tuple[int, int]] = []
    index, runs, end = 0, 0, -1
    while index < len(raw):
        lead = raw[index]
        if lead < 0x80:
            index += 1
            continue
        if index + 1 == len(raw) or lead in (0x80, 0xFF) or raw[index + 1] < 0x40:
            return [], 0
        pairs.append((lead, raw[index + 1]))
        runs += index != end
        index += 2
        end = index
    return pairs, runs


def _cyrillic(raw: bytes) -> Guess | None:
    """Cyrillic words are whole runs of high bytes, mostly small letters."""
    best: tuple[float, str, int] | None = None
    for encoding in ("cp1251", "koi8_r"):
        text = _decoded(raw, encoding)
        if text is None:
            continue
        count, letters = _share(text, lambda char: "\u0400" <= char <= "\u045f")
        _, small = _share(text, lambda char: "\u0430" <= char <= "\u045f")
        if letters >= 0.9 and count >= 3 and _runs(raw) >= 2.5 and (best is None or small > best[0]):
            best = (small, encoding, count)
    if best is None or best[0] < 0.5:
        return None
    return Guess(best[1], best[2] >= SURE_LETTERS)


def _runs(raw: bytes) -> float:
    """Mean length of the runs of high bytes."""
    high = bytes(byte if byte >= 0x80 else 0x20 for byte in raw).split()
    return sum(map(len, high)) / len(high)


def _western(raw: bytes) -> Guess | None:
    """Western text has single high bytes, nearly all of them letters or typographic marks. Never sure."""
    text = _decoded(raw, "cp1252")
    if text is None:
        return None
    _, share = _share(text, lambda char: char.isalpha() or char in "‘’“”–—…•€£§°«»©®™·¿¡º\xa0")
    return Guess("cp1252", False) if share >= 0.8 and _runs(raw) <= 2.5 else None
