"""One run under limits: nothing hangs, nothing floods, nothing is left behind."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio
import pytest
from pegboard.errors import Code, Refusal
from pegboard.testing import Bench
from pegboard.tool import Context
from pegboard_ripgrep.engine import Engine, find
from pegboard_ripgrep.runner import End, Limits, run

pytestmark = pytest.mark.anyio


@pytest.fixture
async def ctx(tmp_path):
    from pegboard.call import Ledger

    async with Bench(tmp_path) as bench:
        session = bench.session
        yield Context(session, call_id="call-1", tool="Grep", ledger=Ledger(), snapshot=session.snapshot())


def stand_in(ctx: Context, text: str) -> Engine:
    """A program in place of the engine."""
    path = ctx.cwd / "engine.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return Engine(path, (99, 0, 0), "test")


async def collect(ctx, engine, flags=(), targets=("./",), separator=b"\n", **limits):
    records: list[bytes] = []
    ended = await run(
        ctx,
        engine,
        flags,
        targets,
        root=ctx.cwd,
        take=records.extend,
        separator=separator,
        limits=Limits(**limits),
    )
    return ended, records


async def gone(pid: int) -> bool:
    """A killed process is gone a moment later than its parent."""
    for _ in range(500):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        await anyio.sleep(0.01)
    return False


async def test_records_arrive_whole_and_in_order(ctx):
    (ctx.cwd / "many.txt").write_text("".join(f"row {n}\n" for n in range(50_000)))
    ended, records = await collect(ctx, find(), ["--no-filename", "--regexp=row"], ["./many.txt"])
    assert (ended.end, ended.exit) == (End.DONE, 0)
    assert list(filter(None, records)) == [b"row %d" % n for n in range(50_000)]


async def test_a_last_record_without_its_end_is_kept_when_the_engine_is_done(ctx):
    ended, records = await collect(ctx, stand_in(ctx, "printf 'a\\nb'"))
    assert (ended.end, records) == (End.DONE, [b"a", b"b"])


async def test_the_deadline_ends_the_whole_group_and_drops_the_half_record(ctx):
    engine = stand_in(ctx, "sleep 60 & echo $! > child; printf 'a\\nhalf'; wait")
    with anyio.fail_after(30):
        ended, records = await collect(ctx, engine, deadline=1.0)
    assert (ended.end, ended.exit, records) == (End.DEADLINE, None, [b"a"])
    assert await gone(int((ctx.cwd / "child").read_text()))


async def test_an_engine_that_closes_its_output_and_stays_is_ended_too(ctx):
    with anyio.fail_after(30):
        ended, records = await collect(ctx, stand_in(ctx, "echo a; exec >&- 2>&-; sleep 60"), deadline=1.0)
    assert (ended.end, records) == (End.DEADLINE, [b"a"])


async def test_a_full_buffer_ends_the_run_and_drops_the_half_record(ctx):
    engine = stand_in(ctx, "while :; do echo 123456789; done")
    with anyio.fail_after(30):
        ended, records = await collect(ctx, engine, stdout=1_005)
    assert ended.end is End.FULL
    assert records == [b"123456789"] * 100


async def test_diagnostics_beyond_their_buffer_are_read_and_dropped(ctx):
    engine = stand_in(ctx, "head -c 3000000 /dev/zero | tr '\\0' e >&2; echo a")
    ended, records = await collect(ctx, engine, stderr=1000)
    assert (ended.end, list(filter(None, records))) == (End.DONE, [b"a"])
    assert ended.diagnostics == "e" * 1000


async def test_the_reader_can_end_the_run(ctx):
    ended = await run(ctx, stand_in(ctx, "while :; do echo a; done"), [], [], root=ctx.cwd, take=lambda records: True)
    assert ended.end is End.ENOUGH


async def test_an_abort_ends_the_whole_group(ctx):
    engine = stand_in(ctx, "sleep 60 & echo $! > child; echo ready; wait")
    with anyio.CancelScope() as scope:
        await run(ctx, engine, [], [], root=ctx.cwd, take=lambda records: scope.cancel())
    assert scope.cancelled_caught
    assert await gone(int((ctx.cwd / "child").read_text()))


async def test_memory_is_limited(ctx):
    sleeping = "import resource, time; time.sleep(1); print(resource.getrlimit(resource.RLIMIT_AS)[0])"
    ended, records = await collect(ctx, stand_in(ctx, f'exec python3 -c "{sleeping}"'))
    assert ended.exit == 0
    assert records[0] == b"%d" % (512 * 1024 * 1024)


async def test_an_engine_that_dies_is_known_to_have_crashed(ctx):
    ended, _ = await collect(ctx, stand_in(ctx, "kill -ABRT $$"))
    assert ended.crashed and ended.exit == -signal.SIGABRT


async def test_no_configuration_of_the_user_is_read(ctx, monkeypatch):
    config = ctx.cwd / "config"
    config.write_text("--invert-match\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(config))
    (ctx.cwd / "a.txt").write_text("needle\nother\n")
    _, records = await collect(ctx, find(), ["--regexp=needle"], ["./a.txt"])
    assert records[0] == b"needle"
    _, records = await collect(ctx, stand_in(ctx, "env"))
    assert not [line for line in records if line.startswith(b"RIPGREP_CONFIG_PATH")]


async def test_targets_are_never_options(ctx):
    (ctx.cwd / "--files").write_text("needle\n")
    _, records = await collect(ctx, find(), ["--regexp=needle"], ["--files"])
    assert records[0] == b"needle"


async def test_too_many_patterns_are_refused_in_words(ctx):
    with pytest.raises(Refusal) as refused:
        await collect(ctx, find(), [f"--glob={n:0100}" for n in range(20_000)])
    assert refused.value.code is Code.INVALID_INPUT
