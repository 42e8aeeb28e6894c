"""A network of its own for the commands of a session: a loopback that they share, and the proxy as the only way out.

One namespace for the whole session costs each command nothing, and a server that one command starts is there for the
next one. The listening socket is made inside and served from outside, so nothing has to run in between.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

from pegboard_boxes.proxy import Proxy

from pegboard_bubblewrap.programs import Programs

PATIENCE = 20.0
"""[C] Seconds for the namespace to come up."""


class Network:
    """The namespace and its proxy. Raises `OSError` when it cannot be made."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._spaces: list[int] = []
        self.proxy = Proxy(self._open)
        try:
            self.proxy.start()
        except BaseException:
            self.close()
            raise

    def _open(self) -> tuple[socket.socket, int]:
        if not self._programs.nsenter:
            raise OSError("the program nsenter is missing; it comes with util-linux")
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(PATIENCE)
            done = subprocess.run(
                [
                    *(self._programs.bwrap, "--unshare-user", "--unshare-net", "--die-with-parent"),
                    *("--dev-bind", "/", "/", "--"),
                    *(sys.executable, "-S", "-I", str(Path(__file__).with_name("holder.py")), str(theirs.fileno())),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=PATIENCE,
                check=False,
                env={},
            )
            if done.returncode:
                said = done.stderr.decode("utf-8", "replace").strip().splitlines()
                raise OSError(said[-1] if said else f"exit code {done.returncode}")
            told, handles, _, _ = socket.recv_fds(ours, 64, 3)
        listener, *self._spaces = handles
        return socket.socket(fileno=listener), int(told)

    def enter(self) -> list[str]:
        """The words that put a command into the namespace."""
        user, net = (f"/proc/{os.getpid()}/fd/{space}" for space in self._spaces)
        return [self._programs.nsenter, f"--user={user}", f"--net={net}", "--preserve-credentials", "--"]

    def close(self) -> None:
        """Stop the proxy and let the namespace go once its last process ends."""
        self.proxy.close()
        for space in self._spaces:
            with contextlib.suppress(OSError):
                os.close(space)
        self._spaces = []
