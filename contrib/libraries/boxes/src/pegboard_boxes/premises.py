"""What the boxes of one session share: a private folder, and what the survey remembers between commands."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from pegboard_boxes.survey import Survey


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

    @property
    def folder(self) -> Path:
        """The private folder. What is in it is out of reach of the boxes, but for ``tmp``."""
        if self._folder is None:
            self._folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="peg-box-")))
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
            for path in folder.glob("*/*"):
                if path.is_dir() and not path.is_symlink():
                    path.chmod(0o700)
            shutil.rmtree(folder, ignore_errors=True)
