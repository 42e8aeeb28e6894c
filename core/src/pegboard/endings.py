"""How a call ends when it does not end well: from an exception and the ledger to an Outcome.

Kept apart from the steps, so that the mapping can be read on one page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegboard import shaping
from pegboard.call import DecidedBy, Outcome, Retry, Status
from pegboard.errors import Code, Refusal

if TYPE_CHECKING:
    from pegboard.pipeline import CallState

OWN_STEPS = ("before_hooks", "decide", "trust", "sandbox")
"""Steps in which no code of the tool runs; a fault there is not its plug-in's."""

UNDECIDED = (Code.CANCELLED, Code.NOT_AVAILABLE, Code.TOOL_CRASHED, Code.IO_ERROR, Code.TIMEOUT)
"""Ends that nobody decided."""


def cancelled(state: CallState) -> Outcome:
    """The end of an aborted call; its class follows the ledger."""
    text = f"{state.name} was interrupted." if state.began else f"{state.name} was cancelled before it started."
    return failed(state, Refusal(Code.CANCELLED, text))


def failed(state: CallState, error: Exception) -> Outcome:
    """The end of a call that was refused, or whose run did not return."""
    refusal = _refusal(state, error)
    status, retry = state.ledger.failed_status() if state.began else (Status.NOT_STARTED, Retry.SAFE)
    text = refusal.shown()
    if status in (Status.PARTIAL, Status.UNKNOWN):
        text = f"{refusal.known or shaping.known_effects(state.ledger, status)}\n{text}"
    decision = refusal.decision
    if decision is None and not state.began and refusal.code not in UNDECIDED:
        decision = DecidedBy(by="sandbox" if refusal.code is Code.SANDBOX_REFUSED else "validation")
    return Outcome(
        status=status,
        retry=retry,
        code=Code.UNKNOWN_OUTCOME if status is Status.UNKNOWN else refusal.code,
        text=text,
        decision=decision,
        effects=state.ledger.standing(),
    )


def unmapped(state: CallState, error: Exception) -> Outcome:
    """The end of a call that acted, but whose result could not be shaped."""
    first = shaping.known_effects(state.ledger, Status.UNMAPPED)
    return Outcome(
        status=Status.UNMAPPED,
        retry=Retry.CHECK_FIRST,
        code=Code.MAPPING_FAILED,
        text=f"{first}\nThe plug-in of {state.name} could not shape its result: {shaping.one_line(error)}\n"
        "Look at the real state before anything else; do not repeat the call.",
        effects=state.ledger.standing(),
    )


def _refusal(state: CallState, error: Exception) -> Refusal:
    """An exception as a refusal. Types are not verdicts: a stray PermissionError is an I/O error with its text."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, Refusal):
        return error
    said = shaping.one_line(error)
    if state.step in OWN_STEPS:
        text = f"Judging this call of {state.name} failed in the step {state.step} ({type(error).__name__}: {said})."
        hint = "What cannot be judged does not run. This is a fault of a hook or of the product; tell the user."
        return Refusal(Code.HOOK_FAILED, text, hint=hint)
    if isinstance(error, OSError):
        return Refusal(Code.IO_ERROR, f"{state.name}: {said}")
    where = state.found.where if state.found else state.call.tool
    return Refusal(
        Code.TOOL_CRASHED,
        f"The plug-in {where} failed while handling {state.name}: {type(error).__name__}: {said}",
        hint="This is a fault of the plug-in, not of the input. Use another tool, or tell the user.",
    )
