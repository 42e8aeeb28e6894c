"""Where things are: the folders of one start, found once from the directory and the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MANAGED_DIRS = {
    "darwin": Path("/Library/Application Support/Peg"),
    "win32": Path(os.environ.get("PROGRAMFILES", r"C:\Program Files")) / "Peg",
}


@dataclass(frozen=True)
class Places:
    """The folders of one start. Nothing here needs to exist."""

    cwd: Path
    """Start directory, absolute and free of symlinks."""
    home: Path
    root: Path
    """Project root: nearest ancestor with ``.peg/``, else the git root, else the start directory."""
    user_dir: Path
    """``~/.peg`` or ``PEG_HOME``."""
    managed_dir: Path
    """``/etc/peg`` on Linux."""

    @property
    def project_dir(self) -> Path:
        """The project's ``.peg`` folder."""
        return self.root / ".peg"

    @property
    def project_key(self) -> str:
        """Folder name for the project's session data: the root path, made safe, with a short digest."""
        import hashlib

        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:8]
        name = "".join(char if char.isalnum() or char in "._-" else "-" for char in self.root.name)[:48] or "root"
        return f"{name}-{digest}"

    @property
    def sessions_dir(self) -> Path:
        """Where this project's sessions live."""
        return self.user_dir / "projects" / self.project_key


def find_places(cwd: Path | None = None, environ: Mapping[str, str] | None = None) -> Places:
    """The places for a start directory. ``PEG_HOME`` and ``PEG_MANAGED_DIR`` are honoured.

    ``PEG_MANAGED_DIR`` can only add strictness for tests and images: it is ignored when the system's own managed
    folder exists.
    """
    env = os.environ if environ is None else environ
    start = Path(os.path.realpath(cwd or os.getcwd()))
    home = Path(env.get("HOME") or Path.home())
    user_dir = Path(os.path.abspath(env["PEG_HOME"])) if env.get("PEG_HOME") else home / ".peg"
    managed = MANAGED_DIRS.get(sys.platform, Path("/etc/peg"))
    if not managed.is_dir() and env.get("PEG_MANAGED_DIR"):
        managed = Path(os.path.abspath(env["PEG_MANAGED_DIR"]))
    return Places(start, home, _root(start, user_dir), user_dir, managed)


def _root(start: Path, user_dir: Path) -> Path:
    git: Path | None = None
    for folder in (start, *start.parents):
        peg = folder / ".peg"
        if peg != user_dir and peg.is_dir():
            return folder
        if git is None and (folder / ".git").exists():
            git = folder
    return git or start
