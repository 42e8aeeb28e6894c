"""The thirteen steps with small tools of the test's own: checks P-1 to P-9, and what follows from the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from pegboard.call import Call, EffectKind, Retry, Status
from pegboard.errors import Code, Refusal
from pegboard.hooks import Note, Verdict, hook
from pegboard.host import Choice, Host
from pegboard.model import AbsolutePath, Input, Output
from pegboard.testing import Listener, Watch, Willing, tool_of
from pegboard.tool import Access, Launched, Tool

pytestmark = pytest.mark.anyio


class SaveInput(Input):
    path: AbsolutePath
    text: str
    times: int = 1
    loud: bool = False


class SaveOutput(Output):
    path: str
    size: int


class Save(Tool[SaveInput, SaveOutput]):
    """Writes a file, with everything in order."""

    Input = SaveInput
    Output = SaveOutput

    def __init__(self) -> None:
        self.runs: list[SaveInput] = []
        self.checks = 0

    async def check(self, input, ctx):
        self.checks += 1
        if input.text == "refuse me":
            raise Refusal(Code.PRECONDITION_FAILED, "This text is refused.", hint="Take another.")

    def accesses(self, input, ctx):
        return [Access.edit(input.path)]

    async def run(self, input, ctx) -> Any:
        self.runs.append(input)
        with ctx.effect("file", input.path):
            Path(input.path).write_text(input.text * input.times)
        return SaveOutput(path=input.path, size=len(input.text))

    def render(self, output, ctx):
        return f"saved {output.size} characters"


class LookInput(Input):
    name: str
    fail: bool = False


class LookOutput(Output):
    name: str


class Look(Tool[LookInput, LookOutput]):
    """Reads nothing in particular; calls of one message meet inside it."""

    Input = LookInput
    Output = LookOutput

    def __init__(self) -> None:
        self.running = 0
        self.most = 0

    async def run(self, input, ctx):
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await anyio.sleep(0.01)
            if input.fail:
                raise Refusal(Code.NOT_FOUND, f"There is no {input.name}.")
        finally:
            self.running -= 1
        return LookOutput(name=input.name)

    def render(self, output, ctx):
        return f"saw {output.name}"


def save(**fields):
    return tool_of(Save, concurrency="write", effects=["file"], **fields)


def look(**fields):
    return tool_of(Look, concurrency="read", **fields)


# -- the checks of the specification ---------------------------------------------------------------------------


async def test_p_1_missing_field_is_named_and_no_hook_hears(peg_session):
    heard = Listener()
    tool = save()
    async with peg_session(tools=[tool], hooks=[heard], host=Willing()) as bench:
        bench.found("Save")
        with Watch() as watch:
            outcome = await bench.call("Save", {"path": "a"})
    assert (outcome.status, outcome.code, outcome.is_error) == (Status.NOT_STARTED, Code.INVALID_INPUT, True)
    assert "text" in outcome.plain()
    assert not heard.before and not heard.after
    assert not watch.processes
    assert not tool.runs


async def test_p_2_a_hook_cannot_overrule_a_deny_rule(peg_session):
    tool = save()
    async with peg_session(tools=[tool], hooks=[Listener(decision="allow")], deny=["Save"]) as bench:
        outcome = await bench.call("Save", {"path": "a", "text": "x"})
    assert (outcome.status, outcome.code) == (Status.NOT_STARTED, Code.DENIED_BY_RULE)
    assert outcome.decision is not None and outcome.decision.by == "rule"
    assert not tool.runs


async def test_p_3_a_hook_refuses_what_a_rule_allows(peg_session):
    tool = save()
    refusing = Listener(decision="deny", reason="the build is frozen")
    async with peg_session(tools=[tool], hooks=[refusing], allow=["Save"]) as bench:
        outcome = await bench.call("Save", {"path": "a", "text": "x"})
    assert (outcome.status, outcome.code) == (Status.NOT_STARTED, Code.DENIED_BY_HOOK)
    assert "the build is frozen" in outcome.plain()
    assert outcome.decision is not None and outcome.decision.by == "hook"
    assert not tool.runs


class Rewriting:
    def __init__(self, **input: Any) -> None:
        self.input = input
        self.asked = 0

    @hook
    async def peg_before_call(self, call):
        self.asked += 1
        return Verdict(input=self.input)


async def test_p_4_a_changed_input_must_fit_the_schema(peg_session):
    tool = save()
    hooks = [Rewriting(path="b", wrong=1)]
    async with peg_session(tools=[tool], hooks=hooks, host=Willing()) as bench:
        outcome = await bench.call("Save", {"path": "a", "text": "x"})
        assert (outcome.status, outcome.code) == (Status.NOT_STARTED, Code.INVALID_INPUT)
        assert "wrong" in outcome.plain()
        assert not tool.runs and not list(bench.folder.iterdir())


async def test_p_4_a_changed_input_is_run_once_and_judged_again(peg_session):
    tool = save()
    rewriting = Rewriting(path="b", text="theirs")
    async with peg_session(tools=[tool], hooks=[rewriting], host=Willing()) as bench:
        outcome = await bench.call("Save", {"path": "a", "text": "mine"})
        assert outcome.status is Status.OK
        assert [given.text for given in tool.runs] == ["theirs"]
        assert rewriting.asked == 1
        bench.deny(f"Edit(/{bench.folder}/b)")
        denied = await bench.call("Save", {"path": "a", "text": "mine"})
        assert denied.is_error and len(tool.runs) == 1


class Malformed:
    @hook
    async def peg_after_call(self, call, outcome):
        return Note(output={"no": "such field"})


class Crashing:
    @hook
    async def peg_after_call(self, call, outcome):
        raise RuntimeError("the hook fell over")


@pytest.mark.parametrize("plugin", [Malformed, Crashing])
async def test_p_5_a_hook_after_the_call_changes_no_fact(peg_session, plugin):
    async with peg_session(tools=[save()], hooks=[plugin()], host=Willing()) as bench:
        outcome = await bench.call("Save", {"path": "a", "text": "x"})
        assert (bench.folder / "a").read_text() == "x"
    assert outcome.status is Status.OK
    assert outcome.plain().startswith("saved 1 characters\n\n[")
    assert plugin.__name__.lower() in outcome.plain()
    assert outcome.data == {"path": str(bench.folder / "a"), "size": 1}


async def test_p_6_a_result_that_breaks_the_schema_is_unmapped(peg_session):
    class Save2(Save):
        async def run(self, input, ctx):
            await super().run(input, ctx)
            return {"nothing": "that fits"}

    tool = tool_of(Save2, effects=["file"])
    async with peg_session(tools=[tool], host=Willing()) as bench:
        outcome = await bench.call("Save2", {"path": "a", "text": "x"})
        assert (bench.folder / "a").exists()
    assert (outcome.status, outcome.code) == (Status.UNMAPPED, Code.MAPPING_FAILED)
    assert outcome.retry is Retry.CHECK_FIRST
    assert outcome.plain().startswith("The action happened")
    assert [effect.target for effect in outcome.effects] == [str(bench.folder / "a")]


async def test_p_7_one_failing_read_leaves_its_siblings_alone(peg_session):
    tool = look()
    async with peg_session(tools=[tool]) as bench:
        outcomes = await bench.calls(
            [("Look", {"name": "a"}), ("Look", {"name": "b", "fail": True}), ("Look", {"name": "c"})]
        )
    assert [outcome.is_error for outcome in outcomes] == [False, True, False]
    assert [outcome.plain() for outcome in outcomes] == ["saw a", "There is no b.", "saw c"]
    assert tool.most == 3


class GoInput(Input):
    pass


class Go(Tool[GoInput, LookOutput]):
    """Begins something and never ends."""

    Input = GoInput
    Output = LookOutput

    def __init__(self) -> None:
        self.begun = 0
        self.both = anyio.Event()

    async def run(self, input, ctx):
        with ctx.effect("registry", ctx.call_id):
            self.begun += 1
            if self.begun == 2:
                self.both.set()
            await anyio.sleep_forever()


async def test_p_8_every_call_of_an_aborted_message_has_one_result(peg_session):
    tool = tool_of(Go, concurrency="spawn", effects=["registry"], ask=False)
    host = Willing()
    async with peg_session(tools=[tool, save()], host=host) as bench:
        outcomes = []

        async def work():
            outcomes.extend(await bench.calls([("Go", {}), ("Go", {}), ("Save", {"path": "a", "text": "x"})]))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work)
                await tool.both.wait()
                bench.session.abort()
        assert [(outcome.status.value, outcome.code) for outcome in outcomes] == [
            ("partial", Code.CANCELLED),
            ("partial", Code.CANCELLED),
            ("not_started", Code.CANCELLED),
        ]
        assert sorted(host.results) == ["call-1", "call-2", "call-3"]
        assert not (bench.folder / "a").exists()


def install(place: Path, name: str) -> None:
    """A distribution on disk that brings a tool named Same."""
    package = place / name.replace("-", "_")
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""A package of a test."""\n')
    (package / "tool.py").write_text(SAME.replace("WHO", name))
    (package / "tool.toml").write_text('name = "Same"\nsummary = "Says who it is."\napi = 1\nconcurrency = "read"\n')
    (package / "prompt.md").write_text("Says who it is.\n")
    (package / "schema.json").write_text('{"description": "d", "input": {"type": "object"}, "output": {}}')
    info = place / f"{package.name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[pegboard.tools]\nSame = {package.name}.tool:Same\n")


SAME = '''
"""A tool of a test."""
from pegboard.model import Input, Output
from pegboard.tool import Tool


class Nothing(Input):
    pass


class Who(Output):
    who: str


class Same(Tool[Nothing, Who]):
    Input = Nothing
    Output = Who

    async def run(self, input, ctx):
        return Who(who="WHO")
'''


async def test_p_9_one_name_two_plugins(peg_session, tmp_path, monkeypatch):
    """The rule of origins decides; the loser stays in the list with its reason."""
    site = tmp_path / "site-packages"
    install(site, "alpha-same")
    install(site, "beta-same")
    monkeypatch.syspath_prepend(str(site))
    async with peg_session(paths=[str(site)]) as bench:
        registry = bench.session.registry
        rivals = [one for one in registry.candidates if one.name == "Same"]
        states = {one.distribution: registry.standing(one) for one in rivals}
        assert len(states) == 2
        winners = [name for name, standing in states.items() if standing.state == "active"]
        losers = [standing for standing in states.values() if standing.state == "refused"]
        assert len(winners) <= 1 and losers
        assert all(standing.question == "clashes" and standing.reason for standing in losers)
        outcome = await bench.call("Same", {})
        if winners:
            assert outcome.data == {"who": winners[0]}
        else:
            assert outcome.code == Code.UNKNOWN_TOOL and "Same" in outcome.plain()


# -- each step -------------------------------------------------------------------------------------------------


async def test_unknown_tool_lists_close_names(peg_session):
    async with peg_session(tools=[save(), look()]) as bench:
        outcome = await bench.call("save", {})
    assert (outcome.status, outcome.code) == (Status.NOT_STARTED, Code.UNKNOWN_TOOL)
    assert "Save" in outcome.plain()


async def test_an_alias_finds_the_tool(peg_session):
    async with peg_session(tools=[look(aliases=["Peek"])]) as bench:
        assert (await bench.call("Peek", {"name": "a"})).plain() == "saw a"


@pytest.mark.parametrize(
    ("given", "said"),
    [("{broken", "not valid JSON"), ([1], "JSON object"), (7, "JSON object"), ({"nmae": "a"}, "nmae")],
)
async def test_inputs_that_cannot_be_used(peg_session, given, said):
    async with peg_session(tools=[look()]) as bench:
        outcome = await bench.call("Look", given)
    assert (outcome.status, outcome.code) == (Status.NOT_STARTED, Code.INVALID_INPUT)
    assert said in outcome.plain()


async def test_an_incomplete_call_is_never_run(peg_session):
    tool = save()
    async with peg_session(tools=[tool], host=Willing()) as bench:
        call = Call(id="1", tool="Save", input={"path": "a", "text": "half a te"}, incomplete=True)
        (outcome,) = await bench.session.run_calls([call])
    assert outcome.code == Code.INVALID_INPUT and "incomplete" in outcome.plain()
    assert not tool.runs


async def test_safe_coercions_and_nulls(peg_session):
    tool = save()
    async with peg_session(tools=[tool], host=Willing()) as bench:
        await bench.call("Save", {"path": "a", "text": "x", "times": "3", "loud": "true"})
        await bench.call("Save", {"path": "a", "text": "x", "times": None, "loud": None})
    assert [(given.times, given.loud) for given in tool.runs] == [(3, True), (1, False)]


async def test_check_runs_before_the_question_and_again_before_run(peg_session):
    tool, host = save(), Willing()
    async with peg_session(tools=[tool], host=host) as bench:
        refused = await bench.call("Save", {"path": "a", "text": "refuse me"})
        assert refused.code == Code.PRECONDITION_FAILED and "Take another." in refused.plain()
        assert not host.questions, "a person was asked about a call that cannot work"
        tool.checks = 0
        assert (await bench.call("Save", {"path": "a", "text": "x"})).status is Status.OK
        assert tool.checks == 2


async def test_nobody_to_ask(peg_session):
    tool = save()
    async with peg_session(tools=[tool], host=Host()) as bench:
        outcome = await bench.call("Save", {"path": "a", "text": "x"})
    assert (outcome.status, outcome.code, outcome.retry) == (Status.NOT_STARTED, Code.NO_USER, Retry.SAFE)
    assert not tool.runs


async def test_the_person_says_no(peg_session):
    tool, host = save(), Willing(Choice.NO)
    async with peg_session(tools=[tool], host=host) as bench:
        outcome = await bench.call("Save", {"path": "a", "text": "x"})
    assert outcome.code == Code.DENIED_BY_USER and outcome.decision.by == "user"
    assert len(host.questions) == 1 and not tool.runs


async def test_for_this_session_asks_once(peg_session):
    host = Willing(Choice.SESSION)
    async with peg_session(tools=[save()], host=host) as bench:
        for _ in range(2):
            assert (await bench.call("Save", {"path": "a", "text": "x"})).status is Status.OK
    assert len(host.questions) == 1


class Slow:
    """A hook that takes the file away while the call waits."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @hook
    async def peg_before_call(self, call):
        self.path.unlink(missing_ok=True)


async def test_preconditions_are_checked_again(peg_session):
    class Shrink(Save):
        async def check(self, input, ctx):
            if not Path(input.path).exists():
                raise Refusal(Code.STALE, f"{input.path} is gone.")

    tool = tool_of(Shrink, effects=["file"])
    async with peg_session(tools=[tool], host=Willing()) as bench:
        path = bench.folder / "a"
        path.write_text("x")
        bench.hook(Slow(path))
        outcome = await bench.call("Shrink", {"path": "a", "text": "y"})
    assert (outcome.status, outcome.code) == (Status.NOT_STARTED, Code.STALE)
    assert not tool.runs


class Failing:
    @hook
    async def peg_before_call(self, call):
        raise RuntimeError("cannot decide")


async def test_a_failing_hook_before_the_call_is_a_no(peg_session):
    tool = save()
    async with peg_session(tools=[tool], hooks=[Failing()], allow=["Save"]) as bench:
        outcome = await bench.call("Save", {"path": "a", "text": "x"})
    assert outcome.code == Code.DENIED_BY_HOOK and "cannot decide" in outcome.plain()
    assert not tool.runs


async def test_notes_stand_below_the_result(peg_session):
    async with peg_session(tools=[look()], hooks=[Listener(note="formatted too")]) as bench:
        outcome = await bench.call("Look", {"name": "a"})
    assert outcome.plain() == "saw a\n\n[formatted too]"


async def test_writes_keep_their_order_and_see_each_other(peg_session):
    async with peg_session(tools=[save(), look()], host=Willing()) as bench:
        inputs = [("Save", {"path": "a", "text": str(n)}) for n in range(5)]
        outcomes = await bench.calls([*inputs, ("Look", {"name": "z"})])
        assert all(outcome.status is Status.OK for outcome in outcomes)
        assert (bench.folder / "a").read_text() == "4"


async def test_a_tool_that_breaks_its_contract_thrice_is_off(peg_session):
    class Wrong(Look):
        async def run(self, input, ctx):
            return {"no": 1}

    async with peg_session(tools=[tool_of(Wrong, concurrency="read")]) as bench:
        outcomes = [await bench.call("Wrong", {"name": "a"}) for _ in range(4)]
    assert [outcome.code for outcome in outcomes] == [*[Code.MAPPING_FAILED] * 3, Code.UNKNOWN_TOOL]
    assert "broke its own output schema" in outcomes[3].plain()


async def test_launched_is_no_error(peg_session):
    class Begin(Look):
        async def run(self, input, ctx):
            with ctx.effect("registry", "job-1"):
                return Launched(LookOutput(name="job-1"))

    tool = tool_of(Begin, concurrency="spawn", effects=["registry"], ask=False)
    async with peg_session(tools=[tool]) as bench:
        outcome = await bench.call("Begin", {"name": "a"})
    assert (outcome.status, outcome.retry, outcome.is_error) == (Status.LAUNCHED, Retry.CHECK_FIRST, False)


# -- unknown outcomes ------------------------------------------------------------------------------------------


class Publish(Look):
    """Acts on a remote object; the answer of the server gets lost."""

    lost = True

    def accesses(self, input, ctx):
        return [Access.use(input.name)]

    async def run(self, input, ctx):
        with ctx.effect(EffectKind.REMOTE, input.name):
            if self.lost:
                raise Refusal(Code.NETWORK_ERROR, "The connection broke before the answer.")
        return LookOutput(name=input.name)


def publish(cls=Publish):
    return tool_of(cls, name="Publish", concurrency="write", effects=["remote"], ask=False)


async def test_an_unknown_outcome_forbids_a_blind_repeat(peg_session):
    tool = publish()
    async with peg_session(tools=[tool], host=Willing()) as bench:
        first = await bench.call("Publish", {"name": "page"})
        assert (first.status, first.code, first.retry) == (Status.UNKNOWN, Code.UNKNOWN_OUTCOME, Retry.FORBIDDEN)
        assert "may have happened" in first.plain().splitlines()[0]
        again = await bench.call("Publish", {"name": "page"})
        assert (again.status, again.code) == (Status.NOT_STARTED, Code.UNKNOWN_OUTCOME)
        tool.lost = False
        assert (await bench.call("Publish", {"name": "another page"})).status is Status.OK


async def test_settling_opens_the_way_again(peg_session):
    class Asking(Publish):
        async def settle(self, target, ctx):
            return True

    tool = publish(Asking)
    async with peg_session(tools=[tool], host=Willing()) as bench:
        await bench.call("Publish", {"name": "page"})
        tool.lost = False
        blind = await bench.call("Publish", {"name": "page"})
        assert (blind.status, blind.code) == (Status.NOT_STARTED, Code.CONFLICT) and "did happen" in blind.plain()
        assert not bench.session.unsettled
        assert (await bench.call("Publish", {"name": "page"})).status is Status.OK


async def test_a_refused_attempt_is_no_attempt(peg_session):
    class Conflict(Publish):
        async def run(self, input, ctx):
            with ctx.effect("remote", input.name) as effect:
                effect.undone()
                raise Refusal(Code.CONFLICT, "409")

    async with peg_session(tools=[publish(Conflict)], host=Willing()) as bench:
        outcome = await bench.call("Publish", {"name": "page"})
    assert (outcome.status, outcome.code, outcome.retry) == (Status.NOT_STARTED, Code.CONFLICT, Retry.SAFE)
    assert outcome.effects == []
