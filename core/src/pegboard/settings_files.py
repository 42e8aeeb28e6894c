"""Settings files as they lie on disk: read when they change, watched by one stat, with the line of every value.

A file that stops parsing keeps its last good version in force, so that a slip of the editor cannot lift a deny rule.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pegboard.examples import Examples
    from pegboard.places import Places

Table = Mapping[str, Any]
"""The values of one file, as nested tables."""

SIZE_LIMIT = 4 * 1024 * 1024
"""[C] Bytes. A settings file beyond this is refused like one that does not parse."""

_RACY = 50_000_000
"""Nanoseconds. A file changed this shortly before it was read may change again without a new time stamp."""

ABSENT = object()
"""Stands for "this layer does not set the key"."""

NO_TABLE = object()
"""Stands for "something else is where the key's table should be": a value of no valid type."""

Stamp = tuple[int, ...] | None


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something wrong in a settings file or flag. It never stops the other values; ``str()`` is ready to be shown."""

    text: str
    source: str = ""
    line: int | None = None
    key: str = ""

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.source and self.line else self.source
        return f"{place}: {self.text}" if place else self.text


class Layer:
    """The values that one source sets: a file, a part of one, or the command line."""

    def __init__(
        self,
        scope: str,
        source: str,
        data: Table,
        text: str = "",
        prefix: str = "",
        examples: Mapping[str, tuple[Examples, ...]] | None = None,
    ) -> None:
        self.scope = scope
        self.source = source
        """Path of the file, or what else to call it."""
        self.data = data
        self.examples = examples or {}
        """Examples that rules carry, by the key they were written under."""
        self._text = text
        self._prefix = prefix
        self._lines: dict[str, int] | None = None
        self._items: dict[str, dict[str, int]] = {}

    def part(self, scope: str, data: Table, prefix: str = "") -> Layer:
        """A part of the same file as a layer of its own; ``prefix`` is where the part's keys begin."""
        return Layer(scope, self.source, data, self._text, prefix, self.examples)

    def faults(self) -> list[Problem]:
        """Rules of this layer that do not match, or do match, what their own examples say."""
        found = []
        for effect in ("deny", "ask", "allow") if self.examples else ():
            from pegboard.examples import faults

            key = f"permissions.{effect}"
            for one in self.examples.get(self._prefix + key, ()):
                for text in faults(effect, one):
                    found.append(Problem(text=text, source=self.source, line=self.line(key, one.rule), key=key))
        return found

    def get(self, key: str) -> Any:
        """The raw value of a dotted key, or `ABSENT`, or `NO_TABLE`."""
        node: Any = self.data
        for name in key.split("."):
            if not isinstance(node, Mapping):
                return NO_TABLE
            if name not in node:
                return ABSENT
            node = node[name]
        return node

    def line(self, key: str, item: str | None = None) -> int | None:
        """Line of a key, or of one text in its list; None when it cannot be told cheaply."""
        if self._lines is None:
            self._lines = _key_lines(self._text)
        name = self._prefix + key
        while name not in self._lines and "." in name:
            name = name.rpartition(".")[0]
        at = self._lines.get(name)
        if at is None or item is None:
            return at
        if key not in self._items:
            self._items[key] = _item_lines(self._text, at, self.get(key))
        return self._items[key].get(item, at)


class Unparsable(Exception):
    """A settings text that does not parse; ``line`` where known."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


class SettingsFile:
    """One file of one scope, which may come, change and go at any time."""

    def __init__(self, scope: str, path: str | os.PathLike[str], parse: Callable[[str], Table] | None = None) -> None:
        self.scope = scope
        self.path = os.fspath(path)
        self.layer = Layer(scope, self.path, {})
        self.problem: Problem | None = None
        self._parse = parse or parse_toml
        self._stamp: Stamp = None
        self._text: str | None = None
        self._good = False

    @property
    def unknown(self) -> bool:
        """The file is there but unreadable, and no earlier version of it is known: it may hold any deny rule."""
        return self.problem is not None and not self._good

    @property
    def content(self) -> bytes:
        """The bytes that were read last."""
        return (self._text or "").encode("utf-8")

    def changed(self) -> bool:
        """Whether the file on disk is another one than that last read. One stat."""
        return _stamp(self.path) != self._stamp

    def read(self) -> bool:
        """Read the file again. Returns whether anything is different now."""
        before = (self._text, self.problem)
        try:
            text, self._stamp = read_text(self.path)
            if text is None:
                self.layer, self.problem, self._text, self._good = Layer(self.scope, self.path, {}), None, None, False
            elif text != self._text or self.problem is not None:
                data, examples = self._parse(text), None
                if "permissions" in data or "recommended" in data:
                    from pegboard.examples import apart

                    data, examples = apart(data)
                self.layer = Layer(self.scope, self.path, data, text, examples=examples)
                self.problem, self._text, self._good = None, text, True
        except Unparsable as error:
            kept = "; the last good version stays in force" if self._good else ""
            self._stamp = _stamp(self.path, settle=True)
            self.problem = Problem(text=f"cannot be read{kept}: {error}", source=self.path, line=error.line)
        return before != (self._text, self.problem)


def settings_file(places: Places, scope: str) -> Path:
    """Where a scope (``user``, ``project`` or ``local``) keeps its settings.

    The local settings of a linked Git worktree are those of its main checkout.
    """
    if scope == "user":
        return places.user_dir / "settings.toml"
    if scope == "project":
        return places.project_dir / "settings.toml"
    folder = places.project_dir
    if (places.root / ".git").is_file():
        from pegboard.trust import repository_root

        folder = (repository_root(places.root) or places.root) / ".peg"
    return folder / "settings.local.toml"


def belongs_to_project(path: str) -> str:
    """Empty, or why a local settings file counts as the project's own: a link leads to it, or Git tracks it."""
    from pegboard.trust import repository_holds

    if os.path.islink(path) or os.path.islink(os.path.dirname(path)):
        return f"{path} is reached through a symbolic link"
    return f"{path} is tracked by Git" if os.path.exists(path) and repository_holds(Path(path)) else ""


def own_files(places: Places) -> list[SettingsFile]:
    """The files of the scopes local, project and user. A home that is its own project has only user settings."""
    scopes = ["local", "project", "user"]
    if os.path.realpath(places.project_dir) == os.path.realpath(places.user_dir):
        scopes = ["user"]
    return [SettingsFile(scope, settings_file(places, scope)) for scope in scopes]


def restriction_files(places: Places) -> list[SettingsFile]:
    """Files of another product whose deny and ask rules hold as project rules."""
    folder = places.root / ".claude"
    return [
        SettingsFile("project", folder / name, parse_restrictions) for name in ("settings.json", "settings.local.json")
    ]


def nested(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested tables."""
    tree: dict[str, Any] = {}
    for key, value in flags.items():
        *groups, name = key.split(".")
        node = tree
        for group in groups:
            below = node.setdefault(group, {})
            if not isinstance(below, dict):
                below = node[group] = {}
            node = below
        node[name] = value
    return tree


def parse_toml(text: str) -> Table:
    """Parse TOML. Raises `Unparsable` with the line."""
    import tomllib

    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        line = message.rpartition("(at line ")[2].partition(",")[0]
        at_end = "end of document" in message
        raise Unparsable(message, int(line) if line.isdigit() else text.count("\n") + 1 if at_end else None) from None
    except RecursionError:
        raise Unparsable("its values are nested too deeply") from None


def parse_json(text: str, hint: str = "") -> Table:
    """Parse a JSON object; anything else counts as an empty one. Raises `Unparsable` with the line and ``hint``."""
    try:
        found = msgspec.json.decode(text.removeprefix("\ufeff"))
    except (msgspec.DecodeError, RecursionError) as error:
        byte = str(error).rpartition("(byte ")[2].rstrip(")")
        line = text.encode("utf-8")[: int(byte)].count(b"\n") + 1 if byte.isdigit() else text.count("\n") + 1
        raise Unparsable(f"{error}{hint}", line) from None
    return found if isinstance(found, dict) else {}


def parse_restrictions(text: str) -> Table:
    """The deny and ask rules of a Claude Code settings file; nothing else of it is taken. Raises `Unparsable`."""
    permissions = parse_json(text, "; compat.claude = false switches this file off").get("permissions")
    if not isinstance(permissions, dict):
        return {}
    return {"permissions": {effect: permissions[effect] for effect in ("deny", "ask") if effect in permissions}}


def read_text(path: str) -> tuple[str | None, Stamp]:
    """The text of a regular file and its stamp; ``(None, None)`` when there is none. Raises `Unparsable`."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        raise Unparsable(error.strerror or str(error)) from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise Unparsable("it is not a regular file")
        if found.st_size > SIZE_LIMIT:
            raise Unparsable(f"it is larger than {SIZE_LIMIT} bytes")
        with open(handle, "rb", closefd=False) as file:
            data = file.read(SIZE_LIMIT + 1)
        return data.decode("utf-8"), _of(found, settle=True)
    except UnicodeDecodeError as error:
        raise Unparsable("it is not UTF-8", data.count(b"\n", 0, error.start) + 1) from None
    except OSError as error:
        raise Unparsable(error.strerror or str(error)) from None
    finally:
        os.close(handle)


def _stamp(path: str, *, settle: bool = False) -> Stamp:
    try:
        return _of(os.stat(path), settle=settle)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return (-(error.errno or 1),)


def _of(found: os.stat_result, *, settle: bool = False) -> Stamp:
    """The stamp of a file. ``settle``: one that equals no other while the file is too fresh to be told apart."""
    if settle and abs(time.time_ns() - found.st_mtime_ns) < _RACY:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)


def _key_lines(text: str) -> dict[str, int]:
    """Line of each key and table header by dotted name (of JSON: of the restrictions).

    A good guess: texts over several lines can mislead it.
    """
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        places = [(f"permissions.{effect}", text.find(f'"{effect}"')) for effect in ("deny", "ask")]
        return {key: text.count("\n", 0, at) + 1 for key, at in places if at >= 0}
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        name, equals, _ = line.strip().partition("=")
        plain = name.replace('"', "").replace("'", "").replace(" ", "").replace("\t", "")
        if name.startswith("["):
            table = plain.strip("[").partition("]")[0]
            found.setdefault(table, number)
        elif equals and plain and not plain.startswith(("#", "]", "{")):
            found.setdefault(f"{table}.{plain}" if table else plain, number)
    return found


def _item_lines(text: str, line: int, items: Any) -> dict[str, int]:
    """Line of each text of a list that begins on ``line``, found from one to the next."""
    found: dict[str, int] = {}
    at = 0
    for _ in range(line - 1):
        at = text.index("\n", at) + 1
    for item in (one for one in items if isinstance(one, str)) if isinstance(items, list) else ():
        for shown in (f'"{item}"', f"'{item}'", msgspec.json.encode(item).decode()):
            next_at = text.find(shown, at)
            if next_at >= 0:
                line += text.count("\n", at, next_at)
                at = next_at
                found.setdefault(item, line)
                break
    return found
