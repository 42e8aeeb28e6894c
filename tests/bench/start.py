"""How long a start takes, as multiples of ``python -c pass`` in the same run: run this file, optionally with a count.

    python tests/bench/start.py [DUMMIES=300] [ROUNDS=15]

Prints the ratios of ``peg --version`` and ``peg tools list``, the latter again with that many further tool packages on
the path, and the time inside the process that finding and judging them takes. Everything is compiled first.
"""

from __future__ import annotations

import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCHEMA = '{"description": "Does nothing.", "input": {"type": "object"}, "output": {"type": "object"}}'

INSIDE = """
import sys, time
from pegboard.cli.start import start
from pegboard.loader import Registry
begun = start()
begun.trust, begun._settings
places, settings, trust = begun.places, begun._settings, begun.trust
at = time.perf_counter()
registry = Registry.find(places, settings, trust)
found = time.perf_counter()
registry.tools()
judged = time.perf_counter()
print((found - at) * 1000, (judged - found) * 1000, len(registry.candidates))
"""


def dummies(folder: Path, count: int) -> None:
    """Install ``count`` tool packages into a folder, as an installer leaves them."""
    for number in range(count):
        name = f"Dummy{number}"
        package = folder / f"acme_dummy{number}"
        info = folder / f"acme_dummy{number}-1.0.dist-info"
        for made in (package, info):
            made.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-dummy{number}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[pegboard.tools]\n{name} = acme_dummy{number}.tool:{name}\n")
        (package / "__init__.py").write_text("")
        (package / "tool.py").write_text(f"class {name}:\n    pass\n")
        (package / "schema.json").write_text(SCHEMA)
        (package / "tool.toml").write_text(
            f'name = "{name}"\nsummary = "Dummy number {number}."\napi = 1\nload = "deferred"\nconcurrency = "read"\n'
            f'[settings."dummy{number}.size"]\ndefault = {number}\nsummary = "A number."\n'
        )
    compileall.compile_dir(folder, quiet=1)


def median(argv: list[str], environ: dict[str, str], cwd: Path, rounds: int) -> float:
    """Median time of a command in seconds, after one run that warms the caches."""
    times = []
    for number in range(rounds + 1):
        at = time.perf_counter()
        subprocess.run(argv, env=environ, cwd=cwd, check=True, stdout=subprocess.DEVNULL)
        if number:
            times.append(time.perf_counter() - at)
    return statistics.median(times)


def main(count: int = 300, rounds: int = 15) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        dummies(base / "many", count)
        project = base / "project"
        project.mkdir()
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environ |= {"HOME": str(base), "PEG_HOME": str(base / ".peg")}
        many = {**environ, "PYTHONPATH": str(base / "many")}
        peg = [str(Path(sys.executable).with_name("peg"))]
        bare = median([sys.executable, "-c", "pass"], environ, project, rounds)
        print(f"{'python -c pass':34} {bare * 1000:7.1f} ms")
        few = median([*peg, "tools", "list"], environ, project, rounds)
        for title, argv, env in (
            ("peg --version", [*peg, "--version"], environ),
            ("peg tools list", [*peg, "tools", "list"], environ),
            (f"peg tools list, {count} more", [*peg, "tools", "list"], many),
        ):
            took = median(argv, env, project, rounds)
            print(f"{title:34} {took * 1000:7.1f} ms  {took / bare:5.1f} x python  {took / few:5.2f} x tools list")
        for title, env in (("few", environ), (f"{count} more", many)):
            inside = [
                tuple(map(float, subprocess.check_output([sys.executable, "-c", INSIDE], env=env, cwd=project).split()))
                for _ in range(rounds)
            ]
            found, judged = (statistics.median(column) for column in list(zip(*inside, strict=True))[:2])
            print(f"{'find and judge, ' + title:34} {found:7.1f} + {judged:.1f} ms for {inside[0][2]:.0f} candidates")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
