"""Which ripgrep is used: the operator's, the one of the wheel, or the one on the PATH.

Its own module, so that `peg doctor` and the gate can ask without loading a tool.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pegboard.errors import Code, Refusal

MINIMUM = (13, 0, 0)
"""Oldest engine whose flags and output lines the tools rely on."""

SETTING = "PEG_RG"
"""Environment variable with which an operator names another engine."""

_NAME = "rg.exe" if os.name == "nt" else "rg"
_VERSION = re.compile(r"ripgrep (\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True)
class Engine:
    """A ripgrep program that can be used. ``origin`` is ``PEG_RG``, ``wheel`` or ``PATH``."""

    path: Path
    version: tuple[int, int, int]
    origin: str

    def __str__(self) -> str:
        return f"ripgrep {'.'.join(map(str, self.version))} at {self.path} (from {self.origin})"


def find(environ: Mapping[str, str] | None = None) -> Engine:
    """The engine to use. Starts each program once per process to learn its version.

    Raises `Refusal` (not_available) naming every program that was looked at and why it was not taken. When the
    operator names an engine, no other one is tried.
    """
    env = os.environ if environ is None else environ
    rejected = []
    for path, origin in _candidates(env):
        version = _version(str(path), *_stamp(path))
        if version is None:
            rejected.append(f"{path} (from {origin}) does not run or is not ripgrep")
        elif version < MINIMUM:
            rejected.append(f"{path} (from {origin}) is version {'.'.join(map(str, version))}, too old")
        else:
            return Engine(path, version, origin)
    looked = "; ".join(rejected) or "there is none beside this installation and none on the PATH"
    raise Refusal(
        Code.NOT_AVAILABLE,
        f"No usable ripgrep engine: {looked}.",
        hint=f"Install ripgrep {MINIMUM[0]} or newer, or name one in the environment variable {SETTING}.",
    )


def _candidates(env: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    named = env.get(SETTING)
    if named:
        yield Path(os.path.abspath(named)), SETTING
        return
    for scheme in (None, "user"):
        path = Path(_scripts(scheme)) / _NAME
        if path.is_file():
            yield path, "wheel"
    for folder in env.get("PATH", "").split(os.pathsep):
        # A relative entry would run whatever the project puts there.
        path = Path(folder) / _NAME
        if os.path.isabs(folder) and path.is_file() and os.access(path, os.X_OK):
            yield path, "PATH"


def _scripts(scheme: str | None) -> str:
    name = sysconfig.get_preferred_scheme("user") if scheme else sysconfig.get_default_scheme()
    return sysconfig.get_path("scripts", name)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=16)
def _version(path: str, mtime_ns: int, size: int) -> tuple[int, int, int] | None:
    try:
        done = subprocess.run(
            [path, "--no-config", "--version"], capture_output=True, timeout=10, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.match(done.stdout.decode("utf-8", "replace"))
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
