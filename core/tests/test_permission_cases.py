"""What users of other agents reported about permissions, and how it has to be here. Names are those of the cases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pegboard.host import Choice
from pegboard.model import Input, Output
from pegboard.testing.sessions import Listener, Willing, tool_of
from pegboard.tool import Access, Tool


async def test_perm_invalid_file_fails_closed(peg_session) -> None:
    async with peg_session(deny=["Read(secret)", "Bash(git push:*)"]) as bench:
        (bench.folder / "secret").write_text("hidden\n")
        for number, text in enumerate((None, "{ broken", 'permissions.deny = ["Read(secret)", "Bash("]')):
            if text is not None:
                bench.settings_file.write_text(text)
            outcome = await bench.call("Read", {"file_path": "secret"}, f"call-{number}")
            assert outcome.code == "denied_by_rule", text
            problems = [str(problem) for problem in bench.session.settings.problems]
            assert bool(problems) == (text is not None)
            assert all(str(bench.settings_file) in problem for problem in problems)


class Sent(Output):
    text: str


class Mail(Input):
    to: str


class mcp__mail__send(Tool[Mail, Sent]):
    Input, Output = Mail, Sent

    async def run(self, input, ctx):
        return Sent(text=input.to)


class Page(Input):
    url: str


class Fetch(Tool[Page, Sent]):
    Input, Output = Page, Sent

    def accesses(self, input, ctx):
        return [Access.fetch(input.url.split("/")[2])]

    async def run(self, input, ctx):
        return Sent(text=input.url)


async def test_perm_nonbash_always_allow(peg_session) -> None:
    host = Willing(Choice.ALWAYS)
    tools = [tool_of(mcp__mail__send), tool_of(Fetch, name="WebFetch")]
    async with peg_session(host=host, tools=tools, trusted=True) as bench:
        for number, (tool, given) in enumerate(
            [
                ("mcp__mail__send", {"to": "a"}),
                ("mcp__mail__send", {"to": "b"}),
                ("WebFetch", {"url": "https://a.example/1"}),
                ("WebFetch", {"url": "https://a.example/2"}),
            ]
        ):
            assert (await bench.call(tool, given, f"call-{number}")).status == "ok"
        assert [question.always for question in host.questions] == [["mcp__mail__send"], ["WebFetch(domain:a.example)"]]
        await bench.call("WebFetch", {"url": "https://other.example/"}, "other")
        assert len(host.questions) == 3
    saved = bench.session.settings
    saved.refresh()
    assert "mcp__mail__send" in [rule.text for rule in saved.parsed_rules()]


@pytest.mark.parametrize("decision", ["allow", None])
async def test_perm_precedence_managed_no_hook_and_no_answer_lifts_a_managed_deny(peg_session, decision) -> None:
    host = Willing(Choice.ALWAYS)
    hooks = [Listener(decision=decision)] if decision else []
    async with peg_session(host=host, hooks=hooks, allow=["Read"], mode="bypassPermissions", trusted=True) as bench:
        managed = bench.places.managed_dir / "managed.toml"
        managed.write_text('permissions.deny = ["Read(secret)"]\n')
        (bench.folder / "secret").write_text("hidden\n")
        outcome = await bench.call("Read", {"file_path": "secret"})
        assert outcome.code == "denied_by_policy"
        assert outcome.decision is not None and str(managed) in outcome.decision.source
        assert host.questions == []


def peg(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "work" / ".peg").mkdir(parents=True, exist_ok=True)
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PEG_MANAGED_DIR": str(tmp_path / "managed")}
    command = [sys.executable, "-m", "pegboard", *words]
    return subprocess.run(
        command, cwd=tmp_path / "work", env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def test_rules_are_added_listed_and_taken_back(tmp_path: Path) -> None:
    done = peg(tmp_path, "policy", "add", "allow", "WebFetch(domain:a.example)", "--scope", "user")
    assert done.returncode == 0 and "allow WebFetch(domain:a.example)" in done.stdout
    assert not done.stderr
    rows = json.loads(peg(tmp_path, "policy", "list", "--json").stdout)
    assert [(row["rule"], row["scope"]) for row in rows] == [("WebFetch(domain:a.example)", "user")]
    done = peg(tmp_path, "policy", "remove", "WebFetch(domain:a.example)", "--scope", "user")
    assert done.returncode == 0 and json.loads(peg(tmp_path, "policy", "list", "--json").stdout) == []
    assert peg(tmp_path, "policy", "remove", "WebFetch(domain:a.example)", "--scope", "user").returncode == 2
    done = peg(tmp_path, "policy", "add", "allow", "Bash(make)")
    assert done.returncode == 0 and "the workspace is not trusted" in done.stderr


@pytest.mark.parametrize("rule", ["Bsh(ls)", "Bash(", "mcp__*", "Write(src/**)", "Bash(*)x"])
def test_a_rule_that_would_do_nothing_is_not_added(tmp_path: Path, rule: str) -> None:
    done = peg(tmp_path, "policy", "add", "allow", rule)
    assert done.returncode == 2 and rule in done.stderr
    assert not (tmp_path / "work" / ".peg" / "settings.local.toml").exists()
