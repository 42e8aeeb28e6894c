"""Patterns: what the engine is asked for, and which folders git ignores."""

from __future__ import annotations

import subprocess
from fnmatch import fnmatchcase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard.errors import Code, Refusal
from pegboard_ripgrep.globs import plan
from pegboard_ripgrep.ignored import IgnoredFolders


def globs(pattern: str, root: str = "/project") -> tuple[str, ...]:
    return plan(pattern, root).globs


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("*.ts", ("/*.ts",)),
        ("./src//*.ts", ("/src/*.ts",)),
        ("src/../lib/*", ("/lib/*",)),
        ("src/", ("/src/**",)),
        ("{a,b{c,d}}.x", ("/a.x", "/bc.x", "/bd.x")),
        ("{a,b}/{c,d}", ("/a/c", "/a/d", "/b/c", "/b/d")),
        (r"\{a,b\}", (r"/\{a,b\}",)),
        ("{a", ("/{a",)),
        ("!not", ("/!not",)),
        ("#hash", ("/#hash",)),
        ("end ", ("/end\\ ",)),
        ("/project/src/*.py", ("/src/*.py",)),
        ("{/project/a,b}/*", ("/a/*", "/b/*")),
        ("[id]/*", ("/[id]/*", r"/\[id\]/*")),
        (r"\[id\]/*", (r"/\[id\]/*",)),
    ],
)
def test_patterns_become_anchored_globs(pattern, wanted):
    assert globs(pattern) == wanted


@pytest.mark.parametrize("pattern", ["../x", "a/../../x", "*/../x", "/etc/*", "/projects/*", "{a,../b}"])
def test_patterns_that_leave_the_folder_are_refused(pattern):
    with pytest.raises(Refusal) as refused:
        globs(pattern)
    assert refused.value.code is Code.INVALID_INPUT


def test_alternatives_are_limited():
    assert len(globs("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}")) == 256
    with pytest.raises(Refusal):
        globs("{a,b,c}" * 30)


@settings(max_examples=100, deadline=None)
@given(st.text("ab{},/\\[]*", min_size=1, max_size=20))
def test_every_pattern_is_planned_or_refused(pattern):
    try:
        found = plan(pattern, "/project")
    except Refusal:
        return
    assert found.globs and all(glob.startswith("/") for glob in found.globs)


def test_a_walk_starts_in_the_folder_that_all_alternatives_share(tmp_path):
    for name in ("src/a", "src/b", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("src")
    assert plan("src/{a,b}/*.py", str(tmp_path)).start == "src"
    assert plan("src/a/**", str(tmp_path)).start == "src/a"
    assert plan("{src,other}/*", str(tmp_path)).start == ""
    assert plan("absent/*", str(tmp_path)).start == ""
    assert plan("link/*", str(tmp_path)).start == ""


def test_an_absolute_pattern_may_take_another_way_to_the_folder(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to("real")
    assert globs(f"{tmp_path}/way/*.py", str(tmp_path / "real")) == ("/*.py",)


LINES = st.lists(
    st.sampled_from(
        [
            "a/",
            "/a",
            "a",
            "!a/",
            "b/a",
            "**/b",
            "a/**",
            "a/**/b",
            "*",
            "!*/",
            "[ab]/",
            "[!a]",
            "?",
            "# a",
            "",
            "\\a",
            "b*/ ",
        ]
    ),
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(top=LINES, inner=LINES, exclude=LINES)
def test_ignored_folders_agree_with_git(tmp_path_factory, top, inner, exclude):
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", root], check=True)
    folders = ["a", "b", "a/a", "a/b", "b/a", "b/b", "b/a/b"]
    for folder in folders:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for place, lines in ((".gitignore", top), ("b/.gitignore", inner), (".git/info/exclude", exclude)):
        (root / place).write_text("\n".join(lines))
    asked = "".join(f"{folder}\0" for folder in folders)
    done = subprocess.run(
        ["git", "-c", "core.excludesFile=", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=root,
        input=asked,
        capture_output=True,
        text=True,
        check=False,
    )
    ignored = {name.rstrip("/") for name in done.stdout.split("\0") if name}
    judge = IgnoredFolders.around(str(root))
    assert judge is not None
    assert {folder for folder in folders if judge.first_ignored(folder, frozenset())} == ignored


def test_outside_of_a_repository_nothing_is_judged(tmp_path):
    (tmp_path / ".gitignore").write_text("*")
    assert IgnoredFolders.around(str(tmp_path)) is None


def test_named_folders_are_entered(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("node_modules/\nbuild/\n")
    judge = IgnoredFolders.around(str(tmp_path))
    assert judge is not None
    assert judge.first_ignored("node_modules/x", frozenset()) == "node_modules"
    assert judge.first_ignored("node_modules/x", frozenset({"node_modules"})) is None
    assert judge.first_ignored("src/build/deep", frozenset({"node_modules"})) == "src/build"


@settings(max_examples=60, deadline=None)
@given(name=st.text("ab.", min_size=1, max_size=4), pattern=st.text("ab.*?", min_size=1, max_size=4))
def test_one_segment_means_what_shells_mean(tmp_path_factory, name, pattern):
    """The engine's reading of a planned pattern, against the standard library's."""
    if name in (".", "..") or pattern in (".", "..") or "**" in pattern:
        return
    from pegboard_ripgrep.engine import find

    folder = tmp_path_factory.mktemp("names")
    (folder / name).touch()
    flags = [f"--glob={glob}" for glob in globs(pattern, str(folder))]
    done = subprocess.run(
        [str(find().path), "--no-config", "--files", "--hidden", *flags, "./"], cwd=folder, capture_output=True
    )
    assert bool(done.stdout) is fnmatchcase(name, pattern)
