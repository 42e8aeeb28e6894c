"""Decisions: their order, the modes, what the snapshot answers; the numbered permission checks."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import pytest
from pegboard.errors import Code, Refusal, UsageError
from pegboard.policy import Mode, Snapshot, judge_mode_change, lint, parse_rule, suggest, visible
from pegboard.tool import Access

sys.path.insert(0, str(Path(__file__).parent))
from policyworld import SPECIFIC, TOOLS, World, rules


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


# -- the numbered checks ---------------------------------------------------------------------------------------------


def test_perm_1_deny_from_any_scope_wins(world):
    given = rules("user", deny=["Bash(git push *)"]) + rules("project", allow=["Bash(git push *)"])
    assert world.bash("git push", given) == "deny"
    assert world.bash("git push", given[::-1]) == "deny"


def test_perm_2_ask_beats_a_wider_allow(world):
    given = rules(ask=["Bash(git push *)"], allow=["Bash(git *)"])
    assert world.bash("git push origin", given) == "ask"
    assert world.bash("git status", given) == "allow"


def test_perm_3_critical_removal_asks_even_in_bypass(world):
    for mode in Mode:
        expected = "deny" if mode is Mode.DONT_ASK else "ask"
        assert world.bash('rm -rf "$X"/*', rules(allow=["Bash"]), mode=mode) == expected


def test_perm_4_allow_does_not_lift_protection(world):
    assert world.edit(".peg/settings.toml", rules(allow=["Edit(.peg/**)", "Edit"])) == "ask"
    assert world.edit(".peg/settings.toml", mode=Mode.ACCEPT_EDITS) == "ask"
    assert world.edit(".peg/settings.toml", mode=Mode.BYPASS) == "allow"
    assert world.edit(".peg/settings.toml", rules(deny=["Edit(.peg/**)"]), mode=Mode.BYPASS) == "deny"


def test_perm_5_dont_ask_denies_what_needs_a_person(world):
    for given in ((), rules(allow=["AskUserQuestion"])):
        decision = world.judge("AskUserQuestion", ruled=given, mode=Mode.DONT_ASK)
        assert (decision.verdict, decision.decided_by.by) == ("deny", "mode")
        assert world.judge("AskUserQuestion", ruled=given).verdict == "ask"
        assert world.judge("AskUserQuestion", ruled=given, mode=Mode.BYPASS).verdict == "ask"


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("ls *", ["ls", "ls -la", "ls  -la"], ["lsof", "als", "lsof -i"]),
        ("ls:*", ["ls", "ls -la"], ["lsof"]),
        ("ls*", ["ls", "ls -la", "lsof"], ["als"]),
        ("git push", ["git push"], ["git push x", "git pushx"]),
        ("git * main", ["git push main", "git push -f origin main"], ["git push main2", "git main"]),
        ("npm run test:*", ["npm run test", "npm run test x"], ["npm run tests", "npm run test:x"]),
        (r"echo \*", ["echo *"], ["echo a"]),
        (r"echo \(x\)", ["echo (x)"], ["echo x"]),
    ],
)
def test_perm_6_word_boundary(world, pattern, yes, no):
    given = rules(allow=[f"Bash({pattern})"])
    assert [world.bash(command, given) for command in yes] == ["allow"] * len(yes)
    assert [world.bash(command, given) for command in no] == ["ask"] * len(no)


def test_perm_7_a_folder_is_anchored_in_allow_and_floats_in_deny(world):
    assert world.edit("src/x", rules(allow=["Edit(src/**)"])) == "allow"
    assert world.edit("vendor/src/x", rules(allow=["Edit(src/**)"])) == "ask"
    assert world.edit("vendor/src/x", rules(deny=["Edit(src/**)"])) == "deny"
    assert world.edit("vendor/src/x", rules(ask=["Edit(src/**)"]), mode=Mode.ACCEPT_EDITS) == "ask"


def test_perm_8_open_allow_pattern_is_ignored_with_a_warning(world):
    for text in ("mcp__*", "*", "Ta*", "mcp__ma*"):
        given = rules(allow=[text])
        assert world.judge("mcp__mail__send", ruled=given).verdict == "ask"
        assert [problem.text[:7] for problem in lint(given, TOOLS.values())] == ["ignored"]
    for text in ("mcp__mail__*", "mcp__mail", "mcp__mail__send", "mcp__mail__se*"):
        assert world.judge("mcp__mail__send", ruled=rules(allow=[text])).verdict == "allow"
        assert lint(rules(allow=[text]), TOOLS.values()) == []


def test_perm_9_bypass_is_refused_where_policy_forbids_it(world):
    locked = world.snapshot(disable_bypass=True)
    for scope in ("flag", "user", "managed", "session", "agent", "project"):
        decision = judge_mode_change(Mode.BYPASS, locked, False, scope=scope)
        assert (decision.verdict, decision.decided_by.by) == ("deny", "policy")
    assert world.snapshot(mode=Mode.BYPASS, disable_bypass=True).mode is Mode.DEFAULT
    free = world.snapshot()
    assert judge_mode_change(Mode.BYPASS, free, False, scope="flag").verdict == "allow"
    assert judge_mode_change(Mode.BYPASS, free, True, scope="flag").verdict == "deny"
    assert judge_mode_change(Mode.BYPASS, free, True, scope="flag", boxed=True).verdict == "allow"
    for scope, mode in itertools.product(("project", "local"), (Mode.BYPASS, Mode.AUTO)):
        assert judge_mode_change(mode, free, False, scope=scope, auto=True).verdict == "deny"
    assert judge_mode_change(Mode.AUTO, free, False).verdict == "deny"
    assert judge_mode_change(Mode.AUTO, free, False, auto=True).verdict == "allow"
    assert judge_mode_change(Mode.AUTO, world.snapshot(disable_auto=True), False, auto=True).verdict == "deny"
    assert judge_mode_change(Mode.PLAN, locked, True, scope="project").verdict == "allow"


def test_read_5_a_denied_target_is_denied_through_a_link(world):
    (world.cwd / ".env").write_text("x")
    (world.cwd / "link").symlink_to(".env")
    (world.cwd / "loop").symlink_to("../proj")
    given = rules(deny=["Read(./.env)"])
    for path in (".env", "link", "loop/.env", "x/../.env", "loop/link", "./.env/", "loop/../proj/.env"):
        assert world.read(path, given) == "deny"
    assert world.read("env", given) == "allow"


def test_edit_5_a_read_deny_also_stops_changes(world):
    given = rules(deny=["Read(secret/**)"], allow=["Edit(secret/**)", "Edit"])
    (world.cwd / "secret").mkdir()
    (world.cwd / "secret" / "old").write_text("x")
    for name in ("secret/old", "secret/new", "sub/secret/new"):
        assert world.edit(name, given) == "deny"
        for other, field in (("Write", "file_path"), ("NotebookEdit", "notebook_path")):
            assert world.judge(other, {field: str(world.cwd / name)}, given).verdict == "deny"
    assert world.edit("a", rules(deny=["Read"]), mode=Mode.ACCEPT_EDITS) == "deny"
    assert world.edit("secret/a", rules(ask=["Read(secret/**)"]), mode=Mode.ACCEPT_EDITS) == "ask"


def test_edit_10_a_rule_on_the_link_alone_does_not_pass(world):
    (world.home / "target").write_text("x")
    (world.cwd / "link").symlink_to(world.home / "target")
    assert world.edit("link", rules(allow=["Edit(link)", "Edit(./**)"])) == "ask"
    assert world.edit("link", rules(allow=["Edit(link)", "Edit(~/target)"])) == "allow"
    assert world.edit("link", mode=Mode.ACCEPT_EDITS) == "ask"
    assert world.read("link") == "ask"


def test_write_6_a_dead_form_is_never_consulted_and_warns(world):
    path = {"file_path": str(world.cwd / "docs" / "a")}
    for effect in ("allow", "ask", "deny"):
        given = rules(**{effect: ["Write(docs/**)"]})
        assert world.judge("Write", path, given).verdict == "ask"
        assert world.judge("Write", path, given, mode=Mode.ACCEPT_EDITS).verdict == "allow"
        (problem,) = lint(given, TOOLS.values())
        assert problem.fix == "Edit(docs/**)"
    assert world.judge("Write", path, rules(deny=["Write"])).verdict == "deny"
    assert world.judge("Edit", path, rules(deny=["Write"], allow=["Edit"])).verdict == "allow"


# -- modes ------------------------------------------------------------------------------------------------


def test_modes_by_name():
    assert Mode.parse("manual") is Mode.DEFAULT
    assert Mode.parse("acceptEdits") is Mode.ACCEPT_EDITS
    with pytest.raises(UsageError):
        Mode.parse("yolo")


def test_reading_is_free_inside_the_working_directories_only(world):
    evil = world.cwd.parent / "proj-evil"
    evil.mkdir()
    assert world.read("a") == "allow"
    assert world.read(".") == "allow"
    assert world.read("../proj-evil/secret") == "ask"
    assert world.read("../proj-evil/secret", mode=Mode.DONT_ASK) == "deny"
    assert world.read("../proj-evil/secret", roots=(world.cwd, evil)) == "allow"
    assert world.read("../proj-evil/secret", readable=(evil,)) == "allow"
    assert world.edit("../proj-evil/secret", readable=(evil,), mode=Mode.ACCEPT_EDITS) == "ask"
    assert world.read("../proj-evil/x", rules(allow=[f"Edit(/{evil}/**)"])) == "allow"
    assert world.edit("../proj-evil/x", rules(allow=[f"Read(/{evil}/**)"])) == "ask"


def test_plan_mode_changes_nothing_but_the_plan(world):
    plan = world.cwd / ".peg" / "plans" / "p.md"
    assert world.edit(plan, mode=Mode.PLAN, plan_file=plan) == "allow"
    assert world.edit(plan, rules(deny=["Edit(.peg/**)"]), mode=Mode.PLAN, plan_file=plan) == "deny"
    decision = world.judge("Edit", {"file_path": str(world.cwd / "a")}, rules(allow=["Edit"]), mode=Mode.PLAN)
    assert (decision.verdict, decision.decided_by.by) == ("deny", "mode")
    assert world.bash("make", rules(allow=["Bash"]), mode=Mode.PLAN) == "ask"
    assert world.bash("ls", rules("builtin", allow=["Bash(ls *)"]), mode=Mode.PLAN) == "allow"
    assert world.judge("TodoWrite", mode=Mode.PLAN).verdict == "allow"
    assert world.judge("WebFetch", {"host": "a.b"}, rules(allow=["WebFetch"]), mode=Mode.PLAN).verdict == "allow"


def test_not_declared_is_not_safe(world):
    assert world.judge("Plain").verdict == "ask"
    assert world.judge("Plain", ruled=rules(allow=["Plain"])).verdict == "allow"
    assert world.judge("TaskList").verdict == "allow"
    assert world.judge("mcp__mail__list").verdict == "ask"
    assert world.judge("TodoWrite").verdict == "allow"
    assert world.judge("TodoWrite", ruled=rules(deny=["TodoWrite"])).verdict == "deny"


def test_an_untrusted_workspace_may_restrict_and_not_allow(world):
    given = rules("project", allow=["Edit"], deny=["Edit(a)"]) + rules("local", allow=["Edit"])
    assert world.edit("b", given, trusted=False) == "ask"
    assert world.edit("a", given, trusted=False) == "deny"
    assert world.edit("b", given) == "allow"
    assert len(world.snapshot(given, trusted=False).void) == 2


def test_managed_rules_can_stand_alone(world):
    given = rules(allow=["Edit"], deny=["Edit(a)"])
    assert world.edit("b", given, managed_rules_only=True) == "ask"
    assert world.edit("a", given, managed_rules_only=True) == "deny"
    assert world.edit("b", rules("managed", allow=["Edit"]), managed_rules_only=True) == "allow"


def test_a_managed_deny_names_its_file(world):
    managed = [parse_rule("WebFetch", effect="deny", scope="managed", source="/etc/peg/managed.toml", line=3)]
    others = [rule for scope in ("flag", "user", "project", "session") for rule in rules(scope, allow=["WebFetch"])]
    decision = world.judge("WebFetch", {"host": "a.b"}, managed + others, mode=Mode.BYPASS)
    assert decision.verdict == "deny"
    assert decision.decided_by.by == "policy"
    assert decision.decided_by.source == "managed (/etc/peg/managed.toml:3)"
    assert len(decision.losers) == 4


# -- what else the snapshot answers ----------------------------------------------------------------------------------


def test_denied_and_refuse(world):
    (world.cwd / "link").symlink_to(".env")
    snapshot = world.snapshot(rules("managed", deny=["Read(.env)"]))
    access = Access.read(world.cwd / "link")
    decision = snapshot.denied("Grep", access)
    assert decision is not None and decision.by == "policy"
    assert snapshot.denied("Grep", Access.read(world.cwd / "a")) is None
    assert world.snapshot().denied("Grep", access) is None
    with pytest.raises(Refusal) as caught:
        snapshot.refuse("Grep", access, decision)
    assert caught.value.code is Code.DENIED_BY_POLICY
    user = world.snapshot(rules(deny=["WebFetch(domain:a.b)"]))
    found = user.denied("WebFetch", Access.fetch("a.b"))
    with pytest.raises(Refusal) as caught:
        user.refuse("WebFetch", Access.fetch("a.b"), found)
    assert caught.value.code is Code.DENIED_BY_RULE


def test_explain_names_rule_losers_and_spellings(world):
    given = rules(deny=["Read(.env)"], allow=["Read"]) + rules("project", allow=["Edit"])
    snapshot = world.snapshot(given, trusted=False)
    told = snapshot.explain(TOOLS["Read"], {}, [Access.read(world.cwd / ".env")])
    assert told["verdict"] == "deny"
    assert told["rule"]["id"] == "user:deny:Read(.env)"
    assert [rule["id"] for rule in told["losers"]] == ["user:allow:Read"]
    assert told["accesses"][0]["names"] == [str(world.cwd / ".env")]
    assert [rule["id"] for rule in told["void"]] == ["project:allow:Edit"]


def test_a_hook_may_lift_only_an_open_question(world):
    assert world.judge("Edit", {"file_path": str(world.cwd / "a")}).question_only
    assert not world.judge("Edit", {"file_path": str(world.cwd / ".git/x")}).question_only
    assert not world.judge("Bash", {"command": "a && b"}, rules(ask=["Bash(b)"])).question_only
    assert not world.judge("Read", {"file_path": str(world.cwd / "a")}).question_only


CASES = [
    ("WebFetch", {"host": "a.example"}, ["WebFetch(domain:a.example)"], True),
    ("Skill", {"skill": "do*cs"}, [r"Skill(do\*cs)"], True),
    ("Plain", {}, ["Plain"], True),
    ("mcp__mail__send", {}, ["mcp__mail__send"], True),
    ("Bash", {"command": "make (a) *"}, [r"Bash(make \(a\) \*)"], True),
    ("Read", {"file_path": "/srv/data [1]/x"}, [r"Read(//srv/data \[1\]/**)"], True),
    ("Read", {"file_path": "/etc/passwd"}, ["Read(//etc/passwd)"], True),
    ("Edit", {"file_path": "/srv/data/x"}, ["Edit(//srv/data/**)"], False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "texts", "kept"), CASES)
def test_suggestions_are_enough_and_no_more(world, name, given, texts, kept):
    snapshot = world.snapshot()
    accesses = SPECIFIC[name](given) if name in SPECIFIC else []
    decision = world.under(snapshot, name, given)
    session, always = suggest(TOOLS[name], accesses, decision, snapshot)
    assert session == texts
    assert always == (texts if kept else [])
    assert world.judge(name, given, rules("session", allow=session)).verdict == "allow"


def test_no_suggestion_where_it_could_not_help(world):
    def suggested(name, given, ruled=(), **more):
        snapshot = world.snapshot(ruled, **more)
        return suggest(TOOLS[name], SPECIFIC[name](given), world.under(snapshot, name, given), snapshot)

    assert suggested("Edit", {"file_path": str(world.cwd / ".git/x")}) == ([], [])
    assert suggested("Bash", {"command": "make"}, rules(ask=["Bash(make)"])) == ([], [])
    assert suggested("Bash", {"command": "make"}, managed_rules_only=True) == ([], [])
    assert suggested("Bash", {"command": " && ".join("abcdef")}) == ([], [])
    assert len(suggested("Bash", {"command": " && ".join("abcde")})[1]) == 5


def test_text_that_hides_is_shown():
    assert visible("a\u202eb\u200b\n\x1b[0m") == r"a\u{202e}b\u{200b}\n\u{1b}[0m"


def test_a_new_mode_is_a_new_generation(world):
    snapshot = world.snapshot()
    other = snapshot.with_mode(Mode.PLAN)
    assert other.generation > snapshot.generation
    assert other.index is snapshot.index


def test_home_may_be_reached_by_a_link(world):
    linked = world.home.parent / "v"
    linked.symlink_to(world.home)
    snapshot = Snapshot.make(rules(deny=["Read(~/.ssh/**)"]), cwd=world.cwd, home=linked, trusted=True)
    for home in (linked, world.home):
        assert world.under(snapshot, "Read", {"file_path": f"{home}/.ssh/id"}).verdict == "deny"
    assert os.fspath(world.home) == snapshot.home
