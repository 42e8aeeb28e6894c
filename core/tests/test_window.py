"""The context window over the real loop: clearing (CTX-1, 2, 6), summaries (CTX-4, 5), and what fails then."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pegboard import events
from pegboard.clearing import Bodies, weight
from pegboard.errors import Stop
from pegboard.events import UserText
from pegboard.hooks import Fragment, Verdict, hook
from pegboard.policy import Mode
from pegboard.transcript import read

sys.path.insert(0, str(Path(__file__).parent))
from rides import Ride, call, calls, head, plain, ride

__all__ = ["ride"]
pytestmark = pytest.mark.anyio

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
FILES = {"only": ["Read", "Edit"]}
LONG = "word " * 8_000
"""Ten thousand tokens."""


def is_summary(body: dict[str, Any]) -> bool:
    return "about to be replaced by your answer" in json.dumps(body["messages"][-1])


class Script:
    """Plays steps, and answers requests for a summary by themselves."""

    def __init__(self, *steps: Any, summaries: Any = ("THE SUMMARY",)) -> None:
        self.steps, self.summaries = list(steps), list(summaries)
        self.asked = 0

    def __call__(self, body: dict[str, Any]) -> Any:
        if is_summary(body):
            self.asked += 1
            return self.summaries.pop(0) if len(self.summaries) > 1 else self.summaries[0]
        return self.steps.pop(0) if self.steps else "done"


def reads(ride: Ride, count: int, lines: int = 1_000, first: int = 0) -> list[Any]:
    """Steps that read files of their own, about nine thousand tokens each."""
    numbers = range(first, first + count)
    names = [ride.file(f"f{n:02}.txt", f"line of file {n} with some words\n" * lines) for n in numbers]
    return [calls(call("Read", file_path=name)) for name in names]


async def test_ctx_1_old_bodies_are_cleared_and_edit_still_works(ride: Any) -> None:
    script = Script()
    it = ride(script, settings={"context.clear_at": 185_000}, **FILES)
    edit = call("Edit", file_path=str(it.bench.folder / "f00.txt"), old_string="line of file 0", new_string="x")
    script.steps = [*reads(it, 20), calls({**edit, "input": {**edit["input"], "replace_all": True}})]
    assert (await it.run()).text == "done"
    *bodies, edited = it.results()
    cleared = [body for body in bodies if "cleared from the context" in str(body)]
    assert len(bodies) == 20 and bodies[:17] == cleared and len(cleared) == 17
    assert cleared[0].startswith(f"[Read {it.bench.folder}/f00.txt: ") and "\n" not in cleared[0]
    assert "Edited" in edited and (it.bench.folder / "f00.txt").read_text().startswith("x with")
    assert it.refused == []


async def test_ctx_2_the_transcript_has_all_bodies_and_resume_clears_the_same(ride: Any) -> None:
    script = Script()
    it = ride(script, **FILES)
    script.steps = reads(it, 14)
    await it.run()
    stored = [record for record in read(it.transcript.path) if isinstance(record, events.Result)]
    assert len(stored) == 14 and all(len(record.text) > 30_000 for record in stored)
    before = [message.encoded() for message in it.transcript.messages]
    await it.close()
    again = ride(["on"], again=it, **FILES)
    assert [message.encoded() for message in again.transcript.messages] == before
    await again.run("more")
    assert again.bodies[0]["messages"][: len(before) - 1] == [json.loads(one) for one in before[:-1]]


async def test_ctx_6_little_to_gain_is_left_alone(ride: Any) -> None:
    script = Script()
    it = ride(script, settings={"context.clear_at": 20_000}, **FILES)
    script.steps = reads(it, 12, lines=60)
    await it.run("a long question " + LONG * 2)
    assert not [event for event in it.events if isinstance(event, events.Cleared)]
    assert it.refused == []


async def test_read_8_and_9_a_cleared_file_is_known_but_shown_again(ride: Any) -> None:
    script = Script()
    it = ride(script, **FILES)
    first = calls(call("Read", file_path=it.file("a.txt", "alpha\n" * 2_000)))
    script.steps = [first, first, *reads(it, 14), first]
    await it.run()
    shown, unchanged, *_, again = it.results()
    assert "cleared from the context" in shown and "unchanged" in unchanged
    assert str(again).count("alpha") > 1_000 and it.refused == []


@pytest.mark.parametrize("tool", ["Other", "Grep"])
async def test_only_results_that_can_be_had_again_are_cleared(ride: Any, tool: str) -> None:
    script = Script(*[calls(call(tool, text=LONG)) for _ in range(14)])
    it = ride(script, tools=[plain(tool, budget=100_000)])
    await it.run()
    cleared = [body for body in it.results() if "cleared from the context" in str(body)]
    assert bool(cleared) == (tool == "Grep") and it.refused == []


class Instructions:
    """Says something at every start and after a summary, and something that may change."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.heard: list[Any] = []

    @hook
    async def peg_session_start(self, session: Any, kind: str) -> list[Fragment]:
        self.kinds.append(kind)
        return [Fragment("AGENTS.md", "Always use tabs.")]

    @hook
    def peg_context(self, session: Any) -> list[Fragment]:
        return [Fragment("todo", "1. [ ] tidy up")]

    @hook
    async def peg_event(self, event: Any, session: Any) -> None:
        self.heard.append(event)


async def test_ctx_4_a_summary_brings_instructions_todos_and_files_again(ride: Any) -> None:
    script, spoken = Script(), Instructions()
    it = ride(script, model="claude-haiku-4-5", settings={"context.keep": 100}, hooks=[spoken], **FILES)
    small = calls(call("Read", file_path=it.file("small.txt", "the small file\n")))
    script.steps = [*reads(it, 16), small, *reads(it, 3, first=16)]
    assert (await it.run("please tidy up")).text == "done"
    assert script.asked == 1 and spoken.kinds == ["compact"]
    told = it.texts()
    assert "THE SUMMARY" in told and "Always use tabs." in told and "1. [ ] tidy up" in told
    assert "please tidy up" in told and "Working directory" in told and "Go on with the task" in told
    assert len(it.bodies[-1]["messages"]) < 12
    (done,) = [event for event in it.events if isinstance(event, events.Compacted)]
    assert done.trigger == "auto" and done.before > 170_000
    assert any(isinstance(event, events.Compacted) for event in spoken.heard)
    assert it.agent.spending.turns == len(it.bodies) - 1
    assert it.refused == []


async def test_ctx_5_pairs_are_whole_after_clearing_summary_and_resume(ride: Any) -> None:
    script = Script()
    it = ride(script, model="claude-haiku-4-5", **FILES)
    script.steps = reads(it, 32)
    await it.run("first " + LONG * 8)
    await it.agent.compact()
    assert (await it.run("second")).text == "done"
    await it.close()
    again = ride(Script(*reads(it, 2)), again=it, model="claude-haiku-4-5", **FILES)
    assert (await again.run("third")).text == "done"
    assert len(again.bodies[-1]["messages"]) < 10 and "THE SUMMARY" in again.texts()
    assert it.refused == again.refused == []


async def test_files_seen_last_are_shown_again_and_the_rest_must_be_read(ride: Any) -> None:
    script = Script()
    it = ride(script, **FILES)
    names = [it.file(f"n{n}.txt", f"number {n}\n") for n in range(7)]
    edits = [call("Edit", file_path=name, old_string="number", new_string="count") for name in (names[0], names[6])]
    script.steps = [*[calls(call("Read", file_path=name)) for name in names], "read", calls(*edits)]
    await it.run()
    assert await it.agent.compact() == ""
    await it.run("change them")
    told = it.texts()
    assert [f"1\tnumber {n}" in told for n in range(7)] == [False] * 2 + [True] * 5
    forgotten, known = it.results()
    assert "has not been read" in forgotten and "Edited" in known and it.refused == []


async def test_nothing_is_not_summed_up(ride: Any) -> None:
    it = ride([])
    assert "nothing to sum up" in await it.agent.compact() and it.bodies == []


async def test_compact_by_command_keeps_the_head_and_asks_with_it(ride: Any) -> None:
    it = ride(Script("hello", "again"), tools=[plain("Core")])
    await it.run("start")
    assert await it.agent.compact("Keep the names.") == ""
    asked = it.bodies[-1]
    assert list(head(asked)) == list(head(it.bodies[0])) and "Keep the names." in str(asked["messages"][-1])
    assert asked["messages"][: len(it.bodies[0]["messages"])][0] == it.bodies[0]["messages"][0]
    await it.run("next")
    assert it.texts().count("start") == 1 and it.refused == []


class NoCompaction:
    @hook
    async def peg_before_event(self, event: Any, session: Any) -> Verdict | None:
        if isinstance(event, events.Compacting):
            return Verdict("deny", "not now") if event.custom_instructions else Verdict(note="Mention the colours.")
        return None


async def test_a_hook_may_refuse_a_summary_or_add_a_wish(ride: Any) -> None:
    it = ride(Script("hello"), hooks=[NoCompaction()])
    await it.run()
    assert await it.agent.compact("Keep all.") == "not now" and len(it.bodies) == 1
    assert await it.agent.compact() == "" and "Mention the colours." in str(it.bodies[-1]["messages"][-1])


EMPTY = [
    {"content": [{"type": "text", "text": ""}]},
    " \n",
    {"content": [{"type": "tool_use", "name": "Read", "input": {"file_path": "/x"}}]},
]


@pytest.mark.parametrize("answer", EMPTY, ids=["empty", "blank", "call"])
async def test_compact_empty_summary_keeps_the_conversation(ride: Any, answer: Any) -> None:
    script = Script("hello", "again", summaries=[answer])
    it = ride(script, **FILES)
    await it.run("remember the milk")
    why = await it.agent.compact()
    assert "no summary" in why and script.asked == 2
    assert any(isinstance(event, events.Notice) and event.kind == "compaction" for event in it.events)
    assert (await it.run("and now")).text == "again"
    assert "remember the milk" in it.texts() and "hello" in str(it.bodies[-1]) and it.refused == []


async def test_compact_at_limit_succeeds_though_the_window_is_smaller_than_known(ride: Any) -> None:
    script = Script()
    it = ride(script, service={"window": 50_000}, hooks=[Instructions()], **FILES)
    script.steps = reads(it, 8)
    run = await it.run("KEEP THIS TO THE LETTER")
    assert run.text == "done" and not run.is_error
    assert "KEEP THIS TO THE LETTER" in it.texts() and "Always use tabs." in it.texts()
    too_long = [problem for problem in it.refused if "too long" in problem]
    assert too_long == it.refused and 1 <= len(too_long) <= 3


async def test_compact_at_limit_with_nothing_to_clear_sends_a_digest(ride: Any) -> None:
    script = Script(*[calls(call("Core", text=LONG)) for _ in range(8)])
    it = ride(script, service={"window": 50_000}, tools=[plain("Core", budget=100_000)])
    assert (await it.run("go")).text == "done"
    digests = [body for body in it.bodies if is_summary(body) and "tools" not in body]
    assert digests and "You called Core" in json.dumps(digests[0]["messages"])


async def test_a_conversation_that_cannot_be_made_shorter_ends_with_a_clear_error(ride: Any) -> None:
    script = Script(summaries=[{"http_status": 400, "error": {"message": "prompt is too long"}}])
    it = ride(script, service={"window": 30_000})
    run = await it.run("a question " + LONG * 4)
    assert run.stopped is Stop.TOO_LONG and "Start anew" in run.errors[0]
    assert len(it.bodies) <= 5


async def test_window_exceeded_sums_up_and_goes_on_once(ride: Any) -> None:
    cut = {"content": [{"type": "text", "text": "Half an "}], "stop_reason": "model_context_window_exceeded"}
    it = ride(Script(cut, "answer"))
    run = await it.run()
    assert run.text == "Half an answer" and not run.is_error and it.refused == []
    it = ride(Script(cut, cut, "never"))
    assert (await it.run()).stopped is Stop.TOO_LONG


async def test_answers_are_limited_to_what_is_left_of_the_window(ride: Any) -> None:
    script = Script()
    it = ride(script, model="claude-haiku-4-5", settings={"context.compact_at": 0.95, "context.keep": 100}, **FILES)
    script.steps = reads(it, 9)
    await it.run("a question " + LONG * 8)
    assert it.bodies[0]["max_tokens"] == 64_000
    assert 1_024 <= it.bodies[-1]["max_tokens"] < 40_000


def test_weight_counts_what_a_model_reads() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 1_000_000}}
    assert weight({"type": "text", "text": "abc"}) == 3
    assert weight({"type": "tool_result", "content": [{"type": "text", "text": "abcd"}, picture]}) == 4 + weight(
        picture
    )
    assert weight(picture) < 10_000 and weight({"type": "tool_use", "input": {"a": "b" * 100}}) > 100
    assert weight({"type": "redacted_thinking", "data": "x" * 10}) > 10


def test_bodies_stay_in_order_and_add_up() -> None:
    bodies = Bodies()
    for number in range(5):
        result = {"type": "tool_result", "content": "x" * 1_000}
        bodies.add(f"c{number}", "Read", {"file_path": "/a\nb " + "y" * 200}, result, (number, 0))
    bodies.add("small", "Read", {}, {"type": "tool_result", "content": "x"}, (9, 0))
    assert [name for name, _ in bodies.older(3)] == ["c0", "c1"] and bodies.weight == 5_000
    body = bodies.pop("c0")
    assert body is not None and bodies.pop("c0") is None and bodies.weight == 4_000
    assert body.line().startswith("[Read /a b yyy") and len(body.line()) < 250 and "\n" not in body.line()
    assert list(bodies.older(9)) == []


def test_what_a_person_said_last_is_known() -> None:
    from pegboard.history import History

    history = History()
    history.feed(UserText(content=[{"type": "text", "text": "mine"}]))
    history.feed(UserText(content=[{"type": "text", "text": "theirs"}], origin="scheduled", author="cron"))
    assert history.asked == [{"type": "text", "text": "mine"}]


async def test_compact_read_state_keeps_the_mode_the_directory_and_the_read_gate(ride: Any) -> None:
    script = Script()
    it = ride(script, **FILES)
    kept, gone = it.file("kept.txt", "one\n"), it.file("gone.png", "")
    Path(gone).write_bytes(PNG)
    below = it.bench.folder / "sub"
    below.mkdir()
    script.steps = [calls(call("Read", file_path=gone), call("Read", file_path=kept)), "read"]
    await it.run("look")
    assert "image" in json.dumps(it.bodies[-1])
    it.session.set_mode(Mode.ACCEPT_EDITS, "test")
    await it.session.move(below, "test")
    assert await it.agent.compact() == ""
    script.steps = [calls(call("Edit", file_path=kept, old_string="one", new_string="two"))]
    assert (await it.run("change it")).text == "done"
    assert "Edited" in it.results()[0] and Path(kept).read_text() == "two\n"
    assert it.session.mode is Mode.ACCEPT_EDITS and it.session.cwd == below
    assert '"image"' not in json.dumps(it.bodies[-1]) and f"Working directory: {below}" in it.texts()
    assert it.refused == []
    await it.close()
    again = ride(["on"], again=it, **FILES)
    await again.run("more")
    assert '"image"' not in json.dumps(again.bodies[-1]) and again.refused == []
