"""Path rules: every name by which a path can be reached, and the gitignore-style patterns that match it.

A rule is only as good as its idea of a path: a link, a ``..``, another Unicode form must not be a way around it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from pegboard.errors import UsageError

LINKS = 40
"""Symlinks followed in one path before it counts as a loop; the kernel's own limit."""

WILD = re.compile(r"[*?\[\\]")

T = TypeVar("T")


class Way(NamedTuple):
    """How a path is reached."""

    names: tuple[str, ...]
    """The path as written, then after each symlink on the way; the last one is where it really is."""
    folder: bool
    """It is a directory now."""
    certain: bool
    """False: the way could not be followed (a loop, no permission, too long), so nothing may be allowed on it."""


def plain(path: str) -> str:
    """An absolute path without ``.``, ``..``, double and trailing slashes. No I/O: links are not followed."""
    path = os.path.normpath(path)
    return path[1:] if path.startswith("//") else path


def follow(path: str) -> Way:
    """Follow an absolute path link by link. Does I/O: one lstat for each component.

    Components that do not exist are taken as written, so a new file below a linked folder is seen where it would land.
    Where ``..`` follows a link, the path is read both ways: as the system does and as written.
    """
    if "/.." in path and plain(path) != path:
        written, meant = follow(plain(path)), _walk(path)
        names = dict.fromkeys((*written.names, *meant.names))
        return Way(tuple(names), meant.folder, written.certain and meant.certain)
    return _walk(path)


def _walk(path: str) -> Way:
    names, todo, here, links, folder, missing = [plain(path)], path.split("/")[::-1], "", 0, True, False
    try:
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                here, folder, missing = here.rpartition("/")[0], True, False
                continue
            here = f"{here}/{part}"
            if missing:
                continue
            try:
                mode = os.lstat(here).st_mode
            except (FileNotFoundError, NotADirectoryError):
                missing, folder = True, False
                continue
            folder = stat.S_ISDIR(mode)
            if stat.S_ISLNK(mode):
                links += 1
                if links > LINKS:
                    return Way(tuple(dict.fromkeys(names)), False, False)
                target = os.readlink(here)
                here = "" if target.startswith("/") else here.rpartition("/")[0]
                todo += target.split("/")[::-1]
                names.append(plain("/".join((here or "/", *todo[::-1]))))
    except (OSError, ValueError):
        return Way(tuple(dict.fromkeys(names)), False, False)
    real = here or "/"
    return Way((*dict.fromkeys(name for name in names if name != real), real), folder, True)


def inside(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of these folders or below one, by whole components."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def same(text: str, fold: bool) -> str:
    """The form in which deny and ask rules compare: one Unicode form, and one case where the file system has none."""
    if not text.isascii():
        import unicodedata

        text = unicodedata.normalize("NFC", text)
    return text.casefold() if fold else text


class Pattern(NamedTuple):
    """A path specifier, taken apart."""

    anchor: str
    """``absolute``, ``home``, ``settings`` (the root of the rule's file) or ``here`` (the current directory)."""
    parts: tuple[str, ...]
    floats: bool
    """It may begin at any depth below the anchor."""
    exact: bool
    """It names the path itself, not what is below it."""


@lru_cache(maxsize=4096)
def parse_path(text: str, allow: bool) -> Pattern:
    """Take a path specifier apart. Raises `UsageError`.

    ``//abs``, ``~/home``, ``/from the settings file's root``, ``from the current directory``. A single name floats, as
    in .gitignore; ``dir/**`` floats in deny and ask rules and is anchored in allow rules.
    """
    if text.startswith("!"):
        raise UsageError(f"{text}: a path rule cannot be negated; write an allow, ask or deny rule instead.")
    if text.startswith("//"):
        anchor, body = "absolute", text[2:]
    elif text == "~" or text.startswith("~/"):
        anchor, body = "home", text[2:]
    elif text.startswith("~"):
        raise UsageError(f"{text}: only ~/ is known, not the home of another user; write //absolute/path.")
    else:
        anchor, body = ("settings", text[1:]) if text.startswith("/") else ("here", text)
    parts: list[str] = []
    for part in body.split("/"):
        if part not in ("", ".") and not (part == "**" and parts[-1:] == ["**"]):
            parts.append(part)
    rest = parts
    while rest[:1] == [".."]:
        rest = rest[1:]
    if ".." in rest:
        raise UsageError(f"{text}: .. may only stand at the beginning of a path rule.")
    named = anchor == "here" and not text.startswith(("./", "../")) and parts[:1] not in ([], [".."], ["**"])
    single = len(parts) == 1 and not (allow and body.endswith("/"))
    floats = named and (single or (not allow and len(parts) == 2 and parts[1] == "**"))
    return Pattern(anchor, tuple(parts), floats, allow and floats)


def literal(part: str) -> str | None:
    """The text of a pattern component without wildcards, unescaped; None if it has some."""
    if not WILD.search(part):
        return part
    bare = re.sub(r"\\.", "", part, flags=re.DOTALL)
    return None if re.search(r"[*?\[]", bare) else re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL)


def escape(text: str) -> str:
    """A path as a pattern that matches it alone."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", text)


def _component(part: str) -> str:
    """One pattern component as a regular expression that never crosses a slash and cannot backtrack far."""
    fixed, at = [""], 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            while part[at : at + 1] == "*":
                at += 1
            fixed.append("")
        elif char == "?":
            fixed[-1] += "[^/]"
        elif char == "[" and (end := part.find("]", at + 1 + (part[at : at + 1] in ("!", "^")))) > 0:
            fixed[-1] += _class(part[at:end])
            at = end + 1
        else:
            if char == "\\" and at < len(part):
                char, at = part[at], at + 1
            fixed[-1] += re.escape(char)
    if len(fixed) == 1:
        return fixed[0]
    return r"(?!/|\Z)" + fixed[0] + "".join(f"(?>[^/]*?{piece})" for piece in fixed[1:-1]) + f"[^/]*{fixed[-1]}"


def _class(body: str) -> str:
    negated = body[:1] in ("!", "^")
    body, out, at = body[negated:], "", 0
    while at < len(body):
        if body[at + 1 : at + 2] == "-" and at + 2 < len(body):
            low, high = body[at], body[at + 2]
            out += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
            at += 3
        else:
            out += re.escape(body[at])
            at += 1
    if not out:
        return "[^/]" if negated else "(?!)"
    return f"(?!/)[{'^' if negated else ''}{out}]"


def expression(parts: Sequence[str], floats: bool, exact: bool) -> str:
    """The regular expression of a path pattern, relative to its anchor.

    Blocks between ``**`` are matched at the first place where they fit, which is enough and keeps matching linear.
    """
    if exact:
        return f"(?:.*/)?{_component(parts[0])}/?\\Z"
    blocks: list[list[str]] = [[]]
    for part in parts:
        if part == "**":
            blocks.append([])
        else:
            blocks[-1].append(part)
    out: list[str] = []
    for index, block in enumerate(blocks):
        body = "/".join(_component(part) for part in block)
        if not body:
            continue
        loose = index > 0 or floats
        out.append(f"(?>(?:[^/]+/)*?{body}(?=/|\\Z))" if loose else f"{body}(?=/|\\Z)")
    return "/".join(out) + ("/" if parts and not blocks[-1] and out else "")


class Bound(Generic[T]):
    """A pattern tied to the folder it is anchored in, with what it stands for."""

    __slots__ = ("_regex", "base", "item", "pattern", "text")

    def __init__(self, pattern: Pattern, base: str, item: T) -> None:
        self.item = item
        self.base, self.pattern = _climb(base, pattern)
        plainly = [literal(part) for part in self.pattern.parts if part != "**"]
        middle = "**" in self.pattern.parts[:-1]
        self.text = None
        """The whole path, where the pattern has no wildcard but a last ``**``."""
        if not (middle or self.pattern.floats or None in plainly):
            self.text = "/".join((self.base.rstrip("/"), *(part for part in plainly if part)))
        self._regex: re.Pattern[str] | None = None

    def head(self) -> str:
        """The longest folder or file that the pattern names without a wildcard."""
        if self.text is not None:
            return self.text or "/"
        found = []
        for part in () if self.pattern.floats else self.pattern.parts:
            text = literal(part)
            if text is None or part == "**":
                break
            found.append(text)
        return "/".join((self.base.rstrip("/"), *found)) or "/"

    def moved(self, head: str) -> Bound[T]:
        """The same pattern where its head really lies."""
        skip = 0 if self.pattern.floats else _literals(self.pattern.parts)
        return Bound(self.pattern._replace(anchor="absolute", parts=self.pattern.parts[skip:]), head, self.item)

    def matches(self, name: str) -> bool:
        """Whether a path matches; a directory is given with a slash at its end."""
        if self.text is not None:
            if self.pattern.parts[-1:] == ("**",):
                return name.startswith(self.text + "/")
            return name == self.text or name.startswith(self.text.rstrip("/") + "/")
        if self._regex is None:
            rest = expression(self.pattern.parts, self.pattern.floats, self.pattern.exact)
            self._regex = re.compile(re.escape(self.base.rstrip("/")) + "/" + rest, re.DOTALL)
        return self._regex.match(name) is not None

    def key(self) -> str:
        """A component that a path must have to match; empty if there is none."""
        for part in reversed(self.pattern.parts):
            text = None if part == "**" else literal(part)
            if text:
                return text
        return self.base.rpartition("/")[2]


def _literals(parts: Sequence[str]) -> int:
    return next((i for i, part in enumerate(parts) if part == "**" or literal(part) is None), len(parts))


def _climb(base: str, pattern: Pattern) -> tuple[str, Pattern]:
    parts = pattern.parts
    while parts[:1] == ("..",):
        base, parts = base.rpartition("/")[0] or "/", parts[1:]
    return base, pattern._replace(parts=parts)


class PathTable(Generic[T]):
    """Bound patterns, found by a component that the path must have: the cost does not grow with their number."""

    def __init__(self) -> None:
        self.all: list[Bound[T]] = []
        self._by_part: dict[str, list[Bound[T]]] = {}

    def add(self, bound: Bound[T]) -> None:
        """File a pattern under its component."""
        self.all.append(bound)
        self._by_part.setdefault(bound.key(), []).append(bound)

    def find(self, name: str, folder: bool = False) -> Iterator[T]:
        """Everything whose pattern matches this absolute path. The first, empty component finds those without one."""
        subject = name + "/" if folder and name != "/" else name
        for part in dict.fromkeys(name.split("/")):
            for bound in self._by_part.get(part, ()):
                if bound.matches(subject):
                    yield bound.item


def below(bound: Bound[T], root: str) -> list[str]:
    """The pattern as gitignore lines relative to ``root``; none if it matches nothing there."""
    lead = "/**" if bound.pattern.floats else ""
    parts = bound.pattern.parts
    if bound.base == root or bound.base.startswith(root.rstrip("/") + "/"):
        way = escape(bound.base[len(root.rstrip("/")) :]).rstrip("/")
        return [(way + lead + "/" + "/".join(parts)).rstrip("/") or "/**"]
    if not inside(root, [bound.base]):
        return []
    states = {(("**", *parts) if bound.pattern.floats else parts)}
    for name in filter(None, root[len(bound.base.rstrip("/")) :].split("/")):
        states = set(_step(states, name))
    return sorted({"/" + "/".join(rest) if rest else "/**" for rest in states})


def _step(states: set[tuple[str, ...]], name: str) -> Iterator[tuple[str, ...]]:
    """What is left of each pattern after it went one folder down."""
    for parts in states:
        if not parts:
            yield ()
        elif parts[0] == "**":
            yield parts
            yield from _step({parts[1:]}, name) if len(parts) > 1 else ()
        elif re.fullmatch(_component(parts[0]), name, re.DOTALL):
            yield parts[1:]
