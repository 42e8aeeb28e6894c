"""Every numbered check of the functional specification that is due has a test that carries its number."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

TABLE = tomllib.loads((Path(__file__).parent / "checks.toml").read_text("utf-8"))
NAME = re.compile(r"^test_([a-z]+|e2e)_(\d+)(?=_|$)")
KIT = "core/src/pegboard/testing"
"""Suites of the kit carry the numbers of what they examine."""


def due() -> set[str]:
    """``READ-1`` and its kin, from the ranges of ``checks.toml``."""
    return {f"{family}-{number}" for family, numbers in TABLE["due"].items() for number in _expand(numbers)}


def _expand(numbers: str) -> list[int]:
    found: list[int] = []
    for part in numbers.split(","):
        first, _, last = part.strip().partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def carried(repository) -> set[str]:
    names = set()
    for path in (*repository.tests(), *(repository.root / KIT).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (match := NAME.match(node.name)):
                names.add(f"{match[1].upper()}-{int(match[2])}")
    return names


def test_every_due_check_has_a_test(repository):
    missing = sorted(
        due() - carried(repository), key=lambda name: (name.partition("-")[0], int(name.rpartition("-")[2]))
    )
    assert not missing, "no test is named after: " + ", ".join(missing)


def test_checks_that_wait_say_for_what():
    waiting = TABLE["waiting"]
    assert not due() & waiting.keys()
    assert all(reason.strip() for reason in waiting.values())
