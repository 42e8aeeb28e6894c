"""What a hook said: exit codes, plain text and JSON, read by the contract and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from pegboard.external import BROKEN

if TYPE_CHECKING:
    from pegboard.external import Hook

    from pegboard_json_hooks.ran import Ran

BLOCK = 2
"""[D] The exit code that refuses."""

_TEXTS = ("stopReason", "systemMessage", "reason", "decision")
_SPECIFIC_TEXTS = ("additionalContext", "permissionDecision", "permissionDecisionReason", "initialUserMessage")


@dataclass
class Said:
    """The reply of one hook. ``fields`` are the top level of its JSON, ``specific`` what is for this event."""

    hook: Hook
    blocked: bool = False
    """It refuses by its exit code, or fails and refuses by that."""
    reason: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    specific: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    """Plain text on stdout."""
    err: str = ""
    trouble: str = ""
    """What a person should know about it."""

    @property
    def ends(self) -> bool:
        """Whether it ends the run."""
        return self.fields.get("continue") is False

    @property
    def refuses(self) -> bool:
        """Whether it objects, by its exit code or by ``decision: block``."""
        return self.blocked or self.fields.get("decision") == "block"

    @property
    def why(self) -> str:
        """Its reason to object."""
        return self.reason or self.fields.get("reason", "") or f"The hook {self.hook.shown} refused."

    @property
    def context(self) -> str:
        """Text that it adds to the conversation."""
        return str(self.specific.get("additionalContext", ""))


def understand(hook: Hook, ran: Ran) -> Said:
    """Read the end of a hook."""
    said = Said(hook)
    if hook.type == BROKEN:
        return Said(
            hook, blocked=True, reason=f"{hook.what[:1].upper()}{hook.what[1:]}; without it this does not go on."
        )
    if ran.trouble:
        return _failed(said, ran.trouble)
    said.err = ran.err.strip()
    out = ran.out.strip()
    fault = _read_json(said, out, hook.event) if out.startswith("{") else ""
    if ran.code == BLOCK:
        said.blocked = True
        said.reason = said.fields.get("reason") or said.specific.get("permissionDecisionReason") or said.err
    elif fault:
        return _failed(said, fault)
    elif ran.code != 0 and not said.fields:
        first = said.err.splitlines()[0] if said.err else "it said nothing"
        return _failed(said, f"ended with the exit code {ran.code}: {first}")
    elif not said.fields:
        said.text = out
    return said


def _failed(said: Said, trouble: str) -> Said:
    said.trouble = trouble
    if said.hook.blocks:
        said.blocked, said.reason = True, f"The hook {said.hook.shown} {trouble}, and without it this does not go on."
    return said


def _read_json(said: Said, out: str, event: str) -> str:
    """Take the JSON apart; returns what is wrong with it. A field of a wrong type is left out."""
    try:
        found = msgspec.json.decode(out)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"printed something that begins like JSON and is none: {error}"
    specific = found.get("hookSpecificOutput", {})
    if not isinstance(specific, Mapping):
        return "printed a hookSpecificOutput that is no object"
    if specific.get("hookEventName", event) != event:
        return f"answered for the event {specific['hookEventName']} instead of {event}"
    odd = [name for name in _TEXTS if not isinstance(found.get(name, ""), str)]
    odd += [name for name in _SPECIFIC_TEXTS if not isinstance(specific.get(name, ""), str)]
    if odd:
        said.trouble = f"printed {', '.join(odd)} with a value that is no text; it was left out"
    said.fields = {name: value for name, value in found.items() if name not in odd or name not in _TEXTS}
    said.specific = {name: value for name, value in specific.items() if name not in odd or name not in _SPECIFIC_TEXTS}
    return ""
