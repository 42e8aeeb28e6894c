"""Bytes as text and back, so that an edit changes only the bytes it means.

A file is matched in the form in which the model saw it (decoded, no byte order mark, one kind of line end) and
changed in the form in which it is on disk.
"""

from __future__ import annotations

import codecs
import difflib
import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from pegboard.errors import Code, Refusal

from pegboard_files.charsets import guess

Ending = Literal["", "\n", "\r\n", "\r", "mixed"]

SNIFF = 8_192
"""[C] A NUL byte within this many bytes makes a file binary, as git and ripgrep see it."""

_MARKS = (  # longest first: a UTF-32 mark begins like a UTF-16 mark
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ODD = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_NAMES = {
    "utf-8": "UTF-8",
    "utf-16-le": "UTF-16 LE",
    "utf-16-be": "UTF-16 BE",
    "utf-32-le": "UTF-32 LE",
    "utf-32-be": "UTF-32 BE",
    "gb18030": "GBK (GB 18030)",
    "cp932": "Shift-JIS (cp932)",
    "cp949": "EUC-KR (cp949)",
    "cp950": "Big5 (cp950)",
    "euc_jp": "EUC-JP",
    "cp1251": "Windows-1251",
    "koi8_r": "KOI8-R",
    "cp1252": "Windows-1252 / Latin-1",
}


@dataclass(frozen=True)
class Text:
    """A decoded file. ``text`` has the line ends of the disk and no byte order mark."""

    text: str
    encoding: str
    """Codec name."""
    mark: bytes = b""
    """The byte order mark, which every write puts back."""
    sure: bool = True
    """False: the encoding is a guess, so only ASCII may be changed."""
    intact: bool = True
    """False: some bytes are shown as U+FFFD, so the file cannot be changed through this view."""

    @cached_property
    def ending(self) -> Ending:
        """The line end in use; ``mixed`` when there are several, empty when there is none."""
        return ending_of(self.text)

    @cached_property
    def plain(self) -> str:
        """The text with every line end as LF: what the model reads and what edits are matched on."""
        return self.text if "\r" not in self.text else plain(self.text, self.ending)

    @property
    def label(self) -> str:
        """The encoding as people write it."""
        name = _NAMES.get(self.encoding, self.encoding)
        return f"{name} with a byte order mark" if self.mark else name

    def encode(self, text: str) -> bytes:
        """Text as bytes of this file, without the mark. Raises `Refusal` (invalid_input) for what does not fit."""
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError as error:
            char = text[error.start]
            raise Refusal(
                Code.INVALID_INPUT,
                f"The file is {self.label}, which has no {char!r} (U+{ord(char):04X}).",
                hint="Use characters that the encoding has, or convert the file to UTF-8 first.",
            ) from None


def decode(raw: bytes) -> Text | None:
    """The text of a file's bytes, or None when they are binary."""
    for mark, encoding in _MARKS:
        if raw.startswith(mark) and (not encoding.startswith("utf-32") or len(raw) % 4 == 0):
            return _with_mark(raw, mark, encoding)
    head = raw[:SNIFF]
    if b"\0" in head:
        return _bare_utf16(raw)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return _legacy(raw, head)
    if "\0" in text:
        return Text(text.replace("\0", "\ufffd"), "utf-8", intact=False)
    return Text(text, "utf-8")


def _with_mark(raw: bytes, mark: bytes, encoding: str) -> Text:
    body = raw[len(mark) :]
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError:
        return Text(body.decode(encoding, "replace"), encoding, mark, intact=False)
    if "\0" in text:
        return Text(text.replace("\0", "\ufffd"), encoding, mark, intact=False)
    return Text(text, encoding, mark)


def _bare_utf16(raw: bytes) -> Text | None:
    """UTF-16 without a mark, recognised when nearly every character is from the Latin range."""
    if len(raw) % 2:
        return None
    sample = raw[:SNIFF]
    for encoding, zero, used in (("utf-16-le", sample[1::2], sample[::2]), ("utf-16-be", sample[::2], sample[1::2])):
        if zero.count(0) >= 0.8 * len(zero) and not used.count(0) and not _ODD.search(used):
            try:
                text = raw.decode(encoding)
            except UnicodeDecodeError:
                return None
            return Text(text, encoding) if "\0" not in text else None
    return None


def _legacy(raw: bytes, head: bytes) -> Text | None:
    if len(_ODD.findall(head)) > 0.02 * len(head):
        return None
    found = None if _damaged_utf8(raw) or b"\0" in raw else guess(raw)
    if found is not None:
        try:
            return Text(raw.decode(found.encoding), found.encoding, sure=found.sure)
        except UnicodeDecodeError:
            pass
    return Text(raw.decode("utf-8", "replace").replace("\0", "\ufffd"), "utf-8", intact=False)


def _damaged_utf8(raw: bytes) -> bool:
    """Whether the bytes are UTF-8 with some broken places, rather than another encoding."""
    text = raw.decode("utf-8", "surrogateescape")
    broken = sum(1 for _ in re.finditer("[\udc80-\udcff]", text))
    return sum(1 for _ in re.finditer("[\x80-\ud7ff\ue000-\U0010ffff]", text)) >= broken


def ending_of(text: str) -> Ending:
    """The line end that a text uses. A lone CR ends a line only where there is no LF at all."""
    if "\r" not in text:
        return "\n" if "\n" in text else ""
    feeds = text.count("\n")
    if not feeds:
        return "\r"
    pairs = text.count("\r\n")
    return "\r\n" if pairs == feeds else "mixed" if pairs else "\n"


def plain(text: str, ending: Ending) -> str:
    """Text with LF line ends, seen as part of a file with this line end."""
    text = text.replace("\r\n", "\n")
    return text.replace("\r", "\n") if ending == "\r" else text


def matches(text: Text, old: str) -> list[int]:
    """Where ``old`` occurs in ``text.plain``, overlapping occurrences included."""
    wanted = plain(old, text.ending)
    found = []
    at = text.plain.find(wanted)
    while at >= 0:
        found.append(at)
        at = text.plain.find(wanted, at + 1)
    return found


def substitute(text: Text, raw: bytes, old: str, new: str, places: list[int]) -> tuple[bytes, Text]:
    """The file's bytes and text with ``old`` replaced at these places of ``text.plain``; all other bytes stay.

    Raises `Refusal` (invalid_input) when the new text cannot be expressed in the file's encoding.
    """
    old, new = plain(old, text.ending), plain(new, text.ending) if text.ending else new
    head = common_head(old, new)
    tail = common_tail(old[head:], new[head:])
    cut, put = len(old) - head - tail, new[head : len(new) - tail]
    shift = _Shift(text)
    pieces, chars, taken, done = [raw[: len(text.mark)]], [], len(text.mark), 0
    for place in places:
        start, end = shift.disk(place + head), shift.disk(place + head + cut)
        dressed = _dress(put, text.text[start:end], text, start)
        first = taken + len(text.encode(text.text[done:start]))
        last = first + len(text.encode(text.text[start:end]))
        if not text.sure:
            _only_ascii(text, raw[first - 1 : first], raw[first:last], dressed)
        pieces += [raw[taken:first], text.encode(dressed)]
        chars += [text.text[done:start], dressed]
        taken, done = last, end
    result = b"".join([*pieces, raw[taken:]])
    changed = "".join([*chars, text.text[done:]])
    if result[len(text.mark) :].decode(text.encoding, "replace") != changed:
        raise _cannot(text)
    return result, replace(text, text=changed)


class _Shift:
    """Positions in ``plain`` as positions in ``text``: each CRLF before one adds a character."""

    def __init__(self, text: Text) -> None:
        gaps = [] if "\r\n" not in text.text else [m.start() for m in re.finditer("\r\n", text.text)]
        self._gaps = [gap - index for index, gap in enumerate(gaps)]

    def disk(self, place: int) -> int:
        return place + bisect_left(self._gaps, place)


def common_head(left: str, right: str) -> int:
    """Length of the common beginning of two texts."""
    return _longest(min(len(left), len(right)), lambda size: left[:size] == right[:size])


def common_tail(left: str, right: str) -> int:
    """Length of the common end of two texts."""
    return _longest(min(len(left), len(right)), lambda size: left[len(left) - size :] == right[len(right) - size :])


def _longest(limit: int, same: Callable[[int], bool]) -> int:
    if same(limit):
        return limit
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if same(middle) else (low, middle)
    return low


def _dress(new: str, old: str, text: Text, start: int) -> str:
    """New text with the line ends that belong there: those of kept lines, else those of the surroundings."""
    if text.ending != "mixed":
        return new if text.ending in ("", "\n") else new.replace("\n", text.ending)
    if "\n" not in new:
        return new
    before, ends = _lines(old)
    after = new.split("\n")
    near = _near(text.text, start)
    chosen = [near] * (len(after) - 1)
    if len(before) == len(after):
        chosen = ends
    else:
        for block in difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
            for step in range(block.size):
                if block.a + step < len(ends) and block.b + step < len(chosen):
                    chosen[block.b + step] = ends[block.a + step]
    return "".join(line + end for line, end in zip(after, [*chosen, ""], strict=True))


def _lines(text: str) -> tuple[list[str], list[str]]:
    """Lines and their ends, split at LF and CRLF."""
    parts = re.split("(\r?\n)", text)
    return parts[::2], parts[1::2]


def _near(text: str, start: int) -> str:
    """The end of the line at a position; for the last line, of the line before."""
    at = text.find("\n", start)
    if at < 0:
        at = text.rfind("\n", 0, start)
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def _only_ascii(text: Text, before: bytes, old: bytes, new: str) -> None:
    """In a guessed encoding only ASCII may change, and not behind a byte that may be half a character."""
    if not (before.isascii() and old.isascii() and new.isascii()):
        raise Refusal(
            Code.INVALID_INPUT,
            f"The encoding of this file is a guess ({text.label}), so only its ASCII text can be changed safely.",
            hint="Keep the change away from other characters, or convert the file to UTF-8 first.",
        )


def _cannot(text: Text) -> Refusal:
    return Refusal(
        Code.INVALID_INPUT,
        f"The change cannot be expressed in the file's encoding ({text.label}) without touching other bytes.",
        hint="Convert the file to UTF-8 first.",
    )


def refuse_halves(field: str, value: str) -> None:
    """Refuse (invalid_input) text of an input that holds half of a surrogate pair: no encoding can write it."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Refusal(
            Code.INVALID_INPUT,
            f"{field} holds half a character (U+{ord(value[error.start]):04X}, at position {error.start}).",
            hint="Send the whole character.",
        ) from None


def encode_whole(text: str, old: Text | None) -> bytes:
    """A whole new content as bytes: the encoding, the mark and a consistent CRLF style of the old file are kept.

    Raises `Refusal` (invalid_input) when the text does not fit the encoding.
    """
    if old is None:
        return text.encode("utf-8")
    if old.ending == "\r\n" and "\r" not in text:
        text = text.replace("\n", "\r\n")
    if old.mark:
        text = text.removeprefix("\ufeff")
    return old.mark + old.encode(text)
