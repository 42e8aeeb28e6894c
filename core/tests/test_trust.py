"""Trust: by repository root, never inherited, never by path alone for what runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pegboard.errors import UsageError
from pegboard.places import find_places
from pegboard.trust import Trust, changes, digest_files, digest_folder, digest_server, repository_holds, repository_root


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "home"
    found.mkdir()
    return found


def trust_at(folder: Path, home: Path) -> Trust:
    folder.mkdir(parents=True, exist_ok=True)
    return Trust.load(find_places(folder, {"HOME": str(home)}))


def git(folder: Path, *words: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = ["-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "core.hooksPath=/dev/null"]
    subprocess.run(["git", "-C", str(folder), *name, *words], check=True, capture_output=True)


def test_trust_is_given_stored_privately_and_taken_back(tmp_path: Path, home: Path) -> None:
    git(tmp_path / "repo", "init")
    trust = trust_at(tmp_path / "repo/src/deep", home)
    assert not trust.trusted()
    assert trust.give() == tmp_path / "repo"
    assert (home / ".peg/trust.json").stat().st_mode & 0o777 == 0o600
    for folder in ("repo", "repo/src", "repo/other"):
        assert trust_at(tmp_path / folder, home).trusted()
    assert list(trust.roots()) == [str(tmp_path / "repo")]
    assert trust_at(tmp_path / "repo", home).revoke()
    assert not trust_at(tmp_path / "repo", home).trusted()
    assert not trust.revoke()
    assert sorted(os.listdir(home / ".peg")) == ["trust.json"]


def test_set_7_nested_repository_of_a_trusted_one_is_not_trusted(tmp_path: Path, home: Path) -> None:
    outer, inner = tmp_path / "trusted", tmp_path / "trusted/vendor/sub"
    git(outer, "init")
    git(inner, "init")
    (outer / ".peg").mkdir()
    trust_at(outer, home).give()
    assert trust_at(outer, home).trusted()
    assert trust_at(outer / "vendor", home).trusted()
    nested = trust_at(inner, home)
    assert nested.root == inner
    assert not nested.trusted()
    assert not trust_at(outer, home).trusted(inner / "x")
    (inner / ".git/HEAD").write_text("x")
    assert not trust_at(inner, home).trusted()


def test_submodules_and_planted_git_files_are_repositories_of_their_own(tmp_path: Path, home: Path) -> None:
    outer = tmp_path / "outer"
    git(outer, "init")
    git(outer, "commit", "--allow-empty", "-m", "x")
    git(outer, "worktree", "add", str(tmp_path / "tree"))
    trust_at(outer, home).give()
    assert trust_at(tmp_path / "tree", home).trusted(), "a worktree belongs to its main checkout"
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / ".git").write_text((tmp_path / "tree/.git").read_text())
    assert not trust_at(evil, home).trusted()
    (evil / ".git").write_text("gitdir: ../outer/.git/modules/evil\n")
    assert not trust_at(evil, home).trusted()
    (evil / ".git").write_bytes(b"\xff\x00")
    assert repository_root(evil) == evil


def test_outside_git_trust_is_for_one_folder(tmp_path: Path, home: Path) -> None:
    trust_at(tmp_path / "plain", home).give()
    assert trust_at(tmp_path / "plain", home).trusted()
    assert not trust_at(tmp_path / "plain/below", home).trusted()
    assert not trust_at(tmp_path / "plain2", home).trusted()
    assert not trust_at(tmp_path, home).trusted()


def test_links_lead_to_the_same_decision_and_moved_folders_do_not(tmp_path: Path, home: Path) -> None:
    trust_at(tmp_path / "a", home).give()
    (tmp_path / "link").symlink_to("a")
    assert trust_at(tmp_path / "link", home).trusted()
    (tmp_path / "a").rename(tmp_path / "b")
    assert not trust_at(tmp_path / "b", home).trusted()


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"roots": 3}', b"\xff"])
def test_a_broken_store_trusts_nothing_and_is_kept_aside(tmp_path: Path, home: Path, data: bytes) -> None:
    trust_at(tmp_path / "a", home).give()
    path = home / ".peg/trust.json"
    path.write_bytes(data)
    trust = trust_at(tmp_path / "a", home)
    assert not trust.trusted()
    assert str(path) in trust.problem
    trust.give()
    assert trust_at(tmp_path / "a", home).trusted()
    assert (home / ".peg/trust.json.bak").read_bytes() == data


def test_a_store_that_others_can_write_trusts_nothing(tmp_path: Path, home: Path) -> None:
    trust_at(tmp_path / "a", home).give()
    (home / ".peg/trust.json").chmod(0o666)
    trust = trust_at(tmp_path / "a", home)
    assert not trust.trusted()
    assert "can be written by others" in trust.problem


def test_what_cannot_be_stored_is_a_clear_error(tmp_path: Path, home: Path) -> None:
    (home / ".peg").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        trust_at(tmp_path / "a", home).give()
    with pytest.raises(UsageError, match="not a folder"):
        trust_at(tmp_path / "a", home).give(tmp_path / "none")


def test_approvals_hold_for_one_digest_and_show_what_changed(tmp_path: Path, home: Path) -> None:
    plugin = tmp_path / "plugin"
    (plugin / "sub").mkdir(parents=True)
    (plugin / "a.py").write_text("1")
    (plugin / "sub/b.py").write_text("2")
    trust = trust_at(tmp_path / "w", home)
    assert trust.approved("plugin", "x") is None
    trust.approve("plugin", "x", digest_folder(plugin), files=digest_files(plugin))
    again = trust_at(tmp_path / "w", home)
    assert again.approved("plugin", "x") == digest_folder(plugin)
    assert again.approved("plugin", "x", where="/elsewhere") is None
    assert again.approved("skill", "x") is None
    (plugin / "a.py").write_text("9")
    (plugin / "sub/b.py").unlink()
    (plugin / "new").symlink_to("/etc/passwd")
    assert again.approved("plugin", "x") != digest_folder(plugin)
    found = again.approval("plugin", "x")
    assert found is not None
    assert changes(found.files, digest_files(plugin)) == ["~ a.py", "+ new", "- sub/b.py"]
    assert again.withdraw("plugin", "x")
    assert not again.withdraw("plugin", "x")
    assert trust_at(tmp_path / "w", home).approved("plugin", "x") is None


WRITER = """
import sys
from pathlib import Path
from pegboard.places import find_places
from pegboard.trust import Trust
trust = Trust.load(find_places(Path.cwd()))
for number in range(10):
    trust.approve("plugin", f"{sys.argv[1]}-{number}", "sha256:x")
"""


def test_decisions_of_several_processes_are_all_kept(tmp_path: Path, home: Path) -> None:
    environ = {**os.environ, "HOME": str(home)}
    environ.pop("PEG_HOME", None)
    trust_at(tmp_path / "w", home).give()
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(n)], env=environ, cwd=tmp_path) for n in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    trust = trust_at(tmp_path / "w", home)
    assert trust.trusted()
    assert all(trust.approved("plugin", f"{a}-{b}") == "sha256:x" for a in range(4) for b in range(10))


def test_digest_covers_every_file_name_and_content(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    seen = {digest_folder(tmp_path / "d")}
    steps = [
        lambda: (tmp_path / "d/.hidden").write_text(""),
        lambda: (tmp_path / "d/.hidden").rename(tmp_path / "d/shown"),
        lambda: (tmp_path / "d/shown").write_text("x"),
        lambda: (tmp_path / "d/link").symlink_to("shown"),
        lambda: ((tmp_path / "d/link").unlink(), (tmp_path / "d/link").symlink_to("other")),
        lambda: ((tmp_path / "d/link").unlink(), (tmp_path / "d/link").write_text("link:other")),
        lambda: ((tmp_path / "d/e").mkdir(), (tmp_path / "d/e/x.pyc").write_bytes(b"\x00")),
        lambda: (tmp_path / "d/dirlink").symlink_to(tmp_path),
        lambda: os.mkfifo(tmp_path / "d/fifo"),
        lambda: Path(os.fsdecode(os.fsencode(tmp_path / "d") + b"/\xff")).write_text(""),
    ]
    for step in steps:
        step()
        assert digest_folder(tmp_path / "d") not in seen
        seen.add(digest_folder(tmp_path / "d"))
    before = digest_folder(tmp_path / "d")
    (tmp_path / "d/__pycache__").mkdir()
    (tmp_path / "d/__pycache__/a.pyc").write_text("x")
    assert digest_folder(tmp_path / "d") == before


@examples(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    one=st.dictionaries(st.text("ab", min_size=1, max_size=3), st.binary(max_size=3), max_size=3),
    two=st.dictionaries(st.text("ab", min_size=1, max_size=3), st.binary(max_size=3), max_size=3),
)
def test_equal_digests_mean_equal_folders(
    tmp_path_factory: pytest.TempPathFactory, one: dict[str, bytes], two: dict[str, bytes]
) -> None:
    digests = []
    for files in (one, two):
        folder = tmp_path_factory.mktemp("digest")
        for name, data in files.items():
            (folder / name).write_bytes(data)
        digests.append(digest_folder(folder))
    assert (digests[0] == digests[1]) == (one == two)


def test_tr_changed_config_server_digest_binds_all_parts(tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    script.write_text("1")
    same = digest_server("sh", ["s.sh"], env=["B", "A"], script=script)
    assert same == digest_server("sh", ["s.sh"], env=["A", "B"], script=script)
    others = {
        digest_server("sh", ["s.sh"], env=["A"], script=script),
        digest_server("sh", ["s.sh", "A", "B"], script=script),
        digest_server("sh", [], env=["s.sh", "A", "B"], script=script),
        digest_server("sh s.sh", [], env=["A", "B"], script=script),
        digest_server("sh", ["s.sh"], env=["A", "B"]),
        digest_server(url="https://example.com"),
    }
    script.write_text("2")
    others.add(digest_server("sh", ["s.sh"], env=["A", "B"], script=script))
    assert len(others) == 7
    assert same not in others


def test_where_git_cannot_tell_a_file_counts_as_tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r").mkdir()
    assert not repository_holds(tmp_path / "r/x")
    git(tmp_path / "r", "init")
    assert not repository_holds(tmp_path / "r/x")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert repository_holds(tmp_path / "r/x")


def test_git_fsmonitor_of_a_repository_does_not_run(tmp_path: Path) -> None:
    repo = tmp_path / "r"
    git(repo, "init")
    (repo / "evil.sh").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (repo / "evil.sh").chmod(0o755)
    git(repo, "config", "core.fsmonitor", "./evil.sh")
    repository_holds(repo / "x")
    assert not (tmp_path / "ran").exists()
