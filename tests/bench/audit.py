"""What a record of the decision log costs: one process alone, and two that take turns. Microseconds a record.

Run it directly: ``python tests/bench/audit.py [--json]``. Nothing is asserted; times belong to the machine.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pegboard.audit import DecisionLog, Record, Segment
from pegboard.call import DecidedBy

ROUNDS, RECORDS = 5, 2_000


def record(segments: int) -> Record:
    """A decision about a command of so many parts, each with a rule of its own."""
    rule: dict[str, object] = {
        "id": "user:ask:Bash(git push *)", "rule": "Bash(git push *)", "effect": "ask", "scope": "user",
        "file": "/home/user/.peg/settings.toml", "line": 12,
    }  # fmt: skip
    by = DecidedBy(by="rule", source="user (/home/user/.peg/settings.toml:12)", reason="ask rule Bash(git push *)")
    part = Segment(kind="run", target="git push origin main", verdict="ask", decided_by=by, rules=[rule])
    return Record(
        id="call-1", ts="2026-12-01T00:00:00.000Z", session="s", agent="main", tool="Bash", input_digest="0" * 64,
        cwd="/home/user/project", mode="default", verdict="allow", decided_by=by, segments=[part] * segments,
    )  # fmt: skip


def best(work: Callable[[], object]) -> float:
    """Shortest mean in microseconds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(RECORDS):
            work()
        times.append((time.perf_counter() - start) / RECORDS)
    return min(times) * 1e6


def measure() -> dict[str, float]:
    table = {}
    for segments in (1, 5, 32):
        with tempfile.TemporaryDirectory() as folder:
            one, other = DecisionLog(Path(folder)), DecisionLog(Path(folder))
            table[f"{segments} parts, alone"] = best(lambda: one.append(record(segments)))  # noqa: B023
            table[f"{segments} parts, two take turns"] = (
                best(lambda: (one.append(record(segments)), other.append(record(segments)))) / 2  # noqa: B023
            )
    return table


def main() -> None:
    table = measure()
    if "--json" in sys.argv:
        print(json.dumps(table))
        return
    for name, value in table.items():
        print(f"{name:<28} {value:8.1f} us")


if __name__ == "__main__":
    main()
