"""`peg call`: exit codes, the stream over pipes, signals, and streams that are closed."""

from __future__ import annotations

import json
import signal

import pytest

KEYS = ["id", "tool", "is_error", "outcome", "code", "retry", "text", "data", "decision", "effects", "attachments"]


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_envelope_has_its_keys(world):
    world.write("project/a.txt", "one\n")
    done = world.peg("call", "Read", '{"file_path": "a.txt"}')
    (envelope,) = lines(done.stdout)
    assert done.returncode == 0
    assert list(envelope) == KEYS
    assert envelope["text"] == "1\tone"
    assert envelope["outcome"] == "ok"


@pytest.mark.parametrize(
    "words, code, outcome",
    [
        (["Read", '{"file_path": "none"}'], 1, "not_found"),
        (["Nope", "{}"], 1, "unknown_tool"),
        (["Read", "{"], 1, "invalid_input"),
        (["Read", "[1]"], 1, "invalid_input"),
        (["Write", '{"file_path": "b.txt", "content": ""}'], 3, "no_user"),
        (["--deny", "Read(/**)", "Read", '{"file_path": "a.txt"}'], 3, "denied_by_rule"),
        (["--permission-mode", "dontAsk", "Write", '{"file_path": "b.txt", "content": ""}'], 3, "denied_by_mode"),
    ],
)
def test_exit_codes(world, words, code, outcome):
    world.write("project/a.txt", "one\n")
    done = world.peg("call", *words)
    assert done.returncode == code
    assert lines(done.stdout)[0]["code"] == outcome
    assert not (world.project / "b.txt").exists()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["Read", "{}", "--jsonl"],
        ["Read", "{}", "--session", "../x"],
        ["Read", "{}", "--set", "nothing"],
        ["Read", "{}", "--set", "no.such=1"],
        ["Read", "{}", "--permission-mode", "nope"],
        ["Read", "{}", "--unknown"],
    ],
)
def test_wrong_usage_is_exit_2_with_a_reason(world, words):
    done = world.peg("call", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


def test_a_stream_answers_each_line_in_order(world):
    world.write("project/a.txt", "one\n")
    read = {"tool": "Read", "input": {"file_path": "a.txt"}}
    edit = {"tool": "Edit", "id": "e", "input": {"file_path": "a.txt", "old_string": "one", "new_string": "two"}}
    asked = [json.dumps(read), "broken{", "", json.dumps({"calls": [edit, {**read, "id": "r"}]}), "[]", '{"tool": 5}']
    done = world.peg("call", "--jsonl", "--allow", "Edit(/**)", stdin="\n".join(asked) + "\n")
    got = lines(done.stdout)
    assert [one["code"] for one in got] == [None, "invalid_input", None, None, "invalid_input", "invalid_input"]
    assert [one["id"] for one in got[2:4]] == ["e", "r"]
    assert got[3]["text"] == "1\ttwo"
    assert got[2]["effects"] == [
        {"kind": "file", "target": str(world.project / "a.txt"), "state": "done", "detail": ""}
    ]
    assert done.returncode == 0


def test_results_come_while_the_pipe_is_open(world, start):
    process = start("call", "--jsonl")
    for number in range(3):
        process.stdin.write(json.dumps({"tool": "Glob", "input": {"pattern": "*"}, "id": str(number)}) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == str(number)
    process.stdin.close()
    assert process.wait() == 0


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_with_the_right_code(start, number, code):
    process = start("call", "--jsonl")
    process.stdin.write(json.dumps({"tool": "Glob", "input": {"pattern": "*"}}) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["outcome"] == "ok"
    process.send_signal(number)
    assert process.wait() == code


def test_state_is_kept_under_a_session_id(world):
    world.write("project/a.txt", "one\n")
    edit = '{"file_path": "a.txt", "old_string": "one", "new_string": "two"}'
    words = ("call", "--session", "kept", "--allow", "Edit(/**)")
    assert world.peg(*words, "Edit", edit).returncode == 1
    assert world.peg(*words, "Read", '{"file_path": "a.txt"}').returncode == 0
    assert world.peg(*words, "Edit", edit).returncode == 0
    ledger = world.peg("sessions", "ledger", "kept").stdout
    assert str(world.project / "a.txt") in ledger


def test_a_closed_stdout_is_said_and_is_no_success(world):
    world.write("project/a.txt", "one\n")
    done = world.peg("call", "Read", '{"file_path": "a.txt"}', shell=">&-")
    assert done.returncode == 1
    assert "stdout is closed" in done.stderr
    transcripts = list((world.root / "home/.peg/projects").rglob("transcript.jsonl"))
    assert transcripts and all(json.loads(line) for path in transcripts for line in path.read_text().splitlines())


def test_a_reader_that_leaves_ends_it_quietly(world):
    asked = "\n".join(json.dumps({"tool": "Glob", "input": {"pattern": "*"}}) for _ in range(50)) + "\n"
    done = world.peg("call", "--jsonl", shell="| head -n 1", stdin=asked)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""
