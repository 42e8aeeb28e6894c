"""A text file that somebody else wrote, read with care: no device, no pipe, nothing endless, nothing but text."""

from __future__ import annotations

import os
import stat


class Unread(Exception):
    """A file is not read; the message says why, and goes on after its name."""


def text_of(path: str, largest: int) -> str:
    """The text of a file of at most ``largest`` bytes, its lines ending in LF. Raises `Unread`."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            raw = _read(handle, largest)
        finally:
            os.close(handle)
    except OSError as error:
        raise Unread(f"cannot be read: {error.strerror or error}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unread("is no text in UTF-8") from None
    if "\0" in text:
        raise Unread("is no text")
    return text.replace("\r\n", "\n")


def _read(handle: int, largest: int) -> bytes:
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        raise Unread("is no file")
    if status.st_size > largest:
        raise Unread(f"has {status.st_size:,} bytes; the limit is {largest:,}")
    raw = b""
    while len(raw) <= largest and (part := os.read(handle, largest + 1 - len(raw))):
        raw += part
    return raw[:largest]
