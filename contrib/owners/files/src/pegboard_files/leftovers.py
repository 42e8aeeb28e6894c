"""Temporary files that a killed process left beside the files it was about to replace.

Their names carry the process, so that what another running session is writing at this moment is never taken away.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterable

_NAME = re.compile(r"\.peg-(\d+)-[0-9a-f]{16}\.tmp")


def temporary_name() -> str:
    """A name that no other file has."""
    return f".peg-{os.getpid()}-{secrets.token_hex(8)}.tmp"


def sweep(paths: Iterable[str]) -> None:
    """Remove what a process that is no more left in the folders of these files. Blocking; never raises OSError."""
    for folder in {os.path.dirname(path) for path in paths}:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                found = _NAME.fullmatch(entry.name)
                if found and entry.is_file(follow_symlinks=False) and not _runs(int(found[1])):
                    os.unlink(entry.path)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
