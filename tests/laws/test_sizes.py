"""Small on purpose: the core within a bound, a file within 400 lines, a plug-in within what its tool needs."""

from __future__ import annotations

import ast
import statistics
import tomllib
from pathlib import Path

CORE_LINES = 9_800
"""[C] Lines of code of the core, without its docstrings, comments and blank lines, cli and testing."""

FILE_LINES = 400
TEST_LINES = 700
"""[C] A test file is a list, read by section and never whole."""

TOOL_MEDIAN = 350

EXCEPTIONS = tomllib.loads((Path(__file__).parent / "sizes.toml").read_text("utf-8"))["files"]
"""Path -> ``{lines, reason}``: a file that may be longer, up to that many lines."""


def lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def code_lines(path: Path) -> int:
    """Lines that hold code: docstrings (and the strings under fields), comments and blank lines do not count."""
    text = path.read_text("utf-8")
    said: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            said.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    written = enumerate(text.splitlines(), 1)
    return sum(
        1 for number, line in written if number not in said and line.strip() and not line.lstrip().startswith("#")
    )


def test_core_stays_small(repository):
    core = repository.distributions[0]
    apart = ("cli", "testing", "sample")
    total = sum(code_lines(path) for path in core.files() if path.relative_to(core.source).parts[0] not in apart)
    assert total <= CORE_LINES, f"the core without cli and testing has {total} lines of code"


def limit(path: Path, name: str) -> int:
    usual = TEST_LINES if "tests" in path.parts else FILE_LINES
    return EXCEPTIONS.get(name, {"lines": usual})["lines"]


def test_files_stay_small(repository):
    paths = [path for distribution in repository.distributions for path in distribution.files()] + repository.tests()
    long = [
        f"{repository.shown(path)}: {lines(path)} lines"
        for path in paths
        if lines(path) > limit(path, repository.shown(path))
    ]
    assert not long, "\n".join(long)


def test_exceptions_have_a_reason_and_a_need(repository):
    for name, entry in EXCEPTIONS.items():
        path = repository.root / name
        assert entry["reason"].strip(), f"{name} has no reason"
        assert path.exists() and lines(path) > FILE_LINES, f"{name} needs no exception any more"


def test_a_tool_is_a_few_pages(repository):
    totals = [sum(map(code_lines, found.files())) for found in repository.distributions if found.kind == "tool"]
    assert not totals or statistics.median(totals) <= TOOL_MEDIAN, f"lines of code of each tool: {sorted(totals)}"
