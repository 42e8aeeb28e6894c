"""Budgets over the real loop: money, tokens, turns, calls of a tool, children; which models may be used at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pegboard import events
from pegboard.agent import Agent, AgentSpec
from pegboard.cli.cost import command
from pegboard.errors import Stop, UsageError
from pegboard.provider import ModelRef, Usage, refuse_unlisted
from pegboard.spending import Limits, Spending, price_of
from pegboard.transcript import Transcript

sys.path.insert(0, str(Path(__file__).parent))
from rides import MODEL, Ride, call, calls, plain, ride

__all__ = ["ride"]
pytestmark = pytest.mark.anyio

PRICE = {"input": 1.0, "output": 5.0, "cache_read": 0.1, "cache_write": 1.25}
MILLION = {"input_tokens": 1_000_000, "output_tokens": 0}


def child(ride: Ride, **spec: Any) -> Agent:
    """A second agent of the same session, whose budget is that of the first."""
    folder = ride.session.directory / "subagents" / "kid"
    transcript = Transcript.create(folder, cwd=ride.session.cwd, version="0")
    made = AgentSpec(**{"model": MODEL, "id": "kid", **spec})
    return Agent(ride.session, ride.agent.provider, made, transcript, parent=ride.agent)


async def test_cost_1_what_a_child_uses_is_its_parents_too(ride: Any) -> None:
    it = ride(["hello", {"content": [{"type": "text", "text": "hi"}], "usage": MILLION}])
    await it.run()
    before = it.agent.spending.usage.input_tokens
    kid = child(it, model="claude-opus-5-5")
    await kid.run("go")
    assert it.agent.spending.usage.input_tokens == before + 1_000_000
    assert set(it.agent.spending.models) == {MODEL, "claude-opus-5-5"} and it.agent.spending.turns == 1
    kid.transcript.close()


async def test_cost_2_a_budget_that_a_child_reaches_stops_everybody(ride: Any) -> None:
    spent = {"content": [{"type": "text", "text": "hi"}], "usage": MILLION}
    it = ride(["hello", spent, calls(call("Core")), "never"], tools=[plain("Core")], max_budget_usd=0.4)
    await it.run()
    kid = child(it)
    assert not (await kid.run("go")).is_error
    for agent in (kid, it.agent):
        run = await agent.run("more")
        assert run.stopped is Stop.BUDGET and run.turns == 0
    assert len(it.bodies) == 2
    kid.transcript.close()


async def test_cost_4_an_unknown_price_with_a_budget_is_refused_at_the_start(ride: Any) -> None:
    with pytest.raises(UsageError, match=r"price of mystery-1 is not known"):
        ride([], model="anthropic/mystery-1", max_budget_usd=1.0)
    with pytest.raises(UsageError, match=r"price of mystery-1 is not known"):
        ride([], model="anthropic/mystery-1", settings={"limits.usd": 1.0})
    it = ride(["x"], max_budget_usd=1.0)
    with pytest.raises(UsageError, match=r"price of mystery-1 is not known"):
        child(it, model="mystery-1")
    known = {"prices": {"mystery": PRICE}}
    it = ride(["done"], model="anthropic/mystery-1", max_budget_usd=1.0, settings=known)
    assert (await it.run()).text == "done" and it.agent.spending.cost


async def test_cost_5_calls_of_a_tool_are_counted_for_all_agents_together(ride: Any) -> None:
    script = [calls(call("Web"), call("Web")), "done", calls(call("Web"), call("Core")), "done"]
    it = ride(script, tools=[plain("Web"), plain("Core")], settings={"limits.calls": {"web": 2}})
    await it.run()
    kid = child(it)
    await kid.run("go")
    refused, fine = it.results()
    assert "may call it 2 times" in refused and fine == "Core " and it.refused == []
    kid.transcript.close()


async def test_money_is_kept_before_it_is_spent(ride: Any) -> None:
    """Haiku: 0.5 USD for a million input tokens; a request of 400,000 tokens costs at least 0.2."""
    it = ride(["never"], max_budget_usd=0.1)
    run = await it.run("word " * 400_000)
    assert run.stopped is Stop.BUDGET and it.bodies == [] and it.agent.spending.cost == 0


async def test_an_answer_cannot_cost_more_than_what_is_left(ride: Any) -> None:
    it = ride(["hello"], max_budget_usd=0.01)
    await it.run()
    most = it.bodies[0]["max_tokens"]
    assert most < 4_000 and 2.5 * most / 1_000_000 <= 0.01
    it = ride(["hello"], max_budget_usd=0.001, thinking={"type": "enabled", "budget_tokens": 2_000})
    assert (await it.run()).stopped is Stop.BUDGET and it.bodies == []


async def test_tokens_have_a_limit(ride: Any) -> None:
    it = ride(lambda body: calls(call("Core", text="x" * 4_000)), tools=[plain("Core")], max_total_tokens=20_000)
    run = await it.run()
    used = it.agent.spending.usage
    assert run.stopped is Stop.TOKENS and used.input_tokens + used.output_tokens < 20_000
    assert all(body["max_tokens"] <= 20_000 for body in it.bodies)
    answered = it.transcript.messages[-1].content[0]
    assert answered["type"] == "tool_result" and it.refused == []


async def test_settings_set_limits_and_the_spec_overrides_them(ride: Any) -> None:
    it = ride(["a"], settings={"limits.turns": 3, "limits.seconds": 60, "limits.tokens": 5}, max_turns=1)
    assert (it.agent.limits.turns, it.agent.limits.seconds, it.agent.limits.tokens) == (1, 60, 5)
    assert it.agent.limits.usd is None
    assert child(it).limits.turns is None


async def test_prov_3_a_model_outside_the_managed_list_is_refused(ride: Any, tmp_path: Path) -> None:
    (tmp_path / "room0" / "managed").mkdir(parents=True)
    (tmp_path / "room0" / "managed" / "managed.toml").write_text(f'[models]\navailable = ["{MODEL}"]\n')
    it = ride(["fine"])
    assert (await it.run()).text == "fine"
    with pytest.raises(UsageError, match=f"does not list the model claude-opus-5-5; it allows {MODEL}"):
        child(it, model="claude-opus-5-5")
    await it.close()
    with pytest.raises(UsageError, match="does not list"):
        ride([], again=it, model="claude-opus-5-5")


def test_prov_3_the_command_refuses_and_says_what_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "managed.toml").write_text(f'[models]\navailable = ["{MODEL}"]\n')
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PEG_MANAGED_DIR": str(tmp_path),
        "ANTHROPIC_API_KEY": "x",
    }
    words = [sys.executable, "-m", "pegboard", "-p", "hi", "--model", "claude-opus-5-5"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert f"does not list the model claude-opus-5-5; it allows {MODEL}" in done.stderr


def test_prov_3_entries_may_name_a_provider() -> None:
    listed = ["anthropic/claude-x", "open-1"]
    for fits in (ModelRef("claude-x", "anthropic"), ModelRef("claude-x"), ModelRef("open-1", "local")):
        refuse_unlisted(fits, listed)
    refuse_unlisted(ModelRef("anything"), None)
    for not_listed in (ModelRef("claude-x", "local"), ModelRef("claude-y")):
        with pytest.raises(UsageError, match="it allows anthropic/claude-x, open-1"):
            refuse_unlisted(not_listed, listed)
    with pytest.raises(UsageError, match="it allows none"):
        refuse_unlisted(ModelRef("claude-x"), [])


def test_prices_of_the_settings_come_first() -> None:
    known = {"input": 9.0, "output": 9.0}
    prices = {"claude-": {"input": 1}, "claude-haiku": {"output": 2.5}}
    assert price_of("claude-haiku-5-5", known, prices) == {"input": 9.0, "output": 2.5}
    assert price_of("claude-opus-5-5", None, prices) == {"input": 1.0}
    assert price_of("other", known, prices) == known and price_of("other", None, prices) is None
    for wrong in ({"input": "a"}, {"input": -1}, 3):
        with pytest.raises(UsageError, match=r"prices\.x must be a table"):
            price_of("x", None, {"x": wrong})


def test_a_parent_limits_what_its_child_may_do() -> None:
    above = Spending()
    around = Limits(above, usd=1.0, price=PRICE)
    kid = Limits(Spending(above), tokens=1_000_000, price=PRICE, parent=around)
    assert kid.over() is None
    assert kid.output(Usage()) == 200_000 and kid.output(Usage(input_tokens=999_000)) == 200
    kid.spending.add("m", Usage(input_tokens=100, output_tokens=190_000), PRICE)
    assert kid.over() is None and above.turns == 0 and kid.spending.turns == 1
    assert (over := kid.over(Usage(input_tokens=50_000))) is not None and over.reason is Stop.BUDGET
    kid.spending.add("m", Usage(input_tokens=900_000), PRICE)
    assert (over := kid.over()) is not None and over.reason is Stop.TOKENS


async def test_side_requests_are_counted_and_written_down(ride: Any) -> None:
    it = ride(["hello", "THE SUMMARY"])
    await it.run()
    assert await it.agent.compact() == ""
    (spent,) = [event for event in it.events if isinstance(event, events.Spent)]
    assert (spent.what, spent.model) == ("compaction", MODEL) and spent.usage.input_tokens > 100
    assert it.agent.spending.turns == 1 and it.agent.spending.usage.input_tokens > spent.usage.input_tokens


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run `peg cost` in the room of a ride."""

    def run(ride: Ride, *words: str) -> str:
        monkeypatch.setenv("HOME", str(ride.bench.outside))
        monkeypatch.setenv("PEG_HOME", str(ride.session.places.user_dir))
        monkeypatch.chdir(ride.bench.folder)
        done = CliRunner().invoke(command, list(words), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


async def test_peg_cost_sums_by_model_tool_and_agent(ride: Any, cost: Any) -> None:
    script = [calls(call("Core", text="x"), call("Core", wrong=1)), "done", "kid", "THE SUMMARY"]
    it = ride(script, tools=[plain("Core")])
    await it.run()
    kid = child(it, model="claude-opus-5-5")
    await kid.run("go")
    kid.transcript.close()
    await it.agent.compact()
    bill = json.loads(cost(it, it.session.id[:8], "--json"))
    spending = it.agent.spending
    assert bill["total_cost_usd"] == pytest.approx(spending.cost) and bill["sessions"] == [it.session.id]
    assert {row["name"]: row["requests"] for row in bill["models"]} == {MODEL: 3, "claude-opus-5-5": 1}
    assert {row["name"]: row["requests"] for row in bill["agents"]} == {"main": 3, "kid": 1}
    assert [row["name"] for row in bill["beside"]] == ["compaction"]
    assert sum(row["input_tokens"] for row in bill["models"]) == spending.usage.input_tokens
    (tool,) = bill["tools"]
    assert (tool["name"], tool["calls"], tool["failed"]) == ("Core", 2, 1) and tool["characters"] > 6
    text = cost(it)
    assert text.startswith("1 session, cost in USD: 0.0") and "compaction" in text and "claude-opus-5-5" in text


async def test_peg_cost_of_a_fork_counts_what_was_copied_once(ride: Any, cost: Any) -> None:
    it = ride(["hello"])
    await it.run()
    copy = it.transcript.path.parent.with_name("11111111-1111-4111-8111-111111111111")
    shutil.copytree(it.transcript.path.parent, copy)
    bill = json.loads(cost(it, "--json"))
    assert len(bill["sessions"]) == 2 and bill["models"][0]["requests"] == 1


async def test_peg_cost_with_prices_of_ones_own_and_without_any(ride: Any, cost: Any) -> None:
    it = ride(["hello"], model="anthropic/mystery-1")
    await it.run()
    assert json.loads(cost(it, "--json"))["total_cost_usd"] is None and "cost in USD: unknown" in cost(it)
    it.bench._settings["prices"] = {"mystery-1": PRICE}
    it.bench._save()
    assert json.loads(cost(it, "--json"))["total_cost_usd"] > 0


async def test_peg_cost_of_nothing(ride: Any, cost: Any) -> None:
    it = ride([])
    shutil.rmtree(it.transcript.path.parent)
    assert json.loads(cost(it, "--json"))["models"] == [] and cost(it) == "0 sessions, cost in USD: 0.0000\n"
