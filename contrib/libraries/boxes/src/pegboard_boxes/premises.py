"""What the boxes of one session share: a private folder, and what the survey remembers between commands."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from pegboard_boxes.survey import Survey

PREFIX = "peg-box-"


class Premises:
    """One for a session. The private folder is made at first use and removed by `clear`."""

    def __init__(self) -> None:
        self.survey = Survey()
        self.born: dict[str, int] = {}
        """Inodes of the ``.git`` folders that were there before any box, by path."""
        self.looked: set[str] = set()
        """Roots that `born` knows about."""
        self.ghosts: dict[str, int] = {}
        """How many processes need a folder that is there for their sake only, by path."""
        self._folder: Path | None = None
        self._hold = -1

    @property
    def folder(self) -> Path:
        """The private folder. What is in it is out of reach of the boxes, but for ``tmp``."""
        if self._folder is None:
            tidy(Path(tempfile.gettempdir()))
            self._folder = Path(os.path.realpath(tempfile.mkdtemp(prefix=PREFIX)))
            self._hold = _held(self._folder)
            (self._folder / "tmp").mkdir(mode=0o700)
            self.furnish(self._folder)
        return self._folder

    @property
    def tmp(self) -> str:
        """The temporary folder of the boxes, the same for all commands of the session."""
        return str(self.folder / "tmp")

    def furnish(self, folder: Path) -> None:
        """Put into the private folder what a sandbox needs there."""

    def clear(self) -> None:
        """Remove the private folder."""
        folder, self._folder = self._folder, None
        if folder is not None:
            _remove(folder)
            os.close(self._hold)


def tidy(place: Path) -> None:
    """Remove the private folders of sessions that were killed: nobody holds them any more."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if status.st_uid != os.geteuid() or folder.is_symlink() or not (folder / "held").exists():
                continue
            hold = _held(folder)
            _remove(folder)
            os.close(hold)


def _held(folder: Path) -> int:
    """Hold a folder for as long as the handle is open. Raises OSError where somebody else does."""
    handle = os.open(folder / "held", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _remove(folder: Path) -> None:
    for path in folder.glob("sealed/*"):
        with contextlib.suppress(OSError):
            path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
