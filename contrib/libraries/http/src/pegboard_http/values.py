"""JSON both ways: what is sent is always UTF-8, what comes may be broken and is then told as what it is."""

from __future__ import annotations

from typing import Any

import msgspec
from pegboard.call import json_safe

from pegboard_http.failure import broken_line

DEPTH = 200
"""[C] Most levels of a call's input. What is deeper could be read here, and not where the stack is fuller."""


def encode(value: Any) -> bytes:
    """The JSON bytes of a value; what UTF-8 cannot carry becomes U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(json_safe(msgspec.to_builtins(value)))


def json_object(data: bytes, what: str = "event of the model service") -> dict[str, Any]:
    """The JSON object in some bytes. Raises `Failure` naming ``what`` it should have been."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise broken_line(f"The {what} is no JSON.") from None
    if not isinstance(value, dict):
        raise broken_line(f"The {what} is no object.")
    return value


def call_input(text: str) -> tuple[dict[str, Any], str | None]:
    """The input of a tool call; or an empty one and the text, which is no JSON object or too deep a one."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {}, text
    deep = text.count("{") + text.count("[") > DEPTH and _deeper(value, DEPTH)
    return (value, None) if isinstance(value, dict) and not deep else ({}, text)


def _deeper(value: Any, levels: int) -> bool:
    """Whether a value has more levels than that; walks level by level, so that depth itself is no problem."""
    level = [value]
    for _ in range(levels):
        level = [
            item
            for one in level
            for item in (one.values() if isinstance(one, dict) else one)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True
