"""What a process in a box does not get to see: credentials, sockets of services that act for their caller, variables.

All of it is data (`secrets.toml`), so that an operator can read it and a test can list it.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pegboard.process import child_environment

LISTENING = 0x10000
"""Flag of a listening socket in ``/proc/net/unix``."""


class Secrets(NamedTuple):
    """The data of `secrets.toml`."""

    hidden: tuple[str, ...]
    system: tuple[str, ...]
    socket_variables: tuple[str, ...]
    variables: tuple[str, ...]


@lru_cache(maxsize=1)
def secrets() -> Secrets:
    """Read the data once."""
    given = tomllib.loads(Path(__file__).with_name("secrets.toml").read_text("utf-8"))
    return Secrets(**{name: tuple(items) for name, items in given.items()})


def credentials(home: Path, environ: Mapping[str, str]) -> list[str]:
    """Files, folders and sockets that exist here, could be used and must be hidden; real names, each once."""
    known = secrets()
    wanted = [*(f"{home}/{name}" for name in known.hidden), *known.system, *_named(environ)]
    found = dict.fromkeys(os.path.realpath(path) for path in wanted if os.path.lexists(path))
    return [path for path in found if os.access(path, os.R_OK) or os.access(path, os.X_OK) or is_socket(path)]


def _named(environ: Mapping[str, str]) -> Iterator[str]:
    """Sockets and runtime folders that variables speak of, in the forms in which services write them."""
    for name in secrets().socket_variables:
        for part in re.split(r"[;,]", environ.get(name, "")):
            found = re.search(r"(?:^|=|:(?://)?)(/[^:;,]+)", part)
            if found is not None and found[1].count("/") > 1:
                yield found[1]


def sockets(listing: str = "/proc/net/unix") -> list[str]:
    """Paths of sockets that somebody listens on, wherever they are; empty where the system does not tell."""
    try:
        with open(listing, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()[1:]
    except OSError:
        return []
    found = []
    for line in lines:
        fields = line.split(None, 7)
        if len(fields) == 8 and fields[7].startswith("/") and int(fields[3], 16) & LISTENING:
            found.append(fields[7])
    return [path for path in dict.fromkeys(found) if is_socket(path)]


def is_socket(path: str) -> bool:
    """Whether there is a socket at a path now."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def environment(env: Mapping[str, str], more: Iterable[str], added: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process in a box: the usual ones and those of ``more``, none that holds a credential.

    ``added`` are the box's own; they replace what was there.
    """
    patterns = (*secrets().variables, *more)
    exact = {name for name in patterns if "*" not in name}
    loose = [name for name in patterns if "*" in name]
    kept = {
        name: value
        for name, value in child_environment(env).items()
        if name in exact or any(fnmatchcase(name, pattern) for pattern in loose)
    }
    return {**kept, **added}
