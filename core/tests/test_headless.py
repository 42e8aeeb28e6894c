"""`peg -p` as a process against the strict service: OUT-1 to OUT-5, OUT-7, OUT-8, signals, resume."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from shells import SOON, Shell, alive, call, fits, shell

__all__ = ["shell"]


def test_out_1_each_format_parses_and_the_last_line_is_the_result(shell: Callable[..., Shell]) -> None:
    it = shell("plain", "object", call("Echo"), "stream")
    assert it.run("-p", "go").stdout == b"plain\n"
    one = it.run("-p", "go", "--output-format", "json")
    found = json.loads(one.stdout)
    assert one.stdout.count(b"\n") == 1 and found["result"] == "object" and found["type"] == "result"
    fits("result", found)
    code, lines = it.stream()
    assert code == 0 and [line["type"] for line in lines] == ["system", "assistant", "user", "assistant", "result"]
    init, last = lines[0], lines[-1]
    assert init["subtype"] == "init" and "Echo" in init["tools"] and init["cwd"] == str(it.work)
    assert {"model", "mcp_servers", "agents", "skills", "plugins", "errors", "permissionMode", "version",
            "capabilities"} <= init.keys()  # fmt: skip
    assert {"subtype", "is_error", "session_id", "num_turns", "duration_ms", "duration_api_ms", "total_cost_usd",
            "usage", "modelUsage", "permission_denials", "stop_reason", "terminal_reason"} <= last.keys()  # fmt: skip
    assert last["subtype"] == "success" and last["num_turns"] == 2 and last["terminal_reason"] == "completed"
    result = lines[2]
    assert result["outcome"] == "ok" and result["message"]["content"][0]["content"] == "echo x"
    assert it.refused == []


def test_out_2_a_denied_call_is_listed(shell: Callable[..., Shell]) -> None:
    it = shell(call("Touch", "f"), "could not")
    code, lines = it.stream("--deny", "Edit")
    assert code == 0 and not (it.work / "f").exists()
    (denied,) = lines[-1]["permission_denials"]
    assert denied["tool_name"] == "Touch" and denied["code"] == "denied_by_rule" and denied["tool_input"]["text"] == "f"
    assert [line["subtype"] for line in lines if line["type"] == "system"] == ["init", "permission_denied"]


def test_out_2_nobody_to_ask_is_a_denial(shell: Callable[..., Shell]) -> None:
    it = shell(call("Touch", "f"), "could not")
    done = it.run("-p", "go", "--output-format", "json")
    assert json.loads(done.stdout)["permission_denials"][0]["code"] == "no_user" and not (it.work / "f").exists()


def test_an_allow_rule_of_the_command_line_lets_it_pass(shell: Callable[..., Shell]) -> None:
    it = shell(call("Touch", "f"), "made")
    assert it.run("-p", "go", "--allow", "Edit(//**)").stdout == b"made\n" and (it.work / "f").exists()


def test_out_3_max_turns(shell: Callable[..., Shell]) -> None:
    it = shell(call("Echo"))
    code, lines = it.stream("--max-turns", "1")
    assert code == 1 and lines[-1]["subtype"] == "error_max_turns" and lines[-1]["terminal_reason"] == "max_turns"
    assert lines[-2]["outcome"] == "not_started" and "was not run" in str(lines[-2]["message"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_out_4_a_signal_ends_the_tool_and_resume_goes_on(
    shell: Callable[..., Shell], number: signal.Signals, code: int
) -> None:
    it = shell(call("Linger"), "back")
    process = it.start("-p", "go", "--output-format", "stream-json", "--allow", "Linger")
    pids = it.lingering()
    process.send_signal(number)
    out, err = process.communicate(timeout=SOON)
    assert process.returncode == code, err
    assert not any(alive(pid) for pid in pids)
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[-1]["type"] == "result" and lines[-1]["is_error"]
    assert lines[-1]["terminal_reason"] == {143: "terminated", 130: "interrupted"}[code]
    assert lines[-2]["outcome"] == "partial"
    done = it.run("-p", "and now?", "--resume", it.id)
    assert done.stdout == b"back\n" and it.refused == []
    result = it.service.bodies[-1]["messages"][2]["content"][0]
    assert result["is_error"] and "linger" in result["content"]


def test_out_4_sigterm_ends_a_bash_command_with_all_its_children(shell: Callable[..., Shell]) -> None:
    script = "echo $$ >> linger.txt; setsid sleep 60 & echo $! >> linger.txt; wait"
    it = shell({"content": [{"type": "tool_use", "name": "Bash", "input": {"command": script}}]}, "back")
    process = it.start("-p", "go", "--output-format", "json", "--permission-mode", "bypassPermissions")
    pids = it.lingering()
    process.terminate()
    out, err = process.communicate(timeout=SOON)
    assert process.returncode == 143 and json.loads(out)["terminal_reason"] == "terminated", err
    assert not any(alive(pid) for pid in pids)
    assert it.run("-p", "on", "--continue").stdout == b"back\n" and it.refused == []


def test_a_signal_while_the_model_thinks_ends_the_run(shell: Callable[..., Shell]) -> None:
    it = shell({"content": [{"type": "text", "text": "late"}], "delay": 60}, "now")
    process = it.start("-p", "go", "--output-format", "json")
    deadline = time.monotonic() + SOON
    while not it.service.requests and time.monotonic() < deadline:
        time.sleep(0.02)
    process.terminate()
    out, _ = process.communicate(timeout=SOON)
    assert process.returncode == 143 and json.loads(out)["terminal_reason"] == "terminated"
    assert it.run("-p", "again", "--continue").stdout == b"now\n" and it.refused == []
    assert [block["text"] for block in it.service.bodies[-1]["messages"][0]["content"]][::2] == ["go", "again"]


def test_a_skill_body_is_part_of_the_stream(shell: Callable[..., Shell]) -> None:
    it = shell(call("Teach", "knots"), "done")
    code, lines = it.stream()
    assert code == 0 and [line.get("origin") for line in lines if line["type"] == "user"] == [None, "skill"]


def test_ses_1_loop_8_kill_in_mid_tool_then_continue(shell: Callable[..., Shell]) -> None:
    it = shell(call("Linger"), "I see")
    process = it.start("-p", "go", "--allow", "Linger")
    pids = it.lingering()
    process.kill()
    process.communicate()
    for pid in pids:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    done = it.run("-p", "hi", "--continue")
    assert done.stdout == b"I see\n" and b"effects may exist" in done.stderr
    result, text = it.service.bodies[-1]["messages"][2]["content"][:2]
    assert result["is_error"] and "effects may exist" in result["content"] and text["text"] == "hi"
    assert it.refused == [] and len(it.files) == 1


def test_ses_7_a_session_in_use_is_refused(shell: Callable[..., Shell]) -> None:
    it = shell(call("Linger"))
    process = it.start("-p", "go", "--allow", "Linger")
    it.lingering()
    done = it.run("-p", "me too", "--resume", it.id)
    assert done.returncode == 1 and done.stdout == b"" and b"in use by another process" in done.stderr
    process.terminate()
    process.communicate(timeout=SOON)


def test_out_5_head_json_stdout_clean(shell: Callable[..., Shell]) -> None:
    it = shell(call("Noisy"), {"http_status": 529}, "quiet")
    code, lines = it.stream("--verbose")
    assert code == 0 and lines[-1]["result"] == "quiet"
    assert [line["subtype"] for line in lines if line["type"] == "system"] == ["init", "api_retry"]


def test_a_failed_run_says_why_and_exits_1(shell: Callable[..., Shell]) -> None:
    it = shell({"http_status": 400, "error": {"message": "your account is out of credit"}})
    done = it.run("-p", "go", "--output-format", "json")
    found = json.loads(done.stdout)
    assert done.returncode == 1 and found["subtype"] == "error_during_execution" and found["is_error"]
    assert "out of credit" in found["errors"][0] and b"out of credit" in done.stderr
    assert found["total_cost_usd"] == 0 and found["terminal_reason"] == "provider_error"


def test_usage_errors_exit_2_and_send_nothing(shell: Callable[..., Shell]) -> None:
    it = shell("x")
    for args in (
        ["--resume", "nothing-like-it"],
        ["--continue"],
        ["--model", "unknown-model"],
        ["--resume", "a", "--continue"],
        ["--model", "anthropic/claude-x-99", "--max-budget-usd", "1"],
    ):
        done = it.run("-p", "go", *args)
        assert done.returncode == 2 and done.stdout == b"" and done.stderr.startswith(b"peg: "), (args, done)
    assert it.run("-p", " ").returncode == 2
    assert it.service.requests == []


def test_stdin_is_appended(shell: Callable[..., Shell]) -> None:
    it = shell("ok")
    assert it.run("-p", "explain", given=b"line one\n").stdout == b"ok\n"
    assert it.service.bodies[0]["messages"][0]["content"][0]["text"] == "explain\n\nline one\n"


def test_out_8_too_much_stdin_is_a_usage_error(shell: Callable[..., Shell]) -> None:
    it = shell("ok")
    done = it.run("-p", "explain", given=b"x" * (11 * 1024 * 1024))
    assert done.returncode == 2 and b"10 MB" in done.stderr and it.service.requests == []


def test_out_7_a_slow_reader_loses_nothing(shell: Callable[..., Shell]) -> None:
    it = shell(*[call("Echo", "y" * 20_000) for _ in range(8)], "end")
    process = it.start("-p", "go", "--output-format", "stream-json")
    assert process.stdout is not None
    time.sleep(0.5)
    lines = [json.loads(line) for line in process.stdout]
    assert process.wait(SOON) == 0 and lines[-1]["result"] == "end" and len(lines) == 1 + 8 * 2 + 2
    process.communicate()


def test_a_reader_that_leaves_ends_the_run_quietly(shell: Callable[..., Shell]) -> None:
    it = shell(*[call("Echo", "y" * 20_000) for _ in range(40)], "end")
    process = it.start("-p", "go", "--output-format", "stream-json")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(SOON) in (0, 1)
    assert b"Traceback" not in process.stderr.read() and len(it.service.requests) < 41
    process.stderr.close()


def test_a_reader_that_stops_reading_does_not_hold_up_a_signal(shell: Callable[..., Shell]) -> None:
    it = shell(*[call("Echo", "y" * 20_000) for _ in range(20)], call("Linger"))
    process = it.start("-p", "go", "--output-format", "stream-json")
    deadline = time.monotonic() + SOON
    while len(it.service.requests) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    process.terminate()
    assert process.wait(SOON) == 143
    process.communicate()


def test_partial_messages_are_streamed_when_asked_for(shell: Callable[..., Shell]) -> None:
    it = shell({"content": [{"type": "text", "text": "one two three"}], "pieces": 3})
    code, lines = it.stream("--include-partial-messages")
    parts = [line["event"]["delta"]["text"] for line in lines if line["type"] == "stream_event"]
    assert code == 0 and "".join(parts) == "one two three" and len(parts) > 1


def test_priv_1_no_key_is_written_down(shell: Callable[..., Shell]) -> None:
    it = shell(call("Echo"), "done")
    it.run("-p", "go")
    for path in (it.home / ".peg").rglob("*"):
        assert not path.is_file() or b"sk-test-secret" not in path.read_bytes()


def test_sessions_are_listed_shown_accounted_and_deleted(shell: Callable[..., Shell]) -> None:
    it = shell(call("Touch", "f"), "made \x1b[31mred")
    assert it.run("-p", "make f", "--allow", "Edit(//**)").returncode == 0
    (listed,) = json.loads(it.run("sessions", "list", "--json").stdout)
    assert listed["prompt"] == "make f" and listed["ended"] == "completed" and listed["id"] == it.id
    assert it.id.encode() in it.run("sessions", "list").stdout
    shown = it.run("sessions", "show", it.id[:8]).stdout.decode()
    assert "user: make f" in shown and "result Touch: ok" in shown and "\x1b" not in shown
    assert all(json.loads(line) for line in it.run("sessions", "show", it.id, "--json").stdout.splitlines())
    ledger = it.run("sessions", "ledger", it.id).stdout.decode()
    assert f"file {it.work / 'f'}: changed" in ledger and "UNKNOWN: nothing" in ledger
    assert "Rewind cannot restore: \n  " in ledger
    account = json.loads(it.run("sessions", "ledger", it.id, "--json").stdout)
    assert account["lines"][0]["tool"] == "Touch" and account["lines"][0]["known"] == "changed"
    assert it.run("sessions", "export", it.id).stdout.startswith(b"# Session")
    gone = it.id
    assert it.run("sessions", "delete", gone).returncode == 0 and it.files == []
    assert it.run("sessions", "show", gone).returncode == 2
