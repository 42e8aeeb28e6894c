"""The cases about Bash, played line by line through a real `peg call --jsonl`."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pegboard.testing.cases import Pipe, filled, play, problems

CASES = {
    case["id"]: case for case in json.loads((Path(__file__).parent / "bash_cases.json").read_text("utf-8"))["cases"]
}
DIRECT = [name for name, case in CASES.items() if case["runner"] == "direct"]


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="case-")))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", DIRECT)
def test_case(name: str, place: Path) -> None:
    case = CASES[name]
    played = play(case, place, installed=["Bash"])
    objections = problems({**case, "check": filled(case["check"], played.folder)}, played)
    assert played.exit_code == 0, played.noise
    assert not objections, case["expected"] + "\n" + "\n".join(objections)
    PROSE.get(name, lambda played: None)(played)


def _killed(played: Any) -> None:
    assert "1 s" in played.text() and played.results[0]["code"] == "timeout"


def _says_who_runs(played: Any) -> None:
    assert re.search(r"pid \d+ \(sleep\)", played.text()), played.text()
    assert not played.results[0]["is_error"]


def _at_its_end(played: Any) -> None:
    assert "rc=1" in played.text(1)
    assert played.results[2]["outcome"] == "launched"


def _three_times(played: Any) -> None:
    assert all("rc=124" in played.text(index) for index in range(3))


def _bounded(played: Any) -> None:
    assert "left out" in played.text() and "400,000,000" in played.text()
    path = Path(played.results[0]["data"]["persistedOutputPath"])
    assert 64 * 1024 * 1024 <= path.stat().st_size <= 65 * 1024 * 1024


def _visible(played: Any) -> None:
    assert "\ufffd" in played.text()


def _codes(played: Any) -> None:
    assert "Exit code 137" in played.text(0) and "SIGKILL" in played.text(0)
    assert not played.results[1]["is_error"] and "1" in played.text(1)
    assert "Exit code 130" in played.text(2) and "Exit code 127" in played.text(3)


def _reset(played: Any) -> None:
    removed = not played.results[1]["is_error"]
    assert removed is ("Shell cwd was reset" in played.text())
    assert removed or played.results[1]["code"] == "no_user"


def _in_front(played: Any) -> None:
    assert played.text() == "a" and "backgroundTaskId" not in played.results[0]["data"]


PROSE = {
    "bash-timeout-kills-group": _killed,
    "bash-ampersand-returns": _says_who_runs,
    "bash-stdin-closed": _at_its_end,
    "bash-fifo-read-timeout": _three_times,
    "bash-huge-output-memory": _bounded,
    "bash-invalid-utf8": _visible,
    "bash-exit-codes": _codes,
    "bash-cwd-deleted": _reset,
    "bash-fast-not-backgrounded": _in_front,
}
"""What the prose of a case demands beyond its machine checks."""


def test_huge_output_does_not_stay_in_memory(place: Path) -> None:
    """The process that ran the case was no larger at its largest than with a small command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    play(CASES["bash-huge-output-memory"], place, installed=["Bash"])
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before < 100 * 1024


@pytest.mark.parametrize("how", ["end", "SIGTERM", "SIGKILL"])
def test_orphans_at_session_end(how: str, place: Path) -> None:
    """bash-orphans-at-session-end: ended with the session; after SIGKILL by the next start of it."""
    (folder := place / "work").mkdir()
    (home := place / "home").mkdir()
    command = CASES["bash-orphans-at-session-end"]["input"]["steps"][0]["call"]["input"]["command"]
    command = command.replace("777", str(7000 + os.getpid() % 1000))
    word = re.search(r"sleep \d+", command)[0]  # type: ignore[index]
    with Pipe(folder, home, options=["--session", "one"]) as pipe:
        (result,) = pipe.ask({"tool": "Bash", "input": {"command": command}})
        assert "ok" in result["text"] and lives(word)
        if how == "end":
            pipe.close()
        else:
            pipe._process.send_signal(getattr(signal, how))
            pipe._process.wait(timeout=30)
    if how == "SIGKILL":
        assert lives(word)
        with Pipe(folder, home, options=["--session", "one"]) as pipe:
            pipe.ask({"tool": "Bash", "input": {"command": "true"}})
            pipe.close()
    assert not lives(word)


def lives(word: str) -> bool:
    return subprocess.run(["pgrep", "-f", f"^{word}$"], capture_output=True, check=False).returncode == 0


def test_background_output_is_capped(place: Path) -> None:
    """bash-background-output-cap: the file stays within its limit, and the end of the task tells of it."""
    case = CASES["bash-background-output-cap"]
    options = ["--set", "bash.output_bytes=1000000", "--set", "bash.max_output_bytes=20000000"]
    played = play(case, place, installed=["Bash"], options=options)
    path = Path(played.results[0]["data"]["persistedOutputPath"])
    assert path.stat().st_size <= 2_000_000
    assert b"Output limit reached" in path.read_bytes()[1_000_000:1_000_200]


def test_every_case_is_played() -> None:
    assert len(CASES) == 16
    other = CASES.keys() - set(DIRECT)
    assert other == {"bash-orphans-at-session-end", "bash-bg-killed-status"} | (
        {"bash-background-output-cap"} - set(DIRECT)
    )


def test_a_small_command_costs_little(place: Path) -> None:
    """Not a limit on time, but on waste: a hundred calls, each its own result, within one session."""
    (folder := place / "work").mkdir()
    (home := place / "home").mkdir()
    started = time.monotonic()
    with Pipe(folder, home) as pipe:
        for number in range(100):
            (result,) = pipe.ask({"tool": "Bash", "input": {"command": f"echo {number}"}})
            assert result["text"] == str(number)
        pipe.close()
    assert time.monotonic() - started < 60
