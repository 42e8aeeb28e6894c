"""Who is trusted: workspaces by their repository root, plug-ins and servers by the digest of what they are.

A path says where something lies, not what it is; so an approval holds for exactly the files that were shown.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pegboard.errors import UsageError

if TYPE_CHECKING:
    from pegboard.places import Places

SAFE_GIT = (
    "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.bareRepository=explicit",
    "-c", "protocol.ext.allow=never",
)  # fmt: skip
"""Options without which a repository can make Git run its own programs."""

SKIPPED = "__pycache__"
"""Not part of a digest: what is approved by digest is always run from its source (`pegboard.sealed`)."""


class Root(msgspec.Struct, frozen=True):
    """A trusted workspace. ``at``: when trust was given, UTC."""

    at: str


class Approval(msgspec.Struct, frozen=True):
    """What was approved: one digest, and that of each file, so that a change can be shown."""

    digest: str
    files: dict[str, str]
    at: str


class _Store(msgspec.Struct):
    roots: dict[str, Root] = {}
    approvals: dict[str, dict[str, Approval]] = {}


class Trust:
    """The decisions of this user, kept in ``trust.json`` of the user directory. Read at first use."""

    def __init__(self, places: Places) -> None:
        self.path = places.user_dir / "trust.json"
        self.root = repository_root(places.cwd) or places.root
        """What trust is given for here: the repository around the start directory, else the project root."""
        self.problem = ""
        """Why the stored decisions could not be used, or empty."""
        self._store: _Store | None = None

    @classmethod
    def load(cls, places: Places) -> Trust:
        """The trust decisions that matter for these places. Touches nothing but folder names yet."""
        return cls(places)

    # -- workspaces --------------------------------------------------------------------------------------------

    def trusted(self, path: Path | None = None) -> bool:
        """Whether the workspace around a path (default: around the start directory) is trusted.

        A repository inside a trusted one is another workspace. Links are resolved; a moved one is not trusted.
        """
        root = self.root if path is None else repository_root(path) or path
        return os.path.realpath(root) in self._read().roots

    def give(self, path: Path | None = None) -> Path:
        """Trust the workspace around a path; returns its root. Raises `UsageError` when that cannot be stored."""
        root = self._root_of(path)
        if not root.is_dir():
            raise UsageError(f"{root} is not a folder. Nothing was changed.")
        self._write(lambda store: store.roots.__setitem__(str(root), Root(_now())))
        return root

    def revoke(self, path: Path | None = None) -> bool:
        """Take trust back; False when there was none."""
        root = str(self._root_of(path))
        return self._write(lambda store: store.roots.pop(root, None)) is not None

    def roots(self) -> dict[str, str]:
        """Every trusted root and when it was trusted (UTC)."""
        return {path: root.at for path, root in sorted(self._read().roots.items())}

    # -- plug-ins, skills, servers, hooks ----------------------------------------------------------------------

    def approved(self, kind: str, name: str, *, where: str = "") -> str | None:
        """The digest that was approved for something, or None. ``where`` tells equal names apart."""
        found = self.approval(kind, name, where=where)
        return found.digest if found is not None else None

    def approval(self, kind: str, name: str, *, where: str = "") -> Approval | None:
        """The whole approval, with the digest of each file, for `changes`."""
        return self._read().approvals.get(kind, {}).get(_label(name, where))

    def approve(
        self, kind: str, name: str, digest: str, *, files: Mapping[str, str] | None = None, where: str = ""
    ) -> None:
        """Remember a digest (and that of each file). Raises `UsageError` when that cannot be stored."""
        approval = Approval(digest, dict(files or {}), _now())
        self._write(lambda store: store.approvals.setdefault(kind, {}).__setitem__(_label(name, where), approval))

    def withdraw(self, kind: str, name: str, *, where: str = "") -> bool:
        """Forget an approval; False when there was none."""
        label = _label(name, where)
        return self._write(lambda store: store.approvals.get(kind, {}).pop(label, None)) is not None

    # -- the file ----------------------------------------------------------------------------------------------

    def _root_of(self, path: Path | None) -> Path:
        root = self.root if path is None else repository_root(path) or path
        return Path(os.path.realpath(root))

    def _read(self) -> _Store:
        if self._store is None:
            self._store, self.problem = _read_store(self.path)
        return self._store

    def _write(self, change: Callable[[_Store], object]) -> object:
        """Change what is stored now, not what was stored when it was read; returns what ``change`` returns."""
        from pegboard import atomic

        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic.locked(self.path):
                store, problem = _read_store(self.path)
                if problem:
                    # What cannot be used is set aside, not lost: a person may want to look at it.
                    os.replace(self.path, f"{self.path}.bak")
                done = change(store)
                atomic.replace(self.path, msgspec.json.format(msgspec.json.encode(store)) + b"\n", mode=0o600)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}. Trust is unchanged.") from None
        self._store, self.problem = store, ""
        return done


def _read_store(path: Path) -> tuple[_Store, str]:
    """The stored decisions, or none and the reason: a file that others can write decides nothing."""
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_uid not in (0, os.getuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return _Store(), f"{path} can be written by others, so nothing is trusted; run: chmod 600 {path}"
            return msgspec.json.decode(file.read(), type=_Store), ""
    except FileNotFoundError:
        return _Store(), ""
    except (OSError, msgspec.DecodeError) as error:
        return _Store(), f"{path} cannot be read, so nothing is trusted: {error}"


def repository_root(path: Path) -> Path | None:
    """The root of the Git repository around a path, or None. A linked worktree belongs to its main checkout.

    The link from a worktree is believed only when the main repository links back to it.
    """
    start = Path(os.path.realpath(path))
    for folder in (start, *start.parents):
        git = folder / ".git"
        if git.is_dir():
            return folder
        if os.path.lexists(git):
            return _main_checkout(git) or folder
    return None


def _main_checkout(link: Path) -> Path | None:
    try:
        data = Path(link.read_text("utf-8").removeprefix("gitdir:").strip())
        git = data.parent.parent
        back = (data / "gitdir").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    genuine = data.parent.name == "worktrees" and git.name == ".git" and os.path.realpath(back) == str(link)
    return Path(os.path.realpath(git.parent)) if genuine else None


def repository_holds(path: Path) -> bool:
    """Whether Git tracks a file. Where Git cannot tell, it counts as tracked."""
    if repository_root(path.parent) is None:
        return False
    import subprocess

    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", *SAFE_GIT, "ls-files", "--error-unmatch", "--", path.name]
    try:
        done = subprocess.run(command, cwd=path.parent, env=environ, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return True
    return done.returncode != 1


def digest_files(path: Path) -> dict[str, str]:
    """The digest of every file below a folder (or of one file), by name. Links count as their text.

    Raises OSError for what cannot be read: an unreadable file cannot be approved.
    """
    if not path.is_dir() or path.is_symlink():
        return {path.name: _digest_file(path)}
    found: dict[str, str] = {}
    for folder, folders, names in os.walk(path, onerror=_raise):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = [name for name in folders if name != SKIPPED and name not in links]
        for name in (*names, *links):
            full = Path(folder, name)
            label = os.fsencode(full.relative_to(path)).decode("utf-8", "backslashreplace")
            found[label] = _digest_file(full)
    return dict(sorted(found.items()))


def digest_of(files: Mapping[str, str]) -> str:
    """One digest for what `digest_files` found."""
    return _digest(part for name, digest in sorted(files.items()) for part in (name, digest))


def digest_folder(path: Path) -> str:
    """One digest over every file below a folder: names and contents."""
    return digest_of(digest_files(path))


def digest_server(
    command: str = "", args: Sequence[str] = (), *, env: Iterable[str] = (), url: str = "", script: Path | None = None
) -> str:
    """The identity of a server: how it is started, which variables it gets (names only), its address, its script."""
    content = _digest_file(script) if script is not None else ""
    return _digest([command, url, content, str(len(args)), *args, *sorted(env)])


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What became of approved files, one line each: ``+ new``, ``- gone``, ``~ changed``."""
    lines = [(name, "-" if name not in after else "+" if name not in before else "~") for name in {*before, *after}]
    return [f"{sign} {name}" for name, sign in sorted(lines) if before.get(name) != after.get(name)]


def _digest_file(path: Path) -> str:
    import hashlib

    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return f"link:{os.fsencode(os.readlink(path)).decode('utf-8', 'backslashreplace')}"
    if not stat.S_ISREG(found.st_mode):
        return f"special:{stat.S_IFMT(found.st_mode):o}"
    with open(path, "rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _digest(parts: Iterable[str]) -> str:
    import hashlib

    total = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape")
        total.update(f"{len(data)}:".encode() + data)
    return f"sha256:{total.hexdigest()}"


def _raise(error: OSError) -> None:
    raise error


def _label(name: str, where: str) -> str:
    return f"{name} @ {where}" if where else name


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
