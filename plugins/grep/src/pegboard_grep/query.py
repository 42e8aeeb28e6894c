"""What a call asks of the engine: flags and operands.

A pattern, glob or path is always the value of an option or an operand, so that none can be taken for an option.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard_ripgrep.runner import REGEX_SIZE
from pegboard_ripgrep.view import skip_folders, split_outside_braces

if TYPE_CHECKING:
    from pegboard_grep.tool import GrepInput

_EVERYTHING = {"*", "**", "**/*", "/**"}
_META = re.compile(r"[*?\[\]{}\\!]")


@dataclass(frozen=True)
class Query:
    """A search below ``root``."""

    root: Path
    target: str
    """Operand relative to the root: ``./``, a folder below it, or the one file that was named."""
    pattern: tuple[str, ...]
    """The expression and how it is compiled."""
    filters: tuple[str, ...]
    """Which files are searched."""
    before: int = 0
    after: int = 0
    only_matching: bool = False

    def content(self, columns: int) -> list[str]:
        """Flags for lines: ``name NUL number : text``."""
        around = [f"--before-context={self.before}", f"--after-context={self.after}"] if self.context else []
        only = ["--only-matching"] if self.only_matching else []
        shape = ["--with-filename", "--null", "--line-number", "--no-heading", f"--max-columns={columns}"]
        return [*shape, *around, *only, *self.search()]

    def files(self) -> list[str]:
        """Flags for the names of files with a match, each ended by NUL."""
        return ["--files-with-matches", "--null", *self.search()]

    def counts(self) -> list[str]:
        """Flags for ``name NUL number``."""
        return ["--count", "--with-filename", "--null", *self.search()]

    def search(self) -> list[str]:
        """Flags that every mode has in common."""
        return ["--binary", *self.pattern, *self.filters]

    @property
    def context(self) -> bool:
        return bool(self.before or self.after) and not self.only_matching


def query_of(input: GrepInput, path: Path, denies: list[str]) -> Query:
    """The query of a call that searches ``path``, a file or a folder."""
    root, target = (path, "./") if path.is_dir() else (path.parent, f"./{path.name}")
    pattern = [f"--regexp={input.pattern}", f"--regex-size-limit={REGEX_SIZE}"]
    if input.ignore_case:
        pattern.append("--ignore-case")
    if input.multiline:
        pattern += ["--multiline", "--multiline-dotall"]
    globs = [glob for glob in split_outside_braces(input.glob or "") if glob not in _EVERYTHING]
    if len(globs) == 1 and target == "./":
        globs, target = _narrowed(globs[0], root)
    filters = ["--hidden", *(f"--glob={glob}" for glob in globs), *skip_folders(), *denies]
    if input.type:
        filters.append(f"--type={input.type}")
    around = input.around if input.around is not None else input.context or 0
    content = input.output_mode == "content"
    return Query(
        root=root,
        target=target,
        pattern=tuple(pattern),
        filters=tuple(filters),
        before=(input.before if input.before is not None else around) if content else 0,
        after=(input.after if input.after is not None else around) if content else 0,
        only_matching=input.only_matching,
    )


def _narrowed(glob: str, root: Path) -> tuple[list[str], str]:
    """Start in the folder that a glob begins with.

    Besides sparing a walk, this keeps ``src/**`` from reaching ignored folders: the engine lets a glob that matches
    a folder win over its ignore files.
    """
    parts = glob.removeprefix("./").removeprefix("/").split("/")
    literal: list[str] = []
    for part in parts[:-1]:
        folder = os.path.join(root, *literal, part)
        if part in ("", ".", "..") or _META.search(part) or os.path.islink(folder) or not os.path.isdir(folder):
            break
        literal.append(part)
    if not literal:
        return [glob], "./"
    rest = "/".join(parts[len(literal) :])
    return [] if rest in _EVERYTHING else ["/" + "/".join(parts)], "./" + "/".join(literal)
