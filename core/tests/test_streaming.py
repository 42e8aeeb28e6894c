"""`--input-format stream-json` as drivers speak it: messages, requests, permission questions, one result each."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from shells import SOON, Shell, alive, call, fits, shell

__all__ = ["shell"]

STREAM = ("-p", "--input-format", "stream-json", "--output-format", "stream-json")
ASKS = ("--permission-prompt-tool", "stdio")
LINGER = {"content": [{"type": "tool_use", "name": "Linger", "input": {}}]}


class Driver:
    """A program that drives `peg` over its stdin and stdout."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._came: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._number = 0
        self.odd = False
        """What is sent from now on fits no schema on purpose."""
        self.pump = threading.Thread(target=self._pump, daemon=True)
        self.pump.start()

    def _pump(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            fits("stream", found := json.loads(line))
            self._came.put(found)
        self._came.put(None)

    def raw(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def send(self, **given: Any) -> None:
        if not self.odd:
            fits("input", given)
        self.raw(json.dumps(given))

    def say(self, text: Any, **more: Any) -> None:
        self.send(type="user", message={"role": "user", "content": text}, **more)

    def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next line of this type with these fields."""
        while True:
            line = self._came.get(timeout=SOON)
            assert line is not None, f"no {kind} came; {self.lines[-3:]}"
            self.lines.append(line)
            if line["type"] == kind and fields.items() <= line.items():
                return line

    def request(self, subtype: str, **fields: Any) -> dict[str, Any]:
        """Ask for something; the response."""
        self._number += 1
        self.send(type="control_request", request_id=f"r{self._number}", request={"subtype": subtype, **fields})
        response = self.until("control_response")["response"]
        assert response["request_id"] == f"r{self._number}"
        return response

    def asked(self) -> dict[str, Any]:
        return self.until("control_request")

    def answer(self, asked: dict[str, Any], **response: Any) -> None:
        given = {"subtype": "success", "request_id": asked["request_id"], "response": response}
        self.send(type="control_response", response=given)

    def close(self) -> int:
        """Close stdin; the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        while (line := self._came.get(timeout=SOON)) is not None:
            self.lines.append(line)
        return self.process.wait(SOON)

    @property
    def results(self) -> list[str]:
        return [line["result"] for line in self.lines if line["type"] == "result"]


@contextmanager
def driving(it: Shell, *args: str) -> Iterator[Driver]:
    process = it.start(*STREAM, *args, stdin=subprocess.PIPE)
    driver = Driver(process)
    try:
        yield driver
    finally:
        process.kill()
        process.wait()
        driver.pump.join()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def test_each_message_ends_with_its_own_result(shell: Callable[..., Shell]) -> None:
    it = shell("one", "two", "three")
    with driving(it) as driver:
        driver.say("first")
        assert driver.until("result")["result"] == "one"
        driver.say([{"type": "text", "text": "second"}])
        driver.say("third")
        assert driver.close() == 0
    assert driver.results == ["one", "two", "three"] and it.refused == []
    assert [line["type"] for line in driver.lines].count("system") == 1
    texts = [block["text"] for message in it.service.bodies[-1]["messages"] for block in message["content"]]
    assert [text for text in texts if text in ("first", "second", "third")] == ["first", "second", "third"]


def test_a_message_during_calls_is_said_behind_their_results(shell: Callable[..., Shell]) -> None:
    it = shell(call("Touch", "f"), "both")
    with driving(it, *ASKS) as driver:
        driver.say("first", uuid="u1")
        asked = driver.asked()
        driver.say("second", uuid="u2")
        assert driver.request("stop_task", task_id="none")["subtype"] == "error"
        driver.answer(asked, behavior="allow", updatedInput=asked["request"]["input"])
        assert driver.close() == 0
    assert driver.results == ["both", "both"] and (it.work / "f").exists()
    blocks = it.service.bodies[-1]["messages"][2]["content"]
    assert blocks[0]["type"] == "tool_result" and blocks[1]["text"] == "second" and it.refused == []


def test_hooks_judge_a_message_during_calls_too(shell: Callable[..., Shell]) -> None:
    it = shell(call("Touch", "f"), "done")
    (it.home / ".peg").mkdir()
    hook = """{ type = "command", command = "if grep -q secret; then echo no secrets >&2; exit 2; fi" }"""
    (it.home / ".peg/settings.toml").write_text(f"[[hooks.UserPromptSubmit]]\nhooks = [{hook}]\n")
    with driving(it, *ASKS) as driver:
        driver.say("first")
        asked = driver.asked()
        driver.say("the secret")
        driver.say("third")
        driver.request("stop_task", task_id="none")
        driver.answer(asked, behavior="allow")
        assert driver.close() == 0
    said = json.dumps(it.service.bodies[-1]["messages"])
    assert "third" in said and "secret" not in said and it.refused == []
    assert "no secrets" in next(line["text"] for line in driver.lines if line.get("subtype") == "notice")


def test_questions_go_to_the_driver(shell: Callable[..., Shell]) -> None:
    it = shell(call("Touch", "a"), call("Touch", "b"), call("Touch", "c"), "done")
    with driving(it, *ASKS) as driver:
        driver.say("go")
        asked = driver.asked()
        request = asked["request"]
        assert request["subtype"] == "can_use_tool" and request["tool_name"] == "Touch"
        assert request["input"] == {"text": "a"} and request["tool_use_id"]
        assert request["permission_suggestions"][0]["destination"] == "session"
        driver.answer(asked, behavior="allow", updatedInput={"text": "a2"})
        driver.answer(driver.asked(), behavior="deny", message="not this one")
        rule = {"type": "addRules", "rules": [{"toolName": "Edit"}], "behavior": "allow", "destination": "session"}
        driver.answer(driver.asked(), behavior="allow", updatedInput={"text": "c"}, updatedPermissions=[rule])
        driver.until("result", subtype="success")
        it.service._play.__init__({"turns": [call("Touch", "d"), "again"]})  # type: ignore[misc]
        driver.say("more")
        result = driver.until("result")
        assert driver.close() == 0
    assert result["result"] == "again" and result["permission_denials"] == []
    assert {path.name for path in it.work.iterdir()} == {"a2", "c", "d"}
    denied = [line for line in driver.lines if line.get("subtype") == "permission_denied"]
    assert [line["code"] for line in denied] == ["denied_by_user"] and "not this one" in str(driver.lines)


def test_a_no_that_interrupts_ends_the_run_and_not_the_session(shell: Callable[..., Shell]) -> None:
    it = shell(call("Touch", "a"), "next")
    with driving(it, *ASKS) as driver:
        driver.say("go")
        driver.answer(driver.asked(), behavior="deny", message="stop", interrupt=True)
        result = driver.until("result")
        assert result["is_error"] and result["terminal_reason"] == "interrupted"
        assert result["permission_denials"][0]["code"] == "denied_by_user"
        driver.say("go on")
        assert driver.until("result")["result"] == "next"
        assert driver.close() == 0
    assert it.refused == []


@pytest.mark.parametrize("odd", [{}, {"behavior": "perhaps"}, {"behavior": "allow", "updatedInput": {"text": 5}}])
def test_an_answer_that_says_nothing_is_a_no(shell: Callable[..., Shell], odd: dict[str, Any]) -> None:
    it = shell(call("Touch", "a"), "fine")
    with driving(it, *ASKS) as driver:
        driver.say("go")
        driver.odd = True
        driver.answer(driver.asked(), **odd)
        driver.until("result", result="fine")
        assert driver.close() == 0
    assert not (it.work / "a").exists()


def test_a_question_without_anybody_left_is_denied(shell: Callable[..., Shell]) -> None:
    it = shell(call("Touch", "a"), "fine")
    with driving(it, *ASKS) as driver:
        driver.say("go")
        driver.asked()
        assert driver.close() == 0
    assert driver.lines[-1]["permission_denials"][0]["code"] == "no_user" and not (it.work / "a").exists()


def test_an_error_as_answer_is_nobody(shell: Callable[..., Shell]) -> None:
    it = shell(call("Touch", "a"), "fine")
    with driving(it, *ASKS) as driver:
        driver.say("go")
        response = {"subtype": "error", "request_id": driver.asked()["request_id"], "error": "no dialog"}
        driver.send(type="control_response", response=response)
        assert driver.until("result")["permission_denials"][0]["code"] == "no_user"
        driver.close()


def test_interrupt_takes_questions_back(shell: Callable[..., Shell]) -> None:
    it = shell(call("Touch", "a"), "next")
    with driving(it, *ASKS) as driver:
        driver.say("go")
        asked = driver.asked()
        driver.send(type="control_request", request_id="stop", request={"subtype": "interrupt"})
        driver.until("control_cancel_request", request_id=asked["request_id"])
        assert driver.until("result")["terminal_reason"] == "interrupted"
        driver.answer(asked, behavior="allow")
        driver.say("again")
        assert driver.until("result")["result"] == "next"
        assert driver.close() == 0
    responses = [line["response"] for line in driver.lines if line["type"] == "control_response"]
    assert responses == [{"subtype": "success", "request_id": "stop", "response": {}}]
    assert not (it.work / "a").exists()


def test_interrupt_ends_a_running_call(shell: Callable[..., Shell]) -> None:
    it = shell(LINGER, "next")
    with driving(it, "--allow", "Linger") as driver:
        driver.say("go")
        pids = it.lingering()
        assert driver.request("interrupt")["subtype"] == "success"
        assert driver.until("result")["subtype"] == "error_during_execution"
        assert not any(alive(pid) for pid in pids)
        assert driver.request("interrupt")["subtype"] == "success"
        driver.say("and now?")
        assert driver.until("result")["result"] == "next"
        assert driver.close() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("busy", [True, False])
def test_out_4_a_signal_ends_a_driven_session(
    shell: Callable[..., Shell], number: signal.Signals, code: int, busy: bool
) -> None:
    it = shell(LINGER if busy else "idle", "later")
    with driving(it, "--allow", "Linger") as driver:
        driver.say("go")
        pids = it.lingering() if busy else []
        if not busy:
            driver.until("result")
        driver.process.send_signal(number)
        assert driver.process.wait(SOON) == code
    assert not any(alive(pid) for pid in pids)
    assert it.run("-p", "on", "--resume", it.id).stdout == b"later\n" and it.refused == []


def test_the_mode_is_set_over_the_channel(shell: Callable[..., Shell]) -> None:
    it = shell(call("Touch", "a"), "no", call("Touch", "a"), "yes")
    with driving(it) as driver:
        driver.say("go")
        assert driver.until("result")["permission_denials"]
        assert driver.request("set_permission_mode", mode="acceptEdits")["response"] == {"mode": "acceptEdits"}
        driver.say("go")
        assert driver.until("result")["permission_denials"] == [] and (it.work / "a").exists()
        driver.odd = True
        assert driver.request("set_permission_mode", mode="sometimes")["subtype"] == "error"
        refused = driver.request("set_permission_mode", mode="auto")
        assert refused["subtype"] == "error" and "acceptEdits" in refused["error"]
        driver.close()


def test_what_initialize_says(shell: Callable[..., Shell]) -> None:
    it = shell("ok")
    with driving(it) as driver:
        driver.odd = True
        found = driver.request("initialize", hooks=None)["response"]
        assert found["models"] and "rewind_files" in found["requests"] and found["session_id"]
        refused = driver.request("initialize", hooks={"PreToolUse": [{"hookCallbackIds": ["h"]}]})
        assert refused["subtype"] == "error" and "hooks" in refused["error"]
        for subtype in ("mcp_reconnect", "mcp_toggle"):
            assert "no server named 'db'" in driver.request(subtype, serverName="db")["error"]
        assert "no background task" in driver.request("stop_task", task_id="b1")["error"]
        assert "There is no request" in driver.request("dance")["error"]
        assert driver.close() == 0
    assert it.service.requests == []


def test_files_are_rewound_over_the_channel(shell: Callable[..., Shell]) -> None:
    write = {"name": "Write", "type": "tool_use", "input": {"file_path": "a.txt", "content": "new\n"}}
    it = shell({"content": [write]}, "made", "seen")
    (it.work / "b.txt").write_text("b")
    with driving(it, "--permission-mode", "acceptEdits") as driver:
        driver.say("make", uuid="m1")
        driver.until("result")
        assert (it.work / "a.txt").read_text() == "new\n"
        would = driver.request("rewind_files", user_message_id="m1", dry_run=True)["response"]
        assert would["filesChanged"] == [str(it.work / "a.txt")] and (it.work / "a.txt").exists()
        assert would["deletions"] == 1 and would["insertions"] == 0
        done = driver.request("rewind_files", user_message_id="m1")["response"]
        assert done["canRewind"] and not (it.work / "a.txt").exists()
        assert driver.request("rewind_files", user_message_id="other")["subtype"] == "error"
        assert driver.request("rewind_files", prompt=7)["subtype"] == "error"
        driver.say("look")
        assert driver.until("result")["result"] == "seen"
        assert driver.close() == 0
    assert "rewound files" in json.dumps(it.service.bodies[-1]["messages"]) and it.refused == []


def bash(command: str) -> dict[str, Any]:
    given = {"command": command, "run_in_background": True}
    return {"content": [{"type": "tool_use", "name": "Bash", "input": given}]}


def test_a_background_task_is_stopped_over_the_channel(shell: Callable[..., Shell]) -> None:
    it = shell(bash("echo $$ >> linger.txt; sleep 60 & echo $! >> linger.txt; wait"), "started", "it is gone")
    with driving(it, "--permission-mode", "bypassPermissions") as driver:
        driver.say("go")
        task = driver.until("system", subtype="task_started")["task_id"]
        driver.until("result", result="started")
        pids = it.lingering()
        assert driver.request("stop_task", task_id=task)["response"] == {"task_id": task, "status": "stopped"}
        assert not any(alive(pid) for pid in pids)
        assert driver.until("result")["result"] == "it is gone"
        assert driver.close() == 0
    assert "stopped over the control channel" in json.dumps(it.service.bodies[-1]["messages"]) and it.refused == []


def test_what_ends_while_nobody_works_begins_a_run_of_its_own(shell: Callable[..., Shell]) -> None:
    it = shell(bash("while [ ! -e go ]; do sleep 0.05; done; echo finished"), "started", "it has finished", "yes")
    with driving(it, "--permission-mode", "bypassPermissions") as driver:
        driver.say("go")
        driver.until("result", result="started")
        (it.work / "go").touch()
        ended = driver.until("system", subtype="task_notification")
        assert ended["status"] == "completed" and ended["exit_code"] == 0
        assert driver.until("result")["result"] == "it has finished"
        driver.say("is it?")
        assert driver.until("result")["result"] == "yes"
        assert driver.close() == 0
    said = [line for line in driver.lines if line.get("origin") == "task-notification"]
    assert len(said) == 1 and it.refused == []


def test_lines_that_nobody_understands_are_left_out(shell: Callable[..., Shell]) -> None:
    it = shell("ok")
    with driving(it) as driver:
        driver.odd = True
        for line in ("{", "[1]", "", '{"type": "keep_alive"}', '{"type": "dance"}', '{"type": "user"}'):
            driver.raw(line)
        driver.say(" ")
        driver.say([{"type": "tool_result", "tool_use_id": "x"}])
        driver.send(type="user", message={"role": "assistant", "content": "x"})
        driver.send(type="control_request", request={"subtype": "interrupt"})
        driver.send(type="control_response", response={"subtype": "success", "request_id": "x"})
        driver.say("go")
        assert driver.close() == 0
        said = driver.process.stderr.read().decode()  # type: ignore[union-attr]
    assert driver.results == ["ok"] and said.count("left out") == 9, said


def test_a_file_of_messages_works_as_stdin(shell: Callable[..., Shell]) -> None:
    it = shell("one", "two")
    lines = [json.dumps({"type": "user", "message": {"role": "user", "content": text}}) for text in ("a", "b")]
    (it.work / "input").write_text("\n".join(lines))
    with (it.work / "input").open() as stdin:
        out = it.start(*STREAM, stdin=stdin).communicate(timeout=SOON)[0]
    assert [line["result"] for line in map(json.loads, out.splitlines()) if line["type"] == "result"] == ["one", "two"]


def test_a_message_with_a_picture(shell: Callable[..., Shell]) -> None:
    it = shell("nice")
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    with driving(it) as driver:
        driver.say([{"type": "image", "source": source}, {"type": "text", "text": "what is it?"}])
        assert driver.close() == 0
    assert it.service.bodies[0]["messages"][0]["content"][0]["source"] == source


def test_usage_of_the_channel(shell: Callable[..., Shell]) -> None:
    it = shell("ok")
    for args in (
        ["-p", "go", "--permission-prompt-tool", "stdio"],
        ["-p", "go", "--permission-prompt-tool", "Nothing"],
        ["-p", "--input-format", "stream-json"],
        ["-p", "--input-format", "stream-json", "--output-format", "json"],
        ["-p"],
    ):
        done = it.run(*args)
        assert done.returncode == 2 and done.stdout == b"" and done.stderr.startswith(b"peg: "), (args, done)
    assert it.service.requests == []


def test_a_tool_answers_questions(shell: Callable[..., Shell]) -> None:
    it = shell(call("Touch", "yes"), call("Touch", "no"), call("Touch", "odd"), "done", "on")
    code, lines = it.stream("--permission-prompt-tool", "Judge")
    assert code == 0 and {path.name for path in it.work.iterdir()} == {"yes"} and it.refused == []
    assert [denied["code"] for denied in lines[-1]["permission_denials"]] == ["denied_by_user", "no_user"]
    assert "They said: not no" in str(lines) and len([line for line in lines if line["type"] == "user"]) == 3
    assert it.run("-p", "on", "--resume", it.id).returncode == 0 and it.refused == []


def later(name: str = "later") -> dict[str, Any]:
    return call("Touch", name)


def test_out_6_a_call_that_is_put_off_runs_once_when_the_session_goes_on(shell: Callable[..., Shell]) -> None:
    it = shell(later(), "made it")
    code, lines = it.stream("--allow", "Edit(//**)")
    last = lines[-1]
    assert code == 0 and last["subtype"] == "success" and not last["is_error"]
    assert last["terminal_reason"] == last["stop_reason"] == "tool_deferred" and last["permission_denials"] == []
    assert last["deferred_tool_use"]["name"] == "Touch" and last["deferred_tool_use"]["input"] == {"text": "later"}
    assert len(it.service.requests) == 1 and not (it.work / "later").exists()
    again = it.run("-p", "--resume", it.id, "--allow", "Edit(//**)", "--output-format", "json")
    assert json.loads(again.stdout)["terminal_reason"] == "tool_deferred" and len(it.service.requests) == 1
    (it.work / "verdict").write_text("allow")
    done = it.run("-p", "go on", "--resume", it.id, "--allow", "Edit(//**)")
    assert done.stdout == b"made it\n" and (it.work / "later").exists() and it.refused == []
    result, text = it.service.bodies[-1]["messages"][2]["content"][:2]
    assert result["tool_use_id"] == last["deferred_tool_use"]["id"] and "made later" in result["content"]
    assert not result.get("is_error") and text["text"] == "go on"
    (it.work / "later").unlink()
    it.service._play.__init__({"turns": ["fine"]})  # type: ignore[misc]
    assert it.run("-p", "and?", "--resume", it.id).stdout == b"fine\n" and not (it.work / "later").exists()


def test_out_6_what_was_put_off_can_be_refused_later_and_needs_no_prompt(shell: Callable[..., Shell]) -> None:
    it = shell(later(), "then not")
    assert it.run("-p", "go").returncode == 0
    (it.work / "verdict").write_text("deny")
    done = it.run("-p", "--continue")
    assert done.stdout == b"then not\n" and b"Touch was not permitted" in done.stderr and it.refused == []
    result = it.service.bodies[-1]["messages"][2]["content"][0]
    assert result["is_error"] and result["content"].startswith("not yet")
    assert it.run("-p", "--continue").returncode == 2, "nothing waits any more, so a prompt is needed"


def test_out_6_a_hook_of_the_settings_puts_a_call_off(shell: Callable[..., Shell]) -> None:
    it = shell(call("Echo"), "heard")
    answer = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "defer"}}
    (it.work / "defer.json").write_text(json.dumps(answer))
    (it.home / ".peg").mkdir()
    hook = '{ type = "command", command = "cat defer.json" }'
    (it.home / ".peg/settings.toml").write_text(f'[[hooks.PreToolUse]]\nmatcher = "Echo"\nhooks = [{hook}]\n')
    found = json.loads(it.run("-p", "go", "--output-format", "json").stdout)
    assert found["terminal_reason"] == "tool_deferred" and found["deferred_tool_use"]["name"] == "Echo"
    answer["hookSpecificOutput"] |= {"permissionDecision": "allow", "updatedInput": {"text": "the answer"}}
    (it.work / "defer.json").write_text(json.dumps(answer))
    assert it.run("-p", "--continue").stdout == b"heard\n" and it.refused == []
    assert "echo the answer" in json.dumps(it.service.bodies[-1]["messages"])


def test_out_6_of_several_calls_none_can_be_put_off(shell: Callable[..., Shell]) -> None:
    both = {"content": [*later("later1")["content"], *later("later2")["content"]]}
    it = shell(both, "well")
    code, lines = it.stream("--allow", "Edit(//**)")
    assert code == 0 and lines[-1]["result"] == "well"
    assert [denied["code"] for denied in lines[-1]["permission_denials"]] == ["denied_by_hook"] * 2
    assert "only as the one call" in str(lines)


def test_out_6_a_crash_while_it_runs_is_told_and_nothing_runs_twice(shell: Callable[..., Shell]) -> None:
    it = shell(later(), "I see")
    it.run("-p", "go", "--allow", "Edit(//**)")
    path = it.files[0]
    deferred = next(json.loads(line) for line in path.read_text().splitlines() if '"deferred"' in line)
    began = {"type": "began", "time": 1.0, "id": deferred["id"], "tool": "Touch", "kinds": ["file"]}
    with path.open("a") as file:
        file.write(json.dumps(began) + "\n")
    (it.work / "verdict").write_text("allow")
    done = it.run("-p", "hm", "--resume", it.id, "--allow", "Edit(//**)")
    assert done.stdout == b"I see\n" and b"effects may exist" in done.stderr and it.refused == []
    assert not (it.work / "later").exists()
    assert "effects may exist" in it.service.bodies[-1]["messages"][2]["content"][0]["content"]


def test_out_6_a_driven_session_begins_with_what_was_put_off(shell: Callable[..., Shell]) -> None:
    it = shell(later(), "made", "next")
    it.run("-p", "go", "--allow", "Edit(//**)")
    (it.work / "verdict").write_text("allow")
    with driving(it, "--resume", it.id, "--allow", "Edit(//**)") as driver:
        assert driver.until("result")["result"] == "made"
        driver.say("more")
        assert driver.until("result")["result"] == "next"
        assert driver.close() == 0
    assert (it.work / "later").exists() and it.refused == []
