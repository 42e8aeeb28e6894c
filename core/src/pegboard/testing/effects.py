"""What a call really does: an audit hook on the interpreter, and the tree before and after.

A tool says what it changes; this looks. It sees Python's own operations, neither child processes nor native code:
a test device, not a sandbox. What those leave behind shows in the tree.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_TARGETS: dict[str, tuple[tuple[int, int], ...]] = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, -1),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.setxattr": ((0, -1),),
    "os.removexattr": ((0, -1),),
}
"""Audit event -> for each path it changes: index of the path, index of its directory handle (-1 = takes none)."""

_PROCESSES = ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.spawn", "os.system", "os.fork", "os.forkpty")


@dataclass(frozen=True)
class Write:
    """One operation that changed a path, and the effects that were open at that moment."""

    event: str
    path: str
    """Absolute; or a bare name where the interpreter did not say in which directory."""
    under: tuple[tuple[str, str], ...]
    """(kind, target) of each open effect."""

    def concerns(self, path: str) -> bool:
        """Whether this operation was on that absolute path."""
        if os.path.isabs(self.path):
            return self.path == path or os.path.realpath(self.path) == os.path.realpath(path)
        return os.path.basename(self.path) == os.path.basename(path)


@dataclass
class Watch:
    """Records what the interpreter does while the ``with`` block runs, in every thread."""

    writes: list[Write] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    threads: int = 0
    _open: list[tuple[str, str]] = field(default_factory=list)

    def __enter__(self) -> Self:
        _install()
        _watches.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _watches.remove(self)

    def below(self, *roots: Path) -> list[Write]:
        """The writes on paths below these folders, and those whose folder is not known."""
        real = [os.path.realpath(root) for root in roots]
        return [
            item for item in self.writes if not os.path.isabs(item.path) or any(is_below(item.path, r) for r in real)
        ]

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """Take one audit event. Called by the hook, in whichever thread it happened."""
        if event == "pegboard.effect":
            entry = (args[0], args[1])
            if args[2] == "begun":
                self._open.append(entry)
            elif entry in self._open:
                self._open.remove(entry)
        elif event == "open":
            if _opens_for_writing(args[1], args[2]):
                self._write(event, args[0], None)
        elif event in _TARGETS:
            for path, handle in _TARGETS[event]:
                self._write(event, args[path], args[handle] if 0 <= handle < len(args) else None)
        elif event in _PROCESSES:
            self.processes.append(_text(args[0]) if args else event)
        elif event in ("socket.connect", "socket.sendto") and isinstance(args[1], tuple):
            self.hosts.append(str(args[1][0]))
        elif event == "_thread.start_new_thread":
            self.threads += 1

    def _write(self, event: str, path: object, handle: object) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        name = _text(path)
        if name.endswith(".pyc") or "/__pycache__" in name or name.startswith("/dev/") or ".pyc." in name:
            return
        if not os.path.isabs(name):
            folder = _folder(handle)
            if folder is not None:
                name = os.path.join(folder, name)
            elif event != "open":
                name = os.path.abspath(name)
        self.writes.append(Write(event, name, tuple(self._open)))


_watches: list[Watch] = []
_installed = False


def _install() -> None:
    """An audit hook cannot be taken out again, so there is one for each process, and it sleeps when nobody watches."""
    global _installed
    if not _installed:
        _installed = True
        sys.addaudithook(_hook)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    for watch in _watches:
        watch.hear(event, args)


def _opens_for_writing(mode: object, flags: object) -> bool:
    if isinstance(mode, str) and any(letter in mode for letter in "wax+"):
        return True
    return isinstance(flags, int) and bool(flags & WRITE_FLAGS)


def _text(value: object) -> str:
    return os.fsdecode(value) if isinstance(value, str | bytes | os.PathLike) else str(value)


def _folder(handle: object) -> str | None:
    if not isinstance(handle, int) or handle < 0:
        return None
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return None


@dataclass(frozen=True)
class Entry:
    """What a path is: its kind, mode, content (digest, or link target) and, for files, its modification time."""

    kind: str
    mode: int
    content: str
    time: int


def tree(*roots: Path) -> dict[str, Entry]:
    """Every path below these folders, by absolute name. Links are not followed, unreadable files keep their size."""
    found: dict[str, Entry] = {}
    for root in roots:
        for folder, folders, files in os.walk(root):
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                found[path] = _entry(path)
    return found


def _entry(path: str) -> Entry:
    status = os.lstat(path)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return Entry("link", 0, os.readlink(path), 0)
    if stat.S_ISDIR(status.st_mode):
        return Entry("folder", mode, "", 0)
    if not stat.S_ISREG(status.st_mode):
        return Entry("special", mode, "", 0)
    try:
        with open(path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        content = str(status.st_size)
    return Entry("file", mode, content, status.st_mtime_ns)


def changed(before: dict[str, Entry], after: dict[str, Entry]) -> list[str]:
    """Paths that were created, removed or changed, sorted."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def is_below(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or lies below it, by name."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def covered(path: str, targets: Iterable[str]) -> bool:
    """Whether one of these targets is the path or holds it, by its own name or its real one."""
    real = os.path.realpath(path)
    return any(
        is_below(name, other)
        for target in targets
        for other in (target, os.path.realpath(target))
        for name in (path, real)
    )


def untrue(before: dict[str, Entry], after: dict[str, Entry], watch: Watch, effects: Iterable[Any]) -> list[str]:
    """What the effects of a call do not tell: each changed path that none names, or that changed outside of one.

    ``effects`` are those of the outcome. A process effect covers every path: what a child writes cannot be seen
    before it is there.
    """
    entries = list(effects)
    targets = [item.target for item in entries if item.kind == "file"]
    anywhere = any(item.kind == "process" for item in entries)
    problems = []
    for path in changed(before, after):
        if not anywhere and not covered(path, targets):
            problems.append(f"{path} changed, and no file effect names it (effects: {targets or 'none'})")
            continue
        for write in watch.writes:
            open_targets = [target for kind, target in write.under if kind == "file"]
            open_process = any(kind == "process" for kind, _ in write.under)
            if write.concerns(path) and not open_process and not covered(path, open_targets):
                problems.append(f"{write.event} on {path} happened while no effect on it was open")
    return problems


def undeclared(before: dict[str, Entry], after: dict[str, Entry], edits: Iterable[str]) -> list[str]:
    """Changed paths that no declared edit covers. The folders that a new file needs count as declared with it."""
    targets = list(edits)
    real = [os.path.realpath(target) for target in targets]
    return [
        path
        for path in changed(before, after)
        if not covered(path, targets) and not (path not in before and any(is_below(target, path) for target in real))
    ]
