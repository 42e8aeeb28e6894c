"""A model service that fails in every way it can: the run ends as it should or goes on, and the session lives.

Whole runs of the command against the strict service, on one session that is resumed after each fault. Whatever
happened, every call has its one result and no effect happened twice.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pegboard.testing.faults import Stage
from pegboard.testing.messages import MessagesService

sys.path.insert(0, str(Path(__file__).parent))
from service_scenario import Play, acting, cuts, events_of, failure


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("service")) as made:
        yield made


@pytest.fixture
def play(stage: Stage) -> Play:
    made = Play(stage)
    made.begin()
    return made


# -- the stream is cut ------------------------------------------------------------------------------------------


def test_a_stream_cut_after_any_event_ends_the_run_and_the_session_goes_on(play: Play) -> None:
    first, second = acting(play, 1), acting(play, 2)
    broken = [cuts(first), cuts(second)]
    script = [*broken[0], first, *broken[1], second, "done"]
    with MessagesService(script) as service:
        for _ in broken[0]:
            assert play.fails(service.url)["num_turns"] == 0
            assert not play.count.exists()
        # The first answer comes whole and its calls run; then the second breaks.
        assert play.fails(service.url)["num_turns"] == 1
        for _ in broken[1][1:]:
            play.fails(service.url)
            assert play.count.read_text() == "1\n"
        play.ends_well(service.url)
        play.whole(service, effects=2)


def test_a_stream_cut_after_its_last_event_is_whole(play: Play) -> None:
    turn = acting(play, 1)
    with MessagesService([{**turn, "cut_after_events": events_of(turn)}, "done"]) as service:
        play.ends_well(service.url)
        play.whole(service, effects=1)


@asynccontextmanager
async def agent_at(bench: Any, url: str, naps: list[float]) -> AsyncIterator[Any]:
    """An agent with a provider whose waits are noted and take no time."""
    from pegboard.agent import Agent, AgentSpec
    from pegboard.transcript import Transcript
    from pegboard_anthropic.provider import make

    async def sleep(seconds: float) -> None:
        naps.append(seconds)

    session = bench.session
    session.transcript = Transcript.create(session.places.sessions_dir / session.id, cwd=session.cwd, version="0")
    environ = {"ANTHROPIC_API_KEY": "sk-test", "ANTHROPIC_BASE_URL": url}
    provider = make(session.settings, environ, sleep=sleep)
    async with session:
        yield Agent(session, provider, AgentSpec(model="claude-haiku-5-5"), session.transcript)
        await provider.close()


@pytest.mark.anyio
async def test_one_run_goes_on_through_a_cut_after_each_event(peg_session: Callable[..., Any]) -> None:
    bench = peg_session(settings={"anthropic.max_retries": 99}, mode="acceptEdits", allow=["Bash"])
    place = Play.__new__(Play)
    place.work, place.count = bench.folder, bench.folder / "count.txt"
    script: list[Any] = []
    for number in (1, 2):
        script += [*cuts(acting(place, number)), acting(place, number)]
    naps: list[float] = []
    with MessagesService([*script, {"content": [], "stream_error": {"type": "overloaded_error"}}, "done"]) as service:
        async with agent_at(bench, service.url, naps) as agent:
            run = await agent.run("go")
    assert (run.text, run.is_error, run.turns) == ("done", False, 3)
    assert len(naps) == len(script) - 2 + 1 and max(naps) <= 32
    assert place.count.read_text() == "1\n2\n"
    assert not [problem for entry in service.requests for problem in entry.problems]


# -- error answers and error events -----------------------------------------------------------------------------

PASSING = (408, 409, 429, 500, 502, 503, 504, 529)
LASTING = (400, 401, 403, 404, 405, 410, 418, 422, 451)


def test_every_error_answer_ends_the_run_and_the_session_goes_on(play: Play) -> None:
    statuses = [*PASSING, *LASTING]
    plain = [failure(status) for status in statuses]
    asking = [failure(status, headers={"retry-after": "3"}) for status in (429, 503, 529)]
    script: list[Any] = [acting(play, 1), *plain, *asking, acting(play, 2), "done"]
    with MessagesService(script) as service:
        for status in [*statuses, 429, 503, 529]:
            result = play.fails(service.url, says=f"{status}: no {status}")
            assert ("ANTHROPIC_API_KEY" in result["errors"][0]) == (status in (401, 403))
        play.ends_well(service.url)
        play.whole(service, effects=2)


@pytest.mark.anyio
async def test_errors_that_pass_are_waited_for_and_others_end_at_once(peg_session: Callable[..., Any]) -> None:
    bench = peg_session(settings={"anthropic.max_retries": len(PASSING) + 4})
    naps: list[float] = []
    passing = [failure(status) for status in PASSING]
    waits = [failure(429, headers={"retry-after": "7"}), failure(529, headers={"retry-after-ms": "1500"})]
    waits += [failure(429, headers={"retry-after": "soon"}), failure(500, headers={"retry-after": "-4"})]
    with MessagesService([*passing, *waits, "done", *map(failure, LASTING)]) as service:
        async with agent_at(bench, service.url, naps) as agent:
            run = await agent.run("go")
            assert (run.text, run.is_error) == ("done", False)
            asked = naps[len(PASSING) :]
            assert asked[:2] == [7.0, 1.5] and asked[3] == 0.0 and 0 < asked[2] <= 32
            usual = naps[: len(PASSING)]
            assert all(
                0.75 * want <= got <= want for got, want in zip(usual, (0.5, 1, 2, 4, 8, 16, 32, 32), strict=True)
            )
            for _ in LASTING:
                assert (await agent.run("go on")).is_error
    assert len(naps) == len(PASSING) + 4, "an error that lasts was waited for"


@pytest.mark.anyio
async def test_a_wait_that_is_too_long_is_not_waited_for(peg_session: Callable[..., Any]) -> None:
    naps: list[float] = []
    with MessagesService([failure(429, headers={"retry-after": "86400"}), "done"]) as service:
        async with agent_at(peg_session(), service.url, naps) as agent:
            assert (await agent.run("go")).is_error and not naps
            assert (await agent.run("go on")).text == "done"


@pytest.mark.anyio
async def test_tries_run_out(peg_session: Callable[..., Any]) -> None:
    naps: list[float] = []
    with MessagesService([*[failure(529)] * 10, "done"]) as service:
        async with agent_at(peg_session(), service.url, naps) as agent:
            run = await agent.run("go")
            assert run.is_error and "529" in run.errors[0] and len(naps) == 9
            assert (await agent.run("go on")).text == "done"


KINDS = ("overloaded_error", "api_error", "timeout_error", "rate_limit_error")
KINDS += ("invalid_request_error", "authentication_error", "permission_error", "not_found_error")
KINDS += ("billing_error", "an_error_of_next_year", "")


def test_every_error_event_ends_the_run_and_the_session_goes_on(play: Play) -> None:
    script: list[Any] = [acting(play, 1)]
    for kind in KINDS:
        script.append({"content": [], "stream_error": {"type": kind, "message": f"why {kind}"}})
        script.append({**acting(play, 9), "stream_error": {"type": kind, "message": f"why {kind}"}})
    with MessagesService([*script, acting(play, 2), "done"]) as service:
        for kind in KINDS:
            for _ in range(2):
                play.fails(service.url, says=f"why {kind}")
        play.ends_well(service.url)
        play.whole(service, effects=2)


TOO_LARGE = (failure(413), {"content": [], "stream_error": {"type": "request_too_large"}})


@pytest.mark.parametrize("refusal", TOO_LARGE, ids=["answer", "event"])
def test_a_request_that_is_too_large_is_made_shorter_whatever_happens_to_the_summary(play: Play, refusal: Any) -> None:
    with MessagesService([acting(play, 1), refusal, "A summary.", "done"]) as service:
        play.ends_well(service.url)
        play.whole(service, effects=1)
    with MessagesService([refusal, failure(500)]) as service:
        play.fails(service.url, reason="too_long")
    with MessagesService([acting(play, 2), "done"]) as service:
        play.ends_well(service.url)
        play.whole(service, effects=2)
    with MessagesService(lambda body: refusal) as service:
        play.fails(service.url, reason="too_long")
    with MessagesService(["done"]) as service:
        play.ends_well(service.url)
        play.whole(service, effects=2)


def test_retries_are_told_in_every_format(play: Play) -> None:
    play.begin(max_retries=1)
    with MessagesService([failure(529, headers={"retry-after": "0"}), "done"] * 2) as service:
        ended, _ = play.peg(service.url, "--output-format", "stream-json")
        retry = next(line for line in map(json.loads, ended.out.splitlines()) if line.get("subtype") == "api_retry")
        assert (ended.code, retry["attempt"], retry["error_status"]) == (0, 1, 529)
        ended, _ = play.peg(service.url, "--output-format", "text")
        assert (ended.code, ended.out) == (0, "done\n") and "try 1 of 2" in ended.err


# -- slow, silent, gone -----------------------------------------------------------------------------------------


def test_a_slow_stream_is_read_to_its_end(play: Play) -> None:
    play.begin(read_timeout=0.5)
    with MessagesService([{**acting(play, 1), "pieces": 1, "event_delay": 0.03}, "done"]) as service:
        play.ends_well(service.url)
        play.whole(service, effects=1)


def test_a_silent_service_ends_the_run(play: Play) -> None:
    play.begin(read_timeout=0.2)
    script = [{"content": [], "delay": 30}, {**acting(play, 1), "event_delay": 30}, acting(play, 1), "done"]
    with MessagesService(script) as service:
        for _ in range(2):
            play.fails(service.url, says="was silent for 0.2 seconds")
        play.ends_well(service.url)
        play.whole(service, effects=1)


def test_a_refused_connection_ends_the_run(play: Play) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with MessagesService([acting(play, 1), "done"]) as service:
        for url in (f"http://127.0.0.1:{port}", "http://no-such-host.invalid"):
            play.fails(url)
        play.ends_well(service.url)
        play.whole(service, effects=1)
