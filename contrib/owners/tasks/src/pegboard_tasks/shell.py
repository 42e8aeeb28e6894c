"""One shell command as processes: started without a terminal, read in order, ended as a whole tree.

It belongs to nobody: a call waits for it, and hands it on to the registry when it takes longer than the call may.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from pegboard.errors import Code, Refusal

from pegboard_tasks import trees
from pegboard_tasks.sink import Sink

if TYPE_CHECKING:
    from pegboard.sandbox import Sandbox

CHUNK = 64 * 1024
LAST_WORDS = 0.1
"""[C] Seconds that a finished shell's pipe may stay open until what holds it counts as left running."""

_REPORT_FD = 190
"""Lowest number of the descriptor on which the shell tells its directory; high, so that no script uses it."""

_POLL = 0.5
PRELUDE = Path(__file__).with_name("prelude.sh")


@cache
def program() -> str:
    """The shell that runs commands: bash, else sh. Raises `Refusal` (not_available) when there is neither."""
    for name in ("bash", "sh"):
        found = shutil.which(name)
        if found is not None:
            return os.path.abspath(found)
    raise Refusal(Code.NOT_AVAILABLE, "There is no bash and no sh on this machine, so no command can be run.")


class Shell:
    """A running command. `run` waits for it, `end` ends it with everything that it started."""

    def __init__(
        self, process: subprocess.Popen[bytes], sink: Sink, out: int, report: int, mark: str, box: Sandbox | None
    ) -> None:
        self.pid = process.pid
        """Also the id of its process group."""
        self.sink = sink
        self.tree = trees.Tree(mark, process.pid, trees.birth(process.pid), _pipe(report))
        self._box = box
        self._process = process
        self._out = out
        self._report = report
        self._said = b""
        self._watch = _pidfd(process.pid)
        self._quiet = False
        """Nothing holds the output pipe any more."""
        self._silent = anyio.Event()
        self._unheld = False
        """Nothing holds the other pipe any more, which every process of the command inherits."""
        self.killed_for_size = False

    @classmethod
    def start(
        cls,
        command: str,
        *,
        cwd: Path,
        env: Mapping[str, str],
        sink: Sink,
        session: str = "",
        box: Sandbox | None = None,
    ) -> Shell:
        """Start a command. Both of its streams go into one pipe, so that they stay in order; stdin is at its end.

        Raises `Refusal`: not_available without a shell, io_error when it cannot be started.
        """
        shell = program()
        out, out_end = os.pipe()
        report, report_end = os.pipe()
        mark = uuid.uuid4().hex
        told = fcntl.fcntl(report_end, fcntl.F_DUPFD_CLOEXEC, _REPORT_FD)
        try:
            own = {trees.MARKER: mark, trees.SESSION: session}
            argv, given = _line(shell, command, dict(env), own, told)
            if box is not None:
                # A box lets few variables in; these are set inside.
                argv, given = box.wrap(
                    ["/usr/bin/env", *(f"{name}={value}" for name, value in own.items()), *argv], given
                )
            else:
                given |= own
            process = subprocess.Popen(
                argv,
                executable=shell if box is None else None,
                cwd=cwd,
                env=given,
                stdin=subprocess.DEVNULL,
                stdout=out_end,
                stderr=out_end,
                pass_fds=(told,),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            os.close(out)
            os.close(report)
            if box is not None:
                box.ended()
            raise Refusal(Code.IO_ERROR, f"The shell cannot start in {cwd}: {_reason(error)}.") from None
        finally:
            for handle in (out_end, report_end, told):
                os.close(handle)
        for handle in (out, report):
            os.set_blocking(handle, False)
        return cls(process, sink, out, report, f"{trees.MARKER}={mark}", box)

    @property
    def code(self) -> int | None:
        """Exit code as a shell tells it, 128 + the number for a signal; None while it runs."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    @property
    def directory(self) -> str:
        """The directory in which the shell ended, or an empty text when it did not say."""
        self._hear()
        last = self._said.rsplit(b"\0", 2)
        return os.fsdecode(last[-2].removesuffix(b"\n")) if len(last) > 1 else ""

    async def run(self) -> int:
        """Wait until the shell itself has ended, taking in its output. May be cancelled and called again.

        What it left running in the background is not waited for; see `left`.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pump)
            await self._ended()
            if not self._quiet:
                self._drain()
                with anyio.move_on_after(LAST_WORDS):
                    await self._silent.wait()
            tasks.cancel_scope.cancel()
        self._drain()
        code = self.code
        assert code is not None
        return code

    def left(self) -> list[trees.Proc]:
        """What the ended shell left running. Cheap where that is nothing."""
        self._hear()
        tree = self.tree
        if tree.leader and not trees.group_lives(tree.leader):
            tree.leader = 0
        if self._quiet and self._unheld and not tree.leader:
            return []
        return tree.members()

    async def rest(self) -> None:
        """Take in the output of what an ended shell left running, until all of it has ended."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pump)
            while self.left():  # noqa: ASYNC110 - nobody tells when a stranger's process ends
                await anyio.sleep(_POLL)
            tasks.cancel_scope.cancel()
        self._drain()

    async def end(self, grace: float) -> None:
        """End the whole tree, take in its last output and close everything. Not to be interrupted; safe to repeat."""
        with anyio.CancelScope(shield=True):
            if self._out < 0:
                return
            if self.code is None or self.left():
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._pump)
                    tasks.start_soon(self._ended)
                    await self.tree.end(grace, self._ask)
                    with anyio.move_on_after(grace):  # a process in the kernel's hands may outlive even SIGKILL
                        await self._ended()
                    tasks.cancel_scope.cancel()
            self._drain()
            self.close()

    def close(self) -> None:
        """Close pipes and the file of an ended command."""
        for handle in (self._out, self._report, self._watch):
            if handle >= 0:
                os.close(handle)
        self._out = self._report = self._watch = -1
        self.sink.close()
        if self._box is not None:
            self._box.ended()
            self._box = None

    def _ask(self) -> bool:
        return self._box is not None and self._box.signal(self.pid, signal.SIGTERM)

    # -- its pipes -------------------------------------------------------------------------------------------------

    async def _ended(self) -> None:
        if self._watch >= 0:
            while self._process.poll() is None:
                await anyio.wait_readable(self._watch)
        else:
            await anyio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)

    async def _pump(self) -> None:
        while not self._quiet:
            await anyio.wait_readable(self._out)
            self._drain(once=True)

    def _drain(self, *, once: bool = False) -> None:
        """Read what is in the pipe now."""
        limit = time.monotonic() + LAST_WORDS
        while not self._quiet and self._out >= 0:
            try:
                data = os.read(self._out, CHUNK)
            except BlockingIOError:
                return
            if not data:
                self._quiet = True
                self._silent.set()
            self.sink.feed(data)
            if self.sink.over and not self.killed_for_size:
                self.killed_for_size = True
                self.tree.send(signal.SIGKILL, self.tree.members())
            if once or time.monotonic() > limit:
                return

    def _hear(self) -> None:
        while not self._unheld and self._report >= 0:
            try:
                data = os.read(self._report, CHUNK)
            except BlockingIOError:
                return
            self._unheld = not data
            self._said = (self._said + data)[-2 * CHUNK :]


def _line(
    shell: str, command: str, env: dict[str, str], own: dict[str, str], told: int
) -> tuple[list[str], dict[str, str]]:
    """The command line and its environment; what the shell itself must see is added to ``own``."""
    name = os.path.basename(shell)
    if name == "bash":
        if env.get("BASH_ENV"):
            own["PEG_BASH_ENV"] = env.pop("BASH_ENV")
        own |= {"BASH_ENV": str(PRELUDE), "PEG_CWD_FD": str(told)}
        return [name, "-c", command], env
    # A plain sh reads no file before a command, so the trap stands in a line of its own before it.
    return [name, "-c", f"trap '{{ pwd -P; printf \"\\0\"; }} 2>/dev/null >/dev/fd/{told}' EXIT\n{command}"], env


def _pipe(handle: int) -> str:
    """How /proc names a pipe."""
    return f"pipe:[{os.fstat(handle).st_ino}]"


def _pidfd(pid: int) -> int:
    with contextlib.suppress(AttributeError, OSError):
        return os.pidfd_open(pid)
    return -1


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        where = f" ({os.fsdecode(error.filename)})" if error.filename else ""
        return f"{error.strerror or error}{where}"
    return str(error)
