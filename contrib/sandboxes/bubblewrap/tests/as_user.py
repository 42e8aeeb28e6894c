"""Runs one shell command in a box, for tests that do it as another user. Arguments: work, home, command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
from pegboard.sandbox import Need
from pegboard_bubblewrap.confinement import Bubblewrap


async def main(work: Path, home: Path, command: str) -> int:
    """Make a box for the working directory, run the command, close all."""
    shared = Bubblewrap()
    need = Need(cwd=work, home=home, roots=(work,))
    status = shared.status(need)
    assert status.level == "full", status
    box = shared.box(need)
    await box.prepare()
    argv, env = box.wrap(["/bin/bash", "-c", command], {**os.environ, "HOME": str(home)})
    code = subprocess.run(argv, env=env, cwd=work, stdin=subprocess.DEVNULL, check=False).returncode
    box.ended()
    await shared.close()
    return code


sys.exit(anyio.run(main, Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
