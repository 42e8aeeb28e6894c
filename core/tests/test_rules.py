"""Rules: their text, what they match, and the warnings about those that do nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pegboard.errors import UsageError
from pegboard.policy import decide, lint, parse_rule

sys.path.insert(0, str(Path(__file__).parent))
from policyworld import TOOLS, World, rules, tool


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


# -- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "(x)", "Bash(", "Bash(a", "Bash()", "Bash(a) b", "Bash (a)", "Read(!x)", "Read(~bob/x)"]
)
def test_what_is_no_rule_says_why(text):
    with pytest.raises(UsageError):
        parse_rule(text, effect="deny", scope="user", source="settings.toml")


def test_a_rule_says_where_it_stands():
    rule = parse_rule(
        r"Bash(echo \(a\))", effect="ask", scope="project", source="/p/.peg/settings.toml", line=lambda: 7
    )
    assert rule.text == r"Bash(echo \(a\))"
    assert rule.specifier == "echo (a)"
    assert rule.where == "project (/p/.peg/settings.toml:7)"
    assert rule.id == r"project:ask:Bash(echo \(a\))"
    assert parse_rule("Bash(*)", effect="ask", scope="user").specifier is None
    assert rule.shown()["line"] == 7


def test_tool_patterns_in_deny_and_ask_reach_everywhere(world):
    for text in ("*", "mcp__*", "mcp__mail*", "*send", "mcp__mail"):
        assert world.judge("mcp__mail__send", ruled=rules(deny=[text], allow=["mcp__mail__send"])).verdict == "deny"
    assert world.judge("Plain", ruled=rules(deny=["mcp__*"], allow=["Plain"])).verdict == "allow"
    with pytest.raises(UsageError):
        parse_rule("Ba*(rm *)", effect="deny", scope="user")


def test_an_allow_for_a_server_stays_with_that_server(world):
    other = tool("mcp__mail__box__send")
    snapshot = world.snapshot(rules(allow=["mcp__mail", "mcp__mail__*"]))
    assert decide(other, {}, [], snapshot).verdict == "ask"
    assert decide(other, {}, [], world.snapshot(rules(deny=["mcp__mail"]))).verdict == "deny"


def test_a_bare_deny_hides_the_tool_and_a_scoped_one_does_not(world):
    snapshot = world.snapshot(rules("managed", deny=["Read", "Bash(rm *)", "mcp__mail"]))
    assert snapshot.bare_denied(TOOLS["Grep"]).by == "policy"
    assert snapshot.bare_denied("Read")
    assert snapshot.bare_denied("mcp__mail__send")
    assert not snapshot.bare_denied(TOOLS["Bash"])
    assert not snapshot.bare_denied(TOOLS["Edit"])


def test_parameter_rules(world):
    given = rules(deny=["Bash(run_in_background:true)", "Task(model:opus*)"], ask=["Plain(count:5)"])
    assert world.judge("Bash", {"command": "ls", "run_in_background": True}, given).verdict == "deny"
    assert (
        world.judge("Bash", {"command": "ls", "run_in_background": False}, rules(allow=["Bash"]) + given).verdict
        == "allow"
    )
    assert world.judge("Task", {"subagent_type": "x", "model": "opus-5"}, given).verdict == "deny"
    assert world.judge("Task", {"subagent_type": "x", "model": "haiku"}, given).verdict == "allow"
    assert world.judge("Plain", {"count": 5}, given + rules(allow=["Plain"])).verdict == "ask"
    assert world.judge("Plain", {"count": [5]}, given + rules(allow=["Plain"])).verdict == "allow"
    assert world.judge("Plain", {"count": 5}, rules(allow=["Plain(count:5)"])).verdict == "ask"
    assert (
        world.judge("Bash", {"command": "rm x"}, rules(deny=["Bash(command:rm x)"], allow=["Bash"])).verdict == "allow"
    )
    (problem,) = lint(rules(deny=["Bash(command:rm x)"]), TOOLS.values())
    assert problem.fix == "Bash(rm x)"


def test_names(world):
    given = rules(allow=["Skill(docs-*)"], deny=["Agent(Explore)", "Task(plugin:bad)"], ask=["RunWorkflow(ship*)"])
    assert world.judge("Skill", {"skill": "docs-pdf"}, given).verdict == "allow"
    assert world.judge("Skill", {"skill": "other"}, given).verdict == "ask"
    assert world.judge("Task", {"subagent_type": "Explore"}, given).verdict == "deny"
    assert world.judge("Task", {"subagent_type": "plugin:bad"}, given).verdict == "deny"
    assert world.judge("Task", {"subagent_type": "general"}, given).verdict == "allow"
    assert world.judge("Workflow", {"name": "ship-it"}, given + rules(allow=["Workflow"])).verdict == "ask"


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("docs.example.org", ["docs.example.org", "DOCS.Example.ORG.", "docs.example.org:443"],
         ["docs.example.org.evil.net", "xdocs.example.org", "example.org"]),
        ("*.example.org", ["a.example.org", "a.b.example.org"],
         ["example.org", "aexample.org", "example.org.evil.net"]),
        ("example.*", ["example.org"], ["example.evil.com", "example."]),
        ("docs*.example.org", ["docs2.example.org", "docs.example.org"], ["docs.x.example.org"]),
        ("*", ["a.b", "localhost"], []),
        ("bücher.example", ["bücher.example", "xn--bcher-kva.example"], ["bucher.example"]),
        ("docs.python.org", [], ["docs.pyth\u03bfn.org"]),
    ],
)  # fmt: skip
def test_domains(world, pattern, yes, no):
    for effect, hit in (("allow", "allow"), ("deny", "deny")):
        given = rules(**{effect: [f"WebFetch(domain:{pattern})"]})
        assert [world.judge("WebFetch", {"host": host}, given).verdict for host in yes] == [hit] * len(yes)
        assert [world.judge("WebFetch", {"host": host}, given).verdict for host in no] == ["ask"] * len(no)


@pytest.mark.parametrize("host", ["evil.example\\@docs.example.org", "a/b", "", "a b"])
def test_what_is_no_plain_host_is_never_allowed_and_always_restricted(world, host):
    assert world.judge("WebFetch", {"host": host}, rules(allow=["WebFetch(domain:*)"])).verdict == "ask"
    assert world.judge("WebFetch", {"host": host}, rules(deny=["WebFetch(domain:x.y)"])).verdict == "deny"


def test_a_program_is_the_same_by_any_path_in_deny_only(world):
    assert world.bash("/bin/rm x", rules(deny=["Bash(rm *)"], allow=["Bash"])) == "deny"
    assert world.bash("git  push", rules(deny=["Bash(git push)"], allow=["Bash"])) == "deny"
    assert world.bash("/tmp/evil/git status", rules(allow=["Bash(git *)"])) == "ask"


def test_every_segment_needs_its_own_allow(world):
    given = rules(allow=["Bash(echo *)", "Bash(ls *)"], deny=["Bash(rm *)"], ask=["Bash(curl *)"])
    assert world.bash("echo a && ls", given) == "allow"
    assert world.bash("echo a && make", given) == "ask"
    assert world.bash("echo a && curl x", given) == "ask"
    decision = world.judge("Bash", {"command": "make && curl x && rm y"}, given)
    assert (decision.verdict, decision.winner.text) == ("deny", "Bash(rm *)")
    assert [found.verdict for found in decision.findings] == ["ask", "ask", "deny"]
    assert [rule.text for rule in decision.losers] == ["Bash(curl *)"]


def test_lint_warns_of_rules_that_do_nothing():
    given = rules(
        deny=["Bsh(rm *)", "Grep(src/**)", "WebFetch(https://example.org/x)", "Read(/etc/passwd)", "mcp__mail(x)"],
        ask=["Bash(ls *)", "Read", "mcp__other__x", "Task(model:opus)", "Skill(a)"],
    )
    fixes = {problem.rule.text: problem.fix for problem in lint(given, TOOLS.values())}
    assert fixes == {
        "Bsh(rm *)": "Bash(rm *)",
        "Grep(src/**)": "Read(src/**)",
        "WebFetch(https://example.org/x)": "WebFetch(domain:example.org)",
        "Read(/etc/passwd)": "Read(//etc/passwd)",
        "mcp__mail(x)": "mcp__mail",
    }
