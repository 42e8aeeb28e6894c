"""Files that run by themselves and were not so before a command: hooks, Git settings, editor tasks, shell files.

A box cannot forbid what has no name yet: a repository that a command makes has hooks the box never saw.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from pegboard.sandbox import Planted

from pegboard_boxes.repos import Repository, dangers, hook_folders, read, worktrees
from pegboard_boxes.survey import Kind, View

MOST_FILES = 400
"""[C] Files of one protected folder that are compared."""

Mark = tuple[int, int, int, int, int]
"""Inode, mode, size, and the times of a file: all that a change cannot leave alone."""

Marks = Mapping[str, tuple[Mark, str]]
"""Path -> its mark, and who runs it."""


@lru_cache(maxsize=1)
def runners() -> Mapping[str, str]:
    """Who runs what, by name."""
    found: Mapping[str, str] = tomllib.loads(Path(__file__).with_name("planted.toml").read_text("utf-8"))["runs"]
    return found


def marks(view: View) -> Marks:
    """Everything in a view that runs by itself, with marks to compare later. Does I/O: one stat for each."""
    found: dict[str, tuple[Mark, str]] = {}
    for path, why in _every(view):
        mark = _mark(path)
        if mark is not None:
            found.setdefault(path, (mark, why))
    return found


def planted(before: Marks, after: Marks) -> list[Planted]:
    """What is new or changed, in the order of paths."""
    return [
        Planted(path, "changed" if path in before else "new", why)
        for path, (mark, why) in sorted(after.items())
        if path not in before or before[path][0] != mark
    ]


def _mark(path: str) -> Mark | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return None
    return (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _every(view: View) -> Iterator[tuple[str, str]]:
    known = {os.path.realpath(sight.path) for sight in view.of(Kind.GIT) if sight.folder}
    for sight in view.of(Kind.GIT, Kind.BARE):
        repository = read(sight.path)
        if repository is not None:
            yield from _of_repository(repository, known)
    for sight in view.of(Kind.PROTECTED):
        name = os.path.basename(sight.path).casefold()
        why = runners().get(name) or runners()["*"]
        for path in _files(sight.path) if sight.folder else (sight.path,):
            yield path, why


def _of_repository(repository: Repository, known: Iterable[str]) -> Iterator[tuple[str, str]]:
    for folder in repository.folders():
        tree = os.path.dirname(repository.marker)
        for hooks in (f"{folder}/hooks", *hook_folders(f"{folder}/config", tree)):
            for path in _files(hooks, depth=1):
                if not path.endswith(".sample"):
                    yield path, "Git runs it as a hook"
        for config in (f"{folder}/config", f"{folder}/config.worktree"):
            for key in dangers(config)[:1]:
                yield config, f"its {key} makes Git start or read something else"
    if os.path.lexists(f"{repository.gitdir}/commondir") and repository.marker == repository.gitdir:
        yield f"{repository.gitdir}/commondir", "Git takes hooks and settings from where it points"
    for worktree in worktrees(repository.common):
        linked = read_link(worktree)
        if linked is not None and linked != os.path.realpath(repository.common):
            yield f"{worktree}/commondir", "Git takes hooks and settings from where it points"
    if repository.marker != repository.gitdir and not repository.registered:
        inside = any(repository.gitdir.startswith(f"{folder}/") for folder in known)
        if not inside:
            yield repository.marker, "Git takes hooks and settings from where it points"


def read_link(gitdir: str) -> str | None:
    """Where the ``commondir`` of a worktree's folder leads; None without one."""
    try:
        text = Path(gitdir, "commondir").read_text("utf-8", "surrogateescape").strip()
    except OSError:
        return None
    return os.path.realpath(os.path.join(gitdir, text))


def _files(folder: str, *, depth: int = 4) -> Iterator[str]:
    """Files below a folder, links included, up to `MOST_FILES`."""
    left = MOST_FILES
    todo = [(folder, depth)]
    while todo and left > 0:
        here, levels = todo.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            left -= 1
            if entry.is_dir(follow_symlinks=False):
                if levels > 1 and entry.name != "worktrees":
                    todo.append((entry.path, levels - 1))
            else:
                yield entry.path
