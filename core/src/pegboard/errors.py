"""Every error that pegboard raises on purpose, and the closed list of refusal codes.

One tree, so that a caller can tell "you asked wrongly" from "policy says no" from "the run is over".

    PegError
      UsageError        the command line or a setting is wrong; exit 2
      PolicyError       managed policy forbids or is broken; stops the start
      PluginError
        Refused         by the gate, with one reason
        Broken          import or contract failure, with the plug-in's name
      Refusal           a call does not go on: code, text, hint   <- the only one tools raise
      RunStopped        the run ends: max_turns, budget, duration, refusal, interrupted
      ProviderError     Overloaded, RateLimited, TooLong, BadRequest
      TranscriptError   Locked, Unreadable
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegboard.call import DecidedBy


class Code(StrEnum):
    """Why a call did not end in ``ok``. The list is closed; docs/reference is generated from it."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Code:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    INVALID_INPUT = "invalid_input", "The input breaks the tool's schema or one of its limits."
    UNKNOWN_TOOL = "unknown_tool", "No tool of this name is available here."
    DENIED_BY_RULE = "denied_by_rule", "A deny rule covers the call."
    DENIED_BY_HOOK = "denied_by_hook", "A hook refused the call."
    DENIED_BY_USER = "denied_by_user", "The person who was asked said no."
    DENIED_BY_MODE = "denied_by_mode", "The permission mode does not let this call pass."
    DENIED_BY_POLICY = "denied_by_policy", "Managed policy forbids the call."
    UNTRUSTED_SOURCE = "untrusted_source", "The workspace or the plug-in behind the call is not trusted."
    NO_USER = "no_user", "A person has to answer, and nobody can."
    PRECONDITION_FAILED = "precondition_failed", "The target is not in a state in which the call can work."
    NOT_READ = "not_read", "The file has to be read before it may be changed."
    STALE = "stale", "The target changed since it was last seen."
    NOT_FOUND = "not_found", "The target does not exist."
    AMBIGUOUS = "ambiguous", "The target fits several places; more context is needed."
    CONFLICT = "conflict", "Another change or another holder is in the way."
    SANDBOX_REFUSED = "sandbox_refused", "The sandbox that the call needs could not be set up."
    NOT_AVAILABLE = "not_available", "An engine or a part that the tool needs is missing."
    NOT_LOGGED_IN = "not_logged_in", "The remote service needs a login that is not there."
    LIMIT_REACHED = "limit_reached", "A count limit of the session or the tool is used up."
    BUDGET_EXCEEDED = "budget_exceeded", "The token, money or time budget is used up."
    TOO_LARGE = "too_large", "The target or the result is larger than the tool takes."
    TIMEOUT = "timeout", "The time limit ran out."
    CANCELLED = "cancelled", "The call was aborted by the user or by the end of the run."
    IO_ERROR = "io_error", "The operating system refused a file or process operation."
    NETWORK_ERROR = "network_error", "The network connection failed."
    PROVIDER_ERROR = "provider_error", "A remote service or a language server answered with an error."
    MAPPING_FAILED = "mapping_failed", "The action happened, but its result could not be shaped into a tool result."
    HOOK_FAILED = "hook_failed", "A hook that must answer crashed or ran out of time."
    UNKNOWN_OUTCOME = "unknown_outcome", "The remote side may or may not have acted; look before you act again."
    COMMAND_FAILED = "command_failed", "The command ran to its end and ended with a failing exit code."
    TOOL_CRASHED = "tool_crashed", "The plug-in has a programming error; the text names it."


class PegError(Exception):
    """Root of all errors that pegboard raises on purpose. ``str(error)`` is ready to be shown."""


class UsageError(PegError):
    """The command line or a setting is wrong. Ends the process with exit code 2."""


class PolicyError(PegError):
    """Managed policy forbids the start, or cannot be read. Never ignored."""


class PluginError(PegError):
    """A plug-in cannot be used. ``name`` is the plug-in's name."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class Refused(PluginError):
    """The gate refused a candidate. ``question`` is the gate question that objected, ``source`` who set it."""

    def __init__(self, name: str, question: str, reason: str, source: str = "") -> None:
        super().__init__(name, reason)
        self.question = question
        self.source = source


class Broken(PluginError):
    """A plug-in passed the gate but could not be imported, or breaks the contract."""


class Refusal(PegError):
    """A call does not go on. The only error a tool raises.

    ``text`` says what happened and on what; ``hint`` says what to do next. ``decision`` is set only where a
    rule, a hook, a mode or a person stood behind the refusal. ``known`` is the first line of the result where
    something may have happened, in the tool's own words (``Exit code 3``); without it the ledger is put in words.
    """

    def __init__(
        self, code: Code, text: str, *, hint: str = "", decision: DecidedBy | None = None, known: str = ""
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.hint = hint
        self.decision = decision
        self.known = known

    def shown(self) -> str:
        """The whole message for the model: what happened, then what to do next."""
        return f"{self.text}\n{self.hint}" if self.hint else self.text


class Stop(StrEnum):
    """Why a run ended before the model was done."""

    MAX_TURNS = "max_turns"
    BUDGET = "budget"
    TOKENS = "tokens"
    DURATION = "duration"
    REFUSAL = "refusal"
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"
    TOO_LONG = "too_long"
    INCOMPLETE = "incomplete"
    HOOK = "hook_stopped"
    DEFERRED = "tool_deferred"


class RunStopped(PegError):
    """The run ends, with every call already answered. ``reason`` is one of `Stop`."""

    def __init__(self, reason: Stop, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class ProviderError(PegError):
    """The model service failed. ``status`` is the HTTP status or None; ``retryable`` says whether a repeat can help."""

    retryable = False

    def __init__(self, text: str, *, status: int | None = None, kind: str = "api_error") -> None:
        super().__init__(text)
        self.status = status
        self.kind = kind


class Overloaded(ProviderError):
    """The service is overloaded, failed inside (5xx, 529, 408, 409), or the connection broke."""

    retryable = True


class RateLimited(ProviderError):
    """429. ``after`` is the wait in seconds that the service asked for, or None."""

    retryable = True

    def __init__(self, text: str, *, after: float | None = None, status: int | None = 429) -> None:
        super().__init__(text, status=status, kind="rate_limit_error")
        self.after = after


class TooLong(ProviderError):
    """The request does not fit the model's window or the service's size limit."""


class BadRequest(ProviderError):
    """The service refuses this request as it stands (other 4xx); a repeat cannot help."""


class TranscriptError(PegError):
    """A session file cannot be used."""


class Locked(TranscriptError):
    """Another process holds the session."""


class Unreadable(TranscriptError):
    """The session file does not exist, or is not a transcript."""
