"""What goes into an agent and what comes out of a run, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pegboard import events
from pegboard.errors import Stop


@dataclass(frozen=True, kw_only=True)
class AgentSpec:
    """What makes one agent differ from another."""

    model: str
    id: str = "main"
    system: str = ""
    """Text after the product's own system prompt."""
    tools: frozenset[str] | None = None
    """Names of the tools it sees; None = all."""
    max_turns: int | None = None
    max_seconds: float | None = None
    max_budget_usd: float | None = None
    max_total_tokens: int | None = None
    """Tokens of all requests together. This and the limits above: None = what the settings say, 0 = no limit."""
    max_tokens: int | None = None
    """Output limit of one answer; None = what the model can do."""
    thinking: dict[str, Any] | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    """Further top-level fields of the request."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """How a run ended. ``stopped`` is None when the model was done."""

    text: str
    """Text of the last answer."""
    stop_reason: str
    stopped: Stop | None = None
    errors: list[str] = field(default_factory=list)
    turns: int = 0
    seconds: float = 0.0
    deferred: events.Deferred | None = None
    """The call that a hook put off; the session's next run begins with it."""

    @property
    def is_error(self) -> bool:
        """Whether the run did not come to an end that somebody wanted."""
        return self.stopped not in (None, Stop.DEFERRED) or bool(self.errors)
