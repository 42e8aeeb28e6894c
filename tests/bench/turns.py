"""What a turn costs at the beginning and after thousands: bytes sent and CPU time of the client, as ratios.

    python tests/bench/turns.py [TURNS=5000]

The loop, the provider and the Read tool are the real ones; the service answers at once and checks nothing, because its
own work would hide the client's. Only the CPU time of the client's thread counts.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
from pegboard.agent import Agent, AgentSpec
from pegboard.provider import ModelRef
from pegboard.testing.messages_events import answer_blocks, encode_event, message_of, stream_of
from pegboard.testing.messages_http import Exchange, Server
from pegboard.testing.sessions import Bench, Willing, set_room
from pegboard.transcript import Transcript

AROUND = 15
"""Turns on each side over which a median is taken."""

ARMS = {
    "a window of a million tokens": ("claude-haiku-5-5", {}),
    "a window of 200,000 tokens, so that it is summed up": ("claude-haiku-4-5", {}),
    "nothing is ever cleared": ("claude-haiku-5-5", {"context.keep": 1_000_000}),
}


class Service:
    """Answers each request with the next Read, notes when it came and how large it was."""

    def __init__(self, turns: int, file: str) -> None:
        self.turns, self.file = turns, file
        self.sizes: list[int] = []
        self.summaries = 0
        self.times: list[float] = []
        self.clock = time.thread_time

    def handle(self, exchange: Exchange) -> None:
        summary = b"about to be replaced by your answer" in exchange.body[-3_000:]
        if summary:
            self.summaries += 1
        else:
            self.sizes.append(len(exchange.body))
        turn = self._turn(summary)
        blocks = answer_blocks(turn)
        message = message_of(turn, blocks, "m", len(exchange.body) // 4)
        exchange.begin({"content-type": "text/event-stream"})
        exchange.chunk(*[encode_event(event) for event in stream_of(turn, blocks, message)])
        exchange.end()

    def _turn(self, summary: bool) -> dict[str, Any]:
        if summary or len(self.sizes) > self.turns:
            return {"content": [{"type": "text", "text": "All is well so far."}]}
        given = {"file_path": self.file, "offset": len(self.sizes) % 900 + 1, "limit": 30}
        return {"content": [{"type": "tool_use", "name": "Read", "input": given}]}


class Watched(Willing):
    """Notes the client's CPU time at the end of every turn."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    async def show(self, event: Any) -> None:
        if type(event).__name__ == "Assistant":
            self.times.append(time.thread_time())


async def ride(folder: Path, turns: int, model: str, settings: dict[str, Any]) -> tuple[list[float], Service]:
    """Run a session; the CPU time at each answer, and what the service saw."""
    host = Watched()
    bench = Bench(folder, host=host, only=["Read"], settings=settings)
    file = bench.folder / "a.txt"
    file.write_text(
        "".join(f"line {number} of a file that is read in pieces, over and over\n" for number in range(1_000))
    )
    service = Service(turns, str(file))
    with Server(service.handle) as server:
        os.environ["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{server.port}"
        os.environ["ANTHROPIC_API_KEY"] = "bench"
        session = bench.session
        session.transcript = Transcript.create(session.directory, cwd=session.cwd, version="0")
        provider = session.registry.provider(ModelRef(model), session.settings, os.environ)
        agent = Agent(session, provider, AgentSpec(model=model), session.transcript)
        run = await agent.run("read all of it")
        assert not run.is_error, run.errors
        await provider.close()
        await session.close()
    return host.times, service


def main(turns: int = 5_000) -> None:
    """Print bytes and CPU time at turn 10 and at the last, and their ratios."""
    for label, (model, settings) in ARMS.items():
        with tempfile.TemporaryDirectory() as folder:
            set_room(Path(folder), os.environ.__setitem__)
            began = time.perf_counter()
            times, service = anyio.run(ride, Path(folder), turns, model, settings)
        spent = [after - before for before, after in pairwise(times)]
        early, late = (statistics.median(part) for part in (spent[10 : 10 + 2 * AROUND], spent[-2 * AROUND :]))
        mean = (times[-1] - times[10]) / (len(times) - 11)
        first, last = service.sizes[10], service.sizes[-1]
        print(f"{label}: {turns} turns in {time.perf_counter() - began:.0f} s, {service.summaries} summaries")
        grown = f"{late * 1000:8.2f} ms at the end {late / early:6.2f} x"
        print(f"  CPU of a turn    {early * 1000:8.2f} ms at turn 10 {grown}")
        print(f"  mean over all    {mean * 1000:8.2f} ms   {mean / early:5.2f} x turn 10")
        print(f"  bytes of a turn  {first:8,} at turn 10   {last:10,} at the end   {last / first:7.2f} x")
        print(f"  largest request  {max(service.sizes):10,} bytes; all together {sum(service.sizes) / 1e6:,.0f} MB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
