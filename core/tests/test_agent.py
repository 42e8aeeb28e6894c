"""The loop against the strict service, with the real provider: LOOP-1 to LOOP-8, limits, cut and refused answers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from pegboard import events
from pegboard.agent import Agent, AgentSpec, RunResult
from pegboard.errors import Stop, UsageError
from pegboard.hooks import Fragment, Verdict, hook
from pegboard.provider import Answer, ModelRef, Usage
from pegboard.testing import Willing
from pegboard.testing.messages import MessagesService
from pegboard.transcript import Transcript, read
from pegboard_anthropic.provider import Anthropic

sys.path.insert(0, str(Path(__file__).parent))
import looptools

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def call(tool: str, text: str = "x", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": tool, "input": {"text": text}, **more}


def calls(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"content": list(blocks), **more}


class Ride:
    """One session with a scripted service: run prompts, look at requests."""

    def __init__(self, bench: Any, service: MessagesService, provider: Anthropic, host: Willing, **spec: Any) -> None:
        self.bench, self.service, self.host = bench, service, host
        self.session = bench.session
        folder = self.session.places.sessions_dir / self.session.id
        self.session.transcript = Transcript.create(folder, cwd=self.session.cwd, version="0")
        spec = {"model": "claude-haiku-5-5", **spec}
        self.agent = Agent(self.session, provider, AgentSpec(**spec), self.session.transcript)

    async def run(self, prompt: str = "go") -> RunResult:
        return await self.agent.run(prompt)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return self.service.bodies

    def last(self, request: int = -1) -> list[dict[str, Any]]:
        """The blocks of the last message of a request."""
        content: list[dict[str, Any]] = self.bodies[request]["messages"][-1]["content"]
        return content

    @property
    def refused(self) -> list[str]:
        return [problem for entry in self.service.requests for problem in entry.problems]


@pytest.fixture
async def ride(peg_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Ride]]:
    services: list[MessagesService] = []
    rides: list[Ride] = []

    def make(script: Any, *, hooks: Any = (), options: Any = None, service: Any = None, **spec: Any) -> Ride:
        served = MessagesService(script, **(service or {}))
        services.append(served)
        served.__enter__()
        monkeypatch.setenv("ANTHROPIC_BASE_URL", served.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
        host = Willing()
        bench = peg_session(tools=looptools.tools(), hooks=hooks, host=host, only=[], **(options or {}))
        registry, settings = bench.session.registry, bench.session.settings
        provider = registry.provider(ModelRef.parse("claude-haiku-5-5"), settings, os.environ)
        rides.append(Ride(bench, served, provider, host, **spec))
        return rides[-1]

    yield make
    for done in rides:
        await done.agent.provider.close()
        await done.session.close()
    for served in services:
        served.__exit__(None, None, None)


async def test_loop_1_three_calls_one_unknown(ride: Callable[..., Ride]) -> None:
    it = ride([calls(call("Echo", "a"), call("Nope"), call("Echo", "c")), "done"])
    run = await it.run()
    assert (run.text, run.stop_reason, run.turns, run.is_error) == ("done", "end_turn", 2, False)
    ids = [block["id"] for block in it.bodies[1]["messages"][1]["content"]]
    results = it.last()[:3]
    assert [block["tool_use_id"] for block in results] == ids
    assert [block.get("is_error", False) for block in results] == [False, True, False]
    assert results[0]["content"] == "echo a" and "Nope" in results[1]["content"]
    assert it.refused == []


async def test_loop_2_abort_in_mid_tool_and_resume(ride: Callable[..., Ride]) -> None:
    it = ride([calls(call("Echo"), call("Linger"), call("Echo")), "again"])
    async with anyio.create_task_group() as tasks:

        async def stop() -> None:
            while not (it.bench.folder / "linger.txt").exists():
                await anyio.sleep(0.01)
            it.session.abort()

        tasks.start_soon(stop)
        run = await it.run()
    assert run.stopped is Stop.INTERRUPTED and run.is_error
    it.session.resume()
    assert (await it.run("go on")).text == "again"
    first, middle, last = it.last()[:3]
    assert "is_error" not in first and middle["is_error"] and last["is_error"]
    assert "This may have happened: process linger" in middle["content"]
    assert it.refused == []
    it.session.transcript.close()
    again = Transcript.resume(it.session.transcript.path)
    assert again.messages == it.session.transcript.messages
    again.close()


async def test_loop_3_thinking_goes_back_as_it_came(ride: Callable[..., Ride]) -> None:
    thinking = {"type": "thinking", "thinking": "hm"}
    it = ride([calls(thinking, call("Echo")), "done"])
    await it.run()
    sent = it.bodies[1]["messages"][1]["content"][0]
    assert sent["type"] == "thinking" and sent["thinking"] == "hm" and sent["signature"]
    assert it.refused == []


async def test_loop_4_a_paused_turn_is_sent_back_without_new_text(ride: Callable[..., Ride]) -> None:
    paused = {"content": [{"type": "text", "text": "searching"}], "stop_reason": "pause_turn"}
    it = ride([paused, "found it"])
    run = await it.run()
    first, second = (body["messages"] for body in it.bodies)
    assert len(second) == len(first) + 1 and second[-1]["role"] == "assistant"
    assert second[-1]["content"][0]["text"] == "searching" and run.text == "searchingfound it"
    assert it.refused == []


async def test_loop_5_broken_json_is_quoted_and_the_loop_goes_on(ride: Callable[..., Ride]) -> None:
    broken = {"type": "tool_use", "name": "Echo", "raw_input": '{"text": "abc'}
    it = ride([calls(broken, call("Echo", "fine")), "done"])
    run = await it.run()
    result, fine = it.last()[:2]
    assert result["is_error"] and '{"text": "abc' in result["content"] and fine["content"] == "echo fine"
    assert run.text == "done" and it.refused == []


async def test_loop_6_retry_after_is_obeyed_and_told(ride: Callable[..., Ride]) -> None:
    it = ride([{"http_status": 429, "headers": {"retry-after": "1"}}, "done"])
    assert (await it.run()).text == "done"
    waits = [event for event in it.host.events if isinstance(event, events.Retry)]
    assert len(waits) == 1 and waits[0].delay == pytest.approx(1, abs=0.2) and waits[0].status == 429
    assert it.service.requests[1].at - it.service.requests[0].at >= 0.95


async def test_loop_7_a_body_comes_after_all_results(ride: Callable[..., Ride]) -> None:
    it = ride([calls(call("Echo", "a"), call("Teach", "knots"), call("Echo", "b")), "done"])
    await it.run()
    blocks = it.last()
    assert [block["type"] for block in blocks[:3]] == ["tool_result"] * 3
    assert blocks[1]["content"] == "launching knots"
    assert "the body of knots" in blocks[3]["text"] and 'from="knots" origin="skill"' in blocks[3]["text"]
    assert it.refused == []


async def test_out_3_max_turns_answers_the_calls_and_runs_none(ride: Callable[..., Ride]) -> None:
    it = ride([calls(call("Touch", "made")), "next"], max_turns=1)
    run = await it.run()
    assert run.stopped is Stop.MAX_TURNS and run.turns == 1
    assert not (it.bench.folder / "made").exists()
    result = it.session.transcript.messages[-1].content[0]
    assert result["is_error"] and "was not run" in result["content"]
    again = await it.run("now")
    assert again.text == "next" and it.refused == []


async def test_an_unknown_price_refuses_a_budget_at_the_start(ride: Callable[..., Ride]) -> None:
    with pytest.raises(UsageError, match="price of mystery-1 is not known"):
        ride(["x"], model="mystery-1", max_budget_usd=1.0)


async def test_a_spent_budget_ends_the_run_before_its_calls(ride: Callable[..., Ride]) -> None:
    usage = {"input_tokens": 1_000_000, "output_tokens": 10}
    it = ride([calls(call("Touch", "made"), usage=usage), "next"], max_budget_usd=0.01)
    run = await it.run()
    assert run.stopped is Stop.BUDGET and not (it.bench.folder / "made").exists()
    assert it.agent.spending.cost is not None and it.agent.spending.cost > 0.01
    codes = [event.code for event in it.host.events if isinstance(event, events.Result)]
    assert codes == ["budget_exceeded"]


async def test_a_slow_model_meets_the_time_limit(ride: Callable[..., Ride]) -> None:
    it = ride([{"content": [{"type": "text", "text": "late"}], "delay": 30}, "fine"], max_seconds=0.3)
    run = await it.run()
    assert run.stopped is Stop.DURATION and run.text == ""


async def test_cut_text_is_continued_once(ride: Callable[..., Ride]) -> None:
    cut = {"content": [{"type": "text", "text": "one "}], "stop_reason": "max_tokens"}
    it = ride([cut, "two", cut, cut])
    run = await it.run()
    assert run.text == "one two" and not run.is_error
    assert 'origin="auto-continuation"' in it.last()[-1]["text"]
    run = await it.run("again")
    assert run.stopped is Stop.INCOMPLETE and run.text == "one one "
    assert it.refused == []


async def test_pipe_truncated_tool_input_is_not_run(ride: Callable[..., Ride]) -> None:
    cut = {"type": "tool_use", "name": "Touch", "raw_input": '{"text": "half'}
    it = ride([calls(call("Echo", "whole"), cut, stop_reason="max_tokens"), "done"])
    await it.run()
    whole, half = it.last()[:2]
    assert whole["content"] == "echo whole"
    assert half["is_error"] and "cut at the output limit" in half["content"] and "smaller parts" in half["content"]
    assert not (it.bench.folder / "half").exists() and it.refused == []


async def test_a_refusal_is_an_error_and_runs_nothing(ride: Callable[..., Ride]) -> None:
    it = ride([calls(call("Touch", "made"), stop_reason="refusal"), "sorry"])
    run = await it.run()
    assert run.stopped is Stop.REFUSAL and not (it.bench.folder / "made").exists()
    assert (await it.run("else")).text == "sorry" and it.refused == []


async def test_a_full_window_ends_the_run_clearly(ride: Callable[..., Ride]) -> None:
    it = ride([{"content": [{"type": "text", "text": "so"}], "stop_reason": "model_context_window_exceeded"}])
    run = await it.run()
    assert run.stopped is Stop.TOO_LONG and "context window" in run.errors[0]


async def test_an_empty_answer_is_asked_about_once(ride: Callable[..., Ride]) -> None:
    it = ride([{"content": []}, {"content": []}])
    run = await it.run()
    assert run.turns == 2 and run.text == "" and not run.is_error and it.refused == []


async def test_sess_poison_block_recovery(ride: Callable[..., Ride]) -> None:
    def poisoned(body: dict[str, Any]) -> dict[str, Any]:
        if '"type": "image"' in json.dumps(body["messages"]):
            error = {"message": "messages.2.content.0.tool_result.content.1.image: could not process"}
            return {"http_status": 400, "error": error}
        return {"content": [{"type": "text", "text": "fine"}]}

    it = ride([calls(call("Picture")), poisoned, poisoned, "later"])
    run = await it.run()
    assert run.text == "fine" and not run.is_error
    assert it.last()[0]["content"][1]["type"] == "text"
    assert any(isinstance(event, events.Notice) and "refused a part" in event.text for event in it.host.events)
    assert (await it.run("more")).text == "later"


async def test_a_bad_request_that_names_no_block_ends_the_run(ride: Callable[..., Ride]) -> None:
    it = ride([{"http_status": 400, "error": {"message": "your account is out of credit"}}, "fine"])
    run = await it.run()
    assert run.is_error and "out of credit" in run.errors[0] and run.stopped is None
    assert (await it.run("again")).text == "fine" and it.refused == []
    assert len(it.bodies[-1]["messages"]) == 1, "the two prompts are one message"


async def test_a_message_that_arrives_during_a_batch_is_heard_after_it(ride: Callable[..., Ride]) -> None:
    said = events.UserText(content=[{"type": "text", "text": "also this"}])
    scheduled = events.UserText(content=[{"type": "text", "text": "tick"}], origin="scheduled", author="cron")
    it = ride([calls(call("Echo")), "done", "after"])
    it.agent.inbox.extend([scheduled, said])
    await it.run()
    texts = [block.get("text", "") for block in it.last()]
    assert texts[1] == "also this" and "tick" in texts[2] and it.refused == []


async def test_the_head_of_a_request_never_changes_and_news_are_said_once(ride: Callable[..., Ride]) -> None:
    class Weather:
        said = "sun"

        @hook
        def peg_context(self, session: Any) -> list[Fragment]:
            return [Fragment("weather", self.said)]

    weather = Weather()
    it = ride([calls(call("Echo")), calls(call("Echo")), "done", "rain?"], hooks=[weather])
    await it.run()
    weather.said = "rain"
    await it.run("and now?")
    heads = {json.dumps([body["tools"], body["system"]], sort_keys=True) for body in it.bodies}
    assert len(heads) == 1
    names = [tool["name"] for tool in it.bodies[0]["tools"]]
    assert names == sorted(names)
    whole = json.dumps(it.bodies[-1]["messages"])
    assert whole.count("sun") == 1 and whole.count("rain") == 1 and whole.count("Working directory") == 1
    assert "Working directory" not in json.dumps(it.bodies[0]["system"])


async def test_hooks_may_refuse_a_prompt_and_a_stop(ride: Callable[..., Ride]) -> None:
    class Judge:
        @hook
        async def peg_before_event(self, event: Any, session: Any) -> Verdict | None:
            if isinstance(event, events.UserText) and event.content[0]["text"] == "bad":
                return Verdict("deny", "no bad words")
            if isinstance(event, events.Ended) and event.turns < 2:
                return Verdict("deny", "run the tests first")
            return None

    it = ride(["I am done", "tests pass"], hooks=[Judge()])
    run = await it.run("bad")
    assert run.stopped is Stop.REFUSAL and "no bad words" in run.errors[0] and it.bodies == []
    run = await it.run("good")
    assert run.text == "tests pass" and "run the tests first" in it.last()[-1]["text"] and it.refused == []


async def test_loop_8_killed_in_mid_tool_the_model_is_told(ride: Callable[..., Ride]) -> None:
    it = ride(["I see"])
    transcript = it.session.transcript
    blocks = [{"type": "tool_use", "id": f"t{number}", "name": "Linger", "input": {}} for number in range(3)]
    transcript.say(events.UserText(content=[{"type": "text", "text": "go"}]))
    transcript.open(Answer("m", "m", blocks, "tool_use", Usage()))
    transcript.append(events.Result(id="t0", tool="Linger", outcome="ok", text="kept"))
    it.session.note_began("t1", "Linger")
    transcript.close()
    again = Transcript.resume(transcript.path)
    it.session.transcript = again
    it.agent.transcript = again
    assert (await it.run("hi")).text == "I see"
    kept, begun, waiting = it.last()[:3]
    assert kept["content"] == "kept" and "effects may exist" in begun["content"] and waiting["is_error"]
    assert it.refused == []


async def test_everything_is_on_record_before_the_next_request(ride: Callable[..., Ride]) -> None:
    seen: list[list[str]] = []

    def look(body: dict[str, Any]) -> str:
        seen.append([type(record).__name__ for record in read(it.session.transcript.path)])
        return "done"

    it = ride([calls(call("Touch", "made")), look])
    await it.run()
    kinds = [kind for kind in seen[0] if kind not in ("UserText", "Marked", "State", "Notice")]
    assert kinds == ["Started", "Assistant", "Began", "Result", "Closed"]


async def test_the_service_is_asked_with_what_the_request_says(ride: Callable[..., Ride]) -> None:
    it = ride(["x"], system="You are a tester.", tools=frozenset({"Echo"}), max_tokens=77, extra={"metadata": {}})
    await it.run()
    body = it.bodies[0]
    assert body["max_tokens"] == 77 and [tool["name"] for tool in body["tools"]] == ["Echo"]
    assert [block["text"] for block in body["system"]][-1] == "You are a tester." and body["metadata"] == {}


@pytest.mark.parametrize(("mode", "after"), [("acceptEdits", "acceptEdits"), ("plan", "default")])
async def test_ses_2_a_resumed_session_keeps_its_mode_except_plan(
    ride: Callable[..., Ride], mode: str, after: str
) -> None:
    from pegboard.policy import Mode
    from pegboard.session import Session

    it = ride(["x"])
    it.session.set_mode(Mode.parse(mode), "user")
    transcript = it.session.transcript
    transcript.close()
    again = Transcript.resume(transcript.path)
    session = Session.create(it.session.places, it.session.settings, it.session.registry, transcript=again)
    assert session.mode == after
    again.close()
