"""What a box must hold, as lists of paths: what may be written, what is locked in it, what is hidden.

The sandboxes turn the lists into mounts, kernel rules or a profile; which paths they are is decided here for all.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pegboard.paths import inside
from pegboard.sandbox import Need

from pegboard_boxes.repos import Repository, read
from pegboard_boxes.secrets import is_socket
from pegboard_boxes.survey import Kind, View

GHOSTS = (".peg", ".claude", ".mcp.json", ".vscode", ".idea", ".envrc")
"""Names that get an empty locked folder at the top of a working directory while they do not exist.

A folder, not a file: Git does not see empty folders, so a command that adds everything does not trip over it."""

HOME_GHOSTS = (".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc", ".zprofile", ".zshenv", ".zlogin")
"""The same where the home folder itself is a working directory."""

FILES = ("rc", ".json", "profile", "login", "env")
"""How those of them end that are files where they exist."""


@dataclass
class Plan:
    """The paths of one box; all are real names."""

    writable: tuple[str, ...]
    locked: dict[str, None] = field(default_factory=dict)
    hidden: dict[str, bool] = field(default_factory=dict)
    """Path -> whether a rule of the user hides it; what hides by default is shown as empty."""
    ghosts: list[str] = field(default_factory=list)
    """Locked folders that do not exist and are made for as long as a process runs."""
    opened: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    """Writable folders that must not be renamed away."""


def plan(
    need: Need,
    view: View,
    secret: Iterable[str],
    born: Mapping[str, int],
    ghosts: Collection[str] = (),
    veiled: Collection[str] = (),
) -> Plan:
    """The plan for a need. Does I/O.

    ``view``: what the survey saw. ``secret``: credentials and sockets to hide. ``born``: inodes of the ``.git`` folders
    that were there before any box of the session, by path. ``ghosts``: folders that other boxes made.
    ``veiled``: folders of which nothing is seen inside but what is writable.
    """
    asked = tuple(_real(path) for path in need.writable)
    roots = tuple(_real(path) for path in need.roots)
    made = Plan(tuple(path for path in dict.fromkeys((*roots, *asked)) if path != "/" and os.path.exists(path)))
    for path in need.locked:
        _lock(made, path, ())
    for sight in view.of(Kind.LOCKED, Kind.PROTECTED):
        if sight.path in ghosts:
            continue
        _lock(made, sight.path, asked if sight.kind is Kind.PROTECTED else ())
        if sight.kind is Kind.PROTECTED and sight.folder:
            _open(made, sight.path)
    for sight in view.of(Kind.GIT, Kind.BARE):
        repository = read(sight.path)
        if repository is not None:
            _guard(made, repository, roots, asked, born, ghosts)
    for root in roots:
        for name in (*GHOSTS, *(HOME_GHOSTS if root == _real(need.home) else ())):
            path = f"{root}/{name}"
            if _missing(path, ghosts) and path not in asked and root in made.writable:
                made.ghosts.append(path)
    for path in (*need.hidden, *(sight.path for sight in view.of(Kind.HIDDEN))):
        if os.path.lexists(path) and _visible(_real(path), made, veiled):
            made.hidden[_real(path)] = True
    spared = {_real(path) for path in need.readable}
    for path in secret:
        theirs = is_socket(path) and inside(path, roots)
        if path not in spared and not theirs and _visible(path, made, veiled) and not _holds(path, roots):
            made.hidden.setdefault(path, False)
    return made


def _visible(path: str, made: Plan, veiled: Collection[str]) -> bool:
    return not inside(path, veiled) or inside(path, made.writable)


def _holds(path: str, roots: Iterable[str]) -> bool:
    """Whether somebody works inside of it, and so must see it."""
    return any(inside(root, (path,)) for root in roots)


def _real(path: str | Path) -> str:
    return os.path.realpath(path)


def _lock(made: Plan, path: str, asked: Iterable[str]) -> None:
    """Lock what exists and lies where it could be written, unless the user opened it."""
    real = _real(path)
    if os.path.exists(real) and inside(real, made.writable) and not inside(real, asked) and real not in made.writable:
        made.locked[real] = None


def _open(made: Plan, folder: str) -> None:
    """Work goes on below some protected folders as anywhere else."""
    path = f"{folder}/worktrees"
    if os.path.basename(folder) in (".peg", ".claude") and os.path.isdir(path) and not os.path.islink(path):
        made.opened.append(path)


def _guard(
    made: Plan,
    repository: Repository,
    roots: tuple[str, ...],
    asked: tuple[str, ...],
    born: Mapping[str, int],
    ghosts: Collection[str],
) -> None:
    """Lock what decides which programs Git starts; let a registered worktree commit to its repository."""
    marker = repository.marker
    if os.path.isfile(marker):
        _lock(made, marker, ())
    elif born.get(marker) == _inode(marker):
        made.own.append(marker)
    outside = not inside(repository.common, made.writable)
    if repository.linked and repository.registered and outside and os.path.dirname(marker) in roots:
        made.locked[repository.common] = None
        for path in (repository.gitdir, *(f"{repository.common}/{name}" for name in ("objects", "refs", "logs"))):
            if os.path.isdir(path):
                made.opened.append(path)
        for name in ("commondir", "gitdir", "config.worktree"):
            if os.path.exists(f"{repository.gitdir}/{name}"):
                made.locked[f"{repository.gitdir}/{name}"] = None
    for path, folder in repository.deciding():
        if not _missing(path, ghosts):
            _lock(made, path, asked)
        elif folder and os.path.isdir(os.path.dirname(path)) and inside(path, made.writable) and path not in asked:
            made.ghosts.append(path)


def _missing(path: str, ghosts: Collection[str]) -> bool:
    return path in ghosts or not os.path.lexists(path)


def _inode(path: str) -> int:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0


def forget(root: str) -> None:
    """Remove what a killed session may have left: an empty folder where only a file has any meaning."""
    for name in (*GHOSTS, *HOME_GHOSTS):
        path = f"{root}/{name}"
        if name.endswith(FILES) and os.path.isdir(path) and not os.path.islink(path):
            with contextlib.suppress(OSError):
                os.rmdir(path)
