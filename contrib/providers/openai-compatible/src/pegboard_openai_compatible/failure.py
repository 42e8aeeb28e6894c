"""What the errors of chat-completions servers mean; each names the same things in words of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pegboard.errors import ProviderError
from pegboard_http.failure import Failure, broken_off, refused

_TOO_LONG = (
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context size",
    "context length",
    "context window",
    "prompt is too long",
    "too many tokens",
)
_LIMITED = ("rate_limit", "insufficient_quota", "too_many_requests")
_FINAL = (
    "invalid",
    "badrequest",
    "bad_request",
    "not_found",
    "notfound",
    "unsupported",
    "permission",
    "authentication",
)
"""Parts of the kinds of errors after which the same request cannot succeed."""


def from_answer(status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> Failure:
    """The failure behind an error answer; ``headers`` have lower-case names."""
    kind, said = _named(body)
    check = "OPENAI_API_KEY and provider.base_url"
    return refused(status, kind, said, headers, too_long=_too_long(kind, said), check=check)


def from_chunk(chunk: Mapping[str, Any]) -> Failure:
    """The failure behind an error in place of a chunk in the middle of a stream."""
    kind, said = _named(chunk)
    lower = kind.lower()
    final = any(part in lower for part in _FINAL)
    limited = any(part in lower for part in _LIMITED)
    return broken_off(kind or "error", said, too_long=_too_long(kind, said), limited=limited, passing=not final)


def no_key() -> ProviderError:
    """The service is not on this machine, and nothing says who we are."""
    return ProviderError(
        "There is no key for the model service. Set OPENAI_API_KEY in the environment; a service that needs none takes"
        " any text.",
        kind="authentication_error",
    )


def _named(body: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and text of an error, wherever a server puts them: an object, a text, or fields of the body itself."""
    detail = body.get("error", body)
    if isinstance(detail, str):
        return "", detail
    if not isinstance(detail, Mapping):
        return "", ""
    code = detail.get("code")
    kind = " ".join(str(part) for part in (detail.get("type"), code if isinstance(code, str) else None) if part)
    return kind, str(detail.get("message") or detail.get("detail") or "")


def _too_long(kind: str, said: str) -> bool:
    text = f"{kind} {said}".lower()
    return any(mark in text for mark in _TOO_LONG)
