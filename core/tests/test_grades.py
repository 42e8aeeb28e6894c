"""What a tool knows about its own accesses, and what the deciding function makes of it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pegboard.policy import Mode, decide, resolve_accesses
from pegboard.tool import Access

sys.path.insert(0, str(Path(__file__).parent))
from policyworld import TOOLS, World, rules


@pytest.fixture
def ask(tmp_path):
    world = World(tmp_path)

    def verdict(*accesses: Access, given=(), mode=Mode.DEFAULT) -> str:
        snapshot = world.snapshot(given, mode=mode)
        return decide(TOOLS["Bash"], {}, resolve_accesses(accesses, snapshot), snapshot).verdict

    verdict.world = world
    return verdict


def run(text: str, grade: str = "", **more) -> Access:
    return replace(Access.run(text), grade=grade, **more)


def test_what_only_reads_is_free_and_still_restricted(ask):
    assert ask(run("ls", "reads")) == "allow"
    assert ask(run("ls", "reads"), mode=Mode.PLAN) == "allow"
    assert ask(run("ls", "reads"), given=rules(ask=["Bash(ls)"])) == "ask"
    assert ask(run("ls", "reads"), given=rules(deny=["Bash(ls)"])) == "deny"


def test_what_only_edits_is_as_free_as_edits(ask):
    assert ask(run("mkdir a", "edits")) == "ask"
    assert ask(run("mkdir a", "edits"), mode=Mode.ACCEPT_EDITS) == "allow"


def test_a_part_is_asked_about_with_its_command(ask):
    inside, outside = str(ask.world.cwd / "a"), str(ask.world.home / "a")
    part = [replace(Access.edit(path), grade="part") for path in (inside, outside)]
    allowed = rules(allow=["Bash(rm *)"])
    assert ask(run("rm a"), part[0], given=allowed) == "allow"
    assert ask(run("rm b"), part[1], given=allowed) == "ask"
    assert ask(run("rm a"), part[0], given=rules(allow=["Bash(rm *)"], deny=["Edit(a)"])) == "deny"
    assert ask(run("rm x"), replace(Access.edit(ask.world.cwd / ".git" / "x"), grade="part"), given=allowed) == "ask"
    assert ask(run("rm a", "edits"), part[0], mode=Mode.PLAN) == "deny"


def test_a_mention_is_no_reason_to_ask_and_meets_deny_rules(ask):
    mention = replace(Access.read(ask.world.home / "key"), grade="mention")
    allowed = rules(allow=["Bash(x *)"])
    assert ask(run("x ~/key"), mention, given=allowed) == "allow"
    assert ask(run("x ~/key"), mention, given=allowed + rules(deny=["Read(~/key)"])) == "deny"


@pytest.mark.parametrize(("grade", "whole"), [("doubt", "allow"), ("risk", "ask"), ("blind", "ask")])
def test_what_is_not_known(ask, grade, whole):
    access = run("x $y", grade, why="y is not known")
    assert ask(access, given=rules(allow=["Bash(x *)"])) == "ask"
    assert ask(access, given=rules(allow=["Bash"])) == whole
    assert ask(access, given=rules(allow=["Bash"], deny=["Read(b)"])) == "ask"
    assert ask(access, mode=Mode.BYPASS) == "allow"
    assert ask(access, mode=Mode.DONT_ASK) == "deny"
    assert ask(access, given=rules(deny=["Bash(x *)"])) == "deny"


def test_a_removal_may_hide_in_what_is_not_known(ask):
    access = run("$X -rf /", "doubt", why="X is not known", also=("X=r''m; $X -rf /",))
    assert ask(access, mode=Mode.BYPASS) == "ask"
    assert ask(access, given=rules(allow=["Bash"])) == "ask"
    assert ask(run("x", also=("rm -rf ~",)), mode=Mode.BYPASS) == "ask"


def test_other_spellings_meet_strict_rules_only(ask):
    access = run("sudo rm x", also=("rm x",))
    assert ask(access, given=rules(deny=["Bash(rm *)"], allow=["Bash"])) == "deny"
    assert ask(access, given=rules(ask=["Bash(rm *)"], allow=["Bash"])) == "ask"
    assert ask(access, given=rules(allow=["Bash(rm *)"])) == "ask"
    assert ask(access, given=rules(allow=["Bash(sudo rm *)"])) == "allow"


@pytest.mark.parametrize(
    ("head", "rule", "verdict"),
    [
        ("git ", "Bash(git push *)", "ask"),
        ("git pu", "Bash(git push *)", "ask"),
        ("git pull ", "Bash(git push *)", "allow"),
        ("git pull ", "Bash(git * --force)", "ask"),
        ("git pull ", "Bash(git pull)", "allow"),
        ("gitx ", "Bash(git push *)", "allow"),
        ("git push ", "Bash(git push origin)", "ask"),
    ],
)
def test_an_open_end(ask, head, rule, verdict):
    access = run(f"{head}$X", head=head)
    assert ask(access, given=rules(allow=["Bash(git*)"], deny=[rule])) == verdict
