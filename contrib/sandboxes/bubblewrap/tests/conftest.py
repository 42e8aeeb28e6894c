"""Boxes on this machine, with the real bubblewrap: a working directory, a home with secrets, and what runs inside."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pegboard.sandbox import Need
from pegboard_bubblewrap.confinement import Bubblewrap

GIT = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A machine without the programs skips what needs them, except in CI, where that is a failure."""
    here = Path(__file__).parent
    if (sys.platform == "linux" and shutil.which("bwrap", path="/usr/bin:/bin")) or os.environ.get("CI"):
        return
    for item in items:
        if here in item.path.parents and "syscalls" not in item.name:
            item.add_marker(pytest.mark.skip(reason="bubblewrap is not installed"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Room:
    """A working directory and a home, and boxes around commands in them."""

    def __init__(self, folder: Path) -> None:
        self.work, self.home = folder / "work", folder / "home"
        for path in (self.work, self.home):
            path.mkdir()
        self.shared = Bubblewrap()
        self.need = Need(cwd=self.work, home=self.home, roots=(self.work,))
        self.box: Any = None

    async def open(self, **changes: Any) -> Room:
        """Make and prepare a box for another need."""
        self.need = replace(self.need, **changes)
        self.shared.status(self.need)
        self.box = self.shared.box(self.need)
        await self.box.prepare()
        return self

    def run(self, command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a shell command in the box, as this user."""
        argv, given = self.box.wrap(["/bin/bash", "-c", command], {**os.environ, "HOME": str(self.home), **GIT, **env})
        try:
            return subprocess.run(
                argv, env=given, cwd=self.work, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
            )
        finally:
            self.box.ended()

    def git(self, *words: str, cwd: Path | None = None) -> None:
        """Git outside of the box."""
        subprocess.run(
            ["git", *words], cwd=cwd or self.work, env={**os.environ, **GIT}, check=True, capture_output=True
        )


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = Room(tmp_path)
    yield made
    made.shared.end()


@pytest.fixture
def nobody() -> int:
    """The number of a user without any power; skips where we cannot become one."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    return pwd.getpwnam("nobody").pw_uid
