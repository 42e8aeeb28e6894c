"""Permission questions at a real terminal: what is shown, what counts as an answer, and what is kept of it."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from pegboard.call import DecidedBy
from pegboard.cli.asking import answer, shown
from pegboard.decision import Decision
from pegboard.host import Choice, Question, Reply


def question(**fields: object) -> Question:
    given = {
        "call_id": "c", "tool": "Bash", "input": {"command": "ls"}, "lines": ["run ls"], "rules": ["Bash(ls)"],
        "always": ["Bash(ls)"], "decision": Decision("ask", DecidedBy(by="mode", reason="no rule allows it")),
    }  # fmt: skip
    return Question(**{**given, **fields})


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("o\n", Reply(Choice.ONCE)),
        ("YES\n", Reply(Choice.ONCE)),
        ("s\n", Reply(Choice.SESSION)),
        (" always \n", Reply(Choice.ALWAYS)),
        ("n\n", Reply(Choice.NO)),
        ("no, use make instead\n", Reply(Choice.NO, "use make instead")),
        ("\n", None),
        ("sure\n", None),
        ("yes but only once\n", None),
        ("yno\n", None),
    ],
)
def test_answers(line: str, reply: Reply | None) -> None:
    assert answer(line, question()) == reply


def test_what_is_not_offered_is_no_answer() -> None:
    bare = question(rules=[], always=[])
    assert answer("s", bare) is None and answer("a", bare) is None
    assert answer("a", question(always=[])) is None


def test_rules_are_shown_whole_and_invisible_characters_spelt_out() -> None:
    long = "Bash(" + "x" * 3000 + "\u202e)"
    text = "\n".join(shown(question(rules=[long], always=[long], lines=["run a\u200bb\nc"])))
    assert text.count("x" * 3000 + "\\u{202e}") == 2
    assert "run a\\u{200b}b\\nc" in text
    assert not any(char in text for char in "\u202e\u200b")


def test_an_answer_is_bound_to_what_was_shown() -> None:
    first = question()
    assert first.digest == question().digest
    for field, value in (("input", {"command": "rm"}), ("lines", ["run rm"]), ("rules", []), ("tool", "Read")):
        assert question(**{field: value}).digest != first.digest


class Terminal:
    """`peg call` in a folder of its own, with a terminal as stdin and stderr."""

    def __init__(self, tmp_path: Path, *words: str) -> None:
        self.project = tmp_path / "project"
        (self.project / ".peg").mkdir(parents=True, exist_ok=True)
        environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PEG_MANAGED_DIR": str(tmp_path / "managed")}
        self.master, slave = pty.openpty()
        command = [sys.executable, "-m", "pegboard", "call", *words]
        self.process = subprocess.Popen(
            command, cwd=self.project, env=environ, stdin=slave, stderr=slave, stdout=subprocess.PIPE
        )
        os.close(slave)

    def until(self, text: str) -> str:
        """What the terminal shows up to a text."""
        seen, end = "", time.monotonic() + 60
        while text not in seen:
            assert time.monotonic() < end, seen
            if select.select([self.master], [], [], 1)[0]:
                try:
                    seen += os.read(self.master, 65536).decode()
                except OSError:
                    raise AssertionError(seen) from None
        return seen

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self) -> dict:
        out, _ = self.process.communicate(timeout=60)
        os.close(self.master)
        return {"exit": self.process.returncode, **json.loads(out)}


def writing(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, "Write", json.dumps({"file_path": "new.txt", "content": "x\n"}))


def test_yes_lets_one_call_run(tmp_path: Path) -> None:
    terminal = writing(tmp_path)
    seen = terminal.until("or [n]o with a comment? ")
    assert f"edit {terminal.project}/new.txt" in seen and "[a]lways" not in seen, seen
    terminal.type("what\n")
    terminal.until("or [n]o with a comment? ")
    terminal.type("once\n")
    assert terminal.end()["outcome"] == "ok"
    assert (terminal.project / "new.txt").read_text() == "x\n"


def test_no_goes_to_the_model_with_its_comment(tmp_path: Path) -> None:
    terminal = writing(tmp_path)
    terminal.until("? ")
    terminal.type("no not here\n")
    told = terminal.end()
    assert (told["exit"], told["code"]) == (3, "denied_by_user")
    assert "not here" in told["text"]
    assert not (terminal.project / "new.txt").exists()


def test_the_end_of_input_is_nobody(tmp_path: Path) -> None:
    terminal = writing(tmp_path)
    terminal.until("? ")
    terminal.type("\x04")
    told = terminal.end()
    assert (told["exit"], told["code"]) == (3, "no_user")


def test_what_was_typed_before_the_question_is_no_answer(tmp_path: Path) -> None:
    terminal = writing(tmp_path)
    terminal.type("yes\n")
    terminal.until("or [n]o with a comment? ")
    assert not (terminal.project / "new.txt").exists()
    terminal.type("n\n")
    assert terminal.end()["code"] == "denied_by_user"


def test_always_saves_exactly_the_rule_that_was_shown(tmp_path: Path) -> None:
    secret = tmp_path / "other"
    secret.mkdir()
    (secret / "a.txt").write_text("a\n")
    terminal = Terminal(tmp_path, "Read", json.dumps({"file_path": str(secret / "a.txt")}), "--trust")
    seen = terminal.until("or [n]o with a comment? ").replace("\r\n", "\n")
    rule = f"Read(/{secret}/**)"
    assert f"in the local settings of this project:\n  allow {rule}\n" in seen
    terminal.type("a\n")
    assert terminal.end()["outcome"] == "ok"
    saved = tomllib.loads((terminal.project / ".peg" / "settings.local.toml").read_text())
    assert saved == {"permissions": {"allow": [rule]}}
    (record,) = [json.loads(line) for line in (tmp_path / ".peg/audit/decisions.jsonl").read_text().splitlines()]
    assert record["decided_by"]["by"] == "user" and record["answer"].endswith(" always")
    assert len(record["answer"].split()[0]) == 64


def test_always_is_not_offered_where_the_rule_would_not_count(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    terminal = Terminal(tmp_path, "Read", json.dumps({"file_path": str(tmp_path / "a.txt")}))
    assert "[a]lways" not in terminal.until("or [n]o with a comment? ")
    terminal.type("n\n")
    terminal.end()


def test_without_a_terminal_nobody_is_asked(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PEG_MANAGED_DIR": str(tmp_path / "managed")}
    command = [sys.executable, "-m", "pegboard", "call", "Write", '{"file_path": "a", "content": ""}']
    done = subprocess.run(command, cwd=tmp_path, env=environ, input="yes\n", capture_output=True, text=True)
    assert done.returncode == 3 and json.loads(done.stdout)["code"] == "no_user"
