"""When a failed request is sent again: how often, and after how long."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

FIRST = 0.5
"""[C] Seconds before the first repeat."""
LONGEST = 32.0
"""[C] Most seconds between two tries, unless the service asks for more."""
PATIENCE = 600.0
"""[C] Most seconds that we wait because the service asks for it; beyond it the request fails at once."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """[C] 10 tries, exponential waits with jitter. ``chance`` gives numbers from 0 to 1."""

    tries: int = 10
    chance: Callable[[], float] = random.random

    def wait(self, failed: int, asked: float | None) -> float | None:
        """Seconds until the next try after ``failed`` tries, or None when there is none."""
        if failed >= self.tries or (asked or 0.0) > PATIENCE:
            return None
        if asked is not None:
            return asked
        return float(min(LONGEST, FIRST * 2 ** (failed - 1))) * (1 - 0.25 * self.chance())
