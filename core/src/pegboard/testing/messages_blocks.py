"""What the Messages service refuses in a single content block, and how it signs thinking.

One function a block type, as data where a table says it; `messages_check` asks it for every block of a request.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Container, Iterator
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
"""[A] What a tool may be called."""
TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
IMAGE_LIMIT = 5 * 1024 * 1024
"""[A] Largest image, counted in base64 characters."""

_KEYS = {
    "text": ("text", "cache_control", "citations"),
    "image": ("source", "cache_control"),
    "document": ("source", "cache_control", "citations", "context", "title"),
    "search_result": ("source", "title", "content", "cache_control", "citations"),
    "tool_use": ("id", "name", "input", "cache_control", "caller", "toolset_name"),
    "tool_result": ("tool_use_id", "content", "is_error", "cache_control", "toolset_name"),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_reference": ("tool_name", "cache_control"),
    "container_upload": ("file_id", "cache_control"),
}
_SERVER_RESULT = re.compile(r"[a-z_]+_tool_result")
_USER = frozenset({"text", "image", "document", "search_result", "tool_result", "container_upload"})
_ASSISTANT = frozenset({"text", "tool_use", "thinking", "redacted_thinking", "server_tool_use", "container_upload"})
_IN_RESULT = frozenset({"text", "image", "document", "search_result", "tool_reference"})
IMAGE_STARTS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
_SECRET = b"pegboard strict messages service"


def signature_of(thinking: str) -> str:
    """The signature under which the service gives out this thinking text. The same in every process."""
    return base64.b64encode(hmac.digest(_SECRET, thinking.encode("utf-8", "surrogatepass"), hashlib.sha256)).decode()


def sealed(text: str) -> str:
    """The ``data`` of a redacted thinking block that stands for this text."""
    return base64.b64encode(text.encode()).decode() + "." + signature_of(text)


def block_problems(block: Any, where: str, role: str, known: Container[str] = ()) -> Iterator[str]:
    """Say what is wrong with one block. ``role``: ``user``, ``assistant`` or ``result`` (inside a tool_result).

    ``known`` holds signatures and redacted data that a script gave out with its own values.
    """
    if not isinstance(block, dict):
        yield f"{where}: Input should be an object"
        return
    kind = block.get("type")
    if not isinstance(kind, str):
        yield f"{where}.type: Field required"
        return
    if not _allowed(kind, role):
        yield f"{where}: Input tag '{kind}' is not allowed in {_PLACE[role]}"
        return
    where = f"{where}.{kind}"
    if kind in _KEYS:
        for key in block.keys() - {"type", *_KEYS[kind]}:
            yield f"{where}.{key}: Extra inputs are not permitted"
    yield from cache_problems(block.get("cache_control"), where)
    if kind in ("thinking", "redacted_thinking"):
        yield from _thinking(block, where, known)
    elif kind == "text":
        yield from text_problems(block, where, role)
    elif kind == "image":
        yield from _source(block.get("source"), where, image=True)
    elif kind == "document":
        yield from _source(block.get("source"), where, image=False)
    elif kind in ("tool_use", "server_tool_use"):
        yield from _tool_use(block, where)
    elif kind == "tool_result":
        yield from _tool_result(block, where)


_PLACE = {"user": "a user message", "assistant": "an assistant message", "result": "the content of a tool_result"}


def _allowed(kind: str, role: str) -> bool:
    if role == "result":
        return kind in _IN_RESULT
    if role == "user":
        return kind in _USER
    return kind in _ASSISTANT or _SERVER_RESULT.fullmatch(kind) is not None


def cache_problems(mark: Any, where: str) -> Iterator[str]:
    """Say what is wrong with a ``cache_control`` value; None is no mark."""
    if mark is None:
        return
    if not isinstance(mark, dict) or mark.get("type") != "ephemeral":
        yield f"{where}.cache_control.type: Input should be 'ephemeral'"
    elif mark.get("ttl", "5m") not in ("5m", "1h") or mark.keys() - {"type", "ttl"}:
        yield f"{where}.cache_control: only `type` and `ttl` ('5m' or '1h') are permitted"


def text_problems(block: dict[str, Any], where: str, role: str) -> Iterator[str]:
    """Say what is wrong with a text block: it must hold text, and outside of results more than white space."""
    text = block.get("text")
    if not isinstance(text, str):
        yield f"{where}.text: Input should be a valid string"
    elif not text:
        yield f"{where}.text: text content blocks must be non-empty"
    elif role != "result" and not text.strip():
        yield f"{where}.text: text content blocks must contain non-whitespace text"
    if role == "user" and block.get("citations"):
        yield f"{where}.citations: text of a user message cannot carry citations"


def _thinking(block: dict[str, Any], where: str, known: Container[str]) -> Iterator[str]:
    if block["type"] == "redacted_thinking":
        data = block.get("data")
        if not isinstance(data, str) or not (data in known or _unsealed(data)):
            yield f"{where}: Invalid `data` in `redacted_thinking` block"
        return
    thinking, signature = block.get("thinking"), block.get("signature")
    if not isinstance(thinking, str) or not isinstance(signature, str):
        yield f"{where}: `thinking` and `signature` must be strings"
    elif signature != signature_of(thinking) and thinking + "\0" + signature not in known:
        yield f"{where}: Invalid `signature` in `thinking` block"


def _unsealed(data: str) -> bool:
    body, _, signature = data.partition(".")
    try:
        return signature == signature_of(base64.b64decode(body, validate=True).decode())
    except ValueError:
        return False


def _tool_use(block: dict[str, Any], where: str) -> Iterator[str]:
    if not isinstance(block.get("id"), str) or not TOOL_ID.fullmatch(block["id"]):
        yield f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if not isinstance(block.get("name"), str) or not NAME.fullmatch(block["name"]):
        yield f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
    if not isinstance(block.get("input"), dict):
        yield f"{where}.input: Input should be an object"


def _tool_result(block: dict[str, Any], where: str) -> Iterator[str]:
    if not isinstance(block.get("tool_use_id"), str) or not TOOL_ID.fullmatch(block["tool_use_id"]):
        yield f"{where}.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if not isinstance(block.get("is_error", False), bool):
        yield f"{where}.is_error: Input should be a valid boolean"
    content = block.get("content", "")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield f"{where}.content: Input should be a string or a list of blocks"
        return
    for index, inner in enumerate(content):
        yield from block_problems(inner, f"{where}.content.{index}", "result")
        if block.get("is_error") and isinstance(inner, dict) and inner.get("type") != "text":
            yield f"{where}.content.{index}: all content must be type text if is_error is true"


def _source(source: Any, where: str, *, image: bool) -> Iterator[str]:
    if not isinstance(source, dict):
        yield f"{where}.source: Field required"
        return
    kind = source.get("type")
    if kind == "base64":
        yield from _base64(source, f"{where}.source.base64", image=image)
    elif kind in ("url", "file"):
        key = "url" if kind == "url" else "file_id"
        if not isinstance(source.get(key), str) or not source[key]:
            yield f"{where}.source.{kind}.{key}: Field required"
    elif not image and kind == "text":
        if source.get("media_type") != "text/plain" or not source.get("data"):
            yield f"{where}.source.text: needs media_type 'text/plain' and non-empty data"
    elif image or kind != "content":
        yield f"{where}.source: Input tag '{kind}' is not one of the expected tags"


def _base64(source: dict[str, Any], where: str, *, image: bool) -> Iterator[str]:
    media, data = source.get("media_type"), source.get("data")
    allowed = tuple(IMAGE_STARTS) if image else ("application/pdf",)
    if media not in allowed:
        yield f"{where}.media_type: Input should be one of {', '.join(allowed)}"
        return
    try:
        start = base64.b64decode(data, validate=True)[:16] if isinstance(data, str) and data else b""
    except (binascii.Error, ValueError):
        yield f"{where}.data: invalid base64 data"
        return
    if not start.startswith(IMAGE_STARTS[media] if image else b"%PDF-"):
        yield f"{where}.data: the data does not look like {media}"
    if image and isinstance(data, str) and len(data) > IMAGE_LIMIT:
        yield f"{where}: image exceeds 5 MB maximum: {len(data)} bytes > {IMAGE_LIMIT} bytes"
