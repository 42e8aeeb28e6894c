"""The sandbox of a session on Linux: finds out by trying which walls this machine has, and makes boxes behind them.

Nothing here is assumed from a version or a file: a level counts as reached when a command has run behind it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.sandbox import Need, Status
from pegboard_boxes.premises import Premises

from pegboard_bubblewrap import launcher, syscalls
from pegboard_bubblewrap.binds import KEPT, VEILED, Sealed, installation
from pegboard_bubblewrap.programs import Missing, Programs, programs

if TYPE_CHECKING:
    from pegboard.sandbox import Sandbox

    from pegboard_bubblewrap.network import Network

NAME = "bubblewrap"

ALONE = ("--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
         "--die-with-parent", "--new-session")  # fmt: skip
"""Namespaces of its own and no power in them. Without these, root in a box remounts what is read only."""

FILTER_FD = "9"

INSTEAD = (
    "Landlock and a syscall filter take its place: no host can be contacted, no process is out of sight, and what is "
    "protected inside a working directory is watched, not locked"
)

PATIENCE = 20.0
"""[C] Seconds for a trial."""


class Bubblewrap(Premises):
    """What the boxes of one session share: programs, network, private folder, and what the survey knows."""

    def __init__(self) -> None:
        super().__init__()
        self._status: Status | None = None
        self.programs: Programs | None = None
        self.network: Network | None = None
        self.sealed: Sealed

    def furnish(self, folder: Path) -> None:
        """Put there what is mounted over hidden paths, and the syscall filter."""
        (folder / "sealed").mkdir(mode=0o700)
        self.sealed = Sealed.make(folder / "sealed")
        (folder / "filter").write_bytes(syscalls.program())

    def status(self, need: Need) -> Status:
        """The level that is reached here, and why no higher one. Tried once, then remembered; blocks."""
        if self._status is None:
            self._status = self._try() if sys.platform == "linux" else Status("none", ("it is for Linux",), NAME)
        return self._status

    def _try(self) -> Status:
        reasons: list[str] = []
        if not syscalls.program():
            reasons.append("the numbers of this machine's system calls are not known, so there is no syscall filter")
        try:
            self.programs = programs()
            self._run([*self.prefix(None), *self.veil(), "--", "true"])
        except Missing as missing:
            self.programs = None
            reasons.append(str(missing))
        else:
            return self._with_network(reasons)
        abi = launcher.version()
        if abi and syscalls.program():
            reasons.append(INSTEAD)
            if abi < 6:
                reasons.append(f"Landlock speaks version {abi}, so processes outside can be signalled")
            return Status("landlock", tuple(reasons), NAME)
        reasons.append("this kernel has no Landlock" if not abi else "Landlock without a syscall filter is no sandbox")
        return Status("none", tuple(reasons), NAME)

    def _with_network(self, reasons: list[str]) -> Status:
        from pegboard_bubblewrap.network import Network

        assert self.programs is not None
        try:
            self.network = Network(self.programs)
            self._run([*self.prefix(self.network), *self.veil(), "--", "true"])
        except (OSError, Missing, subprocess.SubprocessError) as error:
            if self.network is not None:
                self.network.close()
            self.network = None
            reasons.append(f"the network of its own with a proxy cannot be made ({error}), so no host can be contacted")
            return Status("no-proxy", tuple(reasons), NAME)
        return Status("full", tuple(reasons), NAME)

    def _run(self, argv: list[str]) -> None:
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False, cwd="/", env={}
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Missing(f"bubblewrap cannot be started: {error}") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise Missing(f"bubblewrap cannot make a box here: {said[-1] if said else done.returncode}{_hint()}")

    def prefix(self, network: Network | None) -> list[str]:
        """The words up to the mounts: filter, network, namespaces."""
        assert self.programs is not None
        words = [self.programs.bwrap, *ALONE]
        if network is None:
            words.append("--unshare-net")
        else:
            words = [*network.enter(), *words]
        if self.programs.shell and syscalls.program():
            opened = f'exec {FILTER_FD}<"$0" && exec "$@"'
            words = [self.programs.shell, "-c", opened, str(self.folder / "filter"), *words, "--seccomp", FILTER_FD]
        return words

    def veil(self) -> list[str]:
        """The mounts that every box begins with: all is read only, and what is shared with others is replaced.

        ``/proc`` too: even without a capability root owns the kernel's switches there, and bubblewrap leaves them open.
        """
        own = self.tmp
        words = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"]
        words += ["--tmpfs", "/run"]
        for path in VEILED:
            if path in ("/tmp", "/var/tmp") and os.path.isdir(path) and not os.path.islink(path):
                words += ["--bind", own, path]
            elif path == "/var/run" and not os.path.islink(path) and os.path.isdir(path):
                words += ["--tmpfs", path]
        for path in (*KEPT, *installation()):
            if os.path.exists(path):
                words += ["--ro-bind", path, path]
        return [*words, "--bind", own, own]

    def box(self, need: Need) -> Sandbox:
        """A box for one call."""
        from pegboard_bubblewrap.box import KernelBox, WrappedBox

        level = self.status(need).level
        return KernelBox(self, need) if level == "landlock" else WrappedBox(self, need, level)

    async def close(self) -> None:
        """End the network and remove the private folder."""
        import anyio.to_thread

        await anyio.to_thread.run_sync(self.end)

    def end(self) -> None:
        """`close`, for those without an event loop. Blocks for a moment."""
        if self.network is not None:
            self.network.close()
            self.network = None
        self._status = None
        self.clear()


def _hint() -> str:
    """What usually stands in the way of user namespaces."""
    for path, wrong, text in (
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone is 0"),
        ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces is 0"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "AppArmor keeps user namespaces from programs without a profile; the package's own bwrap has one",
        ),
    ):
        try:
            if Path(path).read_text("utf-8").strip() == wrong:
                return f" ({text})"
        except OSError:
            continue
    return ""
