"""A thousand deaths: every point of a run, every half write, full disks, random moments, files cut at random bytes.

    python tests/bench/kills.py [ATLEAST=1000] [SEED=1]

After each the session is resumed; the run must end as if nothing had been, the strict service must refuse nothing, and
no whole line may be lost. Prints what did not hold; exit code 1 if anything did not.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pegboard.testing.faults import Fault

SCENARIO = Path(__file__).parent.parent / "e2e" / "kill_scenario.py"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("kill_scenario", SCENARIO)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def deaths(scene: Any, whole: Any, at_least: int, chance: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Kind of death, and what did not hold after it."""
    points = list(enumerate(whole.trail, 1))
    for at, name in points:
        yield f"killed before: {name.split()[0]}", scene.survives(scene.play(Fault("kill", at)))
    for at, name in points:
        if name.startswith("half"):
            objections = scene.survives(scene.play(Fault("half", at))) or scene.rewinds()
            yield "killed in a write", objections
    for kind in ("full", "sync"):
        for at, _ in points[:: 4 if kind == "full" else 20]:
            died = scene.play(Fault(kind, at))
            yield f"disk: {kind}", scene.survives(died, whole_lines=False) or scene.rewinds()
    played = len(points) + sum(name.startswith("half") for _, name in points) + len(points) // 4 + len(points) // 20
    for number in range(max(0, at_least - played)):
        if number % 2:
            died = scene.play(seconds=chance.uniform(0.0, 0.2))
            yield "killed at a random time", scene.survives(died, whole_lines=False)
        else:
            died = scene.play(Fault("kill", chance.randrange(20, len(points))))
            cut = scene.damage(chance)
            objections = scene.survives(died, whole_lines=False, cut=True)
            yield "a file cut", [f"{cut}: {text}" for text in objections]


def main(at_least: int = 1_000, seed: int = 1) -> int:
    """Play them all and print what came of it."""
    begin = time.monotonic()
    seen: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, load().scene(Path(folder)) as scene:
        whole = scene.play()
        if whole.code:
            print(f"the run that nothing happens to failed: {whole.err}")
            return 1
        for kind, objections in deaths(scene, whole, at_least, random.Random(seed)):
            seen[kind] += 1
            if objections:
                lost[kind] += 1
                print(f"{kind}: {'; '.join(objections)[:500]}", flush=True)
    for kind, count in sorted(seen.items()):
        print(f"{kind:34} {count:5} deaths, {count - lost[kind]:5} survived")
    total = sum(seen.values())
    took = time.monotonic() - begin
    print(f"{'all':34} {total:5} deaths, {total - sum(lost.values()):5} survived, {took / total * 1000:.0f} ms each")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
