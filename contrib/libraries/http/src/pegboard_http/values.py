"""JSON both ways: what is sent is always UTF-8, what comes may be broken and is then told as what it is."""

from __future__ import annotations

from typing import Any

import msgspec
from pegboard.call import json_safe

from pegboard_http.failure import broken_line


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
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise broken_line(f"The {what} is no JSON.") from None
    if not isinstance(value, dict):
        raise broken_line(f"The {what} is no object.")
    return value


def call_input(text: str) -> tuple[dict[str, Any], str | None]:
    """The input of a tool call, or an empty one and the text that is no JSON object."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {}, text
    return (value, None) if isinstance(value, dict) else ({}, text)
