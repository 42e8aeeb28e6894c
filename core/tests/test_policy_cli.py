"""`peg policy`, run as a program: list, explain, test, replay, can, lint, starter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class Shell:
    """A project and a home to run `peg` in."""

    project: Path
    home: Path
    managed: Path

    def __call__(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        environ = {"HOME": str(self.home), "PATH": os.environ["PATH"], "PEG_MANAGED_DIR": str(self.managed)}
        command = [sys.executable, "-m", "pegboard", *words]
        return subprocess.run(
            command, cwd=self.project, env=environ, capture_output=True, text=True, input=stdin or "", timeout=100
        )

    def json(self, *words: str, code: int = 0) -> object:
        done = self("policy", *words, "--json")
        assert done.returncode == code, done.stderr + done.stdout
        return json.loads(done.stdout)

    def user(self, text: str) -> Path:
        path = self.home / ".peg" / "settings.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def lines(self, *requests: dict) -> list[dict]:
        done = self("policy", "explain", "--jsonl", stdin="".join(json.dumps(one) + "\n" for one in requests))
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def peg(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path / "project", tmp_path / "home", tmp_path / "managed")
    for folder in (shell.project / ".peg", shell.home, shell.managed):
        folder.mkdir(parents=True)
    return shell


# -- list and lint ---------------------------------------------------------------------------------------------------


def test_list_shows_level_place_and_what_a_rule_loses_to(peg: Shell) -> None:
    (peg.managed / "managed.toml").write_text(
        'permissions.deny = ["WebFetch(domain:*.bad.example)"]\n[recommended.permissions]\nallow = ["WebSearch"]\n'
    )
    user = peg.user('[permissions]\nallow = [\n  "WebFetch(domain:x.bad.example)",\n  "Skill(a)",\n]\n')
    (peg.project / ".peg" / "settings.toml").write_text('permissions.allow = ["Edit(src/**)"]\n')
    rows = {row["rule"]: row for row in peg.json("list")}
    assert {rule: (row["level"], row["scope"], row["line"], row["counts"]) for rule, row in rows.items()} == {
        "WebFetch(domain:*.bad.example)": ("mandatory", "managed", 1, True),
        "WebSearch": ("recommended", "builtin", 3, True),
        "WebFetch(domain:x.bad.example)": ("own", "user", 3, True),
        "Skill(a)": ("own", "user", 4, True),
        "Edit(src/**)": ("own", "project", 1, False),
    }
    assert rows["Edit(src/**)"]["why_not"] == "the workspace is not trusted"
    (loss,) = rows["WebFetch(domain:x.bad.example)"]["loses_to"]
    assert loss["rule"]["file"] == str(peg.managed / "managed.toml") and not loss["says_the_same"]
    assert [row["rule"] for row in peg.json("list", "--conflicts")] == [
        "Edit(src/**)", "WebFetch(domain:x.bad.example)",
    ]  # fmt: skip
    text = peg("policy", "list").stdout
    assert f"allow WebFetch(domain:x.bad.example)  [own, user, {user}:3]" in text
    assert "never decides: deny rule WebFetch(domain:*.bad.example) covers all of it" in text
    assert [row["counts"] for row in peg.json("list", "--trust") if row["rule"] == "Edit(src/**)"] == [True]


def test_managed_rules_only_is_named(peg: Shell) -> None:
    (peg.managed / "managed.toml").write_text("permissions.managed_rules_only = true\n")
    peg.user('permissions.allow = ["WebSearch"]\n')
    (row,) = peg.json("list")
    assert not row["counts"] and "only managed allow rules" in row["why_not"]


@pytest.mark.parametrize(
    ("rules", "kinds"),
    [
        ({"allow": ["Bash(git *)"], "ask": ["Bash(git push *)"]}, []),
        ({"allow": ["Bash(git push origin *)"], "ask": ["Bash(git push *)"]}, ["shadowed"]),
        ({"allow": ["Bash(git push*)"], "ask": ["Bash(git push *)"]}, []),
        ({"allow": ["Bash(git *)", "Bash(git log *)"]}, ["superfluous"]),
        ({"allow": ["Edit(src/**)"], "deny": ["Edit(src/**)"]}, ["shadowed"]),
        ({"allow": ["Edit(src/**)"], "deny": ["Read(src/**)"]}, ["shadowed"]),
        ({"allow": ["Read(//etc/hosts)"], "deny": ["Read(//etc/**)"]}, ["shadowed"]),
        ({"allow": ["Read(//etc/**)"], "deny": ["Read(//etc/hosts)"]}, []),
        ({"allow": ["Read(//data/*.txt)"], "deny": ["Read(*.txt)"]}, []),
        ({"allow": ["Read(data/*.txt)"], "deny": ["Read(*.txt)"]}, ["shadowed"]),
        ({"allow": ["Read(data/*)"], "deny": ["Read(data/??????)"]}, []),
        ({"allow": ["Read(data/*)"], "deny": ["Read(data/[a-z]*)"]}, []),
        ({"allow": ["Edit(.git/**)"]}, ["shadowed"]),
        ({"allow": ["Bash(rm -rf /)"]}, ["shadowed"]),
        ({"allow": ["WebFetch(domain:a.b)"], "deny": ["WebFetch(domain:*.b)"]}, ["shadowed"]),
        ({"allow": ["WebFetch(domain:*.b)"], "deny": ["WebFetch(domain:a.b)"]}, []),
        ({"allow": ["WebFetch(domain:b)"], "deny": ["WebFetch(domain:*.b)"]}, []),
        ({"allow": ["WebFetch(domain:b)"], "deny": ["WebFetch"]}, ["shadowed"]),
        ({"allow": ["mcp__a__b"], "ask": ["mcp__a"]}, ["shadowed"]),
        ({"allow": ["mcp__a__*"], "deny": ["mcp__a__b"]}, []),
        ({"allow": ["mcp__a"], "deny": ["mcp__a__b"]}, []),
        ({"deny": ["Bash(description:x)", "Bash"]}, ["superfluous"]),
        ({"allow": ["Skill(x-*)"], "deny": ["Skill(*)"]}, ["shadowed"]),
        ({"deny": ["Bsh(rm *)"]}, ["misspelt"]),
        ({"allow": ["mcp__*"]}, ["misspelt"]),
        ({"allow": ["Write(src/**)"]}, ["misspelt"]),
        ({"deny": ["Bash(", "Read"]}, ["unusable"]),
    ],
)
def test_perm_8_lint(peg: Shell, rules: dict[str, list[str]], kinds: list[str]) -> None:
    import tomli_w

    peg.user(tomli_w.dumps({"permissions": rules}))
    bad = any(kind != "superfluous" for kind in kinds)
    assert [one["kind"] for one in peg.json("lint", code=1 if bad else 0)] == kinds


# -- explain ---------------------------------------------------------------------------------------------------------


def test_explain_names_rule_file_line_segment_and_losers(peg: Shell) -> None:
    user = peg.user('[permissions]\ndeny = ["Edit(secret/**)"]\nallow = ["Edit(**)"]\n')
    told = peg.json("explain", "Write", json.dumps({"file_path": "secret/x", "content": ""}))
    assert (told["verdict"], told["decided_by"]["by"], told["segment"]) == ("deny", "rule", f"{peg.project}/secret/x")
    assert (told["rule"]["file"], told["rule"]["line"]) == (str(user), 2)
    assert [rule["rule"] for rule in told["losers"]] == ["Edit(**)"]
    text = peg("policy", "explain", "Write", json.dumps({"file_path": "secret/x", "content": ""})).stdout
    assert f"deny Edit(secret/**)  (user, {user}:2)" in text and f"lost     allow Edit(**)  (user, {user}:3)" in text
    assert not (peg.project / "secret").exists()


def test_explain_lines_are_answered_one_by_one(peg: Shell) -> None:
    peg.user('permissions.deny = ["Read"]\n')
    rules = {"allow": ["WebFetch(domain:a.b)"], "deny": ["Read(//w/proj/.env)"]}
    told = peg.lines(
        {"tool": "Read", "input": {"file_path": "/w/proj/x"}, "cwd": "/w/proj", "rules": rules},
        {"tool": "Read", "input": {"file_path": "/w/proj/.env"}, "cwd": "/w/proj", "rules": rules, "id": 7},
        {"tool": "Read", "input": {"file_path": "/w/proj/x"}, "cwd": "/w/proj"},
        {"tool": "WebFetch", "input": {"url": "https://a.b/x", "prompt": "?"}, "rules": rules},
        {"tool": "WebFetch", "input": {"url": "https://c.d:8080/x", "prompt": "?"}, "rules": rules},
        {"tool": "Edit", "input": {"file_path": "/w/proj/a", "old_string": "a", "new_string": "b"}, "cwd": "/w/proj",
         "mode": "acceptEdits", "rules": {}},
        {"tool": "mcp__mail__send", "input": {}, "rules": {"ask": ["mcp__mail"]}},
        {"tool": "AskUserQuestion", "input": {"questions": []}, "mode": "dontAsk",
         "rules": {"allow": ["AskUserQuestion"]}},
        {"tool": "Nonsense", "input": {}},
    )  # fmt: skip
    assert [one["verdict"] for one in told] == [
        "allow", "deny", "deny", "allow", "ask", "allow", "ask", "deny", "ask",
    ]  # fmt: skip
    assert told[1]["id"] == 7
    assert told[4]["segment"] == "c.d"
    assert not told[8]["installed"]


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example\\@docs.example/", "https://user@docs.example/", "https://docs.example@evil.example/",
        "http://0x7f.1/", "http://2130706433/", "http://127.1/", "http://0177.0.0.1/",
        "ftp://docs.example/", "docs.example",
        "https://docs.example /", "https://docs.example\n.evil.example/", "//docs.example/", "",
    ],
)  # fmt: skip
def test_addresses_that_can_be_read_in_two_ways_are_never_allowed(peg: Shell, url: str) -> None:
    rules = {"allow": ["WebFetch(domain:*)", "WebFetch(domain:docs.example)"]}
    told = peg.lines(
        {"tool": "WebFetch", "input": {"url": url, "prompt": "?"}, "rules": rules},
        {
            "tool": "WebFetch",
            "input": {"url": url, "prompt": "?"},
            "rules": {"deny": ["WebFetch(domain:other.example)"]},
        },
    )
    assert [one["verdict"] for one in told] == ["ask", "deny"]


def test_perm_5_dont_ask_denies_the_tool_that_needs_a_person(peg: Shell) -> None:
    request = {"tool": "AskUserQuestion", "input": {}, "mode": "dontAsk", "rules": {"allow": ["AskUserQuestion"]}}
    (told,) = peg.lines(request)
    assert (told["verdict"], told["decided_by"]["by"], told["headless"]) == ("deny", "mode", "deny")


def test_trust_decides_whether_project_rules_count(peg: Shell) -> None:
    (peg.project / ".peg" / "settings.toml").write_text('permissions.allow = ["WebSearch"]\n')
    request = {"tool": "WebSearch", "input": {"query": "x"}}
    told = peg.lines({**request, "trusted": False}, {**request, "trusted": True}, request)
    assert [one["verdict"] for one in told] == ["ask", "allow", "ask"]


@pytest.mark.parametrize(
    ("mode", "root", "verdict"),
    [("bypassPermissions", False, "allow"), ("bypass", True, "deny"), ("auto", False, "deny"), ("manual", True, "ask")],
)
def test_modes_are_judged_before_the_call(peg: Shell, mode: str, root: bool, verdict: str) -> None:
    (told,) = peg.lines({"tool": "WebSearch", "input": {"query": "x"}, "mode": mode, "root_user": root, "rules": {}})
    assert told["verdict"] == verdict


def test_lines_that_cannot_be_judged_are_denied_and_the_next_is_answered(peg: Shell) -> None:
    lines = ['{"tool": 3}', "nonsense", '{"tool": "Read", "mode": "wild"}', '{"tool": "WebSearch", "input": {}}', "[]"]
    done = peg("policy", "explain", "--jsonl", stdin="\n".join(lines) + "\n")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["verdict"] for one in told] == ["deny", "deny", "deny", "ask", "deny"]
    assert all(one["decided_by"]["by"] == "validation" for one in told if one["verdict"] == "deny")
    assert "wild" in told[2]["error"]


def test_a_bad_rule_of_a_request_is_named_and_the_others_hold(peg: Shell) -> None:
    (told,) = peg.lines({"tool": "WebSearch", "input": {"query": "x"}, "rules": {"deny": ["Bash(", "WebSearch"]}})
    assert told["verdict"] == "deny" and "closing parenthesis" in told["problems"][0]


def test_verdicts_come_at_once(peg: Shell) -> None:
    environ = {"HOME": str(peg.home), "PATH": os.environ["PATH"], "PEG_MANAGED_DIR": str(peg.managed)}
    command = [sys.executable, "-m", "pegboard", "policy", "explain", "--jsonl"]
    with subprocess.Popen(
        command, cwd=peg.project, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        for _ in range(3):
            child.stdin.write('{"tool": "WebSearch", "input": {"query": "x"}}\n')
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["verdict"] == "ask"
        child.stdin.close()


@pytest.mark.parametrize("words", [[], ["Read", "{"], ["Read", "[]"], ["Read", "{}", "--jsonl"]])
def test_wrong_words_are_usage_errors(peg: Shell, words: list[str]) -> None:
    assert peg("policy", "explain", *words).returncode == 2


# -- test ------------------------------------------------------------------------------------------------------------

TESTS = """
[[test]]
name = "searching asks"
tool = "WebSearch"
input = { query = "x" }
expect = "ask"

[[test]]
name = "mail is closed"
tool = "mcp__mail__send"
expect = "deny"
rule = "mcp__mail"

[[test]]
name = "in another policy"
tool = "WebSearch"
input = { query = "x" }
rules = { allow = ["WebSearch"] }
cwd = "sub"
expect = "allow"
"""


def test_policy_tests_pass_and_fail_with_a_reason(peg: Shell) -> None:
    peg.user('permissions.deny = ["mcp__mail", { rule = "Bash(curl *)", match = ["curl x"] }]\n')
    (peg.project / "t.toml").write_text(TESTS)
    done = peg("policy", "test", "t.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("4 passed, 0 failed\n")
    peg.user('permissions.deny = [{ rule = "Bash(curl *)", match = ["wget x"] }]\n')
    found = peg.json("test", "t.toml", code=1)
    assert [one["passed"] for one in found] == [False, True, False, True]
    assert "should match 'wget x'" in found[0]["reason"]
    assert found[2]["reason"].startswith("expected deny, got ask, decided by mode")


def test_the_deciding_rule_is_part_of_a_test(peg: Shell) -> None:
    peg.user('permissions.deny = ["mcp__mail__send"]\n')
    (peg.project / "t.toml").write_text(TESTS)
    assert "expected the rule mcp__mail to decide" in peg("policy", "test", "t.toml").stdout


@pytest.mark.parametrize(
    "text", ["test = 3", "[[test]]\ntool = 'x'", "[[test]]\ntool='x'\nexpect='no'", "[[tset]]", "="]
)
def test_files_that_hold_no_tests_are_usage_errors(peg: Shell, text: str) -> None:
    (peg.project / "t.toml").write_text(text)
    done = peg("policy", "test", "t.toml")
    assert done.returncode == 2 and "t.toml" in done.stderr


# -- replay ----------------------------------------------------------------------------------------------------------


def test_replay_shows_what_would_change(peg: Shell) -> None:
    (peg.project / "a.txt").write_text("a\n")
    calls = [
        {"tool": "Read", "input": {"file_path": "a.txt"}},
        {"tool": "Read", "input": {"file_path": str(peg.home / "b.txt")}},
        {"tool": "Glob", "input": {"pattern": "*.txt"}},
        {"tool": "Read", "input": {"nonsense": 1}},
        {"tool": "Nothing", "input": {}},
    ]
    text = "".join(json.dumps(call) + "\n" for call in calls)
    done = peg("call", "--jsonl", "--session", "past", "--deny", "Glob", stdin=text)
    assert done.returncode == 0, done.stderr
    same = peg.json("replay", "past", "--all", "--deny", "Glob")
    assert [(one["tool"], one["then"], one["changed"]) for one in same] == [
        ("Read", "allow", False), ("Read", "refused", False), ("Glob", "deny", False),
    ]  # fmt: skip
    peg.user('permissions.deny = ["Read(a.txt)"]\npermissions.allow = ["Read(~/**)"]\n')
    changed = peg.json("replay", "pas")
    assert [(one["then"], one["now"]["verdict"]) for one in changed] == [
        ("allow", "deny"), ("refused", "allow"), ("deny", "allow"),
    ]  # fmt: skip
    shown = peg("policy", "replay", "past").stdout
    assert "allow -> deny: Read" in shown and shown.endswith("3 calls, 3 would be decided otherwise.\n")
    assert peg("policy", "replay", "none").returncode == 2


# -- can -------------------------------------------------------------------------------------------------------------


def test_can_sums_up_what_needs_no_question(peg: Shell) -> None:
    peg.user(
        'permissions.allow = ["Edit(src/**)", "mcp__mail__list", "WebFetch(domain:a.b)"]\n'
        'permissions.deny = ["Grep", "Read(.env)", "WebFetch"]\n'
    )
    told = peg.json("can")
    found = {one["tool"]: one for one in told["tools"]}
    assert told["mode"] == "default"
    assert found["Grep"]["never"].startswith("user (")
    assert any("working directories" in text for text in found["Read"]["without_question"])
    assert [rule["rule"] for rule in found["Write"]["allowed"]] == ["Edit(src/**)"]
    assert {rule["rule"] for rule in found["Write"]["denied"]} == {"Read(.env)"}
    assert [rule["rule"] for rule in found["mcp__mail__list"]["allowed"]] == ["mcp__mail__list"]
    (only,) = peg.json("can", "--tool", "WebFetch")["tools"]
    assert (only["never"] is not None, only["allowed"]) == (True, [])
    (bold,) = peg.json("can", "--tool", "Write", "--permission-mode", "acceptEdits")["tools"]
    assert any("edits inside" in text for text in bold["without_question"])
    assert "Grep: never" in peg("policy", "can").stdout


# -- starter ---------------------------------------------------------------------------------------------------------


def test_starter_policy_is_sound_and_is_added_to_what_is_there(peg: Shell) -> None:
    text = peg("policy", "starter").stdout
    given = tomllib.loads(text)["permissions"]
    path = peg.user('# mine\npermissions.allow = ["WebSearch", "Bash(make)"]\nmodel = "m"\n')
    done = peg("policy", "starter", "--write", "user")
    assert done.returncode == 0, done.stderr
    mine = tomllib.loads(path.read_text())
    assert mine["model"] == "m" and path.read_text().startswith("# mine\n")
    assert mine["permissions"]["allow"][:2] == ["WebSearch", "Bash(make)"]
    assert len(mine["permissions"]["allow"]) == len(given["allow"]) + 1
    path.unlink()
    peg("policy", "starter", "--write", "user")
    assert path.read_text() == text
    assert peg.json("lint") == []
    assert peg("policy", "test").stdout.endswith(" passed, 0 failed\n")
    done = peg("policy", "starter", "--write", "project")
    assert "wait until this workspace is trusted" in done.stderr
