"""TaskStop takes the exam that every tool takes, and ends what Bash began."""

from __future__ import annotations

import pytest
from pegboard.testing.suite import ToolSuite, case

BEGUN = [("Bash", {"command": "sleep 95", "run_in_background": True})]


class TestTaskStop(ToolSuite):
    tool = "TaskStop"
    good = [
        case({"task_id": "call-1"}, before=BEGUN, says="was stopped"),
        case({"task_id": "call-1"}, before=[*BEGUN, ("TaskStop", {"task_id": "call-1"})], says="had ended before"),
    ]
    bad = [
        case({"task_id": "nothing"}, code="not_found", says="No background task is running"),
        case({"task_id": "nothing"}, before=BEGUN, code="not_found", says="sleep 95"),
        case({"task_id": ""}, code="invalid_input"),
    ]


@pytest.mark.anyio
async def test_a_subagent_stops_its_own_only(peg_session):
    from pegboard.call import Call

    async with peg_session(allow=["Bash"]) as bench:
        begun = await bench.call("Bash", *[BEGUN[0][1]])
        call = Call(id="c", tool="TaskStop", input={"task_id": begun.data["backgroundTaskId"]})
        (outcome,) = await bench.session.run_calls([call], agent="child")
        assert outcome.code == "not_found"
        (outcome,) = await bench.session.run_calls([Call(id="d", tool="KillShell", input=call.input)])
        assert not outcome.is_error and outcome.data["stopped"] is True
