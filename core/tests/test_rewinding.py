"""Going back: marks, owners that can and cannot, the conversation, and the way forward again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard import events
from pegboard.account import account, text_of
from pegboard.call import Outcome, Status
from pegboard.cli.owners import classes, holder_of
from pegboard.cli.rewinding import Story, go_back, take_back
from pegboard.errors import UsageError
from pegboard.lines import outline, read
from pegboard.model import Input, Output
from pegboard.provider import Answer, Usage
from pegboard.state import Kept, Mark, Owner, Place, Restored
from pegboard.testing import tool_of
from pegboard.testing.messages_check import problems
from pegboard.tool import Access, Tool
from pegboard.transcript import Transcript


class Shelf(Owner):
    """Holds lines in a file of the session; goes back by length. A line "fixed" cannot be taken off."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    async def open(cls, place: Place) -> Shelf:
        place.session_dir.mkdir(parents=True, exist_ok=True)
        path = place.session_dir / "shelf"
        path.touch()
        return cls(path)

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def put(self, lines: list[str]) -> None:
        self.path.write_text("".join(line + "\n" for line in lines))

    async def mark(self) -> Mark:
        return Mark(self.lines)

    async def foresee(self, mark: Mark, *, force: bool = False) -> tuple[list[Restored], list[Kept]]:
        stuck = "fixed" in self.lines and not force
        restored = [Restored("the shelf", "update", "@@")] if not stuck and self.lines != mark.value else []
        return restored, [Kept("the shelf", "something on it is fixed")] if stuck else []

    async def rewind(self, mark: Mark, *, force: bool = False) -> list[Kept]:
        kept = (await self.foresee(mark, force=force))[1]
        if not kept:
            self.put(mark.value)
        return kept


class Diary(Owner):
    """Remembers what was said; goes where the conversation goes."""

    follows = True

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.news: list[str] = []

    def write(self, line: str) -> None:
        self.lines.append(line)
        self.news.append(line)
        self.dirty = True

    def remember(self) -> Any:
        news, self.news = self.news, []
        return news

    def recall(self, saved: Any) -> None:
        self.lines += saved


class Stone(Owner):
    """Cannot go back."""


class Glass(Owner):
    """Breaks when it is asked to go back."""

    async def mark(self) -> Mark:
        return Mark(0)

    async def rewind(self, mark: Mark, *, force: bool = False) -> list[Kept]:
        raise RuntimeError("shards")


class Text(Input):
    text: str = ""


class Said(Output):
    said: str = ""


class Put(Tool[Text, Said]):
    """Puts a line on the shelf and into the diary; "send" also reaches a remote service, "break" opens the glass."""

    Input, Output = Text, Said

    def accesses(self, input, ctx):
        return [Access.use("shelf")]

    async def run(self, input, ctx):
        shelf, diary = await ctx.own(Shelf), await ctx.own(Diary)
        await ctx.own(Stone)
        if input.text == "break":
            await ctx.own(Glass)
        diary.write(input.text)
        with ctx.effect("registry", "the shelf"):
            shelf.put([*shelf.lines, input.text])
        if input.text == "send":
            with ctx.effect("remote", "https://example.org/page"):
                pass
        return Said(said=input.text)

    def render(self, output, ctx):
        return output.said


OWNERS = [f"{owner.__module__}:{owner.__qualname__}" for owner in (Shelf, Diary, Stone, Glass)]


def put() -> Tool[Any, Any]:
    return tool_of(Put, effects=["registry", "remote"], ask=False, owners=OWNERS)


class Ride:
    """A session with a transcript, driven without a model."""

    def __init__(self, bench) -> None:
        self.bench, self.session = bench, bench.session
        folder = bench.places.sessions_dir / self.session.id
        self.transcript = Transcript.create(folder, cwd=bench.folder, version="0")
        self.session.transcript = self.transcript
        self.count = 0

    async def ask(self, text: str, *calls: str) -> None:
        prompt = await self.session.begin_span()
        self.transcript.append(events.UserText(content=[{"type": "text", "text": text}], prompt=prompt))
        if calls:
            names = [f"c{self.count}-{index}" for index in range(len(calls))]
            blocks = [
                {"type": "tool_use", "id": name, "name": "Put", "input": {"text": call}}
                for name, call in zip(names, calls, strict=True)
            ]
            turn = self.transcript.open(Answer("m", "m", blocks, "tool_use", Usage()))
            await self.session.run_calls(turn.calls)
            turn.close()
        self.count += 1
        said = [{"type": "text", "text": f"done {self.count}"}]
        self.transcript.open(Answer("m", "m", said, "end_turn", Usage())).close()

    async def back(self, prompt: int, what: str = "both", **more: Any):
        return await go_back(
            self.session,
            self.transcript,
            prompt,
            code=what != "conversation",
            conversation=what != "code",
            **more,
        )

    async def own(self, owner):
        return await self.session.owners.get(owner, self.session.place("main"))

    @property
    def messages(self) -> list[Any]:
        return plain(self.transcript)

    def as_read(self) -> list[Any]:
        """The conversation as another process would read it; nothing is written."""
        copy = Path(tempfile.mkdtemp(dir=self.bench.folder)) / "transcript.jsonl"
        copy.write_bytes(self.transcript.path.read_bytes())
        again = Transcript.resume(copy)
        again.close()
        return plain(again)


def plain(transcript: Transcript) -> list[Any]:
    return [msgspec.json.decode(message.encoded()) for message in transcript.messages]


def legal(messages: list[Any]) -> bool:
    body = {"model": "m", "max_tokens": 1, "messages": messages or [{"role": "user", "content": "x"}]}
    return problems(body) == []


@pytest.fixture
async def ride(peg_session):
    async with peg_session(tools=[put()]) as bench:
        yield Ride(bench)


async def test_prompts_are_numbered_and_owners_mark_where_they_stand(ride):
    await ride.ask("one", "a")
    await ride.ask("two", "b")
    records = [item for item in read(ride.transcript.path) if isinstance(item, events.Marked)]
    shelf, diary, stone, _ = OWNERS
    assert [record.prompt for record in records] == [1, 1, 1, 2]
    assert records[0].owners == {} and records[1].owners == {shelf: []} and records[2].fixed == [stone]
    assert records[3].owners == {shelf: ["a"]} and records[3].fixed == [stone]
    assert all(diary not in record.owners and diary not in record.fixed for record in records)
    prompts = [item.prompt for item in read(ride.transcript.path) if isinstance(item, events.UserText)]
    assert prompts == [1, 2] and ride.as_read() == ride.messages


async def test_back_with_code_and_conversation(ride):
    await ride.ask("one", "a")
    before = ride.messages
    await ride.ask("two", "b", "send")
    await ride.ask("three", "c")
    report = await ride.back(2)
    assert (await ride.own(Shelf)).lines == ["a"] and (await ride.own(Diary)).lines == ["a"]
    assert [item.target for item in report.restored] == ["the shelf"] and report.left_out == 4
    assert [(item.kind, item.target) for item in report.stays] == [("remote", "https://example.org/page")]
    assert report.fixed == [OWNERS[2]]
    note = ride.messages[-1]
    assert note["role"] == "user" and "https://example.org/page" in note["content"][-1]["text"]
    assert ride.messages[:-1] == before and ride.as_read() == ride.messages and legal(ride.messages)
    await ride.ask("four", "d")
    assert (await ride.own(Shelf)).lines == ["a", "d"] and (await ride.own(Diary)).lines == ["a", "d"]
    assert [point.prompt for point in Story(ride.transcript.path).points] == [1, 4]
    with pytest.raises(UsageError, match="no prompt 2 to go back to"):
        await ride.back(2)


async def test_back_with_code_alone_tells_the_model(ride):
    await ride.ask("one", "a")
    await ride.ask("two", "b")
    before = ride.messages
    report = await ride.back(2, "code")
    assert (await ride.own(Shelf)).lines == ["a"] and (await ride.own(Diary)).lines == ["a", "b"]
    assert ride.messages[:-1] == before and "the shelf (updated)" in ride.messages[-1]["content"][0]["text"]
    assert report.left_out == 0 and ride.as_read() == ride.messages and legal(ride.messages)


async def test_back_with_the_conversation_alone_leaves_the_world(ride):
    await ride.ask("one", "a")
    before = ride.messages
    await ride.ask("two", "b")
    report = await ride.back(2, "conversation")
    assert (await ride.own(Shelf)).lines == ["a", "b"] and (await ride.own(Diary)).lines == ["a"]
    assert report.restored == [] and [item.target for item in report.stays] == ["the shelf"]
    assert ride.messages[:-1] == before and ride.as_read() == ride.messages


async def test_a_rewind_can_be_taken_back_until_something_is_said(ride):
    await ride.ask("one", "a")
    await ride.ask("two", "b")
    before = ride.messages
    await ride.back(1)
    assert (await ride.own(Shelf)).lines == []
    undone = await take_back(ride.session, ride.transcript)
    assert undone.undo and [item.target for item in undone.restored] == ["the shelf"]
    assert (await ride.own(Shelf)).lines == ["a", "b"] and (await ride.own(Diary)).lines == ["a", "b"]
    assert ride.messages == before and ride.as_read() == before
    with pytest.raises(UsageError, match="no rewind to take back"):
        await take_back(ride.session, ride.transcript)
    await ride.back(2)
    await ride.ask("three")
    with pytest.raises(UsageError, match="no rewind to take back"):
        await take_back(ride.session, ride.transcript)


async def test_a_dry_run_changes_nothing(ride):
    await ride.ask("one", "a")
    await ride.ask("two", "b")
    before, messages = ride.transcript.path.read_bytes(), ride.messages
    report = await ride.back(1, dry_run=True)
    assert report.dry_run and report.restored[0].diff == "@@" and report.left_out == 4
    assert ride.transcript.path.read_bytes() == before and ride.messages == messages
    assert (await ride.own(Shelf)).lines == ["a", "b"]


async def test_what_an_owner_keeps_or_breaks_is_named(ride):
    await ride.ask("one", "break", "fixed")
    report = await ride.back(1, "code")
    kept = {item.target: item.reason for item in report.kept}
    assert kept == {OWNERS[3]: "it failed to go back: RuntimeError: shards", "the shelf": "something on it is fixed"}
    assert (await ride.own(Shelf)).lines == ["break", "fixed"] and report.restored == []
    forced = await ride.back(1, "code", force=True)
    assert (await ride.own(Shelf)).lines == [] and [item.target for item in forced.restored] == ["the shelf"]


async def test_an_owner_whose_plug_in_is_gone_is_named_and_nothing_else_is_imported(ride):
    await ride.ask("one", "a")
    ride.transcript.append(events.Marked(prompt=1, owners={"os:system": "echo", "shelves:Gone@main": 1}))
    assert set(OWNERS) <= classes(ride.session.tools()).keys()
    report = await ride.back(1, "code")
    assert [item.target for item in report.kept] == ["os:system", "shelves:Gone@main"]
    assert all("its plug-in is not here" in item.reason for item in report.kept)


async def test_the_beginning_is_a_point_too(ride):
    await ride.session.run_calls([])
    shelf = await ride.own(Shelf)
    shelf.put(["by a single call"])
    report = await ride.back(0)
    assert shelf.lines == [] and report.conversation is False
    assert [record.prompt for record in read(ride.transcript.path) if isinstance(record, events.Marked)] == [0]


async def test_the_account_counts_what_was_taken_back(ride):
    await ride.ask("one", "a")
    for name in ("x", "y"):
        effects = [events.Effect(kind="file", target=name, state="done")]
        ride.transcript.append(events.Result(id=name, tool="Edit", outcome="ok", text="", effects=effects))
    ride.transcript.append(events.UserText(content=[{"type": "text", "text": "two"}], prompt=2))
    effects = [events.Effect(kind="file", target="x", state="done")]
    ride.transcript.append(events.Result(id="x2", tool="Edit", outcome="ok", text="", effects=effects))
    rewound = events.Rewound(prompt=2, code=True, conversation=False, restored=["x"])
    ride.transcript.append(rewound)

    def summed() -> Any:
        return account("s", read(ride.transcript.path), holder_of(ride.session.tools()))

    x, y = (line for line in summed().lines if line.kind == "file")
    assert (x.times, x.calls, x.taken_back) == (1, ["x"], ["x2"]) and (y.times, y.taken_back) == (1, [])
    ride.transcript.append(events.Rewound(prompt=1, code=True, conversation=False, restored=["x", "y"]))
    assert "Taken back by a rewind: \n  x\n  y" in text_of(summed())
    ride.transcript.append(events.Rewound(prompt=1, code=True, conversation=False, restored=["x", "y"], undo=True))
    x, y = (line for line in summed().lines if line.kind == "file")
    assert x.times == 2 and y.times == 1 and "Taken back" not in text_of(summed())


steps = st.lists(
    st.one_of(st.just(("say", 0)), st.just(("undo", 0)), st.tuples(st.just("back"), st.integers(0, 6))), max_size=14
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_any_order_of_prompts_rewinds_and_undos_gives_the_conversation_that_it_should(script):
    with tempfile.TemporaryDirectory() as folder:
        transcript = Transcript.create(Path(folder) / "s", cwd=Path(folder), version="0")
        alive: list[int] = []
        undoable: list[int] | None = None
        number = 0
        for what, choice in script:
            if what == "say":
                number += 1
                alive = [*alive, number]
                undoable = None
                transcript.append(events.UserText(content=[{"type": "text", "text": f"p{number}"}], prompt=number))
                block = {"type": "tool_use", "id": f"t{number}", "name": "Put", "input": {}}
                turn = transcript.open(Answer("m", "m", [block], "tool_use", Usage()))
                turn.fill(f"t{number}", Outcome(status=Status.OK, text="ok"))
                turn.close()
                said = [{"type": "text", "text": f"a{number}"}]
                transcript.open(Answer("m", "m", said, "end_turn", Usage())).close()
            elif what == "undo" and undoable is not None:
                transcript.rewind(events.Rewound(prompt=0, code=True, conversation=True, undo=True))
                alive, undoable = undoable, None
            elif what == "back" and alive:
                target = alive[choice % len(alive)]
                transcript.rewind(events.Rewound(prompt=target, code=True, conversation=True))
                undoable, alive = alive, alive[: alive.index(target)]
            texts = [block["text"] for message in plain(transcript) for block in message["content"] if "text" in block]
            assert texts == [f"{who}{prompt}" for prompt in alive for who in "pa"]
            assert legal(plain(transcript))
        transcript.close()
        assert [point.prompt for point in Story(transcript.path).points] == alive
        again = Transcript.resume(transcript.path)
        assert plain(again) == plain(transcript) and again.prompts == number
        again.close()


def test_a_summary_stands_for_what_was_before_it_unless_it_was_rewound(tmp_path):
    transcript = Transcript.create(tmp_path / "s", cwd=tmp_path, version="0")

    def say(number: int) -> None:
        transcript.append(events.UserText(content=[{"type": "text", "text": f"p{number}"}], prompt=number))
        said = [{"type": "text", "text": f"a{number}"}]
        transcript.open(Answer("m", "m", said, "end_turn", Usage())).close()

    say(1)
    before = plain(transcript)
    say(2)
    transcript.append(events.Compacted(summary="the summary", kept=[], trigger="auto", before=9))
    say(3)
    after = plain(transcript)
    transcript.close()
    assert outline(transcript.path).summary == 6
    again = Transcript.resume(transcript.path)
    assert plain(again) == after and "the summary" in str(after) and "p1" not in str(after)
    again.rewind(events.Rewound(prompt=2, code=False, conversation=True))
    assert plain(again) == before and outline(again.path).summary == 0
    again.rewind(events.Rewound(prompt=2, code=False, conversation=True, undo=True))
    assert plain(again) == after
    again.close()
