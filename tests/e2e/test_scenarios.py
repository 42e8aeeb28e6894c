"""Whole stories: faults on the way, a run that may only look, a kill at each step of the tour's repair."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from pegboard.model import Input, Output
from pegboard.testing import tool_of
from pegboard.testing.messages import MessagesService
from pegboard.testing.sessions import Bench
from pegboard.tool import Access, Tool

sys.path.insert(0, str(Path(__file__).parent))
from ride_scenario import Ride, asks


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# -- E2E-2, FM-3 ------------------------------------------------------------------------------------------------


class Press:
    """A host of pages: it keeps what it gets, and may hang up before it answers, or before it keeps."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        self.hangs_up = ""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                with self._listener.accept()[0] as line, line.makefile("rw") as file:
                    asked = file.readline().split(" ", 1)
                    if asked[0].strip() == "list":
                        file.write(json.dumps(self.pages) + "\n")
                        continue
                    if self.hangs_up != "before":
                        self.pages.append(asked[1].strip())
                    if not self.hangs_up:
                        file.write("kept\n")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def press() -> Iterator[Press]:
    made = Press()
    yield made
    made.close()


class Page(Input):
    text: str


class Said(Output):
    said: str


def publish(press: Press, *, looks: bool = True) -> Tool[Any, Any]:
    """A tool that puts a page on the press; ``looks``: it knows how to look whether a page is there."""

    class Publish(Tool[Page, Said]):
        Input, Output = Page, Said

        def accesses(self, input: Page, ctx: Any) -> list[Access]:
            return [Access.use(f"page {input.text}")]

        async def run(self, input: Page, ctx: Any) -> Said:
            with ctx.effect("remote", f"page {input.text}"):
                answer = await self._ask(f"put {input.text}")
                if not answer:
                    raise OSError("the press hung up without an answer")
            return Said(said=answer)

        async def _ask(self, line: str) -> str:
            async with await anyio.connect_tcp("127.0.0.1", press.port) as stream:
                await stream.send(line.encode() + b"\n")
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    return (await stream.receive()).decode().strip()
            return ""

        def render(self, output: Said, ctx: Any) -> str:
            return output.said

    async def settle(self: Any, target: str, ctx: Any) -> bool | None:
        try:
            return target.removeprefix("page ") in json.loads(await self._ask("list"))
        except (OSError, ValueError):
            return None

    if looks:
        Publish.settle = settle  # type: ignore[attr-defined]
    return tool_of(Publish, effects=["remote"], ask=False)


@pytest.mark.anyio
async def test_e2e_2_faults_on_the_way_double_nothing(peg_session: Callable[..., Bench], press: Press) -> None:
    """A stale edit, a service that cuts a stream and fails, an answer that is lost: each ends in its own class."""
    press.hangs_up = "after"
    tools = [publish(press, looks=False)]
    bench = peg_session(tools=tools, mode="acceptEdits", allow=["Bash"], settings={"anthropic.max_retries": 2})
    config, naps = bench.folder / "config.toml", []
    config.write_text("rate = 91\n")
    given = {"file_path": str(config), "old_string": "rate = 91", "new_string": "rate = 19"}
    look = asks(("Glob", {"pattern": "*"}), ("Read", {"file_path": str(config)}), ("Grep", {"pattern": "rate"}))
    test = asks(("Bash", {"command": "echo run >> tests.txt; grep 'rate = 19' config.toml || exit 7"}))
    page = asks(("Publish", {"text": "result"}))

    def somebody_else_first(body: dict[str, Any]) -> Any:
        config.write_text("# reviewed\nrate = 91\n")
        return asks(("Edit", given))

    async def sleep(seconds: float) -> None:
        naps.append(seconds)

    overloaded = {"http_status": 529}
    script = [look, somebody_else_first, {**test, "cut_after_events": 5}, overloaded, test]
    script += [asks(("Read", {"file_path": str(config)})), asks(("Edit", given)), overloaded, overloaded, overloaded]
    script += [asks(("Edit", given)), {**test, "cut_after_events": 7}, test, page, page, "It may be published."]
    with MessagesService(script) as service:
        async with bench, Ride(bench, service, sleep=sleep) as ride:
            assert (await ride.agent.run("go")).errors  # the service is down for longer than it is waited for
            run = await ride.agent.run("go on")
            assert (run.text, run.is_error) == ("It may be published.", False)
            results = ride.whole()
    ends = [(result.tool, result.outcome, result.code) for result in results[3:]]
    assert ends == [
        ("Edit", "not_started", "stale"),
        ("Bash", "partial", "command_failed"),
        ("Read", "ok", None),
        ("Edit", "ok", None),
        ("Edit", "not_started", "not_found"),
        ("Bash", "ok", None),
        ("Publish", "unknown", "unknown_outcome"),
        ("Publish", "not_started", "unknown_outcome"),
    ]
    assert config.read_text() == "# reviewed\nrate = 19\n"
    assert (bench.folder / "tests.txt").read_text() == "run\nrun\n"
    assert press.pages == ["result"] and len(naps) == 5


@pytest.mark.anyio
@pytest.mark.parametrize(("hangs_up", "happened"), [("after", True), ("before", False)])
async def test_fm_3_an_unknown_end_is_looked_up(
    peg_session: Callable[..., Bench], press: Press, hangs_up: str, happened: bool
) -> None:
    press.hangs_up = hangs_up
    tools = [publish(press)]
    page = asks(("Publish", {"text": "result"}))
    with MessagesService([page, "unclear", page, "done"]) as service:
        async with peg_session(tools=tools) as bench, Ride(bench, service) as ride:
            await ride.agent.run("go")
        async with peg_session(tools=tools) as again, Ride(again, service, ride.path) as resumed:
            assert again.session.unsettled == {} and resumed.agent.transcript.unsettled
            again.session.unsettled.update(resumed.agent.transcript.unsettled)
            press.hangs_up = ""
            await resumed.agent.run("go on")
            results = resumed.whole()
    last = ("not_started", "conflict") if happened else ("ok", None)
    assert [(result.outcome, result.code) for result in results] == [("unknown", "unknown_outcome"), last]
    assert press.pages == ["result"]
    settled = [json.loads(line) for line in ride.path.read_text().splitlines() if '"settled"' in line[:20]]
    assert [(line["target"], line["happened"]) for line in settled] == [("page result", happened)]
