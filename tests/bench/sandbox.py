"""What a sandbox costs each command, against the plain command: `python tests/bench/sandbox.py [ROUNDS=80]`.

Plain and boxed commands take turns. A box is several processes, so a busy machine slows it more than it slows a plain
command: measure on a quiet one. The goal is at most 10 ms more, looking at the tree before and after included.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
from pegboard.sandbox import Need
from pegboard_bubblewrap import launcher, programs
from pegboard_bubblewrap.confinement import Bubblewrap

GOAL = 10.0
COMMAND = ["/bin/bash", "-c", "true"]


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def start(argv: list[str], env: Mapping[str, str], cwd: Path) -> None:
    subprocess.run(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, check=True)


def tree(root: Path, folders: int) -> None:
    """A repository with that many folders."""
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    for number in range(folders):
        (root / f"d{number % 50}" / f"e{number}").mkdir(parents=True)
    time.sleep(0.1)


def measure(shared: Any, root: Path, home: Path, rounds: int, *, rule: Any = None) -> dict[str, list[float]]:
    """Milliseconds of plain commands, boxed ones, and of the parts that we do ourselves."""
    need = Need(cwd=root, home=home, roots=(root,), hosts=("example.com",), rule=rule)
    shared.status(need)
    found: dict[str, list[float]] = {"plain": [], "boxed": [], "prepare": [], "wrap": [], "planted": []}
    env = dict(os.environ)
    for number in range(rounds + 2):
        box = shared.box(need)
        parts = {"plain": timed(lambda: start(COMMAND, env, root)), "prepare": timed(box._look_first)}

        def boxed(box: Any = box, parts: dict[str, float] = parts) -> None:
            wrapped: list[Any] = []
            parts["wrap"] = timed(lambda: wrapped.append(box.wrap(COMMAND, env)))
            start(*wrapped[0], root)
            box.ended()

        parts["boxed"] = timed(boxed) + parts["prepare"]
        parts["planted"] = timed(box._look)
        parts["boxed"] += parts["planted"]
        if number >= 2:
            for name, value in parts.items():
                found[name].append(value)
    return found


def show(title: str, found: dict[str, list[float]]) -> float:
    middle = {name: statistics.median(values) for name, values in found.items()}
    more = middle["boxed"] - middle["plain"]
    least = min(found["boxed"]) - min(found["plain"])
    rest = ", ".join(f"{name} {middle[name]:.2f}" for name in ("prepare", "wrap", "planted"))
    times = f"plain {middle['plain']:5.2f} ms  boxed {middle['boxed']:5.2f}  more {more:5.2f}, best {least:5.2f}"
    print(f"{title:22} {times}  ({rest})")
    return more


def main(rounds: int) -> int:
    """Measure each level and two sizes of tree; exit code 1 when the goal is missed."""
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="peg-bench-") as name:
        base = Path(name)
        (base / "home").mkdir()
        for folders in (20, 2_000):
            root = base / f"tree{folders}"
            root.mkdir()
            tree(root, folders)
            shared = Bubblewrap()
            title = f"{shared.status(Need(cwd=root, home=base, roots=(root,))).level}, {folders} folders"
            more = show(title, measure(shared, root, base / "home", rounds))
            worst = max(worst, more) if folders < 100 else worst
            anyio.run(shared.close)
        if launcher.version():
            programs.FOLDERS = ()
            shared = Bubblewrap()
            show("landlock, 20 folders", measure(shared, base / "tree20", base / "home", rounds))
            anyio.run(shared.close)
    print(f"goal: at most {GOAL:g} ms more for a command in a small tree; it was {worst:.2f} ms")
    return 0 if worst <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 80))
