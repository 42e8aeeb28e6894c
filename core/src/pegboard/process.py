"""Child processes that cannot be left behind: own process group, killed whole on abort.

Every program that a tool or a library starts goes through here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
from anyio.abc import ByteReceiveStream

from pegboard.errors import Code, Refusal

if TYPE_CHECKING:
    from pegboard.sandbox import Sandbox

GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL when a call is aborted."""

SECRET_NAMES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_CUSTOM_HEADERS")
"""Variables that no child ever sees, beside every name that looks like a credential."""

_SECRET_ENDINGS = ("_API_KEY", "_AUTH_TOKEN", "_SECRET", "_SECRET_KEY", "_ACCESS_KEY", "_PASSWORD", "_TOKEN")


SHELL_NAMES = ("CDPATH", "GLOBIGNORE", "SHELLOPTS", "BASHOPTS")
"""Variables that make a shell read a command otherwise than it was judged: where ``cd`` goes, what a pattern means."""


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """A copy of the environment without credentials, and without what changes the meaning of a judged command."""
    return {
        name: value
        for name, value in environ.items()
        if name not in SECRET_NAMES and name not in SHELL_NAMES and not name.upper().endswith(_SECRET_ENDINGS)
    }


class Process:
    """One running program and its whole tree. Use as an async context manager; leaving it ends the tree."""

    def __init__(self, process: anyio.abc.Process, argv: list[str]) -> None:
        self._process = process
        self._box: Sandbox | None = None
        self.argv = argv
        self.pid = process.pid

    @classmethod
    async def start(
        cls,
        argv: list[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: bytes | None = None,
        box: Sandbox | None = None,
    ) -> Process:
        """Start a program with a closed stdin (or these bytes on it). ``box``: the one that ``argv`` is wrapped for.

        Raises `Refusal` (not_available) when there is no such program, (io_error) when it cannot start.
        """
        try:
            started = await cls._start(argv, cwd, env, stdin)
        except BaseException:
            if box is not None:
                box.ended()
            raise
        started._box = box
        return started

    @classmethod
    async def _start(cls, argv: list[str], cwd: Path, env: Mapping[str, str], stdin: bytes | None) -> Process:
        try:
            # Shielded: an abort in the middle would lose the handle, and with it the process. It takes milliseconds.
            with anyio.CancelScope(shield=True):
                process = await anyio.open_process(
                    argv,
                    cwd=cwd,
                    env=env,
                    stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
        except FileNotFoundError as error:
            missing = error.filename or argv[0]
            raise Refusal(Code.NOT_AVAILABLE, f"Cannot start {argv[0]}: {missing} does not exist.") from None
        except OSError as error:
            raise Refusal(Code.IO_ERROR, f"Cannot start {argv[0]}: {error.strerror or error}.") from None
        started = cls(process, argv)
        if stdin is not None and process.stdin is not None:
            try:
                await process.stdin.send(stdin)
                await process.stdin.aclose()
            except (BrokenPipeError, ConnectionError, anyio.BrokenResourceError):
                pass
            except BaseException:
                await started.end()
                raise
        return started

    @property
    def stdout(self) -> ByteReceiveStream:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def stderr(self) -> ByteReceiveStream:
        assert self._process.stderr is not None
        return self._process.stderr

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for the program itself; its exit code, negative for a signal."""
        return await self._process.wait()

    def signal(self, number: int) -> None:
        """Send a signal to the whole process group; a group that is gone already is no error.

        In a box it goes to what runs inside, because the box itself would end at once; a kill ends the box.
        """
        if number != signal.SIGKILL and self._box is not None and self._box.signal(self.pid, number):
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def end(self) -> None:
        """End the whole tree: SIGTERM, a moment, SIGKILL. Returns when the program itself is gone."""
        with anyio.CancelScope(shield=True):
            if self._process.returncode is None:
                self.signal(signal.SIGTERM)
                with anyio.move_on_after(GRACE):
                    await self._process.wait()
            self.signal(signal.SIGKILL)
            await self._process.wait()
            for pipe in (self.stdout, self.stderr):
                await _to_end(pipe)
            for stream in (self._process.stdout, self._process.stderr, self._process.stdin):
                if stream is not None:
                    await stream.aclose()
            if self._box is not None:
                self._box.ended()
                self._box = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()


async def _to_end(pipe: ByteReceiveStream) -> None:
    """Read what a dead program left in its pipe: asyncio closes the file only when it has seen the end."""
    ended = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
    with anyio.move_on_after(GRACE), contextlib.suppress(*ended):
        while True:
            await pipe.receive()
