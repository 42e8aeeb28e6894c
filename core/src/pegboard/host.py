"""The program that shows a session: Host, the questions it may be asked, and Headless.

Every method is optional in spirit: the base class answers "nobody is there", so a host implements what it can do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pegboard.events import Event
    from pegboard.policy import Decision


class Choice(StrEnum):
    """How a permission question was answered."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    NO = "no"


@dataclass(frozen=True)
class Question:
    """A permission question: what the call would touch, and what "always" would save."""

    call_id: str
    tool: str
    input: dict[str, Any]
    decision: Decision
    lines: list[str]
    """What would happen, one line each, invisible characters escaped."""
    rules: list[str] = field(default_factory=list)
    """The allow rules that "for this session" would add."""
    always: list[str] = field(default_factory=list)
    """The rules that "always" would save, whole; empty = not offered."""

    @property
    def digest(self) -> str:
        """SHA-256 of the call and of all that is shown with it: what an answer is an answer to."""
        import hashlib
        import json

        shown = [self.tool, self.input, self.lines, self.rules, self.always]
        return hashlib.sha256(json.dumps(shown, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True)
class Reply:
    """The answer to a permission question. ``comment`` goes to the model with a "no"."""

    choice: Choice
    comment: str = ""
    input: dict[str, Any] | None = None
    """Another input to run the call with; it is judged again."""
    source: str = ""
    """Who answered, where it was not the person."""


class Host:
    """Shows a session and answers for its user. None from a question = nobody can answer."""

    name = "none"

    async def show(self, event: Event) -> None:
        """A transcript or stream event, in order."""

    async def progress(self, call_id: str, tool: str, text: str) -> None:
        """How far a running call is."""

    async def ask(self, question: Question) -> Reply | None:
        """Permission for one call."""
        return None

    async def question(self, questions: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Answers to the model's own questions."""
        return None

    async def approve_plan(self, plan: str) -> Reply | None:
        """Approval of a plan."""
        return None

    async def elicit(self, server: str, message: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Input that an MCP server asks for."""
        return None

    async def notify(self, text: str, kind: str = "info") -> None:
        """A notice to the person, outside the conversation."""

    def cancelled(self) -> bool:
        """Whether the person wants the current work to stop."""
        return False
