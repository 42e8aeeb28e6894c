"""What a process needs of a box, and what a box is: Need and Sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Need:
    """What the caller wants of a box for one process."""

    cwd: Path
    writable: tuple[Path, ...]
    """Folders that may be written."""
    hidden: tuple[Path, ...]
    """Paths that must not be readable."""
    hosts: tuple[str, ...]
    """Hosts that may be contacted; empty = no network."""
    required: bool
    """True: without a full box the call does not start."""


class Sandbox(Protocol):
    """A box that a process can be started in."""

    level: str
    """The level reached, as `peg sandbox status` names it."""

    def wrap(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """The command and environment that start ``argv`` inside the box."""
        ...

    async def close(self) -> None:
        """Remove what the box left behind."""
        ...
