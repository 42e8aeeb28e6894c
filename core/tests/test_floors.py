"""Floors: protected paths and critical removals."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pegboard.policy import Mode, critical_removal

sys.path.insert(0, str(Path(__file__).parent))
from policyworld import World, rules


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.mark.parametrize(
    "path",
    [
    ".git", ".git/config", "sub/.git/hooks/x", ".GIT/config", ".gi\u200dt/config", ".git./config", ".vscode/x",
    ".husky/x", ".claude/settings.json", ".config/git/attributes", ".mcp.json", ".bashrc", "a/.envrc",
    ".git::$INDEX_ALLOCATION/x", ".peg/worktrees/x/.git", ".peg/worktrees", ".ｇit/config",
],
)  # fmt: skip
def test_protected_paths_ask(world, path):
    assert world.edit(path, rules(allow=["Edit"]), mode=Mode.ACCEPT_EDITS) == "ask"


@pytest.mark.parametrize(
    "path", ["a", ".gitignore", ".github/x", ".peg/worktrees/x/a.py", ".claude/worktrees/y/z", "config/git/x"]
)
def test_other_paths_do_not(world, path):
    assert world.edit(path, mode=Mode.ACCEPT_EDITS) == "allow"


def test_protection_looks_through_links_and_covers_own_folders(world):
    (world.cwd / ".git").mkdir()
    (world.cwd / "plain").symlink_to(".git")
    assert world.edit("plain/config", mode=Mode.ACCEPT_EDITS) == "ask"
    assert world.edit("data/x", mode=Mode.ACCEPT_EDITS, guarded=(world.cwd / "data",)) == "ask"


CRITICAL = [
    "rm -rf /", "rm -rf //", "rm -rf /*", "rm -fr /.", "rm -rf /etc", "rm -rf /e*", "rm -rf ~", "rm -rf ~/",
    "rm -rf $HOME", 'rm -rf "${HOME}/"', "rm -rf ~/*", "rm -rf .", "rm -rf ..", "rm -rf ../..", "rm -rf *",
    "rm -rf ./*", "rm -rf ./.*", "rm -rf $PWD", 'rm -rf "$X"/*', "rm -rf $X/", "rm -rf ${X:-}/*.py",
    "rm -rf $(mktemp)/*", "rm -rf `pwd`/*", "rm -rf -- /", "X=1 rm -rf /", "/bin/rm -rf /", "rmdir /usr",
    "rm -rf a b /", "rm -rf 'a'/../..", "rm -rf /{etc,usr}", "rm -rf {a,/}", "rm -rf ~root", "rm -rf a/../*",
    "rm -rf \\/", "rm -r\\f '/'",
]  # fmt: skip


@pytest.mark.parametrize("command", CRITICAL)
def test_critical_removals_are_seen(world, command):
    assert world.bash(command, rules(allow=["Bash"]), mode=Mode.BYPASS) == "ask"


@pytest.mark.parametrize(
    "command",
    [
    "rm -rf build", "rm *.pyc", "rm -rf build/*", 'rm -rf "$X"', "rm -rf $X/build", "echo rm -rf /", "rm a b",
    "rm -rf ./a/..b", "rm -rf /tmp/x/y", "rm -rf -- -x", "rm -rf ~/x", "rm -rf a{1,2}", "firm /", "rm",
],
)  # fmt: skip
def test_ordinary_removals_are_not(world, command):
    assert world.bash(command, rules(allow=["Bash"])) == "allow"


def test_critical_removal_takes_words(world):
    snapshot = world.snapshot()
    assert "root directory" in critical_removal(["rm", "-rf", "/"], snapshot)
    assert critical_removal(["rm", "-rf", str(world.cwd.parent)], snapshot)
    assert critical_removal(["ls", "/"], snapshot) == ""
    assert critical_removal([], snapshot) == ""
