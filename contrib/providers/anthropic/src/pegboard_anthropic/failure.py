"""What can go wrong between us and the service, as one internal error that says whether a repeat can help.

Both transports raise `Failure`; the provider alone decides about repeats, so that they follow one rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pegboard.errors import BadRequest, Overloaded, ProviderError, RateLimited, TooLong

_PASSING = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error"})
"""Kinds of error events in a stream after which the same request can succeed."""
_TOO_LONG = ("prompt is too long", "exceed context limit", "request_too_large")


class Failure(Exception):
    """One try of a request failed. ``error`` is what the caller gets when there is no further try."""

    def __init__(self, error: ProviderError, *, after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.after = after
        """Seconds that the service asks us to wait, or None."""


def from_answer(status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> Failure:
    """The failure behind an error answer; ``headers`` have lower-case names."""
    detail = body.get("error")
    kind = str(detail.get("type") or "") if isinstance(detail, Mapping) else ""
    said = str(detail.get("message") or "") if isinstance(detail, Mapping) else ""
    after = wait_asked_for(headers)
    text = f"The model service answered {status}: {said or kind or 'no reason given'}"
    if request_id := headers.get("request-id"):
        text += f" (request {request_id})"
    if status == 429:
        return Failure(RateLimited(text, after=after), after=after)
    if status in (408, 409) or status >= 500:
        return Failure(Overloaded(text, status=status, kind=kind or "api_error"), after=after)
    if status == 413 or any(mark in f"{kind} {said}" for mark in _TOO_LONG):
        return Failure(TooLong(text, status=status, kind=kind))
    if status in (401, 403):
        text += "\nCheck ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, and provider.base_url."
    return Failure(BadRequest(text, status=status, kind=kind or "invalid_request_error"))


def from_event(event: Mapping[str, Any]) -> Failure:
    """The failure behind an ``error`` event in the middle of a stream."""
    detail = event.get("error") or {}
    kind, said = str(detail.get("type") or "api_error"), str(detail.get("message") or "")
    text = f"The model service broke off its answer: {said or kind}"
    if kind == "rate_limit_error":
        return Failure(RateLimited(text, status=None))
    if kind in _PASSING:
        return Failure(Overloaded(text, kind=kind))
    if any(mark in f"{kind} {said}" for mark in _TOO_LONG):
        return Failure(TooLong(text, kind=kind))
    return Failure(BadRequest(text, kind=kind))


def broken_line(what: str) -> Failure:
    """The connection could not be made, broke, or fell silent."""
    return Failure(Overloaded(what, kind="connection_error"))


def no_key() -> ProviderError:
    """Nothing says who we are; told before anything is sent."""
    return ProviderError(
        "There is no key for the Anthropic service. Set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN) in the environment;"
        " a local service that needs none takes any text.",
        kind="authentication_error",
    )


def wait_asked_for(headers: Mapping[str, str]) -> float | None:
    """Seconds from ``retry-after-ms`` or ``retry-after`` (a number or a date); None when absent or unreadable."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) / unit)
        except (KeyError, ValueError):
            continue
    if "retry-after" not in headers:
        return None
    import time
    from email.utils import mktime_tz, parsedate_tz

    date = parsedate_tz(headers["retry-after"])
    return max(0.0, mktime_tz(date) - time.time()) if date else None
