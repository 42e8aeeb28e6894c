"""What the laws look at: the repository, its distributions and their sources, read as text and never imported."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Distribution:
    """One folder with a ``pyproject.toml`` of its own."""

    folder: Path
    kind: str
    """core, tool, owner, library, source, provider, host, sandbox, runner, extra or template"""

    @cached_property
    def project(self) -> dict[str, Any]:
        return tomllib.loads((self.folder / "pyproject.toml").read_text("utf-8"))["project"]

    @property
    def name(self) -> str:
        return self.project["name"]

    @property
    def package(self) -> str:
        """Top-level import name."""
        return "pegboard" if self.kind == "core" else self.name.replace("-", "_")

    @property
    def source(self) -> Path:
        return self.folder / "src" / self.package

    @property
    def requires(self) -> set[str]:
        """Names of the declared dependencies, without versions and extras."""
        return {re.split(r"[\s\[<>=!~;]", line, maxsplit=1)[0] for line in self.project.get("dependencies", ())}

    def files(self) -> list[Path]:
        """The modules of the package; not the sample project, which is data, nor what a link leads to."""
        return sorted(path for path in self.source.rglob("*.py") if "sample" not in path.relative_to(self.source).parts)


@dataclass(frozen=True)
class Repository:
    """The tracked tree."""

    root: Path

    @cached_property
    def distributions(self) -> list[Distribution]:
        found = [Distribution(self.root / "core", "core")]
        found += [Distribution(path.parent, "tool") for path in sorted(self.root.glob("plugins/*/pyproject.toml"))]
        for path in sorted(self.root.glob("contrib/*/*/pyproject.toml")):
            group = path.parent.parent.name
            found.append(
                Distribution(
                    path.parent, {"libraries": "library", "sandboxes": "sandbox"}.get(group, group.rstrip("s"))
                )
            )
        if (self.root / "plugin-template" / "pyproject.toml").exists():
            found.append(Distribution(self.root / "plugin-template", "template"))
        return found

    @cached_property
    def tracked(self) -> list[Path]:
        listing = subprocess.run(["git", "ls-files", "-z"], cwd=self.root, capture_output=True, check=True).stdout
        paths = (self.root / name for name in listing.decode("utf-8").split("\0") if name)
        return [path for path in paths if path.is_file() and not path.is_symlink()]

    def tests(self) -> list[Path]:
        """Every test file of every distribution and of the repository itself."""
        folders = [distribution.folder / "tests" for distribution in self.distributions] + [self.root / "tests"]
        return sorted(path for folder in folders for path in folder.rglob("*.py"))

    def shown(self, path: Path) -> str:
        return str(path.relative_to(self.root))


@pytest.fixture(scope="session")
def repository() -> Repository:
    return Repository(ROOT)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every imported module of a file, with its line: at the top, inside functions and for type checkers alike."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module


@pytest.fixture(scope="session")
def imported():
    return imports
