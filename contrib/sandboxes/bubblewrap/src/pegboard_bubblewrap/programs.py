"""The programs that make a box, from the folders of the system alone: a repository must not bring its own.

`PATH` is never asked, because it may lead into the project.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from dataclasses import dataclass

FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin", "/run/wrappers/bin")

OWNERS = (0,)
"""Numbers of the users whose programs count."""

LEAST = (0, 8)
"""First release of bubblewrap that can forbid further user namespaces."""


class Missing(Exception):
    """A program is not there, or cannot be relied on; the text says what to do."""


@dataclass(frozen=True)
class Programs:
    """Absolute paths of what a box is made with. ``nsenter`` is empty where it is missing."""

    bwrap: str
    nsenter: str
    shell: str


def find(name: str) -> str:
    """The path of a system program that only root can change, or an empty text."""
    for folder in FOLDERS:
        path = os.path.realpath(f"{folder}/{name}")
        try:
            status = os.stat(path)
        except OSError:
            continue
        own = status.st_uid in OWNERS and not status.st_mode & 0o022
        if stat.S_ISREG(status.st_mode) and own and os.access(path, os.X_OK):
            return f"{folder}/{name}" if "busybox" in path else path
    return ""


def programs() -> Programs:
    """Find them. Raises `Missing`."""
    bwrap = find("bwrap")
    if not bwrap:
        raise Missing("bubblewrap is not installed; install the package bubblewrap")
    version = _version(bwrap)
    if version < LEAST:
        told = ".".join(map(str, version)) or "unknown"
        raise Missing(f"bubblewrap {told} is too old; {'.'.join(map(str, LEAST))} or newer is needed")
    return Programs(bwrap, find("nsenter"), find("sh"))


def _version(bwrap: str) -> tuple[int, ...]:
    try:
        done = subprocess.run([bwrap, "--version"], capture_output=True, text=True, timeout=10, check=False, env={})
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(r"(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, found.groups())) if found else ()
