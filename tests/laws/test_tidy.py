"""What must never be in the tree: times of one machine, its paths, the hosts of package indexes."""

from __future__ import annotations

import ast
import re

LOW_BOUND = 5.0
"""Seconds. A smaller upper bound measures the machine, not the program."""

TIMED = re.compile(r"elapsed|took|duration|seconds?$", re.IGNORECASE)
CLOCKS = {"monotonic", "perf_counter", "time", "process_time"}

HOSTS = [".".join(parts) for parts in (
    ("pypi", "org"), ("files", "pythonhosted", "org"), ("registry", "npmjs", "org"), ("proxy", "golang", "org"),
    ("static", "crates", "io"),
)]  # fmt: skip


def _is_time(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return any(
            isinstance(part, ast.Call)
            and (getattr(part.func, "attr", None) or getattr(part.func, "id", None)) in CLOCKS
            for part in (node.left, node.right)
        )
    name = getattr(node, "id", None) or getattr(node, "attr", None)
    return bool(name and TIMED.search(name))


def short_bounds(tree: ast.AST) -> list[int]:
    """Lines that demand that something took less than a few seconds."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            continue
        left, right = node.left, node.comparators[0]
        if isinstance(node.ops[0], ast.Gt | ast.GtE):
            left, right = right, left
        elif not isinstance(node.ops[0], ast.Lt | ast.LtE):
            continue
        bound = right.value if isinstance(right, ast.Constant) else None
        if isinstance(bound, int | float) and bound < LOW_BOUND and _is_time(left):
            found.append(node.lineno)
    return found


def test_no_absolute_times(repository):
    broken = [
        f"{repository.shown(path)}:{line} bounds a time below {LOW_BOUND:g} s"
        for path in repository.tests()
        for line in short_bounds(ast.parse(path.read_text("utf-8")))
    ]
    assert not broken, "\n".join(broken)


def test_the_time_law_sees_what_it_should():
    seen = short_bounds(ast.parse("assert elapsed < 0.2\nassert time.monotonic() - start <= 2\nassert 1 > took"))
    assert seen == [1, 2, 3]
    assert short_bounds(ast.parse("assert elapsed < 30\nassert count < 2\nassert took > 1")) == []


def test_no_package_hosts_and_no_machine_paths(repository):
    banned = [*HOSTS, str(repository.root)]
    broken = []
    for path in repository.tracked:
        text = path.read_bytes()
        broken += [f"{repository.shown(path)} names {word}" for word in banned if word.encode() in text]
    assert not broken, "\n".join(broken)


def test_no_lock_file_is_tracked(repository):
    """It would name the package hosts of whoever made it; constraints.txt holds the versions."""
    assert not [repository.shown(path) for path in repository.tracked if path.name == "uv.lock"]


def test_nothing_is_left_for_later(repository):
    """Only real things: no stub, no reminder to write one."""
    words = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "NotImplemented" + "Error")) + r")\b")
    broken = []
    for found in repository.distributions:
        for path in found.files():
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                if words.search(line):
                    broken.append(f"{repository.shown(path)}:{number} {line.strip()}")
    assert not broken, "\n".join(broken)


LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def test_links_in_the_docs_lead_somewhere(repository):
    broken = [
        f"{repository.shown(path)}: {target}"
        for path in repository.tracked
        if path.suffix == ".md"
        for target in LINK.findall(path.read_text("utf-8"))
        if not (path.parent / target).exists()
    ]
    assert not broken, "\n".join(broken)
