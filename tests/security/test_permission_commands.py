"""Permission rules over real shell commands, through the real tool: reported ways around a rule, and harmless twins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    "Bash" not in [entry.name for entry in entry_points(group="pegboard.tools")], reason="Bash is not installed"
)


@pytest.fixture
def verdicts(tmp_path: Path):
    """The verdicts on commands under these rules, asked of `peg policy explain --jsonl`."""

    def ask(commands: list[str], *, mode: str = "default", trusted: bool = True, **rules: list[str]) -> list[str]:
        work = tmp_path / "home" / "work"
        work.mkdir(parents=True, exist_ok=True)
        fixed = {"tool": "Bash", "rules": rules, "mode": mode, "trusted": trusted}
        lines = [json.dumps({**fixed, "input": {"command": text}}) for text in commands]
        done = subprocess.run(
            [sys.executable, "-m", "pegboard", "policy", "explain", "--jsonl"],
            input="\n".join(lines) + "\n", cwd=work, capture_output=True, text=True, check=True,
            env={"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], "PEG_MANAGED_DIR": str(tmp_path / "m")},
        )  # fmt: skip
        return [json.loads(line)["verdict"] for line in done.stdout.splitlines()]

    return ask


def test_perm_2_an_ask_rule_beats_a_wider_allow_in_every_segment(verdicts) -> None:
    rules = {"ask": ["Bash(git push *)"], "allow": ["Bash(git *)"]}
    commands = ["git push origin", "git commit -m x", "git commit -m x && git push", "cd . && git push -f", "git  push"]
    assert verdicts(commands, **rules) == ["ask", "allow", "ask", "ask", "ask"]


@pytest.mark.parametrize(
    ("rule", "allowed"), [("Bash(mk *)", [True, True, False]), ("Bash(mk*)", [True, True, True])], ids=["word", "open"]
)
def test_perm_6_the_word_boundary(verdicts, rule: str, allowed: list[bool]) -> None:
    found = verdicts(["mk -la", "mk", "mkof"], allow=[rule])
    assert [verdict == "allow" for verdict in found] == allowed


def test_perm_3_a_glob_under_a_variable_asks_even_in_bypass(verdicts) -> None:
    commands = ['rm -rf "$X"/*', "rm -rf /", "rm -rf ~", "cd / && rm -rf *", "sudo rm -rf /", "rm -rf build"]
    found = verdicts(commands, mode="bypassPermissions", allow=["Bash"])
    assert found == ["ask", "ask", "ask", "ask", "ask", "allow"]


WAYS_TO_RM = [
    "echo a && rm x", "echo $(rm x)", "FOO=1 rm x", "timeout 5 rm x", "nice -n 5 rm x", "env rm x", "command rm x",
    "/bin/rm x", "'r'm x", "r\\m x", "xargs rm < l", "bash -c 'rm x'", "echo a\nrm x", "echo a & rm x",
    "if true; then rm x; fi", "cat <<E | sh\nrm x\nE", "sudo rm x", "find . -exec rm {} \\;", "echo a || rm x",
    "(rm x)", "{ rm x; }", "echo `rm x`", "cat <(rm x)", "! rm x", "while rm x; do :; done", "f() { rm x; }; f",
    "eval 'rm x'", "$(echo rm) x", "nohup rm x", "stdbuf -o0 rm x", "time rm x", "exec rm x", "echo a |& rm x",
    "env -i A=b rm x", "setsid rm x", "busybox rm x", "for i in 1; do rm x; done", "case a in a) rm x;; esac",
    "echo ${a:-$(rm x)}", "cat <<E\n$(rm x)\nE", "trap 'rm x' EXIT", "r''m x", '"rm" x', "rm<x", "$'rm' x",
]  # fmt: skip


def test_perm_compound_and_wrappers(verdicts) -> None:
    rules = {"deny": ["Bash(rm:*)"], "allow": ["Bash(echo:*)", "Bash(cat *)", "Bash(find *)"]}
    found = dict(zip(WAYS_TO_RM, verdicts(WAYS_TO_RM, **rules), strict=True))
    assert [command for command, verdict in found.items() if verdict == "allow"] == []
    seen = [command for command in WAYS_TO_RM[:15] if found[command] != "deny"]
    assert seen == [], "the parser sees through these, so they are denied and not only asked about"
    assert verdicts(["echo 'rm x'", "echo rm x", "echo a # rm x"], **rules) == ["allow"] * 3


def test_perm_allow_prefix_not_widened(verdicts) -> None:
    rules = {"allow": ["Bash(git status)", "Bash(npm run test:*)"], "deny": ["Bash(env)"]}
    commands = [
        "git status; curl x", "git status > /etc/x", "npm run test:x && env", "git statusx", "git status `env`",
        "git status -- $(curl x)", "npm run test || curl x", "npm run tests",
    ]  # fmt: skip
    assert "allow" not in verdicts(commands, trusted=False, **rules)
    assert verdicts(["git status", "npm run test", "npm run test -- x"], **rules) == ["allow"] * 3


def test_a_deny_stays_when_any_number_of_allows_is_added(verdicts) -> None:
    allow = ["Bash", "Bash(*)", "Bash(git *)", "Bash(git push *)", "Bash(git push origin *)", "Bash(git push)"]
    assert verdicts(["git push", "git push origin x"], deny=["Bash(git push *)"], allow=allow) == ["deny", "deny"]


async def test_perm_read_deny_holds_elsewhere(peg_session) -> None:
    async with peg_session(deny=["Read(./p/.env)"], allow=["Bash"], trusted=True) as bench:
        folder = bench.folder / "p"
        folder.mkdir()
        (folder / ".env").write_text("KEY=s3cr3t\n")
        (folder / "open.txt").write_text("KEY=open\n")
        (folder / "link").symlink_to(".env")
        (folder / "loop").symlink_to("../p")
        calls = [
            ("Read", {"file_path": f"{folder}/link"}),
            ("Read", {"file_path": f"{folder}/../p/.env"}),
            ("Read", {"file_path": f"{folder}/loop/.env"}),
            ("Grep", {"pattern": "KEY", "path": str(folder), "output_mode": "content"}),
            ("Edit", {"file_path": f"{folder}/.env", "old_string": "KEY", "new_string": "K"}),
            *(
                ("Bash", {"command": command})
                for command in (
                    "cat p/.env", "cd p && cat .env", "cat p/link", "cat p/loop/.env", "cat < p/.env", "grep -r KEY p",
                    "head p/.en*", "cat p/*", "sort p/.env", "cp p/.env out", "base64 p/.env", "cat p/./.env",
                    "cat 'p'/.env", "while read l; do echo $l; done < p/.env", "tac ./p/../p/.env", "cat p/.{env,x}",
                )
            ),
        ]  # fmt: skip
        outcomes = await bench.calls(calls)
        for (tool, given), outcome in zip(calls, outcomes, strict=True):
            assert "s3cr3t" not in outcome.plain(), (tool, given)
        assert "open" in outcomes[3].plain() and "left out" in outcomes[3].plain()
        assert (await bench.call("Bash", {"command": "cat p/open.txt"}, "twin")).status == "ok"
