"""Files by time of change: the order in which both search tools list names.

The engine can sort too, but then it walks with a single thread, and old engines sort each folder by itself.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import stat
from collections.abc import Iterable
from pathlib import Path


def newest(root: Path, names: Iterable[bytes], keep: int | None = None) -> tuple[list[bytes], int]:
    """The newest names below a folder, equal times by name, and how many of all names are there.

    Blocks for one stat a name, so call it in a thread. What vanished since it was found is dropped, folders too.
    """
    dated = []
    folder = os.open(root, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        for name in names:
            with contextlib.suppress(OSError):
                entry = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISDIR(entry.st_mode):
                    dated.append((-entry.st_mtime_ns, name))
    finally:
        os.close(folder)
    first = sorted(dated) if keep is None else heapq.nsmallest(keep, dated)
    return [name for _, name in first], len(dated)
