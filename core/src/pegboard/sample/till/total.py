"""The total of a basket."""

import tomllib
from pathlib import Path

CONFIG = Path(__file__).parent.parent / "config.toml"


def total(prices: list[int]) -> int:
    """Sum of the prices with tax, in cents."""
    rate = tomllib.loads(CONFIG.read_text("utf-8"))["tax"]["rate_percent"]
    return round(sum(prices) * (100 + rate) / 100)
