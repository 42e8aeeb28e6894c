"""What ran in a real bash must have been seen: every program with its words and its directory, and every file made.

Only a command about which something is said to be unknown may do more than was seen. The same comparison with
thousands of commands is in `tests/bench/shell.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import boxed
from makeshell import Maker

pytestmark = pytest.mark.skipif(bool(boxed.missing()), reason=boxed.missing() or "there is a box")

HERE = Path(__file__).parent
RANDOM = 300


def nasty() -> list[str]:
    lines = (HERE / "nasty.txt").read_text("utf-8").splitlines()
    return [
        line.replace("\\\\n", "\\\n").replace("\\n", "\n").replace("\\t", "\t")
        for line in lines
        if line and not line.startswith("# ")
    ]


def judged(commands: list[str], tmp_path: Path) -> list[boxed.Verdict]:
    base = (tmp_path / "box").resolve()
    base.mkdir()
    results = boxed.run(commands, base)
    pairs = enumerate(zip(commands, results, strict=True))
    return [boxed.compare(command, result, f"{base}/in/{number}") for number, (command, result) in pairs]


def surprises(found: list[boxed.Verdict]) -> str:
    return "\n".join(f"{each.command!r} {each.missed}" for each in found if each.missed and each.certain)


def test_what_ran_was_seen_or_doubted(tmp_path):
    found = judged(nasty(), tmp_path)
    assert not surprises(found)
    assert len(found) > 250
    assert sum(verdict.certain for verdict in found) > 100, "too much is doubted"


def test_what_ran_of_commands_made_at_random_was_seen_or_doubted(tmp_path):
    maker = Maker(2026)
    commands = [maker.mutant() if number % 3 == 0 else maker.command() for number in range(RANDOM)]
    commands = [command for command in commands if command.strip()]
    found = judged(commands, tmp_path)
    assert not surprises(found)
    assert sum(verdict.certain for verdict in found) > RANDOM / 5


def test_the_comparison_sees_what_was_missed(tmp_path):
    """The test would fail if the reader were blind: a run that is not in the text is reported."""
    (verdict,) = judged(["bash ./hidden.sh"], tmp_path)
    assert verdict.certain and not verdict.missed
    result = {"runs": [["/w", "rm", "a"]], "made": ["x"]}
    assert len(boxed.compare("ls", result, "/w").missed) == 2
    assert not boxed.compare("rm a > x", result, "/w").missed
