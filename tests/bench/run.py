"""Run every benchmark of this folder, one after the other: `make bench`, or `python tests/bench/run.py start policy`.

Each prints ratios against a floor or a peer measured in the same run. None is part of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
COMPILED = ("core/src", "plugins", "contrib")


def main(wanted: list[str]) -> int:
    """Run the named benchmarks, or all; the worst exit code."""
    names = sorted(path.stem for path in HERE.glob("*.py") if path.stem != "run")
    unknown = set(wanted) - set(names)
    if unknown:
        print(f"There is no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
        return 2
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-m", "compileall", "-q", *COMPILED], cwd=ROOT, env=environ, check=True)
    worst = 0
    for name in wanted or names:
        print(f"\n== {name}", flush=True)
        worst = max(worst, subprocess.run([sys.executable, HERE / f"{name}.py"], env=environ, check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
