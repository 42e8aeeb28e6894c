"""Deferred tools and tool search over the real loop: DEF-1 to DEF-5, the three modes, direct calls, other models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pegboard.testing import ToolSuite, case
from pegboard.toolsearch.search import ranked, selected

sys.path.insert(0, str(Path(__file__).parent))
from rides import Ride, call, calls, head, plain, ride

__all__ = ["ride"]
pytestmark = pytest.mark.anyio

SUMMARIES = {
    "Lsp": "Ask a language server about symbols, definitions and references.",
    "CronMake": "Run a prompt at a time, once or again and again.",
    "WebLook": "Fetch a page from the web.",
}


def tools(extra: int = 0) -> list[Any]:
    found = [plain(name, load="deferred", summary=summary) for name, summary in SUMMARIES.items()]
    return [plain("Core"), *found, *(plain(f"More{n}", load="deferred") for n in range(extra))]


def loaded(ride: Ride, request: int = -1) -> list[tuple[str, bool]]:
    return [(tool["name"], bool(tool.get("defer_loading"))) for tool in ride.bodies[request]["tools"]]


SEARCH = calls(call("ToolSearch", query="select:Lsp"))


async def test_def_1_a_found_tool_leaves_the_cached_head_equal(ride: Any) -> None:
    it = ride([SEARCH, calls(call("Lsp", text="x")), "done"], tools=tools())
    assert (await it.run()).text == "done"
    assert it.names(0) == ["Core", "ToolSearch"]
    assert "\nCronMake\nLsp\nWebLook" in it.texts(0) and "server" not in str(it.bodies[0])
    assert loaded(it, 1) == [("Core", False), ("ToolSearch", False), ("Lsp", True)]
    assert it.results(1) == [[{"type": "tool_reference", "tool_name": "Lsp"}]]
    assert it.results(2)[1] == "Lsp x"
    assert list(head(it.bodies[0])) == list(head(it.bodies[1])) == list(head(it.bodies[2]))
    before = it.bodies[0]["messages"]
    assert it.bodies[1]["messages"][: len(before)] == before and it.refused == []


async def test_def_2_a_denied_tool_is_not_found(ride: Any) -> None:
    searches = [calls(call("ToolSearch", query="select:Lsp")), calls(call("ToolSearch", query="language server"))]
    it = ride([*searches, "done"], tools=tools(), deny=["Lsp"])
    await it.run()
    assert "Lsp" not in it.texts(0) and it.names() == ["Core", "ToolSearch"]
    assert "no tool 'Lsp'" in it.results()[0] and "None of the 2 tools" in it.results()[1]


async def test_a_rule_that_comes_later_takes_a_found_tool_away(ride: Any) -> None:
    it = ride([SEARCH, "done", "again"], tools=tools())
    await it.run()
    it.bench.deny("Lsp")
    assert (await it.run("more")).text == "again"
    assert it.names() == ["Core", "ToolSearch"] and "Loaded: Lsp" in str(it.results())
    assert it.refused == []


async def test_def_3_a_resumed_session_has_what_was_found(ride: Any) -> None:
    first = ride([SEARCH, "done"], tools=tools())
    await first.run()
    await first.close()
    it = ride([calls(call("Lsp", text="y")), "fine"], tools=tools(), again=first)
    assert (await it.run("on")).text == "fine"
    assert loaded(it, 0) == [("Core", False), ("ToolSearch", False), ("Lsp", True)]
    assert it.results()[-1] == "Lsp y" and it.refused == []


async def test_def_3_a_tool_that_is_gone_since_is_told_in_words(ride: Any) -> None:
    first = ride([SEARCH, "done"], tools=tools())
    await first.run()
    await first.close()
    it = ride(["fine"], tools=tools()[:1], again=first)
    assert (await it.run("on")).text == "fine" and it.names() == ["Core"]
    assert "Loaded: Lsp" in str(it.results()) and it.refused == []


async def test_def_4_a_model_without_references_gets_the_schema_behind_the_others(ride: Any) -> None:
    it = ride([SEARCH, calls(call("Lsp", text="z")), "done"], tools=tools(), model="anthropic/mystery-1")
    assert (await it.run()).text == "done"
    assert loaded(it, 1) == [("Core", False), ("ToolSearch", False), ("Lsp", False)]
    assert "Loaded: Lsp" in str(it.results(1)) and it.results()[1] == "Lsp z" and it.refused == []


async def test_def_4_a_session_can_move_between_models(ride: Any) -> None:
    first = ride([SEARCH, "done"], tools=tools())
    await first.run()
    await first.close()
    it = ride(["fine"], tools=tools(), again=first, model="anthropic/mystery-1")
    await it.run("on")
    assert loaded(it) == [("Core", False), ("ToolSearch", False), ("Lsp", False)] and it.refused == []
    await it.close()
    back = ride(["fine"], tools=tools(), again=it)
    await back.run("on")
    assert loaded(back)[-1] == ("Lsp", True) and back.refused == []


async def test_def_5_a_source_that_failed_is_named_with_its_error(ride: Any) -> None:
    it = ride([calls(call("ToolSearch", query="select:Lsp,Wiki")), "done"], tools=tools())
    it.session.toolbox.failed["server wiki"] = "connection refused"
    await it.run()
    assert it.results() == [[{"type": "tool_reference", "tool_name": "Lsp"}]]
    assert "no tool 'Wiki'" in it.texts() and "server wiki are missing: connection refused" in it.texts()
    assert 'from="ToolSearch"' in it.texts() and it.refused == []


async def test_found_tools_survive_a_summary_and_a_second_search(ride: Any) -> None:
    again = calls(call("ToolSearch", query="select:Lsp,CronMake"))
    it = ride([SEARCH, "done", "THE SUMMARY", again, calls(call("Lsp", text="x")), "done"], tools=tools())
    await it.run()
    assert await it.agent.compact() == ""
    await it.run("go on")
    assert loaded(it, 3) == [("Core", False), ("ToolSearch", False), ("Lsp", False)]
    assert loaded(it) == [("Core", False), ("ToolSearch", False), ("Lsp", False), ("CronMake", True)]
    assert list(head(it.bodies[3])) == list(head(it.bodies[-1])) and it.results()[-1] == "Lsp x"
    assert it.refused == []


async def test_two_searches_in_one_message(ride: Any) -> None:
    both = calls(call("ToolSearch", query="select:Lsp"), call("ToolSearch", query="web page"), call("Core"))
    it = ride([both, "done"], tools=tools())
    await it.run()
    assert [name for name, later in loaded(it) if later] == ["Lsp", "WebLook"] and it.refused == []


@pytest.mark.parametrize(("mode", "count", "defers"), [("off", 0, False), ("auto", 0, False), ("auto", 800, True)])
async def test_modes(ride: Any, mode: str, count: int, defers: bool) -> None:
    it = ride(["done"], tools=tools(count), settings={"tools.search": mode}, model="anthropic/mystery-1")
    await it.run()
    assert ("ToolSearch" in it.names()) == defers and ("Lsp" in it.names()) != defers


async def test_without_the_search_tool_nothing_is_deferred(ride: Any) -> None:
    it = ride(["done"], tools=tools(), only=[])
    await it.run()
    assert it.names() == ["Core", "CronMake", "Lsp", "WebLook"]


async def test_nothing_to_find_means_no_search_tool(ride: Any) -> None:
    it = ride(["done"], tools=[plain("Core")])
    await it.run()
    assert it.names() == ["Core"] and "not loaded yet" not in it.texts()


async def test_a_direct_call_runs_if_it_fits_and_shows_the_schema_if_not(ride: Any) -> None:
    script = [calls(call("Lsp", text="x"), call("Lsp", word="x")), SEARCH, calls(call("Lsp", word="x")), "done"]
    it = ride(script, tools=tools())
    await it.run()
    fits, wrong, _, after = it.results()
    assert fits == "Lsp x"
    assert "was not loaded" in wrong and '"properties":{"text"' in wrong
    assert "not a field" in after and "was not loaded" not in after


def test_words_find_by_name_summary_and_description() -> None:
    known = {name: (name, summary, "text") for name, summary in SUMMARIES.items()}
    known["TaskGet"] = ("TaskGet", "Show one task.", "task_id")
    assert ranked("web", known) == ["WebLook"]
    assert ranked("find references to a symbol", known)[0] == "Lsp"
    assert ranked("get a task", known) == ["TaskGet"]
    assert ranked("pages", known) == ["WebLook"]
    assert ranked("task_id", known)[0] == "TaskGet"
    assert ranked("the for", known) == [] == ranked("zebra", known)


def test_selecting_is_exact_but_not_pedantic() -> None:
    assert selected("select: lsp ,WebLook,lsp, Nope", SUMMARIES) == (["Lsp", "WebLook"], ["Nope"])
    assert selected("web page", SUMMARIES) is None and selected("select:", SUMMARIES) == ([], [])


class TestToolSearch(ToolSuite):
    tool = "ToolSearch"
    good = [case({"query": "words that fit nothing"}, says="None of the")]
    bad = [case({"query": ""}, code="invalid_input"), case({"query": "x", "max_results": 0}, code="invalid_input")]
