"""Sessions with hooks in their settings, small tools to call in them, and real scripts that answer."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pegboard.model import AbsolutePath, Input, Output
from pegboard.testing import Bench, Willing, tool_of
from pegboard.tool import Access, Tool


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class SaveInput(Input):
    path: AbsolutePath
    text: str = "x"


class SaveOutput(Output):
    path: str
    size: int


class Save(Tool[SaveInput, SaveOutput]):
    """Writes a file."""

    Input = SaveInput
    Output = SaveOutput

    def accesses(self, input: SaveInput, ctx: Any) -> list[Access]:
        return [Access.edit(input.path)]

    async def run(self, input: SaveInput, ctx: Any) -> SaveOutput:
        with ctx.effect("file", input.path):
            Path(input.path).write_text(input.text)
        return SaveOutput(path=input.path, size=len(input.text))

    def render(self, output: SaveOutput, ctx: Any) -> str:
        return f"saved {output.size} characters"


class BashInput(Input):
    command: str


class BashOutput(Output):
    stdout: str


class Bash(Tool[BashInput, BashOutput]):
    """Stands for the shell tool: it repeats a command, or fails on one."""

    Input = BashInput
    Output = BashOutput

    def accesses(self, input: BashInput, ctx: Any) -> list[Access]:
        return [Access.run(input.command)]

    async def run(self, input: BashInput, ctx: Any) -> BashOutput:
        with ctx.effect("process", input.command):
            if input.command == "fail":
                raise OSError("it broke")
        return BashOutput(stdout=input.command)

    def render(self, output: BashOutput, ctx: Any) -> str:
        return output.stdout


def tools() -> list[Tool[Any, Any]]:
    return [tool_of(Save, effects=["file"], concurrency="write"), tool_of(Bash, effects=["process"], family="Bash")]


class Notified(Willing):
    """A person who says yes to everything, and keeps what was told."""

    def __init__(self) -> None:
        super().__init__()
        self.notices: list[str] = []

    async def notify(self, text: str, kind: str = "info") -> None:
        self.notices.append(text)


class Hooked:
    """Makes sessions whose settings hold hooks, and scripts for them."""

    def __init__(self, peg_session: Callable[..., Bench], folder: Path) -> None:
        self._make = peg_session
        self.folder = folder
        self.host = Notified()
        self._rooms = 0

    def __call__(self, event: str = "", *groups: dict[str, Any], **options: Any) -> Bench:
        """A session. ``managed`` and ``project`` are texts of settings files, ``settings`` those of the user."""
        room = self.folder / f"room{self._rooms}" if self._rooms else self.folder
        self._rooms += 1
        for place, text in (
            ("managed/managed.toml", options.pop("managed", "")),
            ("work/.peg/settings.toml", options.pop("project", "")),
        ):
            if text:
                (room / place).parent.mkdir(parents=True, exist_ok=True)
                (room / place).write_text(text)
        settings = dict(options.pop("settings", {}))
        if event:
            settings[f"hooks.{event}"] = list(groups)
        options = {"host": self.host, "tools": tools(), "only": [], **options}
        return self._make(settings=settings, **options)

    @staticmethod
    def group(command: str, matcher: str = "", **fields: Any) -> dict[str, Any]:
        """One group with one command."""
        return {"matcher": matcher, "hooks": [{"type": "command", "command": command, **fields}]}

    def script(self, text: str, name: str = "hook.py") -> str:
        """A Python script that has the event as ``event`` and may ``answer(...)``; returns the command."""
        path = self.folder / name
        head = (
            "import json, os, sys, time\n"
            "event = json.load(sys.stdin)\n"
            "def answer(**fields): print(json.dumps(fields))\n"
            "def specific(**fields): answer(hookSpecificOutput={'hookEventName': event['hook_event_name'], **fields})\n"
        )
        path.write_text(head + text)
        return f"{sys.executable} {path}"

    def recorder(self, name: str = "seen.jsonl") -> str:
        """A command that keeps every event it is given."""
        return f"cat >> {self.folder / name}; echo >> {self.folder / name}"

    def seen(self, name: str = "seen.jsonl") -> list[dict[str, Any]]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []

    def executable(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path


@pytest.fixture
def hooked(peg_session: Callable[..., Bench], tmp_path: Path) -> Hooked:
    return Hooked(peg_session, tmp_path)
