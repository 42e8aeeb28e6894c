"""One tool call and what became of it: Call, Effect, Ledger, Outcome.

The class of an outcome is computed here from the ledger of effects. A tool cannot claim it, so it can neither
claim success nor innocence.

    schema, check, rule, hook, sandbox refusal     empty ledger                 not_started  safe
    refusal or error in run                        empty, or all undone         not_started  safe
    error or abort in run                          done, or a local one open    partial      check_first
    error or abort in run                          a remote one open            unknown      forbidden
    run returned Launched                          -                            launched     check_first
    run returned, mapping failed                   any                          unmapped     check_first
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import msgspec

from pegboard.errors import Code

Block = dict[str, Any]
"""One content block in the shape of the Messages API (``{"type": "text", "text": ...}`` and its kin)."""

Text = str | list[Block]
"""What the model reads: plain text, or content blocks where an image or a document is part of it."""


class Status(StrEnum):
    """The class in which every call ends. Exactly one, stored with the result."""

    OK = "ok"
    NOT_STARTED = "not_started"
    PARTIAL = "partial"
    LAUNCHED = "launched"
    UNKNOWN = "unknown"
    UNMAPPED = "unmapped"

    @property
    def is_error(self) -> bool:
        """Whether the model is told that the call failed."""
        return self not in (Status.OK, Status.LAUNCHED)


class Retry(StrEnum):
    """Whether an identical call may be made again."""

    SAFE = "safe"
    CHECK_FIRST = "check_first"
    FORBIDDEN = "forbidden"


class EffectKind(StrEnum):
    """Where an effect lands. ``remote`` is the only kind whose end cannot be looked up on this machine."""

    FILE = "file"
    PROCESS = "process"
    NETWORK = "network"
    REMOTE = "remote"
    REGISTRY = "registry"
    MODE = "mode"


class EffectState(StrEnum):
    """What is known of an effect: begun, certain to have happened, certain not to have happened."""

    OPEN = "open"
    DONE = "done"
    UNDONE = "undone"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One ``tool_use``: what the model asked for, before anything was judged."""

    id: str
    """The id that the result must carry."""
    tool: str
    """Name as the model wrote it; case-sensitive."""
    input: Any
    """The raw input: a dict, or the broken text when it was no JSON."""
    origin: str = "model"
    """Who asked: ``model``, ``client`` (another agent), ``user`` (the command line)."""
    incomplete: bool = False
    """True when the message was cut inside this call; it is answered, never run."""


class DecidedBy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who decided that a call may or may not start."""

    by: str
    """rule, hook, mode, user, policy, trust, sandbox, validation"""
    source: str = ""
    """Scope, file and line of the rule, or the name of the hook."""
    reason: str = ""


class Effect(msgspec.Struct, kw_only=True):
    """One change of the world that a call began. ``state`` is what is known of it."""

    kind: EffectKind
    target: str
    state: EffectState = EffectState.OPEN
    detail: str = ""

    def undone(self) -> None:
        """Record that the effect certainly did not happen (a refused rename, a 409 from the server)."""
        self.state = EffectState.UNDONE

    def done(self) -> None:
        """Record that the effect certainly happened, although the block around it may still fail."""
        self.state = EffectState.DONE


class Ledger:
    """The effects of one call, in the order in which they were begun, and the hosts it contacted."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.contacts: list[str] = []

    @contextmanager
    def effect(self, kind: EffectKind | str, target: str, detail: str = "") -> Iterator[Effect]:
        """Open an effect right before the first irreversible step; leaving normally closes it as done.

        Both ends raise the audit event ``pegboard.effect`` (kind, target, begun or left), so that an audit hook can lay
        what the interpreter did beside what the tool declared.
        """
        entry = Effect(kind=EffectKind(kind), target=target, detail=detail)
        self.effects.append(entry)
        sys.audit("pegboard.effect", entry.kind.value, target, "begun")
        try:
            yield entry
            if entry.state is EffectState.OPEN:
                entry.state = EffectState.DONE
        finally:
            sys.audit("pegboard.effect", entry.kind.value, target, "left")

    def standing(self) -> list[Effect]:
        """Effects that happened or may have happened."""
        return [entry for entry in self.effects if entry.state is not EffectState.UNDONE]

    def failed_status(self) -> tuple[Status, Retry]:
        """The class of a call whose run did not return, and whether it may be repeated."""
        standing = self.standing()
        if any(e.kind is EffectKind.REMOTE and e.state is EffectState.OPEN for e in standing):
            return Status.UNKNOWN, Retry.FORBIDDEN
        if standing:
            return Status.PARTIAL, Retry.CHECK_FIRST
        return Status.NOT_STARTED, Retry.SAFE


class Outcome(msgspec.Struct, kw_only=True):
    """How a call ended. Built by the pipeline alone."""

    status: Status
    retry: Retry = Retry.SAFE
    code: Code | None = None
    text: Text = ""
    data: Any = None
    """Structured output, matching the tool's published output schema; None when the call failed."""
    decision: DecidedBy | None = None
    effects: list[Effect] = msgspec.field(default_factory=list)
    attachments: list[str] = msgspec.field(default_factory=list)
    """Paths of persisted output."""

    @property
    def is_error(self) -> bool:
        return self.status.is_error

    def plain(self) -> str:
        """The text without its non-text blocks, for people and logs."""
        if isinstance(self.text, str):
            return self.text
        return "\n".join(
            block["text"] if block.get("type") == "text" else f"[{block.get('type')}]" for block in self.text
        )

    def envelope(self, call: Call) -> dict[str, Any]:
        """The result as `peg call` prints it: JSON-ready, with stable keys."""
        return {
            "id": call.id,
            "tool": call.tool,
            "is_error": self.is_error,
            "outcome": self.status.value,
            "code": self.code.value if self.code else None,
            "retry": self.retry.value,
            "text": self.text,
            "data": self.data,
            "decision": msgspec.to_builtins(self.decision),
            "effects": [msgspec.to_builtins(effect) for effect in self.effects],
            "attachments": self.attachments,
        }


def json_safe(value: Any) -> Any:
    """Replace what JSON cannot carry as UTF-8 (lone surrogates) by U+FFFD, at any depth."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8") if _has_surrogate(value) else value
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    if isinstance(value, dict):
        return {json_safe(str(key)): json_safe(item) for key, item in value.items()}
    return value


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)
