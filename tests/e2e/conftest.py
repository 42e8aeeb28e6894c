from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PEG = Path(sys.executable).with_name("peg")


@dataclass
class World:
    """A project, a home and a managed folder of their own, and the real command in them."""

    root: Path

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root / "home"),
            "PEG_HOME": str(self.root / "home/.peg"),
            "PEG_MANAGED_DIR": str(self.root / "managed"),
            "LANG": "C.UTF-8",
        }

    def peg(self, *words: str, stdin: str | None = None, shell: str = "", env: dict[str, str] | None = None):
        """Run the command; ``shell`` is text behind it on a shell line, such as a redirect."""
        argv: Sequence[str] = [str(PEG), *words]
        if shell:
            argv = ["bash", "-c", f'"$@" {shell}', "bash", *argv]
        return subprocess.run(
            argv,
            cwd=self.project,
            env={**self.environ, **(env or {})},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=False,
        )

    def write(self, name: str, text: str) -> Path:
        """A file below the root, with its folders."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path


@pytest.fixture
def world(tmp_path: Path) -> World:
    for name in ("project", "home", "managed"):
        (tmp_path / name).mkdir()
    return World(tmp_path)


@pytest.fixture
def start(world: World) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command with pipes, for tests that talk to it or send it signals."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(PEG), *words],
            cwd=world.project,
            env=world.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()
