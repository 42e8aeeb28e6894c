"""What a start loads: the set of modules, not only the time. Every import on the way to the first request is paid by
every user, every time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("asyncio", "anyio", "pydantic", "stevedore", "importlib.metadata", "anthropic", "httpx2", "httpx", "pluggy")
"""What `peg --version` and the listings do without."""

LATE = ("anthropic", "pydantic", "stevedore", "importlib.metadata", "httpx2")
"""What must not be loaded before the first request is on its way."""

PROGRAM = """
import os, sys

target, until, *words = sys.argv[1:]
leave = os._exit

def dump():
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    names = ", ".join('"' + name + '"' for name in sorted(sys.modules))
    os.write(handle, ("[" + names + "]").encode())
    os.close(handle)

def left(code):
    if until == "end":
        dump()
    leave(code)

def hook(event, args):
    if event == "socket.getaddrinfo" or (event == "socket.connect" and isinstance(args[1], tuple)):
        dump()
        leave(0)

os._exit = left
if until == "request":
    sys.addaudithook(hook)
sys.argv = ["peg", *words]
from pegboard.cli import main
main()
"""
"""A child that notes its modules without importing anything of its own."""


@pytest.fixture
def modules(tmp_path: Path):
    """Run `peg` with these words in a child; the names of the modules it had loaded at the end, or at the request."""

    def run(*words: str, until: str = "end") -> set[str]:
        target = tmp_path / "modules.json"
        home = tmp_path / "home"
        (tmp_path / "work").mkdir(exist_ok=True)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("PEG_", "ANTHROPIC_", "COV_"))}
        env |= {
            "HOME": str(home),
            "PEG_HOME": str(home / ".peg"),
            "PEG_MANAGED_DIR": str(tmp_path / "managed"),
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
        }
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(target), until, *words],
            cwd=tmp_path / "work",
            env=env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=100,
            check=False,
        )
        assert target.exists(), f"peg {' '.join(words)} never got there: {done.stderr}{done.stdout}"
        return set(json.loads(target.read_text("utf-8")))

    return run


def loaded(modules: set[str], unwanted: tuple[str, ...]) -> list[str]:
    return [name for name in unwanted if name in modules]


def test_version_loads_next_to_nothing(modules):
    found = modules("--version")
    assert "pegboard" in found
    assert not loaded(found, HEAVY)


def test_listing_tools_imports_no_tool(modules):
    found = modules("tools", "list")
    assert "pegboard.cli.tools" in found
    assert not loaded(found, HEAVY)
    tools = {name for name in found if name.startswith("pegboard_")}
    assert not tools, f"listing imports {tools}"


def test_the_first_request_waits_for_nothing_heavy(modules):
    found = modules("-p", "hello", until="request")
    assert "pegboard.agent" in found
    assert not loaded(found, LATE)
    tools = {name for name in found if name.startswith("pegboard_") and name.endswith(".tool")}
    assert not tools, f"tools are imported before the first request: {tools}"


def test_the_kit_is_never_loaded(modules):
    for words in (("--version",), ("tools", "list")):
        assert not [name for name in modules(*words) if name.startswith("pegboard.testing")]
