"""Git repositories, read as files: where they lie, what decides about programs, and what was planted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pegboard_boxes.planted import marks, planted
from pegboard_boxes.repos import dangers, hook_folders, inner, read
from pegboard_boxes.survey import Survey

ENV = {
    "PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
}  # fmt: skip


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, env=ENV, check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    return folder


class Tree:
    """A tree, and what is planted in it between two looks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.before = self.now()

    def now(self):
        return marks(Survey().look([str(self.root)]))

    def news(self) -> dict[str, str]:
        return {found.path[len(str(self.root)) + 1 :]: found.how for found in planted(self.before, self.now())}


def write(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_plain_repository(repo):
    found = read(str(repo / ".git"))
    assert found is not None and not found.linked and found.registered
    assert dict(found.deciding()) == {f"{repo}/.git/hooks": True, f"{repo}/.git/config": False}


def test_a_worktree_is_known_to_its_repository(repo, tmp_path):
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    found = read(str(tmp_path / "tree/.git"))
    assert found is not None and found.linked and found.registered
    assert (found.gitdir, found.common) == (f"{repo}/.git/worktrees/tree", f"{repo}/.git")


def test_a_link_that_somebody_made_up_is_not_registered(repo, tmp_path):
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    write(tmp_path / "forged/.git", f"gitdir: {repo}/.git/worktrees/tree\n")
    for text in (f"gitdir: {repo}/.git\n", f"gitdir: {repo}/.git/worktrees/tree\n"):
        write(tmp_path / "forged/.git", text)
        found = read(str(tmp_path / "forged/.git"))
        assert found is not None and not found.registered
    for text in ("", "nonsense", "gitdir: /nowhere/at/all"):
        write(tmp_path / "forged/.git", text)
        assert read(str(tmp_path / "forged/.git")) is None
    assert read(str(tmp_path / "missing/.git")) is None


def test_submodules_have_hooks_of_their_own(repo):
    for name in ("lib", "deep/er"):
        write(repo / f".git/modules/{name}/HEAD")
        (repo / f".git/modules/{name}/objects").mkdir()
    assert sorted(inner(f"{repo}/.git/modules")) == [f"{repo}/.git/modules/deep/er", f"{repo}/.git/modules/lib"]
    found = read(str(repo / ".git"))
    assert found is not None and f"{repo}/.git/modules/lib/hooks" in dict(found.deciding())


def test_a_configuration_may_name_another_hook_folder(repo):
    git(repo, "config", "core.hooksPath", ".githooks")
    assert hook_folders(f"{repo}/.git/config", str(repo)) == [f"{repo}/.githooks"]
    found = read(str(repo / ".git"))
    assert found is not None and dict(found.deciding())[f"{repo}/.githooks"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[core]\n\tfsmonitor = ./evil.sh\n", ["core.fsmonitor"]),
        ("[core]\n fsmonitor = false\n bare = false\n", []),
        ("[CORE]\n\tFSMonitor = ./x\n", ["core.fsmonitor"]),
        ("[core] hooksPath = x\n", ["core.hookspath"]),
        ("[filter \"lfs\"]\n clean = x\n required = true\n", ["filter.clean"]),
        ("[filter \"a]b\"]\n smudge = x\n", ["filter.smudge"]),
        ("[diff \"x\"]\ntextconv=a\n", ["diff.textconv"]),
        ("[alias]\n s = status\n x = !sh\n", ["alias.x"]),
        ("[include]\n path = ../x\n", ["include.path"]),
        ("[includeIf \"gitdir:/\"]\n path = ../x\n", ["includeif.path"]),
        ("[core]\n ssh\\\nCommand = x\n[gpg]\nprogram=y\n", ["gpg.program"]),
        ("[credential]\n helper = !x\n[core]\n sshCommand = x\n", ["credential.helper", "core.sshcommand"]),
        ("[submodule \"a\"]\n update = merge\n", []), ("[submodule \"a\"]\n update = !sh\n", ["submodule.update"]),
        ("[remote \"origin\"]\n url = x\n fetch = y\n[branch \"main\"]\n merge = z\n", []),
        ("[filter.lfs]\n process = x\n", ["filter.process"]),
        ("; [core]\n# fsmonitor = x\n", []), ("", []), ("\0\xff[", []),
    ],
)  # fmt: skip
def test_keys_that_make_git_start_something(tmp_path, text, expected):
    (tmp_path / "config").write_bytes(text.encode("latin-1"))
    assert dangers(str(tmp_path / "config")) == expected


def test_a_configuration_without_end_counts_as_dangerous(tmp_path):
    (tmp_path / "config").write_text("#" * 300_000)
    assert dangers(str(tmp_path / "config"))


def test_new_hooks_and_auto_run_files_are_found(repo):
    tree = Tree(repo)
    assert tree.news() == {}
    write(repo / ".git/hooks/post-merge")
    write(repo / ".git/hooks/pre-push.sample")
    write(repo / ".envrc")
    write(repo / "sub/.vscode/tasks.json")
    write(repo / "sub/plain.txt")
    assert tree.news() == {".git/hooks/post-merge": "new", ".envrc": "new", "sub/.vscode/tasks.json": "new"}


def test_changed_files_are_told_from_new_ones(repo):
    write(repo / ".envrc", "a")
    tree = Tree(repo)
    write(repo / ".envrc", "b")
    assert tree.news() == {".envrc": "changed"}


def test_a_file_that_was_swapped_for_another_of_the_same_size_and_time_is_found(repo):
    import os

    write(repo / ".envrc", "a")
    tree = Tree(repo)
    old = os.stat(repo / ".envrc")
    write(repo / "other", "b")
    os.replace(repo / "other", repo / ".envrc")
    os.utime(repo / ".envrc", ns=(old.st_atime_ns, old.st_mtime_ns))
    assert tree.news() == {".envrc": "changed"}


def test_a_new_repository_with_a_hook_or_a_dangerous_setting(repo):
    tree = Tree(repo)
    git(repo, "init", "-q", "plain")
    assert tree.news() == {}
    write(repo / "plain/.git/hooks/post-checkout")
    git(repo / "plain", "config", "core.fsmonitor", "./x")
    assert tree.news() == {"plain/.git/hooks/post-checkout": "new", "plain/.git/config": "new"}


def test_files_that_form_a_bare_repository(repo):
    tree = Tree(repo)
    write(repo / "x/HEAD", "ref: refs/heads/x")
    (repo / "x/objects").mkdir()
    (repo / "x/refs").mkdir()
    write(repo / "x/config", "[core]\n fsmonitor = ./evil.sh\n")
    assert tree.news() == {"x/config": "new"}


def test_a_commondir_leads_git_elsewhere(repo):
    tree = Tree(repo)
    write(repo / ".git/commondir", "/tmp/elsewhere")
    assert tree.news() == {".git/commondir": "new"}


def test_a_git_file_that_leads_out_of_the_tree(repo, tmp_path):
    git(repo, "init", "-q", str(tmp_path / "evil"))
    tree = Tree(repo)
    write(repo / "sub/.git", f"gitdir: {tmp_path}/evil/.git")
    assert tree.news() == {"sub/.git": "new"}


def test_an_own_worktree_and_a_submodule_are_nothing_special(repo, tmp_path):
    git(repo, "init", "-q", str(tmp_path / "lib"))
    git(tmp_path / "lib", "commit", "-q", "--allow-empty", "-m", "x")
    tree = Tree(repo)
    git(repo, "worktree", "add", "-q", "inside")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "lib"), "lib")
    assert tree.news() == {".gitmodules": "new"}


def test_a_worktree_record_that_leads_elsewhere(repo, tmp_path):
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    tree = Tree(repo)
    write(repo / ".git/worktrees/tree/commondir", "/tmp/elsewhere")
    assert tree.news() == {".git/worktrees/tree/commondir": "new"}
