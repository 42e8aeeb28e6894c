"""The class of a call follows its ledger, whatever a tool does and wherever it is stopped."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard.call import EffectKind, EffectState, Outcome, Retry, Status
from pegboard.errors import Code, Refusal
from pegboard.model import Input, Output
from pegboard.testing import Bench, Willing, interrupted, tool_of
from pegboard.tool import Launched, Tool


class Plan(Input):
    acts: list[list[str]]
    """Pairs of an effect kind and how it goes: done, undone, early, refuse, crash, late."""
    end: str = "return"


class Nothing(Output):
    pass


class Act(Tool[Plan, Nothing]):
    Input = Plan
    Output = Nothing

    async def run(self, input: Plan, ctx: Any) -> Any:
        for number, (kind, how) in enumerate(input.acts):
            with ctx.effect(kind, f"target-{number}") as effect:
                await anyio.sleep(0)
                if how == "undone":
                    effect.undone()
                if how == "early":
                    effect.done()
                if how == "refuse":
                    raise Refusal(Code.CONFLICT, "refused inside")
                if how == "crash":
                    raise KeyError("crashed inside")
                await anyio.sleep(0)
            if how == "late":
                raise Refusal(Code.IO_ERROR, "refused after it")
        if input.end == "wrong":
            return {"no": "output"}
        return Launched(Nothing()) if input.end == "launched" else Nothing()

    def render(self, output: Nothing, ctx: Any) -> str:
        return "done"


KINDS = st.sampled_from([kind.value for kind in EffectKind])
HOWS = st.sampled_from(["done", "done", "done", "undone", "early", "refuse", "crash", "late"])
PLANS = st.fixed_dictionaries(
    {
        "acts": st.lists(st.tuples(KINDS, HOWS).map(list), max_size=4),
        "end": st.sampled_from(["return", "return", "launched", "wrong"]),
    }
)


def expected(plan: dict[str, Any]) -> tuple[Status, Retry, list[tuple[str, EffectState]]]:
    """The table of the specification, walked by hand."""
    standing: list[tuple[str, EffectState]] = []
    failed = False
    for kind, how in plan["acts"]:
        if how in ("refuse", "crash"):
            standing.append((kind, EffectState.OPEN))
        elif how != "undone":
            standing.append((kind, EffectState.DONE))
        failed = how in ("refuse", "crash", "late")
        if failed:
            break
    if not failed:
        ends = {
            "return": (Status.OK, Retry.SAFE),
            "launched": (Status.LAUNCHED, Retry.CHECK_FIRST),
            "wrong": (Status.UNMAPPED, Retry.CHECK_FIRST),
        }
        return *ends[plan["end"]], standing
    if ("remote", EffectState.OPEN) in standing:
        return Status.UNKNOWN, Retry.FORBIDDEN, standing
    if standing:
        return Status.PARTIAL, Retry.CHECK_FIRST, standing
    return Status.NOT_STARTED, Retry.SAFE, standing


def act() -> Tool[Any, Any]:
    return tool_of(Act, effects=[kind.value for kind in EffectKind], ask=False)


def played(plan: dict[str, Any], at: int | None) -> Outcome:
    async def work() -> Outcome:
        async with Bench(Path(folder), tools=[act()], host=Willing(), only=[]) as bench:
            outcome, _ = await interrupted(lambda: bench.call("Act", plan), at, bench.session.abort)
            return outcome

    with tempfile.TemporaryDirectory() as folder:
        return anyio.run(work, backend="asyncio")


@settings(max_examples=60, deadline=None)
@given(PLANS)
def test_the_class_follows_the_ledger(plan):
    outcome = played(plan, None)
    status, retry, standing = expected(plan)
    assert (outcome.status, outcome.retry) == (status, retry)
    assert [(effect.kind.value, effect.state) for effect in outcome.effects] == standing
    assert outcome.is_error == status.is_error


@settings(max_examples=60, deadline=None)
@given(PLANS, st.integers(0, 20))
def test_the_class_follows_the_ledger_after_an_abort(plan, at):
    outcome = played(plan, at)
    if outcome.code is not Code.CANCELLED and outcome.status is not Status.UNKNOWN:
        assert (outcome.status, outcome.retry) == expected(plan)[:2], "the abort came too late to matter"
        return
    states = {(effect.kind, effect.state) for effect in outcome.effects}
    if (EffectKind.REMOTE, EffectState.OPEN) in states:
        assert (outcome.status, outcome.retry) == (Status.UNKNOWN, Retry.FORBIDDEN)
        assert outcome.code is Code.UNKNOWN_OUTCOME
    elif states:
        assert (outcome.status, outcome.retry) == (Status.PARTIAL, Retry.CHECK_FIRST)
    else:
        assert (outcome.status, outcome.retry) == (Status.NOT_STARTED, Retry.SAFE)
    assert EffectState.UNDONE not in {state for _, state in states}
    if outcome.status in (Status.PARTIAL, Status.UNKNOWN):
        assert "happened" in outcome.plain().splitlines()[0]


@pytest.mark.parametrize("kind", list(EffectKind))
def test_only_an_open_remote_effect_is_unknown(kind):
    outcome = played({"acts": [[kind.value, "refuse"]]}, None)
    assert outcome.status is (Status.UNKNOWN if kind is EffectKind.REMOTE else Status.PARTIAL)
