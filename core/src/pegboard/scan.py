"""Finding plug-ins without importing them: entry points and manifests read as files, with an index as a hint.

`importlib.metadata` costs more than everything else at start; reading the same files directly costs a tenth of it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from binascii import crc32
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from pegboard.candidate import GROUPS, Candidate, Kind, Origin
from pegboard.errors import Broken
from pegboard.manifest import HooksManifest, Manifest, ProviderManifest
from pegboard.names import bundled, normal

SITE = ("site-packages", "dist-packages")
DATA = {Kind.TOOL: "tool.toml", Kind.PROVIDER: "provider.toml", Kind.HOOKS: "hooks.toml"}
"""Manifest beside the code, by kind; the other kinds have none, and hooks can do without."""

KEEP = 4096
"""[C] Entries of other environments and folders that the index may carry along."""

LARGEST = 1_000_000
"""[C] Bytes. A manifest beyond this is none: a stranger's file must not cost a start its memory."""

T = TypeVar("T")
Stamp = tuple[int, int, int]
"""Modification time, change time and size of a file."""
Table = dict[str, tuple[Stamp, T]]
Point = tuple[str, str, str]
"""Group, name, value."""


class Listing(msgspec.Struct, frozen=True):
    """One distribution: its name, its version, and its entry points in our groups."""

    name: str
    version: str
    points: tuple[Point, ...]


class _Stored(msgspec.Struct):
    shape: str = ""
    listings: Table[Listing] = {}
    tools: Table[Manifest | str] = {}
    providers: Table[ProviderManifest | str] = {}
    hooks: Table[HooksManifest | str] = {}
    engines: Table[str] = {}


_SHAPES = (Manifest, ProviderManifest, HooksManifest)
SHAPE = " ".join((*(name for shape in _SHAPES for name in shape.__struct_fields__), *GROUPS))
"""Written into the index: an index made by a core with other fields is not used."""


class Index:
    """Decoded files by path and stamp, kept in ``<user dir>/cache``. A hint: the stamp of the file decides."""

    def __init__(self, folder: str, prefix: str) -> None:
        self._path = os.path.join(folder, f"plugins-{crc32(os.fsencode(prefix)):08x}.json")
        self._old = self._load()
        self._new = _Stored(SHAPE)
        self._dirty = False

    def _load(self) -> _Stored:
        try:
            with open(self._path, "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                    return _Stored()
                stored = msgspec.json.decode(file.read(), type=_Stored)
        except (OSError, AttributeError, msgspec.DecodeError, UnicodeDecodeError):
            return _Stored()
        return stored if stored.shape == SHAPE else _Stored()

    def listing(self, path: str, name: str, version: str) -> Listing | None:
        """Entry points in an ``entry_points.txt`` or a ``pyproject.toml``; None = no such file."""

        def read() -> Listing:
            return _read_project(path, name) if path.endswith(".toml") else Listing(name, version, _read_points(path))

        return self._read(self._old.listings, self._new.listings, path, read)

    def tool(self, path: str) -> Manifest | str | None:
        """The `tool.toml` at ``path``, or what is wrong with it; None = no such file."""
        return self._read(self._old.tools, self._new.tools, path, lambda: _decode(path, "read_manifest"))

    def provider(self, path: str) -> ProviderManifest | str | None:
        """The `provider.toml` at ``path``, or what is wrong with it; None = no such file."""
        return self._read(self._old.providers, self._new.providers, path, lambda: _decode(path, "read_provider"))

    def hooks(self, path: str) -> HooksManifest | str | None:
        """The `hooks.toml` at ``path``, or what is wrong with it; None = no such file."""
        return self._read(self._old.hooks, self._new.hooks, path, lambda: _decode(path, "read_hooks"))

    def engine(self, path: str, read: Callable[[], str]) -> str | None:
        """The version that the program at ``path`` gave itself; None = no such program."""
        return self._read(self._old.engines, self._new.engines, path, read)

    def _read(self, old: Table[T], new: Table[T], path: str, read: Callable[[], T]) -> T | None:
        try:
            status = os.stat(path)
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode) or (status.st_size > LARGEST and new is not self._new.engines):
            return None
        stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        held = new.get(path) or old.get(path)
        if held is None or held[0] != stamp:
            self._dirty = True
            held = (stamp, read())
        new[path] = held
        return held[1]

    def save(self) -> None:
        """Keep what was read, if anything was. Nothing depends on it, so a failure is no failure."""
        if not self._dirty:
            return
        self._dirty = False
        for name in ("listings", "tools", "providers", "hooks", "engines"):
            held: Table[object] = getattr(self._old, name)
            setattr(self._new, name, dict(list(held.items())[-KEEP:]) | getattr(self._new, name))
        temporary = f"{self._path}.{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with open(handle, "wb") as file:
                file.write(msgspec.json.encode(self._new))
            os.replace(temporary, self._path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _decode(path: str, reader: str) -> Any:
    from pathlib import Path

    from pegboard import manifest

    try:
        return getattr(manifest, reader)(Path(path))
    except Broken as error:
        return error.reason


def _read_points(path: str) -> tuple[Point, ...]:
    try:
        with open(path, encoding="utf-8") as file:
            return tuple(parse_points(file.read()))
    except (OSError, UnicodeDecodeError):
        return ()


def _read_project(path: str, name: str) -> Listing:
    import tomllib

    try:
        with open(path, "rb") as file:
            project = tomllib.load(file)["project"]
        points = tuple(
            (group, str(point), str(value))
            for group, items in project.get("entry-points", {}).items()
            if group in GROUPS
            for point, value in items.items()
        )
        return Listing(normal(str(project.get("name", name))), str(project.get("version", "")), points)
    except (OSError, KeyError, AttributeError, ValueError):
        return Listing(name, "", ())


def parse_points(text: str) -> Iterator[Point]:
    """The points of our groups in the text of an ``entry_points.txt``; anything malformed is passed over."""
    if "pegboard." not in text:
        return
    group = ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif group in GROUPS and "=" in line and line[0] not in "#;":
            name, _, value = line.partition("=")
            yield group, name.strip(), value.partition("[")[0].strip()


class Shelf:
    """The packages reachable through some import folders: names at their top, and distributions with our points."""

    def __init__(self, paths: Iterable[str], index: Index) -> None:
        self.tops: list[tuple[str, frozenset[str]]] = []
        """Import folders in order, each with the names in it."""
        self.listings: list[tuple[Listing, str]] = []
        """Each with the folder of its metadata; the first of a name counts, as it does for imports."""
        self.archives: list[str] = []
        self._index = index
        self._seen: set[str] = set()
        for path in dict.fromkeys(paths):
            try:
                names = os.listdir(path)
            except NotADirectoryError:
                self.archives.append(path)
                continue
            except OSError:
                continue
            self.tops.append((path, frozenset(names)))
            self._list(path, names)

    def _list(self, path: str, names: list[str]) -> None:
        old = os.path.basename(path) in SITE
        for info in sorted(names):
            if not info.endswith(".dist-info") and not (old and info.endswith(".egg-info")):
                continue
            parts = info.rpartition(".")[0].split("-")
            name = normal(parts[0])
            if name in self._seen:
                continue
            self._seen.add(name)
            version = parts[1] if len(parts) > 1 else ""
            found = self._index.listing(f"{path}/{info}/entry_points.txt", name, version)
            if found is not None and found.points:
                self.listings.append((found, f"{path}/{info}"))

    def folder(self, module: str, data: str, info: str = "") -> tuple[str, bool]:
        """Folder of the package that holds ``data`` for this module, and whether ``data`` is there.

        A package is looked at before the one around it: ``acme.wiki`` may be ``acme/wiki/`` or ``acme/wiki.py``.
        ``info``: the distribution's metadata, asked for its source tree when no import folder has the package.
        """
        parts = module.split(".")
        inner, outer = "/".join(parts), "/".join(parts[:-1])
        tops = [top for top, names in self.tops if parts[0] in names]
        there = ""
        for top in tops or _source_tree(info):
            for rel in (inner, outer) if outer else (inner,):
                folder = f"{top}/{rel}"
                if os.path.exists(f"{folder}/{data}"):
                    return folder, True
                if not there and os.path.isdir(folder):
                    there = folder
        return there, False


def _source_tree(info: str) -> list[str]:
    """Import folders of an editable installation that is wired by an import hook instead of by a path."""
    try:
        with open(f"{info}/direct_url.json", "rb") as file:
            found = msgspec.json.decode(file.read())
        if not found["dir_info"]["editable"] or not found["url"].startswith("file://"):
            return []
    except (OSError, KeyError, TypeError, AttributeError, msgspec.DecodeError):
        return []
    from urllib.request import url2pathname

    root = url2pathname(found["url"].removeprefix("file://"))
    return [f"{root}/src", root]


def plugin_shelf(root: str, index: Index) -> Shelf:
    """A plug-in folder: what ``pip install --target`` leaves, or a source tree with a ``pyproject.toml``."""
    shelf = Shelf([root], index)
    if not shelf.listings:
        found = index.listing(f"{root}/pyproject.toml", normal(os.path.basename(root)), "")
        if found is not None and found.points:
            shelf = Shelf([f"{root}/src", root] if os.path.isdir(f"{root}/src") else [root], index)
            shelf.listings = [(found, root)]
    return shelf


def archived(paths: Iterable[str]) -> Iterator[Candidate]:
    """Plug-ins inside archives on the import path: seen, so that they are not missed, but not usable there."""
    from importlib.metadata import distributions

    for path in paths:
        for found in distributions(path=[path]):
            for point in found.entry_points:
                if point.group in GROUPS:
                    yield Candidate(
                        kind=GROUPS[point.group],
                        name=point.name,
                        origin=Origin.PACKAGE,
                        where=f"{found.name} {found.version} in {path}",
                        entry=point.value,
                        distribution=normal(found.name),
                        version=found.version,
                        error="it lies inside an archive; install it as files",
                    )


def candidates(shelf: Shelf, index: Index, origin: Origin, *, root: str = "", digest: str = "") -> Iterator[Candidate]:
    """Everything on a shelf, as data. ``origin`` PACKAGE becomes BUNDLED for the product's own distributions."""
    own = bundled() if origin is Origin.PACKAGE else {}
    paths = tuple(top for top, _ in shelf.tops) if root else ()
    for listing, info in shelf.listings:
        source = Origin.BUNDLED if listing.name in own else origin
        where = f"{listing.name} {listing.version}".strip()
        for group, name, entry in listing.points:
            kind = GROUPS[group]
            manifest, folder, error = _data(shelf, index, kind, entry, info)
            if manifest is not None and manifest.name != name:
                error = f"its entry point is named {name}, but {folder}/{DATA[kind]} says {manifest.name}"
            yield Candidate(
                kind=kind,
                name=name,
                origin=source,
                where=f"{where} in {root}" if root else where,
                manifest=manifest,
                digest=digest,
                folder=folder,
                entry=entry,
                distribution=listing.name,
                version=listing.version,
                root=root,
                paths=paths,
                error=error,
            )


def _data(
    shelf: Shelf, index: Index, kind: Kind, entry: str, info: str
) -> tuple[Manifest | ProviderManifest | HooksManifest | None, str, str]:
    module = entry.partition(":")[0].strip()
    data = DATA.get(kind, "__init__.py")
    folder, there = shelf.folder(module, data, info)
    if kind not in DATA or (kind is Kind.HOOKS and not there):
        return None, folder, ""
    if not there:
        hint = f"; run: peg plugins build {folder}" if folder else ""
        return None, folder, f"there is no {data} beside {module}{hint or ', or the package is missing'}"
    path = f"{folder}/{data}"
    readers = {Kind.TOOL: index.tool, Kind.PROVIDER: index.provider, Kind.HOOKS: index.hooks}
    read = readers[kind](path)
    if read is None or isinstance(read, str):
        return None, folder, read or f"{path} vanished"
    return read, folder, ""
