"""One run of the engine under limits: deadline, buffers, memory, abort.

The engine is fast but obeys nobody; here is the one place that ends it. Knows nothing of patterns or results.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream
from pegboard.errors import Code, Refusal
from pegboard.process import Process, child_environment
from pegboard.tool import Context

from pegboard_ripgrep.engine import Engine

REGEX_SIZE = 104_857_600
"""[S] Largest compiled expression in bytes."""

CHUNK = 262_144
TICK = 1.0
"""Seconds between two progress lines."""

Take = Callable[[list[bytes]], bool | None]
"""Gets whole records as they arrive, without their separators; True ends the run early."""


@dataclass(frozen=True)
class Limits:
    """What one run may use."""

    deadline: float = 20.0
    """[S] Seconds."""
    stdout: int = 20_000_000
    """[S] Bytes of results that are taken before the run is ended."""
    stderr: int = 20_000_000
    """[S] Bytes of diagnostics that are kept; more is read and dropped."""
    memory: int = 512 * 1024 * 1024
    """[C] Address space in bytes, where the system can limit a running child (Linux)."""


class End(StrEnum):
    """What ended a run."""

    DONE = "done"
    DEADLINE = "deadline"
    FULL = "full"
    ENOUGH = "enough"


@dataclass(frozen=True)
class Run:
    """How a run ended. ``exit`` is the engine's exit code, negative for a signal, None when the runner ended it."""

    end: End
    exit: int | None
    diagnostics: str

    @property
    def crashed(self) -> bool:
        """The engine died of a signal; under a memory limit that is what running out of it looks like."""
        return self.exit is not None and self.exit < 0


async def run(
    ctx: Context,
    engine: Engine,
    flags: Sequence[str],
    targets: Sequence[str],
    *,
    root: Path,
    take: Take,
    separator: bytes = b"\n",
    limits: Limits | None = None,
) -> Run:
    """Run the engine in ``root`` and hand its output to ``take`` record by record.

    The engine's process group is gone when this returns or raises. An incomplete last record is dropped unless the
    engine itself came to its end. ``targets`` are operands, never options.
    """
    allowed = limits or Limits()
    argv = [str(engine.path), "--no-config", "--color=never", "--no-ignore-messages", *flags, "--", *targets]
    if sum(map(len, argv)) > _ARGUMENTS:
        raise Refusal(Code.INVALID_INPUT, "The search has more patterns than one engine run takes.")
    feed = _Feed(take, separator, allowed.stdout)
    errors = bytearray()
    drained = anyio.Event()
    exit_code: int | None = None
    end = End.DEADLINE
    async with await ctx.process(argv, cwd=root, env=_environment()) as process:
        _limit_memory(process.pid, allowed.memory)
        async with anyio.create_task_group() as group:
            group.start_soon(_drain, process, errors, allowed.stderr, drained)
            group.start_soon(_report, ctx, feed)
            with anyio.move_on_after(allowed.deadline) as scope:
                end = await feed.read(process.stdout)
                if end is End.DONE:
                    exit_code = await process.wait()
                    await drained.wait()
            group.cancel_scope.cancel()
    if scope.cancelled_caught and exit_code is None:
        end = End.DEADLINE
    return Run(end, exit_code, errors.decode("utf-8", "replace"))


_ARGUMENTS = 1_000_000
"""Bytes of command line; the smallest system limit we meet is a little above."""


@dataclass
class _Feed:
    take: Take
    separator: bytes
    limit: int
    received: int = 0
    records: int = 0
    pending: bytearray = field(default_factory=bytearray)

    async def read(self, stream: ByteReceiveStream) -> End:
        while True:
            try:
                chunk = await stream.receive(CHUNK)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                break
            room = self.limit - self.received
            self.received += len(chunk)
            if self._add(chunk[:room]):
                return End.ENOUGH
            if len(chunk) > room:
                return End.FULL
        if self.pending:
            self._give(bytes(self.pending))
        return End.DONE

    def _add(self, chunk: bytes) -> bool:
        whole, found, rest = chunk.rpartition(self.separator)
        if not found:
            self.pending += chunk
            return False
        data = bytes(self.pending) + whole if self.pending else whole
        self.pending = bytearray(rest)
        return self._give(data)

    def _give(self, data: bytes) -> bool:
        records = data.split(self.separator)
        self.records += len(records)
        return bool(self.take(records))


async def _drain(process: Process, into: bytearray, limit: int, drained: anyio.Event) -> None:
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            chunk = await process.stderr.receive(CHUNK)
            into += chunk[: max(0, limit - len(into))]
    drained.set()


async def _report(ctx: Context, feed: _Feed) -> None:
    while True:
        await anyio.sleep(TICK)
        await ctx.progress(f"{feed.records:,} results so far")


def _environment() -> dict[str, str]:
    env = child_environment(os.environ)
    env.pop("RIPGREP_CONFIG_PATH", None)
    env["MALLOC_ARENA_MAX"] = "2"  # glibc reserves 64 MiB of address space for each thread's arena otherwise
    return env


def _limit_memory(pid: int, size: int) -> None:
    if sys.platform != "linux":
        return
    import resource

    with contextlib.suppress(OSError):  # it may have ended already
        resource.prlimit(pid, resource.RLIMIT_AS, (size, size))
