"""What the errors of the Messages API mean: which of them a repeat can help, and what to tell the person.

Both transports come here, so that they judge alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pegboard.errors import ProviderError
from pegboard_http.failure import Failure, broken_off, refused

_PASSING = frozenset({"overloaded_error", "api_error", "timeout_error"})
"""Kinds of error events in a stream after which the same request can succeed."""
_TOO_LONG = ("prompt is too long", "exceed context limit", "request_too_large", "exceed_context_size", "context size")
"""What the service says, then what other servers of the same API say."""
_CHECK = "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, and provider.base_url"


def from_answer(status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> Failure:
    """The failure behind an error answer; ``headers`` have lower-case names."""
    kind, said = _named(body)
    too_long = status < 500 and _too_long(kind, said)
    return refused(status, kind, said, headers, too_long=too_long, check=_CHECK)


def from_event(event: Mapping[str, Any]) -> Failure:
    """The failure behind an ``error`` event in the middle of a stream."""
    kind, said = _named(event)
    kind = kind or "api_error"
    limited = kind == "rate_limit_error"
    return broken_off(kind, said, too_long=_too_long(kind, said), limited=limited, passing=kind in _PASSING)


def no_key() -> ProviderError:
    """Nothing says who we are; told before anything is sent."""
    return ProviderError(
        "There is no key for the Anthropic service. Set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN) in the environment;"
        " a local service that needs none takes any text.",
        kind="authentication_error",
    )


def _named(body: Mapping[str, Any]) -> tuple[str, str]:
    detail = body.get("error")
    if not isinstance(detail, Mapping):
        return "", ""
    return str(detail.get("type") or ""), str(detail.get("message") or "")


def _too_long(kind: str, said: str) -> bool:
    return any(mark in f"{kind} {said}" for mark in _TOO_LONG)
