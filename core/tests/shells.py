"""`peg -p` as a process in a folder and a home of its own, against the strict service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pegboard
import pytest
from pegboard.testing.messages import MessagesService
from pegboard.transcript import FILE_NAME

PROGRAM = [sys.executable, str(Path(__file__).parent / "looptools.py")]
SCHEMAS = Path(pegboard.__file__).parent / "schemas"


def fits(name: str, value: Any, folder: Path = SCHEMAS) -> None:
    """Hold an output against its published schema, of which no field may be missing: what it does not name is wrong."""
    schema = json.loads((folder / f"{name}.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(closed(schema)).validate(value)


def closed(schema: Any) -> Any:
    """The schema without room for fields that it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(one) if key != "const" else one for key, one in schema.items()}
    if "properties" in found:
        found.setdefault("additionalProperties", False)
    return found


SOON = 30.0
"""Seconds after which a process counts as hung."""


def call(tool: str, text: str = "x") -> dict[str, Any]:
    return {"content": [{"type": "tool_use", "name": tool, "input": {"text": text}}]}


class Shell:
    """A folder, a home and a service; starts `peg -p` there."""

    def __init__(self, room: Path, service: MessagesService) -> None:
        self.service = service
        self.work, self.home = room / "work", room / "home"
        self.work.mkdir()
        self.home.mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "PEG_MANAGED_DIR": str(room / "managed"),
            "ANTHROPIC_BASE_URL": service.url,
            "ANTHROPIC_API_KEY": "sk-test-secret",
        }

    def start(self, *args: str, stdin: Any = subprocess.DEVNULL, stdout: Any = subprocess.PIPE) -> subprocess.Popen:
        return subprocess.Popen(
            [*PROGRAM, *args], cwd=self.work, env=self.env, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE
        )

    def run(self, *args: str, given: bytes | None = None) -> subprocess.CompletedProcess:
        stdin = {"stdin": subprocess.DEVNULL} if given is None else {"input": given}
        return subprocess.run(
            [*PROGRAM, *args], cwd=self.work, env=self.env, capture_output=True, timeout=SOON, check=False, **stdin
        )

    def stream(self, *args: str) -> tuple[int, list[dict[str, Any]]]:
        done = self.run("-p", "go", "--output-format", "stream-json", *args)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        for line in lines:
            fits("stream", line)
        return done.returncode, lines

    @property
    def files(self) -> list[Path]:
        return sorted((self.home / ".peg" / "projects").glob(f"*/*/{FILE_NAME}"))

    @property
    def id(self) -> str:
        return self.files[0].parent.name

    @property
    def refused(self) -> list[str]:
        return [problem for entry in self.service.requests for problem in entry.problems]

    def lingering(self) -> list[int]:
        """Process ids that the tool Linger wrote down, once they are there."""
        deadline = time.monotonic() + SOON
        while time.monotonic() < deadline:
            found = (self.work / "linger.txt").read_text().split() if (self.work / "linger.txt").exists() else []
            if len(found) >= 2:
                return [int(number) for number in found]
            time.sleep(0.02)
        raise AssertionError("the tool did not start")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Callable[..., Shell]]:
    services: list[MessagesService] = []

    def make(*script: Any) -> Shell:
        services.append(MessagesService(list(script)))
        return Shell(tmp_path, services[-1].__enter__())

    yield make
    for service in services:
        service.__exit__(None, None, None)
