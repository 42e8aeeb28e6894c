"""What the shell reader costs for each command, and whether thousands of commands did anything that it had not seen.

Run it directly: ``python tests/bench/shell.py [--json] [--commands N] [--seed S]``. The comparison needs bubblewrap and
runs every command in a real bash in a box; without ``--commands`` only times are taken, and nothing asserts them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pegboard.manifest import Manifest
from pegboard.policy import Snapshot, decide, parse_rule, resolve_accesses
from pegboard_shell.judge import accesses
from pegboard_shell.read import parse

ROOT = Path(__file__).parents[2]
SHELL_TESTS = ROOT / "contrib" / "libraries" / "shell" / "tests"
LIST = Path(__file__).with_name("commands.txt")
RULES = (("allow", "Bash(npm test *)"), ("allow", "Bash(git *)"), ("deny", "Bash(curl *)"), ("deny", "Read(.env)"))
ROUNDS = 50
BATCH = 1_000


def everyday() -> list[str]:
    """The two hundred commands that the starter policy is measured with."""
    lines = (line for line in LIST.read_text("utf-8").splitlines() if line and not line.startswith("#"))
    return [line.partition("\t")[2] for line in lines]


def times(work: Callable[[str], object], commands: list[str]) -> dict[str, float]:
    """Microseconds for each command: median, 95th percentile, and longest."""
    each = []
    for command in commands:
        work(command)
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(ROUNDS):
                work(command)
            best = min(best, (time.perf_counter() - start) / ROUNDS)
        each.append(best * 1e6)
    ordered = sorted(each)
    return {
        "median": statistics.median(ordered),
        "p95": ordered[int(len(ordered) * 0.95)],
        "longest": ordered[-1],
    }


def measure() -> dict[str, dict[str, float]]:
    """Times of reading, judging and deciding everyday commands."""
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder).resolve())
        given = {"cwd": root, "home": f"{root}/home"}
        rules = [parse_rule(text, effect=effect, scope="user") for effect, text in RULES]
        snapshot = Snapshot.make(rules, trusted=True, **given)
        bash = Manifest(name="Bash", summary="", api=1, effects=["process"])

        def whole(command: str) -> object:
            judged = accesses(command, **given)
            return decide(bash, {}, resolve_accesses(judged.accesses, snapshot), snapshot)

        commands = everyday()
        long = "cat <<'E' > x\n" + "some line of text\n" * 450 + "E"
        return {
            "read, us": times(lambda command: parse(command, **given), commands),
            "read and judge, us": times(lambda command: accesses(command, **given), commands),
            "read, judge and decide, us": times(whole, commands),
            "read 8 KB, us": times(lambda command: parse(command, **given), [long]),
        }


def compare(count: int, seed: int) -> dict[str, object]:
    """Run commands made at random and compare what they did with what was seen."""
    sys.path.insert(0, str(SHELL_TESTS))
    import boxed
    from makeshell import Maker

    maker = Maker(seed)
    certain = ran = 0
    surprises = []
    for start in range(0, count, BATCH):
        size = min(BATCH, count - start)
        commands = [maker.mutant() if number % 2 else maker.command() for number in range(size)]
        commands = [command for command in commands if command.strip()]
        with tempfile.TemporaryDirectory() as folder:
            base = Path(folder).resolve() / "box"
            base.mkdir()
            for number, (command, result) in enumerate(zip(commands, boxed.run(commands, base), strict=True)):
                verdict = boxed.compare(command, result, f"{base}/in/{number}")
                certain += verdict.certain
                ran += bool(result["runs"])
                if verdict.missed and verdict.certain:
                    surprises.append({"command": command, "missed": verdict.missed})
    return {"commands": count, "seed": seed, "ran something": ran, "certain": certain, "surprises": surprises}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true")
    options.add_argument("--commands", type=int, default=0)
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    table: dict[str, object] = dict(measure())
    if asked.commands:
        table["against bash"] = compare(asked.commands, asked.seed)
    if asked.json:
        print(json.dumps(table))
    else:
        for name, row in table.items():
            assert isinstance(row, dict)
            cells = "  ".join(
                f"{key} {value:.0f}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()
            )
            print(f"{name:<28} {cells}")
    found = table.get("against bash")
    return 1 if isinstance(found, dict) and found["surprises"] else 0


if __name__ == "__main__":
    sys.exit(main())
