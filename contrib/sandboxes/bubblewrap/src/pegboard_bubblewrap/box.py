"""A box for the processes of one call: bubblewrap with its mounts, or Landlock where that is missing."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.sandbox import Need
from pegboard_boxes.addresses import AllowList
from pegboard_boxes.box import CallBox

from pegboard_bubblewrap import syscalls
from pegboard_bubblewrap.binds import VEILED, mounts

if TYPE_CHECKING:
    from pegboard_boxes.proxy import Guest

    from pegboard_bubblewrap.confinement import Bubblewrap


class WrappedBox(CallBox):
    """A box of bubblewrap."""

    veiled = VEILED

    def __init__(self, shared: Bubblewrap, need: Need, level: str) -> None:
        super().__init__(shared, need)
        self._shared = shared
        self.level = level
        self._guest: Guest | None = None
        if shared.network is not None:
            self._guest = shared.network.proxy.welcome(AllowList(need.hosts, need.refused_hosts))
        self._made: list[list[str]] = []

    def wrap(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """The command and environment that start ``argv`` inside."""
        shared = self._shared
        made = self._make_plan()
        for path in made.ghosts:
            shared.ghosts[path] = shared.ghosts.get(path, 0) + 1
        self._made.append(made.ghosts)
        words = [*shared.prefix(shared.network), *shared.veil(), *mounts(made, shared.sealed), "--", *argv]
        port = shared.network.proxy.port if shared.network is not None else 0
        return words, self._environment(env, self._proxied(self._guest, port))

    def signal(self, pid: int, number: int) -> bool:
        """Signal the group of the command inside: bubblewrap passes nothing on and would end at once itself."""
        try:
            inner = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
        except OSError:
            return False
        for child in inner:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(child), number)
        return bool(inner)

    def ended(self) -> None:
        """Remove the folders that were there for the sake of a process, unless another one needs them."""
        for path in self._made.pop() if self._made else ():
            left = self._shared.ghosts.get(path, 1) - 1
            self._shared.ghosts[path] = left
            if left <= 0:
                self._shared.ghosts.pop(path, None)
                # Only what is empty goes, so nothing of anybody is ever removed.
                with contextlib.suppress(OSError):
                    os.rmdir(path)

    def violations(self, output: str) -> list[str]:
        """Refused hosts by the proxy's record, then refused files by what the output tells."""
        return [*map(str, self._guest.denials if self._guest is not None else ()), *super().violations(output)]


class KernelBox(CallBox):
    """A box of Landlock and a syscall filter: files and network, without namespaces."""

    level = "landlock"

    def wrap(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """The command and environment that start ``argv`` behind the walls."""
        made = self._make_plan()
        policy = {
            "writable": [*made.writable, *made.opened, self._premises.tmp],
            "hidden": sorted(made.hidden),
            "filter": syscalls.program(()).hex(),
        }
        script = str(Path(__file__).with_name("launcher.py"))
        words = [sys.executable, "-S", "-I", script, json.dumps(policy), *argv]
        return words, self._environment(env, {})

    def signal(self, pid: int, number: int) -> bool:
        """No way of its own is needed: the command is in the group that was started."""
        return False

    def ended(self) -> None:
        """Nothing was made for a process."""

    def _refuses_writes(self, sign: str) -> bool:
        return True
