"""PermissionRequest: who may answer what, and what may be changed beside an answer."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

SAVE = {"path": "a.txt", "text": "hello"}


def decides(hooked: Any, **decision: Any) -> dict[str, Any]:
    return hooked.group(hooked.script(f"specific(decision=json.loads({json.dumps(decision)!r}))"))


def as_text(group: dict[str, Any], event: str = "PermissionRequest") -> str:
    """A settings file with one group of hooks."""
    import tomli_w

    return tomli_w.dumps({"hooks": {event: [group]}})


async def test_a_yes_answers_the_question(hooked: Any) -> None:
    async with hooked("PermissionRequest", decides(hooked, behavior="allow")) as bench:
        assert (await bench.call("Save", SAVE)).status == "ok" and hooked.host.questions == []


async def test_a_no_refuses_with_its_message(hooked: Any) -> None:
    async with hooked("PermissionRequest", decides(hooked, behavior="deny", message="not today")) as bench:
        outcome = await bench.call("Save", SAVE)
    assert (outcome.code, outcome.text) == ("denied_by_hook", "not today") and bench.session.halted == ""


async def test_a_no_may_end_the_run(hooked: Any) -> None:
    async with hooked("PermissionRequest", decides(hooked, behavior="deny", message="stop", interrupt=True)) as bench:
        assert (await bench.call("Save", SAVE)).code == "denied_by_hook" and bench.session.halted == "stop"


async def test_exit_2_is_not_honoured(hooked: Any) -> None:
    async with hooked("PermissionRequest", hooked.group("exit 2")) as bench:
        assert (await bench.call("Save", SAVE)).status == "ok" and len(hooked.host.questions) == 1


async def test_what_the_hook_is_told(hooked: Any) -> None:
    async with hooked("PermissionRequest", hooked.group(hooked.recorder())) as bench:
        await bench.call("Bash", {"command": "make all"}, id="t9")
    (event,) = hooked.seen()
    assert event["tool_name"] == "Bash" and event["tool_use_id"] == "t9"
    assert event["tool_input"] == {"command": "make all"}
    session = event["permission_suggestions"][0]
    assert session["type"] == "addRules" and session["behavior"] == "allow" and session["destination"] == "session"
    assert session["rules"] == [{"toolName": "Bash", "ruleContent": "make all"}]


async def test_nothing_is_asked_where_nothing_has_to_be(hooked: Any) -> None:
    async with hooked("PermissionRequest", hooked.group(hooked.recorder()), allow=["Edit"]) as bench:
        assert (await bench.call("Save", SAVE)).status == "ok"
    assert hooked.seen() == []


async def test_no_yes_lifts_a_deny_rule_or_a_floor(hooked: Any) -> None:
    async with hooked("PermissionRequest", decides(hooked, behavior="allow"), deny=["Edit(//**/a.txt)"]) as bench:
        assert (await bench.call("Save", SAVE)).code == "denied_by_rule"
        await bench.call("Save", {"path": ".git/config"})
        assert len(hooked.host.questions) == 1


async def test_a_removal_of_everything_needs_a_person(hooked: Any) -> None:
    group = decides(hooked, behavior="allow")
    async with hooked("PermissionRequest", group, host=None, allow=["Bash"]) as bench:
        assert (await bench.call("Bash", {"command": "rm -rf /"})).code == "no_user"


async def test_ask_rules_yield_to_hooks_of_their_own_level_only(hooked: Any) -> None:
    group = decides(hooked, behavior="allow")
    async with hooked("PermissionRequest", group, ask=["Edit"]) as bench:
        assert (await bench.call("Save", SAVE)).status == "ok" and hooked.host.questions == []
    async with hooked("PermissionRequest", group, managed='permissions.ask = ["Edit"]\n') as bench:
        await bench.call("Save", SAVE)
        assert len(hooked.host.questions) == 1


async def test_a_hook_of_a_project_answers_no_ask_rule(hooked: Any) -> None:
    project = as_text(decides(hooked, behavior="allow"))
    async with hooked(trusted=True, project=project) as bench:
        assert (await bench.call("Save", SAVE)).status == "ok" and hooked.host.questions == []
        bench.settings_file.parent.mkdir(parents=True, exist_ok=True)
        bench.settings_file.write_text('permissions.ask = ["Edit"]\n')
        await bench.call("Save", SAVE, id="t2")
        assert len(hooked.host.questions) == 1


async def test_another_input_is_judged_again(hooked: Any) -> None:
    group = decides(hooked, behavior="allow", updatedInput={"path": "b.txt", "text": "other"})
    async with hooked("PermissionRequest", group) as bench:
        assert (await bench.call("Save", SAVE)).status == "ok"
        assert (bench.folder / "b.txt").read_text() == "other" and not (bench.folder / "a.txt").exists()
    async with hooked("PermissionRequest", group, deny=["Edit(//**/b.txt)"]) as bench:
        assert (await bench.call("Save", SAVE)).code == "denied_by_rule"
    protected = decides(hooked, behavior="allow", updatedInput={"path": ".git/config"})
    async with hooked("PermissionRequest", protected) as bench:
        hooked.host.questions.clear()
        await bench.call("Save", SAVE)
        assert [question.input["path"] for question in hooked.host.questions] == [str(bench.folder / ".git/config")]
    wrong = decides(hooked, behavior="allow", updatedInput={"path": 5})
    async with hooked("PermissionRequest", wrong) as bench:
        assert (await bench.call("Save", SAVE)).code == "invalid_input"


def update(kind: str, destination: str = "session", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "destination": destination, **fields}


RULES = [{"toolName": "Bash", "ruleContent": "make *"}]


async def test_rules_for_the_session(hooked: Any) -> None:
    updates = [update("addRules", rules=RULES, behavior="allow")]
    group = decides(hooked, behavior="allow", updatedPermissions=updates)
    async with hooked("PermissionRequest", {**group, "matcher": "Save"}) as bench:
        await bench.call("Save", SAVE)
        assert [rule.text for rule in bench.session.session_rules] == ["Bash(make *)"]
        assert (await bench.call("Bash", {"command": "make all"})).status == "ok" and hooked.host.questions == []


async def test_rules_are_replaced_and_removed(hooked: Any) -> None:
    from pegboard.grants import change
    from pegboard_json_hooks.questions import granter
    from pegboard_json_hooks.room import Room

    async with hooked("PermissionRequest", hooked.group("true")) as bench:
        session = bench.session
        room = await session.owners.get(Room, session.place("main"))
        hook = granter(room.configured.all()[0])
        other = [{"toolName": "Bash", "ruleContent": "ls"}]
        for given in (
            update("addRules", rules=[*RULES, *other], behavior="allow"),
            update("addRules", rules=RULES, behavior="deny"),
            update("removeRules", rules=RULES, behavior="allow"),
        ):
            assert await change(session, given, hook) == ""
        assert [(rule.effect, rule.text) for rule in session.session_rules] == [
            ("allow", "Bash(ls)"),
            ("deny", "Bash(make *)"),
        ]
        assert await change(session, update("replaceRules", rules=RULES, behavior="allow"), hook) == ""
        assert {(rule.effect, rule.text) for rule in session.session_rules} == {
            ("allow", "Bash(make *)"),
            ("deny", "Bash(make *)"),
        }
        assert await change(session, update("setMode", mode="acceptEdits"), hook) == ""
        assert session.mode == "acceptEdits"
        assert "start of a session" in await change(session, update("setMode", mode="bypassPermissions"), hook)
        assert await change(session, update("addDirectories", directories=["/data"]), hook) == ""
        assert Path("/data") in session.roots and Path("/data").as_posix() in session.snapshot().roots
        assert await change(session, update("removeDirectories", directories=["/data"]), hook) == ""
        assert Path("/data") not in session.roots
        for odd in (
            None,
            {"type": "addRules"},
            update("nothing"),
            update("addRules", "nowhere", rules=RULES, behavior="allow"),
            update("addRules", rules="x", behavior="allow"),
            update("addRules", rules=[{"toolName": "no rule("}], behavior="allow"),
            update("setMode", mode="wild"),
        ):
            assert await change(session, odd, hook)


async def test_rules_are_saved_where_the_hook_says(hooked: Any) -> None:
    updates = [
        update("addRules", "userSettings", rules=RULES, behavior="allow"),
        update("setMode", "localSettings", mode="plan"),
        update("addDirectories", "projectSettings", directories=["/data"]),
    ]
    group = decides(hooked, behavior="allow", updatedPermissions=updates)
    async with hooked("PermissionRequest", {**group, "matcher": "Save"}) as bench:
        await bench.call("Save", SAVE)
        assert tomllib.loads(bench.settings_file.read_text())["permissions"]["allow"] == ["Bash(make *)"]
        local = tomllib.loads((bench.folder / ".peg/settings.local.toml").read_text())
        assert local["permissions"]["mode"] == "plan"
        project = tomllib.loads((bench.folder / ".peg/settings.toml").read_text())
        assert project["permissions"]["directories"] == ["/data"]
    assert hooked.host.notices == []


@pytest.mark.parametrize("destination", ["userSettings", "projectSettings", "localSettings"])
async def test_a_hook_of_a_project_writes_to_no_file(hooked: Any, destination: str) -> None:
    updates = [
        update("addRules", destination, rules=[{"toolName": "Bash"}], behavior="allow"),
        update("setMode", "session", mode="auto"),
        update("addRules", rules=RULES, behavior="allow"),
    ]
    project = as_text(decides(hooked, behavior="allow", updatedPermissions=updates))
    async with hooked(trusted=True, project=project) as bench:
        assert (await bench.call("Save", SAVE)).status == "ok"
        assert (bench.folder / ".peg/settings.toml").read_text() == project
        assert not (bench.folder / ".peg/settings.local.toml").exists()
        assert not bench.settings_file.exists() or "Bash" not in bench.settings_file.read_text()
        assert [rule.text for rule in bench.session.session_rules] == ["Bash(make *)"]
        assert bench.session.mode == "default"
    assert sum("changes the session only" in notice for notice in hooked.host.notices) == 1


async def test_a_question_to_a_person_is_notified(hooked: Any) -> None:
    settings = {"hooks.Notification": [hooked.group(hooked.recorder(), "permission_prompt")]}
    async with hooked(settings=settings) as bench:
        await bench.call("Save", SAVE)
    (event,) = hooked.seen()
    assert event["notification_type"] == "permission_prompt" and "Save needs permission" in event["message"]
