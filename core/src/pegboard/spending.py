"""What a run has used, and the limits it must keep: turns, money, time.

One place sums, so that limits, `peg cost` and the result line agree.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from pegboard.errors import RunStopped, Stop, UsageError
from pegboard.provider import Usage

NOTHING = Usage()

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


def total(usage: Usage) -> int:
    """All tokens of a usage, cached ones included."""
    return sum(getattr(usage, name) for name, _ in _PRICED)


def price_of(model: str, known: dict[str, float] | None, prices: Mapping[str, Any]) -> dict[str, float] | None:
    """The price of a model: an entry of the setting ``prices`` (the longest beginning of the name), else ``known``.

    Raises `UsageError` for an entry that is no price.
    """
    fits = [name for name in prices if model.startswith(name)]
    if not fits:
        return known
    name = max(fits, key=len)
    try:
        return msgspec.convert({**(known or {}), **prices[name]}, dict[str, Annotated[float, msgspec.Meta(ge=0)]])
    except (msgspec.ValidationError, TypeError):
        names = ", ".join(price for _, price in _PRICED)
        raise UsageError(f"prices.{name} must be a table of USD for a million tokens: {names}.") from None


@dataclass
class Spending:
    """The sums of one agent. What it uses counts for ``parent`` too; turns are its own."""

    parent: Spending | None = None
    turns: int = 0
    """Answers of the model."""
    api_seconds: float = 0.0
    models: dict[str, Usage] = field(default_factory=dict)
    costs: dict[str, float | None] = field(default_factory=dict)

    def add(self, model: str, usage: Usage, price: dict[str, float] | None, *, turns: int = 1) -> None:
        """Count one answer of a model; ``turns`` 0 for one beside the conversation."""
        self.turns += turns
        self.models[model] = self.models.get(model, Usage()) + usage
        added, before = cost_of(usage, price), self.costs.get(model, 0.0)
        self.costs[model] = None if added is None or before is None else before + added
        if self.parent is not None:
            self.parent.add(model, usage, price, turns=0)

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
    """The limits of one agent; None = no limit. ``begin`` starts the clock.

    Time and turns are those of one run, money and tokens those of all runs. A child keeps its parent's limits too.
    """

    spending: Spending
    turns: int | None = None
    seconds: float | None = None
    usd: float | None = None
    tokens: int | None = None
    price: dict[str, float] | None = None
    parent: Limits | None = None
    _began: float = 0.0
    _before: int = 0

    def begin(self) -> None:
        """Start a run."""
        self._began, self._before = time.monotonic(), self.spending.turns

    @property
    def passed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float | None:
        """Seconds that the run may still take."""
        return None if self.seconds is None else max(0.0, self.seconds - self.passed)

    def over(self, ahead: Usage = NOTHING, usd: float | None = None) -> RunStopped | None:
        """The limit that is reached, or that a request with at least this usage (and cost) would pass, if one is."""
        usd = cost_of(ahead, self.price) or 0.0 if usd is None else usd
        if self.turns is not None and self.spending.turns - self._before >= self.turns:
            return RunStopped(Stop.MAX_TURNS, f"The run reached its limit of {self.turns} turns.")
        if self.usd is not None and self._usd_left(usd) <= 0:
            return RunStopped(Stop.BUDGET, f"The run reached its budget of {self.usd:g} USD.")
        if self.tokens is not None and self._tokens_left(ahead) <= 0:
            return RunStopped(Stop.TOKENS, f"The run reached its limit of {self.tokens:,} tokens.")
        if self.seconds is not None and self.left == 0.0:
            return RunStopped(Stop.DURATION, f"The run reached its limit of {self.seconds:g} seconds.")
        return self.parent.over(ahead, usd) if self.parent is not None else None

    def output(self, ahead: Usage, price: dict[str, float] | None = None) -> int | None:
        """Most tokens that the answer to a request with this usage may have within the limits; None = any number."""
        price = price or self.price or {}
        found = [self.parent.output(ahead, price)] if self.parent is not None else []
        if self.usd is not None and (rate := price.get("output", 0.0)):
            found.append(max(1, int(self._usd_left(cost_of(ahead, price) or 0.0) * 1_000_000 / rate)))
        if self.tokens is not None:
            found.append(max(1, self._tokens_left(ahead)))
        return min((most for most in found if most is not None), default=None)

    def _usd_left(self, ahead: float) -> float:
        return (self.usd or 0.0) - (self.spending.cost or 0.0) - ahead

    def _tokens_left(self, ahead: Usage) -> int:
        return (self.tokens or 0) - total(self.spending.usage) - total(ahead)
