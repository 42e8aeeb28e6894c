"""Long random sessions: the head of requests stays equal while the session changes, and no request is ever refused."""

from __future__ import annotations

import hashlib
import json
import random
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pegboard import events
from pegboard.hooks import Fragment, hook
from pegboard.policy import Mode
from pegboard.testing.sessions import set_room

sys.path.insert(0, str(Path(__file__).parent))
from rides import Ride, Rides, call, calls, head, plain

LATER = [f"Later{number}" for number in range(6)]
WORDS = "some words of a long result\n" * 400


class Surroundings:
    """What changes around a conversation: a todo list, and the state of a language server."""

    def __init__(self) -> None:
        self.todos, self.server = 0, "starting"

    @hook
    def peg_context(self, session: Any) -> list[Fragment]:
        todo = [Fragment("todo", "\n".join(f"{n}. [ ] item" for n in range(self.todos)))]
        return [*todo, Fragment("lsp", f"The language server is {self.server}.")]

    @hook
    async def peg_session_start(self, session: Any, kind: str) -> list[Fragment]:
        return [Fragment("AGENTS.md", "Use tabs.")]


def tools() -> list[Any]:
    core = [plain(name, budget=50_000) for name in ("Core", "Read", "Grep")]
    return [*core, *(plain(name, load="deferred", summary=f"Does {name}.") for name in LATER)]


later = st.sampled_from(LATER)
blocks = st.one_of(
    st.builds(lambda name: call(name, text=WORDS), st.sampled_from(["Read", "Grep", "Core"])),
    st.builds(lambda names: call("ToolSearch", query="select:" + ",".join(names)), st.lists(later, min_size=1)),
    st.builds(lambda name: call("ToolSearch", query=name), later),
    st.builds(lambda name: call(name, text="x"), later),
    st.just(call("Nobody", text="x")),
    st.just(call("Core", wrong="x")),
    st.just({"type": "tool_use", "name": "Core", "raw_input": '{"text": "cut'}),
    st.just({"type": "thinking", "thinking": "hm"}),
    st.just({"type": "text", "text": "a word"}),
)
answers = st.one_of(
    st.lists(blocks, min_size=1, max_size=4).map(
        lambda some: calls(*sorted(some, key=lambda block: block["type"] != "thinking"))
    ),
    st.just({"content": [{"type": "text", "text": "searching"}], "stop_reason": "pause_turn"}),
    st.just({"content": [{"type": "text", "text": "cut"}], "stop_reason": "max_tokens"}),
    st.just("done"),
)
CHANGES = ["mode", "todo", "server", "prompt", "prompt", "compact", "resume"]
changes = st.sampled_from(CHANGES)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(changes, st.lists(answers, max_size=5)), min_size=2, max_size=10))
def test_ctx_3_the_head_stays_equal_while_modes_todos_tools_and_servers_change(plan: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        set_room(Path(folder), patch.setenv)
        anyio.run(_ride, Rides(Path(folder), patch), plan)


@pytest.mark.parametrize("seed", range(3))
def test_a_session_of_hundreds_of_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    some = [
        lambda: calls(
            *[call(chance.choice(["Read", "Grep", "Core"]), text=WORDS) for _ in range(chance.randint(1, 3))]
        ),
        lambda: calls(call("ToolSearch", query="select:" + ",".join(chance.sample(LATER, 2)))),
        lambda: calls(call(chance.choice(LATER), text="x"), call("Core", wrong="x"), call("Nobody")),
    ]
    plan = [(chance.choice(CHANGES), [chance.choice(some)() for _ in range(chance.randint(0, 8))]) for _ in range(60)]
    set_room(tmp_path, monkeypatch.setenv)
    anyio.run(_ride, Rides(tmp_path, monkeypatch), plan)


async def _ride(rides: Rides, plan: list[tuple[str, Any]]) -> None:
    steps: list[Any] = []
    around = Surroundings()
    requests: list[tuple[dict[str, Any], int]] = []
    journey: list[Ride] = []

    def script(body: dict[str, Any]) -> Any:
        requests.append((body, sum(_breaks(it.events) for it in journey)))
        if "about to be replaced by your answer" in json.dumps(body["messages"][-1]):
            requests.pop()
            return "THE SUMMARY"
        return steps.pop(0) if steps else "done"

    options = {
        "tools": tools(),
        "hooks": [around],
        "settings": {"context.clear_at": 30_000, "context.clear_gain": 5_000},
    }
    try:
        journey.append(rides(script, **options))
        for number, (change, answered) in enumerate(plan):
            it = journey[-1]
            steps[:] = answered
            if change == "mode":
                it.session.set_mode(Mode.ACCEPT_EDITS if number % 2 else Mode.DEFAULT, "test")
            elif change == "todo":
                around.todos += 1
            elif change == "server":
                around.server = "ready" if around.server != "ready" else "gone"
            elif change == "compact" and it.transcript.messages:
                await it.agent.compact()
            elif change == "resume":
                await it.close()
                journey.append(rides(script, again=it, **options))
            await journey[-1].run(f"prompt {number}")
    finally:
        await rides.close()
    assert [problem for it in journey for problem in it.refused] == []
    for (before, breaks), (after, later_breaks) in pairwise(requests):
        if later_breaks == breaks:
            assert _hash(before) == _hash(after)
            _goes_on(before["messages"], after["messages"])


def _breaks(happened: list[Any]) -> int:
    """How often the conversation was cut back on purpose."""
    return sum(isinstance(event, events.Cleared | events.Compacted) for event in happened)


def _hash(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(list(head(body)), sort_keys=True).encode()).hexdigest()


def _goes_on(before: Any, after: Any) -> None:
    """What was sent stays as it was; only the end of the last message may have grown."""
    *earlier, last = _plain(before)
    now = _plain(after)
    assert now[: len(earlier)] == earlier
    same = now[len(earlier)]
    assert same["role"] == last["role"] and same["content"][: len(last["content"])] == last["content"]


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items() if key != "cache_control"}
    return [_plain(item) for item in node] if isinstance(node, list) else node
