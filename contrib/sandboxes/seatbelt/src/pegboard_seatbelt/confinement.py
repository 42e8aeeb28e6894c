"""The sandbox of a session on macOS: the system's own, tried once, with the proxy as the only way out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from pegboard.sandbox import Need, Status
from pegboard_boxes.premises import Premises

if TYPE_CHECKING:
    from pegboard.sandbox import Sandbox
    from pegboard_boxes.proxy import Proxy

NAME = "seatbelt"
PROGRAM = "/usr/bin/sandbox-exec"
"""Of the system, never from the `PATH`: a repository must not bring its own."""

PATIENCE = 20.0
"""[C] Seconds for a trial."""


class Seatbelt(Premises):
    """What the boxes of one session share: proxy, private folder, and what the survey knows."""

    def __init__(self, platform: str = sys.platform) -> None:
        super().__init__()
        self._platform = platform
        self._status: Status | None = None
        self.proxy: Proxy | None = None

    def status(self, need: Need) -> Status:
        """The level that is reached here, and why no higher one. Tried once, then remembered; blocks."""
        if self._status is None:
            self._status = self._try()
        return self._status

    def _try(self) -> Status:
        if self._platform != "darwin":
            return Status("none", ("it is for macOS",), NAME)
        from pegboard_seatbelt.profile import Terms, profile

        if not os.path.exists(PROGRAM):
            return Status("none", (f"{PROGRAM} is missing",), NAME)
        try:
            argv = [PROGRAM, "-p", profile(Terms()), "/usr/bin/true"]
            done = subprocess.run(argv, capture_output=True, timeout=PATIENCE, check=False, env={}, cwd="/")
        except (OSError, subprocess.TimeoutExpired) as error:
            return Status("none", (f"{PROGRAM} cannot be started: {error}",), NAME)
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            return Status("none", (f"{PROGRAM} does not take the profile: {said or done.returncode}",), NAME)
        return self.open_proxy()

    def open_proxy(self) -> Status:
        """Start the proxy, and say which level that makes."""
        from pegboard_boxes.proxy import Proxy

        proxy = Proxy(_listen)
        try:
            proxy.start()
        except OSError as error:
            why = f"the proxy cannot be started ({error}), so no host can be contacted"
            return Status("no-proxy", (why,), NAME)
        proxy.strict = True
        self.proxy = proxy
        return Status("full", (), NAME)

    def box(self, need: Need) -> Sandbox:
        """A box for one call."""
        from pegboard_seatbelt.box import ProfileBox

        return ProfileBox(self, need, self.status(need).level)

    async def close(self) -> None:
        """End the proxy and remove the private folder."""
        import anyio.to_thread

        await anyio.to_thread.run_sync(self.end)

    def end(self) -> None:
        """`close`, for those without an event loop. Blocks for a moment."""
        if self.proxy is not None:
            self.proxy.close()
            self.proxy = None
        self._status = None
        self.clear()


def _listen() -> tuple[socket.socket, int]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener, int(listener.getsockname()[1])
