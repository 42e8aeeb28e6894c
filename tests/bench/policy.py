"""How long one decision takes with 10, 1,000 and 10,000 rules: microseconds, and the ratio to the first.

Run it directly: ``python tests/bench/policy.py [--json]``. Nothing is asserted; times belong to the machine.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pegboard.manifest import Manifest
from pegboard.policy import Snapshot, decide, parse_rule, resolve_accesses
from pegboard.tool import Access

SIZES = (10, 1_000, 10_000)
ROUNDS = 5
CALLS = 2_000
GIVEN = {"command": "git push origin3 main", "file_path": "/x", "description": "text", "timeout": 1000}
"""Input fields: what ``Tool(param:value)`` rules look at."""

FORMS = (
    ("allow", "Bash(tool{0} run *)"),
    ("deny", "Bash(danger{0}:*)"),
    ("ask", "Bash(git push origin{0} *)"),
    ("allow", "Edit(src/part{0}/**)"),
    ("deny", "Read(secrets{0}/**)"),
    ("deny", "Read(~/keys{0}/*.pem)"),
    ("ask", "Edit(//srv/area{0}/**)"),
    ("allow", "WebFetch(domain:site{0}.example)"),
    ("deny", "WebFetch(domain:*.bad{0}.example)"),
    ("allow", "mcp__server{0}__*"),
)


def manifest(name: str, family: str = "", concurrency: str = "write") -> Manifest:
    return Manifest(name=name, summary=name, api=1, family=family, concurrency=concurrency)  # type: ignore[arg-type]


def calls(root: Path) -> dict[str, tuple[Manifest, list[Access]]]:
    return {
        "Bash": (manifest("Bash"), [Access.run("git push origin3 main")]),
        "Edit": (manifest("Edit", "Edit"), [Access.edit(root / "src" / "part4" / "deep" / "file.py")]),
        "Read": (manifest("Read", "Read", "read"), [Access.read(root / "docs" / "guide" / "index.md")]),
        "WebFetch": (manifest("WebFetch", concurrency="read"), [Access.fetch("www.bad5.example")]),
        "MCP": (manifest("mcp__server9__send"), []),
    }


def snapshot(size: int, root: Path) -> Snapshot:
    rules = [
        parse_rule(FORMS[index % len(FORMS)][1].format(index), effect=FORMS[index % len(FORMS)][0], scope="user")
        for index in range(size)
    ]
    return Snapshot.make(rules, cwd=root, home=root / "home", trusted=True)


def best(work: Callable[[], object], count: int) -> float:
    """Shortest mean of a call in microseconds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(count):
            work()
        times.append((time.perf_counter() - start) / count)
    return min(times) * 1e6


def measure() -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for size in SIZES:
            start = time.perf_counter()
            policy = snapshot(size, root)
            table.setdefault("load, ms", {})[str(size)] = (time.perf_counter() - start) * 1e3
            for name, (tool, accesses) in calls(root).items():
                judged = resolve_accesses(accesses, policy)
                start = time.perf_counter()
                decide(tool, GIVEN, judged, policy)
                table.setdefault(f"{name}, first, ms", {})[str(size)] = (time.perf_counter() - start) * 1e3
                once = partial(decide, tool, GIVEN, judged, policy)
                table.setdefault(f"{name}, us", {})[str(size)] = best(once, CALLS)
            follow = partial(resolve_accesses, [Access.read(root / "docs" / "a")], policy)
            table.setdefault("resolve a path, us", {})[str(size)] = best(follow, CALLS)
    return table


def main() -> None:
    table = measure()
    if "--json" in sys.argv:
        print(json.dumps(table))
        return
    first = str(SIZES[0])
    for name, row in table.items():
        cells = "  ".join(f"{size:>6}: {value:8.2f} ({value / row[first]:6.2f}x)" for size, value in row.items())
        print(f"{name:<20} {cells}")


if __name__ == "__main__":
    main()
