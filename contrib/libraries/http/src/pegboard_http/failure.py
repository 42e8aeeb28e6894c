"""What can go wrong between us and a service, as one internal error that says whether a repeat can help.

Transports raise `Failure`; `Tries` alone decides about repeats, so that all of them follow one rule.
"""

from __future__ import annotations

from collections.abc import Mapping

from pegboard.errors import BadRequest, Overloaded, ProviderError, RateLimited, TooLong


class Failure(Exception):
    """One try of a request failed. ``error`` is what the caller gets when there is no further try."""

    def __init__(self, error: ProviderError, *, after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.after = after
        """Seconds that the service asks us to wait, or None."""


def refused(
    status: int, kind: str, said: str, headers: Mapping[str, str], *, too_long: bool = False, check: str = ""
) -> Failure:
    """The failure behind an error answer.

    ``kind`` and ``said`` come from its body, ``headers`` have lower-case names, ``check`` is what to look at when the
    service does not know who we are.
    """
    after = wait_asked_for(headers)
    text = f"The model service answered {status}: {said or kind or 'no reason given'}"
    if request_id := headers.get("request-id") or headers.get("x-request-id"):
        text += f" (request {request_id})"
    if status == 429:
        return Failure(RateLimited(text, after=after), after=after)
    if too_long or status == 413:
        return Failure(TooLong(text, status=status, kind=kind))
    if status in (408, 409) or status >= 500:
        return Failure(Overloaded(text, status=status, kind=kind or "api_error"), after=after)
    if status in (401, 403) and check:
        text += f"\nCheck {check}."
    return Failure(BadRequest(text, status=status, kind=kind or "invalid_request_error"))


def broken_off(
    kind: str, said: str, *, too_long: bool = False, limited: bool = False, passing: bool = False
) -> Failure:
    """The failure behind an error in the middle of a stream; ``passing``: the same request can succeed."""
    text = f"The model service broke off its answer: {said or kind}"
    if limited:
        return Failure(RateLimited(text, status=None))
    if too_long:
        return Failure(TooLong(text, kind=kind))
    return Failure(Overloaded(text, kind=kind) if passing else BadRequest(text, kind=kind))


def broken_line(what: str) -> Failure:
    """The connection could not be made, broke, or fell silent."""
    return Failure(Overloaded(what, kind="connection_error"))


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
