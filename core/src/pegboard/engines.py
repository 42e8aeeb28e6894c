"""Engines that tools need (``rg>=13``): is the program here, and is it new enough?

Asked by the gate and by the doctor; the answer of a program about its version is kept in the index by its file's stamp.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

from pegboard.scan import Index

SECONDS = 10
"""[C] Time limit for a program to say its version."""


KEPT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "SYSTEMROOT")
"""Variables that a program sees while it is asked for its version."""


def problems(needs: Iterable[str], index: Index, environ: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with each need, in words for the user; empty text = nothing."""
    return {need: _problem(need, index, environ) for need in dict.fromkeys(needs)}


def locate(program: str, environ: Mapping[str, str]) -> str | None:
    """Absolute path of a program: the one that ``PEG_<NAME>`` names, then beside this interpreter, then on PATH.

    Relative PATH entries do not count.
    """
    named = environ.get(f"PEG_{program.upper()}", "")
    if os.path.isabs(named) and os.access(named, os.X_OK):
        return named
    folders = [os.path.dirname(sys.executable), *environ.get("PATH", os.defpath).split(os.pathsep)]
    for folder in folders:
        path = os.path.join(folder, program)
        if os.path.isabs(folder) and os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return None


def _problem(need: str, index: Index, environ: Mapping[str, str]) -> str:
    program, _, wanted = need.partition(">=")
    program = program.strip()
    path = locate(program, environ)
    if path is None:
        return f"the program {program} is not installed"
    if not wanted.strip():
        return ""
    version = index.engine(path, lambda: _ask(path, environ)) or ""
    if not version:
        return f"{path} does not say its version; {need} is needed"
    if _numbers(version) < _numbers(wanted):
        return f"{path} is version {version}; {need} is needed"
    return ""


def _ask(path: str, environ: Mapping[str, str]) -> str:
    import subprocess

    env = {name: environ[name] for name in KEPT if name in environ}
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS, env=env, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    for word in (done.stdout or done.stderr).decode("utf-8", "replace").split():
        bare = word.lstrip("vV").rstrip(",;")
        if bare[:1].isdigit() and "." in bare:
            return bare
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for part in version.strip().split("."):
        digits = part[: next((at for at, char in enumerate(part) if not char.isdigit()), len(part))]
        if not digits:
            break
        numbers.append(int(digits))
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
