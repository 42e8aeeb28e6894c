"""What a run has used: tokens by model, money, time at the model service, turns.

One place sums, so that limits, `peg cost` and the result line agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
