"""Rewind and resume with the real tools, from the command line: what comes back, what is named, what git never sees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pegboard.lines import FILE_NAME
from pegboard.testing.messages import MessagesService
from pegboard.transcript import Transcript

PROGRAM = [sys.executable, str(Path(__file__).with_name("remotetools.py"))]
SOON = 30.0


def use(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"content": [{"type": "tool_use", "name": name, "input": given} for name, given in calls]}


class Desk:
    """A project, the command, and a service with a script."""

    def __init__(self, world: Any, script: Any) -> None:
        self.work: Path = world.project
        self.service = MessagesService(script)
        self.home: Path = world.root / "home"
        self.env = {
            **world.environ,
            "ANTHROPIC_BASE_URL": "",
            "ANTHROPIC_API_KEY": "sk-test",
        }

    def __enter__(self) -> Desk:
        self.service.__enter__()
        self.env["ANTHROPIC_BASE_URL"] = self.service.url
        return self

    def __exit__(self, *error: object) -> None:
        self.service.__exit__(None, None, None)
        assert [problem for entry in self.service.requests for problem in entry.problems] == []

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PROGRAM, *words],
            cwd=self.work,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def peg(self, *words: str, code: int = 0) -> str:
        process = self.start(*words)
        out, err = process.communicate(timeout=SOON)
        assert process.returncode == code, err
        return out

    def ask(self, text: str, *words: str) -> None:
        self.peg("-p", text, "--permission-mode", "acceptEdits", "--allow", "Bash", *words)

    def rewind(self, *words: str) -> dict[str, Any]:
        return json.loads(self.peg("sessions", "rewind", *words, "--json"))

    def git(self, *words: str) -> str:
        argv = ["git", "-c", "user.email=a@b.c", "-c", "user.name=n", *words]
        return subprocess.run(argv, cwd=self.work, capture_output=True, text=True, check=True).stdout

    @property
    def folder(self) -> Path:
        (path,) = self.home.glob(f".peg/projects/*/*/{FILE_NAME}")
        return path.parent

    def write(self, name: str, text: str) -> Path:
        path = self.work / name
        path.write_text(text)
        return path


@pytest.fixture
def desk(world: Any) -> Iterator[Callable[..., Desk]]:
    opened: list[Desk] = []

    def make(*script: Any) -> Desk:
        opened.append(Desk(world, list(script)).__enter__())
        return opened[-1]

    yield make
    for one in opened:
        one.__exit__(None, None, None)


def reads(*names: str) -> dict[str, Any]:
    return use(*(("Read", {"file_path": name}) for name in names))


def edit(name: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
    return "Edit", {"file_path": name, "old_string": old, "new_string": new}


def test_ses_3_two_edits_come_back_and_what_a_command_did_is_named(desk: Callable[..., Desk]) -> None:
    made = "python3 -c 'open(chr(99), chr(119)).close()'"
    it = desk(
        reads("a", "b"),
        use(edit("a", "one", "1"), edit("b", "two", "2"), ("Bash", {"command": made})),
        "done",
    )
    it.write("a", "one\n")
    it.write("b", "two\n")
    it.ask("go")
    dry = it.rewind("--last", "--dry-run")
    assert [Path(item["target"]).name for item in dry["restored"]] == ["a", "b"]
    assert "-1\n+one" in dry["restored"][0]["diff"] and (it.work / "a").read_text() == "1\n"
    out = it.peg("sessions", "rewind", "--last")
    assert (it.work / "a").read_text() == "one\n" and (it.work / "b").read_text() == "two\n"
    assert (it.work / "c").exists() and f"Bash: process {made}" in out


def test_ses_4_a_remote_page_stays_and_the_text_says_so(desk: Callable[..., Desk]) -> None:
    it = desk(use(("Publish", {"page": "report"}), ("Write", {"file_path": "report.md", "content": "x\n"})), "done")
    it.ask("go")
    out = it.peg("sessions", "rewind", "--last")
    assert not (it.work / "report.md").exists()
    assert "Publish: remote https://pages.example/report; held by the remote service" in out
    ledger = it.peg("sessions", "ledger")
    assert "Taken back by a rewind: \n" in ledger and "https://pages.example/report (Publish)" in ledger


def test_ses_5_a_linked_file_is_skipped_and_counted(desk: Callable[..., Desk]) -> None:
    it = desk(reads("link", "b"), use(edit("link", "one", "1"), edit("b", "two", "2")), "done")
    it.write("target", "one\n")
    (it.work / "link").symlink_to("target")
    it.write("b", "two\n")
    it.ask("go")
    out = it.peg("sessions", "rewind", "--last")
    assert "1 is skipped" in out and "target: a symbolic link" in out
    assert (it.work / "target").read_text() == "1\n" and (it.work / "b").read_text() == "two\n"


def test_ckpt_rewind_untracked(desk: Callable[..., Desk]) -> None:
    it = desk(reads("t"), use(("Write", {"file_path": "new.txt", "content": "new\n"}), edit("t", "1", "2")), "done")
    it.git("init", "-q", ".")
    it.write("t", "1\n")
    it.git("add", "t")
    it.git("commit", "-qm", "i")
    it.write("u", "user")
    states = ("status", "--porcelain"), ("rev-parse", "HEAD"), ("stash", "list"), ("reflog",), ("ls-files", "-s")
    before = [it.git(*words) for words in states]
    it.ask("go")
    it.write("u", "still the user")
    assert it.rewind("--to", "1")["kept"] == []
    assert not (it.work / "new.txt").exists() and (it.work / "t").read_text() == "1\n"
    assert (it.work / "u").read_text() == "still the user"
    assert [it.git(*words) for words in states] == before
    assert {Path(item["target"]).name for item in it.rewind("--undo")["restored"]} == {"new.txt", "t"}
    assert (it.work / "t").read_text() == "2\n" and (it.work / "new.txt").read_text() == "new\n"
    assert [it.git(*words) for words in states[1:]] == before[1:]


def test_ckpt_bash_effects_named(desk: Callable[..., Desk]) -> None:
    it = desk(use(("Bash", {"command": "sed -i s/one/1/ t; rm v; mkdir d"})), "done")
    it.write("t", "one\n")
    it.write("v", "five\n")
    it.ask("go")
    assert (it.work / "t").read_text() == "1\n" and not (it.work / "v").exists()
    report = it.rewind("--last")
    restored = {Path(item["target"]).name for item in report["restored"]}
    named = " ".join(item["target"] for item in [*report["kept"], *report["stays"]])
    for name, was in (("t", "one\n"), ("v", "five\n")):
        path = it.work / name
        assert (name in restored and path.read_text() == was) or f" {name}" in named
    assert "mkdir d" in named


def test_what_somebody_else_changed_is_left_alone_unless_forced(desk: Callable[..., Desk]) -> None:
    it = desk(reads("a"), use(edit("a", "one", "1")), "done")
    it.write("a", "one\n")
    it.ask("go")
    it.write("a", "by hand\n")
    assert it.rewind("--last", "--code")["kept"][0]["reason"] == "changed since by something else"
    assert (it.work / "a").read_text() == "by hand\n"
    it.rewind("--last", "--code", "--force")
    assert (it.work / "a").read_text() == "one\n"
    it.rewind("--undo")
    assert (it.work / "a").read_text() == "by hand\n"


def test_after_a_rewind_of_both_the_read_table_is_that_of_then(desk: Callable[..., Desk]) -> None:
    it = desk(
        *(reads("a"), "read"),
        *(use(edit("a", "one", "1")), "edited"),
        *(use(edit("a", "one", "uno")), "edited anew"),
    )
    it.write("a", "one\n")
    it.write("b", "x\n")
    it.ask("first")
    it.ask("second", "-c")
    it.rewind("--to", "2")
    it.ask("third", "-c")
    assert (it.work / "a").read_text() == "uno\n", "the edit needed no new read"
    texts = str(it.service.bodies[-1]["messages"])
    assert "first" in texts and "third" in texts and "second" not in texts


def test_sess_orphan_tool_use(desk: Callable[..., Desk]) -> None:
    it = desk(
        use(("Read", {"file_path": "a"}), ("Bash", {"command": "touch began; sleep 60"}), ("Glob", {"pattern": "*"})),
        "after the first resume",
        "after the second",
    )
    it.write("a", "one\n")
    process = it.start("-p", "go", "--allow", "Bash")
    deadline = time.monotonic() + SOON
    while not (it.work / "began").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    it.peg("-p", "hi", "-c")
    read, bash, glob = it.service.bodies[-1]["messages"][2]["content"][:3]
    assert read["content"].startswith("1\tone") and not read.get("is_error")
    assert bash["is_error"] and "interrupted" in bash["content"] and "effects may exist" in bash["content"]
    assert glob["is_error"] and "interrupted" in glob["content"]
    first = it.service.bodies[-1]["messages"]
    before = (it.folder / FILE_NAME).read_bytes()
    again = Transcript.resume(it.folder)
    assert [msgspec.json.decode(message.encoded()) for message in again.messages][: len(first)] == [
        plain(message) for message in first
    ]
    again.close()
    assert (it.folder / FILE_NAME).read_bytes() == before, "the repair is written once"
    it.peg("-p", "again", "-c")
    assert [plain(message) for message in it.service.bodies[-1]["messages"][: len(first)]] == [
        plain(message) for message in first
    ]


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """A message without the marks that a request adds for caching."""
    blocks = [{key: value for key, value in block.items() if key != "cache_control"} for block in message["content"]]
    return {**message, "content": blocks}


def test_a_fork_goes_on_beside_a_session_that_runs(desk: Callable[..., Desk]) -> None:
    it = desk(
        "first", use(("Bash", {"command": "touch began; sleep 60"})), use(edit("a", "x", "y")), "in the copy", "ended"
    )
    it.ask("one", "--name", "mine")
    process = it.start("-p", "two", "--resume", "mine", "--allow", "Bash")
    deadline = time.monotonic() + SOON
    while not (it.work / "began").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    it.peg("-p", "three", "--resume", "mine", code=1)
    assert it.peg("-p", "three", "--resume", "mine", "--fork").strip() == "in the copy"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SOON)
    found = json.loads(it.peg("sessions", "list", "--json"))
    assert sorted((item["name"], bool(item["parent"])) for item in found) == [("", True), ("mine", False)]


def test_the_model_of_the_last_run_is_used_again(desk: Callable[..., Desk]) -> None:
    it = desk("one", "two", "three")
    it.peg("-p", "go", "--model", "claude-haiku-5-5")
    it.peg("-p", "go", "-c")
    it.peg("-p", "go", "-c", "--set", "model=claude-opus-5-5")
    models = [body["model"] for body in it.service.bodies]
    assert models == ["claude-haiku-5-5", "claude-haiku-5-5", "claude-opus-5-5"]
