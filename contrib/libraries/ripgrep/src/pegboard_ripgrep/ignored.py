"""Which folders a repository's .gitignore names.

Only folders are judged: by default single ignored files are listed, but a dependency folder would bury the rest.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

_SKIPPED = re.compile(r"^\s*(#|$)")


@dataclass(frozen=True)
class _Line:
    matches: re.Pattern[str]
    ignores: bool


@dataclass
class IgnoredFolders:
    """Answers for the folders below ``root``, which itself never counts as ignored."""

    root: str
    top: str
    """Folder of the repository that holds the root."""
    _known: dict[str, bool] = field(default_factory=dict)
    _lines: dict[str, list[_Line]] = field(default_factory=dict)

    @classmethod
    def around(cls, root: str) -> IgnoredFolders | None:
        """The judge for a folder; None when no git repository holds it."""
        folder = real = os.path.realpath(root)
        while not os.path.exists(os.path.join(folder, ".git")):
            parent = os.path.dirname(folder)
            if parent == folder:
                return None
            folder = parent
        return cls(real, folder)

    def first_ignored(self, folder: str, named: frozenset[str]) -> str | None:
        """The outermost ignored folder on the way to ``folder`` (relative to the root), except named ones."""
        path = ""
        for segment in folder.split("/") if folder else ():
            path = f"{path}/{segment}" if path else segment
            if self._ignored(path) and segment not in named:
                return path
        return None

    def _ignored(self, folder: str) -> bool:
        known = self._known.get(folder)
        if known is None:
            known = self._known[folder] = self._judge(os.path.join(self.root, folder))
        return known

    def _judge(self, path: str) -> bool:
        base = os.path.dirname(path)
        while True:
            for line in reversed(self._read(os.path.join(base, ".gitignore"))):
                if line.matches.fullmatch(os.path.relpath(path, base)):
                    return line.ignores
            if base == self.top:
                break
            base = os.path.dirname(base)
        for line in reversed(self._read(os.path.join(self.top, ".git", "info", "exclude"))):
            if line.matches.fullmatch(os.path.relpath(path, self.top)):
                return line.ignores
        return False

    def _read(self, file: str) -> list[_Line]:
        lines = self._lines.get(file)
        if lines is None:
            lines = self._lines[file] = list(filter(None, map(_parse, _text(file).splitlines())))
        return lines


def _text(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as opened:
            return opened.read(1_000_000)
    except OSError:
        return ""


def _parse(line: str) -> _Line | None:
    if _SKIPPED.match(line):
        return None
    line = re.sub(r"(?<!\\)\s+$", "", line)
    ignores = not line.startswith("!")
    body = line.removeprefix("!").removesuffix("/")
    if not body:
        return None
    anchored = "/" in body
    try:
        matches = re.compile(("" if anchored else "(?:.*/)?") + _regex(body.removeprefix("/")), re.DOTALL)
    except re.error:
        return None
    return _Line(matches, ignores)


_TOKEN = re.compile(
    r"(?P<lead>^\*\*/)|(?P<tail>/\*\*$)|(?P<mid>/\*\*/)|(?P<star>\*+)|(?P<one>\?)"
    r"|\[(?P<class>[!^]?\]?[^]]*)\]|\\(?P<escaped>.)|(?P<plain>.)",
    re.DOTALL,
)


def _regex(body: str) -> str:
    """A gitignore pattern, already without its anchor, as a regular expression over a relative path."""
    parts = []
    for token in _TOKEN.finditer(body):
        kind = token.lastgroup
        if kind == "lead":
            parts.append("(?:.*/)?")
        elif kind == "tail":
            parts.append("/.+")
        elif kind == "mid":
            parts.append("/(?:.*/)?")
        elif kind == "star":
            parts.append("[^/]*")
        elif kind == "one":
            parts.append("[^/]")
        elif kind == "class":
            inner = token["class"].replace("\\", "\\\\").replace("[", "\\[")
            parts.append("[^" + inner[1:] + "]" if inner[:1] in "!^" and inner else f"[{inner}]")
        else:
            parts.append(re.escape(token[kind or "plain"]))
    return "".join(parts)
