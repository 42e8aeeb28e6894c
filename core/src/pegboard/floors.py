"""Floors: what no allow rule can lift. Protected paths, and removals that would take the ground away.

The names are data (`protected.toml`), so that an operator can read them and a test can list them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pegboard.paths import plain

if TYPE_CHECKING:
    from pegboard.policy import Snapshot

INVISIBLE = re.compile(
    "[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f"
    "\u205f-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
"""Characters that show nothing, turn the reading direction or break the line."""

GLOB = re.compile(r"[*?\[{]")
VARIABLE = r"(?:\$\{[^}]*\}|\$\w+|\$[*@#?$!-]|\$\(.*\)|`.*`)"
LOOSE = re.compile(rf"{VARIABLE}/+(?:[^/]*[*?\[{{][^/]*(?:/.*)?|\.?)", re.DOTALL)
"""A glob, or nothing, directly under a variable: with the variable empty it is the root directory."""


class Names(NamedTuple):
    """The data of `protected.toml`, in lower case."""

    folders: frozenset[str]
    open: frozenset[str]
    pairs: frozenset[str]
    files: frozenset[str]
    removers: frozenset[str]


@lru_cache(maxsize=1)
def names() -> Names:
    """Read the names once."""
    import tomllib

    raw = Path(__file__).with_name("protected.toml").read_text("utf-8")
    given = msgspec.convert(tomllib.loads(raw), dict[str, frozenset[str]])
    return Names(**given)


@lru_cache(maxsize=1024)
def protected(path: str) -> str:
    """The protected name that an absolute path lies in or is; empty if there is none.

    Compares as the most lenient file system would: without case, invisible characters, compatibility forms, trailing
    dots and spaces, and streams.
    """
    known = names()
    parts = [_lenient(part) for part in path.split("/") if part]
    for index, part in enumerate(parts):
        pair = f"{part}/{parts[index + 1]}" if index + 1 < len(parts) else ""
        if pair in known.pairs:
            return pair
        if part in known.folders and not (pair in known.open and index + 2 < len(parts)):
            return part
    return parts[-1] if parts and parts[-1] in known.files else ""


def _lenient(part: str) -> str:
    if not part.isascii():
        import unicodedata

        part = unicodedata.normalize("NFKC", INVISIBLE.sub("", part))
    return INVISIBLE.sub("", part).partition(":")[0].rstrip(". ").casefold()


def words(command: str) -> list[str]:
    """The words of one simple command, unquoted; variables and globs stay as written. Pure and lenient."""
    out: list[str] = []
    for match in re.finditer(r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|\$\([^)]*\)|`[^`]*`|[^\s])+""", command, re.DOTALL):
        word = re.sub(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)""", _unquoted, match[0], flags=re.DOTALL)
        out.append(word)
    return out


def _unquoted(match: re.Match[str]) -> str:
    single, double, char = match.groups()
    if single is not None:
        return str(single)
    if double is not None:
        return re.sub(r'\\([$`"\\])', r"\1", double)
    return str(char).strip("\n")


def critical_removal(argv: Sequence[str], snapshot: Snapshot) -> str:
    """Why a command of these words removes what nobody may remove unasked; empty if it does not.

    Root, its direct children, home, a working directory or one of their parents, and a glob directly under a
    variable. Pure: links are not followed.
    """
    at = 0
    while at < len(argv) and re.match(r"[A-Za-z_]\w*\+?=", argv[at]):
        at += 1
    if at == len(argv) or argv[at].rpartition("/")[2] not in names().removers:
        return ""
    options = True
    for word in argv[at + 1 :]:
        if options and word == "--":
            options = False
        elif not (options and word.startswith("-") and len(word) > 1):
            for target in _braces(word):
                if found := _critical(target, snapshot):
                    return f"{argv[at]} of {word}: {found}"
    return ""


def _braces(word: str, depth: int = 4) -> list[str]:
    match = re.search(r"(?<!\$)\{([^{}]*,[^{}]*)\}", word)
    if match is None or depth == 0:
        return [word]
    pieces = [word[: match.start()] + part + word[match.end() :] for part in match[1].split(",")]
    return [found for piece in pieces[:64] for found in _braces(piece, depth - 1)]


def _critical(word: str, snapshot: Snapshot) -> str:
    word = re.sub(r"^(?:~|\$HOME|\$\{HOME\})(?=/|$)", lambda _: snapshot.home, word)
    word = re.sub(r"^(?:\$PWD|\$\{PWD\}|\$\(pwd\)|`pwd`)(?=/|$)", lambda _: snapshot.cwd, word)
    if LOOSE.fullmatch(word):
        return "a glob directly under a variable"
    if not word or word.startswith(("$", "`")):
        return ""
    if re.fullmatch(r"~[\w.-]+/*", word):
        return "the home of a user"
    path = plain(word if word.startswith("/") else f"{snapshot.cwd}/{word}")
    folder, _, last = path.rpartition("/")
    if re.fullmatch(r"[.!\[\]^?]*\*?[.*?]*", last) and GLOB.search(last):
        path = folder or "/"
        return f"everything in {path}" if path == "/" or path in _ground(snapshot) else ""
    if path.count("/") == 1:
        return "the root directory" if path == "/" else "directly under the root directory"
    return "home, a working directory or a parent of one" if path in _ground(snapshot) else ""


def _ground(snapshot: Snapshot) -> set[str]:
    ground = {snapshot.home, *snapshot.roots}
    for root in (snapshot.cwd, *snapshot.roots, snapshot.home):
        while root and root != "/":
            ground.add(root)
            root = root.rpartition("/")[0]
    return ground
