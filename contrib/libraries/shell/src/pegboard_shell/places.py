"""Where the files are that a command names: relative words against its directories, patterns against the disk.

A pattern is expanded as the shell would do it now; what cannot be said becomes the folder that it starts in.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from pegboard_shell.script import LITERAL, Dirs, Word

MOST = 500
"""[C] Names that one pattern may stand for before only its folder is judged."""

MOST_FILES = 100_000
"""[C] Files below a folder that are looked at for hidden ones."""

Hidden = Callable[[str, Sequence[str], Sequence[str]], "list[str] | None"]
"""Files below a folder that must not be read; None: too many to say. Names that fit one of the first patterns are left
out, and so are those that fit none of the second, if there are any.
"""

_DEVICES = frozenset((
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/stdin", "/dev/stdout", "/dev/stderr",
    "/dev/tty", "-",
))  # fmt: skip
_WILD = re.compile(r"[*?\[]")
_ODD = re.compile(r"\[[:.=]|\[\^|\\")


def devices(word: Word, edit: bool) -> bool:
    """A device that holds nothing, or a stream that is open already."""
    if not word.literal:
        return False
    return word.text in _DEVICES - ({"-"} if edit else set()) or re.fullmatch(r"/dev/fd/\d+", word.text) is not None


class Places:
    """The directories of one segment."""

    def __init__(self, dirs: Dirs, cwd: str, quiet: bool) -> None:
        self.dirs = dirs
        self.cwd = cwd
        self.quiet = quiet

    def of(self, word: Word) -> tuple[list[str], bool]:
        """Absolute paths that a word may name, and whether these are all."""
        if word.literal:
            return self._under(word.text), word.text.startswith("/") or self.dirs is not None
        if word.kind == "glob":
            folder = _WILD.split(word.text, maxsplit=1)[0].rpartition("/")
            start = (folder[0] or "/") if folder[1] else "."
            return self._under(start), self.dirs is not None or start.startswith("/")
        lead = word.lead.rpartition("/")
        return (self._under(lead[0]) if lead[0] else []), False

    def _under(self, text: str) -> list[str]:
        if text.startswith("/"):
            return [text]
        if text == ".":
            return list(self.dirs or ())
        return [f"{base.rstrip('/')}/{text}" for base in self.dirs or ()]

    def expand(self, words: Iterable[Word]) -> tuple[Word, ...]:
        """Words with their patterns replaced by the names they stand for now, where that is certain."""
        out: list[Word] = []
        for word in words:
            names = self._names(word) if word.kind == "glob" and self.quiet else None
            if names is None:
                out.append(word)
            else:
                out += (
                    Word(word.raw if index == 0 else "", name, LITERAL, False, name) for index, name in enumerate(names)
                )
        return tuple(out)

    def _names(self, word: Word) -> list[str] | None:
        pattern = word.text
        if self.dirs is None or len(self.dirs) != 1 or _ODD.search(pattern):
            return None
        try:
            found = list(islice(glob.iglob(pattern, root_dir=self.dirs[0]), MOST + 1))
        except (OSError, ValueError, re.error):
            return None
        if len(found) > MOST:
            return None
        return sorted(found) or [_plain(pattern)]


def _plain(pattern: str) -> str:
    """What a pattern without a match is: itself, its quoted characters without the brackets that kept them."""
    return re.sub(r"\[([*?\[])\]", r"\1", pattern)


def hidden_from(globs: Callable[[str], Iterable[str]], denied: Callable[[str], bool]) -> Hidden:
    """How to find what a recursive reading must not see.

    ``globs`` gives the patterns that deny rules have below a folder (gitignore syntax), ``denied`` judges one path.
    """

    def find(folder: str, skips: Sequence[str], only: Sequence[str]) -> list[str] | None:
        wanted = [pattern.rpartition("/")[2] for pattern in globs(folder)]
        if not wanted or not os.path.isdir(folder):
            return []
        found: list[str] = []
        seen = 0
        for base, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if name != ".git" and not _fits(name, skips)]
            seen += len(files) + 1
            if seen > MOST_FILES:
                return None
            names = [name for name in files if _fits(name, wanted) and not _fits(name, skips)]
            names = [name for name in names if not only or _fits(name, only)]
            found += (path for path in (f"{base}/{name}" for name in names) if denied(path))
            if len(found) > 10:
                break
        return found

    return find


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
