"""What a run has used, and the limits it must keep: turns, money, time.

One place sums, so that limits, `peg cost` and the result line agree.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pegboard.errors import RunStopped, Stop
from pegboard.provider import Usage

_PRICED = (
    ("input_tokens", "input"),
    ("output_tokens", "output"),
    ("cache_read_input_tokens", "cache_read"),
    ("cache_creation_input_tokens", "cache_write"),
)


def cost_of(usage: Usage, price: dict[str, float] | None) -> float | None:
    """USD of this usage; ``price`` is USD for a million tokens, None when it is not known."""
    if price is None:
        return None
    total: float = sum(getattr(usage, tokens) * price.get(name, price.get("input", 0.0)) for tokens, name in _PRICED)
    return total / 1_000_000


@dataclass
class Spending:
    """The sums of one run. Children and side calls add to their parent's."""

    turns: int = 0
    """Answers of the model."""
    api_seconds: float = 0.0
    models: dict[str, Usage] = field(default_factory=dict)
    costs: dict[str, float | None] = field(default_factory=dict)

    def add(self, model: str, usage: Usage, price: dict[str, float] | None) -> None:
        """Count one answer of a model."""
        self.turns += 1
        self.models[model] = self.models.get(model, Usage()) + usage
        added, before = cost_of(usage, price), self.costs.get(model, 0.0)
        self.costs[model] = None if added is None or before is None else before + added

    @property
    def usage(self) -> Usage:
        """All tokens."""
        return sum(self.models.values(), Usage())

    @property
    def cost(self) -> float | None:
        """USD of everything; None as soon as one price is not known."""
        known = [cost for cost in self.costs.values() if cost is not None]
        return sum(known) if len(known) == len(self.costs) else None


@dataclass
class Limits:
    """The limits of one run; None = no limit. ``begin`` starts the clock."""

    turns: int | None = None
    seconds: float | None = None
    usd: float | None = None
    _began: float = 0.0
    _before: int = 0

    def begin(self, spending: Spending) -> None:
        """Start a run: time and turns count from here, money from the first run on."""
        self._began, self._before = time.monotonic(), spending.turns

    @property
    def passed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float | None:
        """Seconds that the run may still take."""
        return None if self.seconds is None else max(0.0, self.seconds - self.passed)

    def over(self, spending: Spending) -> RunStopped | None:
        """The limit that is reached, if one is."""
        if self.turns is not None and spending.turns - self._before >= self.turns:
            return RunStopped(Stop.MAX_TURNS, f"The run reached its limit of {self.turns} turns.")
        if self.usd is not None and (spending.cost or 0.0) >= self.usd:
            return RunStopped(Stop.BUDGET, f"The run reached its budget of {self.usd:g} USD.")
        if self.seconds is not None and self.left == 0.0:
            return RunStopped(Stop.DURATION, f"The run reached its limit of {self.seconds:g} seconds.")
        return None
