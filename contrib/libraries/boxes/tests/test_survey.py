"""The survey: what it finds, what it remembers, and that it cannot be fooled about what changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pegboard.sandbox import HIDE, LOCK
from pegboard_boxes import survey as module
from pegboard_boxes.survey import Kind, Sight, Survey


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


def kinds(view) -> set[tuple[str, str]]:
    return {(os.path.basename(sight.path), sight.kind.value) for sight in view.found}


def test_repositories_and_protected_names_at_any_depth(root):
    for name in (".git", "a/b/.git", ".vscode", "a/.husky", "bare/objects", "bare/refs", ".peg/worktrees/w/.idea"):
        (root / name).mkdir(parents=True)
    for name in ("a/.envrc", ".MCP.json", "a/b/c.txt", "bare/HEAD", ".peg/worktrees/w/.git"):
        (root / name).touch()
    view = Survey().look([str(root)])
    assert view.complete
    assert kinds(view) == {
        (".git", "git"), (".vscode", "protected"), (".husky", "protected"), (".envrc", "protected"),
        (".MCP.json", "protected"), ("bare", "bare"), (".peg", "protected"), (".idea", "protected"),
    }  # fmt: skip
    assert Sight(str(root / ".peg/worktrees/w/.git"), Kind.GIT, False) in view.found
    assert Sight(str(root / "a/b/.git"), Kind.GIT, True) in view.found


def test_what_lies_inside_git_and_packages_is_not_walked_through(root):
    for name in (".git/x/.vscode", "node_modules/x/.vscode", "src/__pycache__/.vscode"):
        (root / name).mkdir(parents=True)
    assert kinds(Survey().look([str(root)])) == {(".git", "git")}


def test_links_are_seen_and_not_followed(root):
    (root / "real").mkdir()
    (root / "real" / ".envrc").touch()
    (root / "in").mkdir()
    (root / "in" / "link").symlink_to(root / "real")
    (root / "in" / ".vscode").symlink_to(root / "real")
    view = Survey().look([str(root / "in")])
    assert view.found == (Sight(str(root / "in/.vscode"), Kind.PROTECTED, False),)


def test_a_rule_hides_and_locks_also_in_packages(root):
    for name in ("node_modules/p/.env", "secrets/deep/key.pem", "src/lock.me"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()

    def rule(path: str, folder: bool) -> str:
        if path.endswith(("/.env", "/secrets")):
            return HIDE
        return LOCK if path.endswith("lock.me") else ""

    view = Survey().look([str(root)], rule)
    assert kinds(view) == {(".env", "hidden"), ("secrets", "hidden"), ("lock.me", "locked")}
    assert [sight.folder for sight in view.of(Kind.HIDDEN)] == [True, False]


def test_a_new_rule_starts_afresh(root):
    (root / "a.key").touch()
    survey = Survey()
    assert not survey.look([str(root)]).found
    assert survey.look([str(root)], lambda path, folder: HIDE if path.endswith(".key") else "").found
    assert not survey.look([str(root)]).found


def test_unchanged_folders_are_not_read_again_and_changed_ones_are(root, monkeypatch):
    monkeypatch.setattr(module, "FRESH", -(10**18))
    for name in ("a/b", "c"):
        (root / name).mkdir(parents=True)
    survey = Survey()
    survey.look([str(root)])
    read = []
    plain = survey._read
    monkeypatch.setattr(survey, "_read", lambda path, stamp: read.append(path) or plain(path, stamp))
    survey.look([str(root)])
    assert read == []
    os.utime(root / "c", (1, 1))
    (root / "a/b/.envrc").touch()
    view = survey.look([str(root)])
    assert read == [str(root / "c"), str(root / "a/b")]
    assert kinds(view) == {(".envrc", "protected")}


def test_setting_a_folders_time_back_does_not_hide_a_change(root, monkeypatch):
    monkeypatch.setattr(module, "FRESH", -(10**18))
    survey = Survey()
    before = os.stat(root)
    survey.look([str(root)])
    (root / ".envrc").touch()
    os.utime(root, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert kinds(survey.look([str(root)])) == {(".envrc", "protected")}


def test_a_folder_that_changed_just_now_is_not_remembered(root):
    survey = Survey()
    survey.look([str(root)])
    assert str(root) not in survey._known
    assert survey.look([str(root)]).complete


def test_the_walk_has_an_end_and_says_so(root):
    for number in range(30):
        (root / f"d{number}" / ".vscode").mkdir(parents=True)
    view = Survey(most=10).look([str(root)])
    assert not view.complete and 0 < len(view.found) < 10


def test_what_cannot_be_read_is_passed_over(root):
    view = Survey().look([str(root / "missing"), str(root)])
    assert view.complete and not view.found
