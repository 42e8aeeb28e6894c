"""Reported cases about a start: values that look like options, and a repository that wants Git to run something."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pegboard.places import find_places
from pegboard.settings import Settings
from pegboard.trust import repository_holds


def peg(folder: Path, *words: str, home: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PEG_HOME": str(home / ".peg")}
    return subprocess.run(
        [sys.executable, "-m", "pegboard", *words], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--prefill", '--settings={"hooks":1}'], ["-p", "--settings={}"], ["-p", "--trust"],
        ["--model", "--trust", "doctor"],
    ],
)  # fmt: skip
def test_case_tr_deeplink_a_value_is_never_an_option(tmp_path, words):
    """A link that fills in a text must not be able to switch something on: unknown or missing is a usage error."""
    (tmp_path / "work/.peg").mkdir(parents=True)
    (tmp_path / "work/.peg/settings.toml").write_text("[permissions]\nallow = ['Bash']\n")
    done = peg(tmp_path / "work", *words, home=tmp_path / "home")
    assert done.returncode not in (0,), done.stdout
    assert "Traceback" not in done.stderr


def test_case_git_fsmonitor_a_repository_runs_nothing_by_our_own_git_calls(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    evil = work / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    (work / ".peg").mkdir()
    (work / ".peg/settings.local.toml").write_text("[permissions]\nallow = ['Bash']\n")
    with (work / ".git/config").open("a") as config:
        config.write(f"[core]\n fsmonitor = {evil}\n hooksPath = {work}\n pager = {evil}\n sshCommand = {evil}\n")
        config.write(
            f'[diff]\n external = {evil}\n[filter "x"]\n clean = {evil}\n smudge = {evil}\n'
            f"[alias]\n ls-files = !{evil}\n"
        )
    (work / ".gitattributes").write_text("* filter=x\n")
    repository_holds(work / ".peg/settings.local.toml")
    settings = Settings.load(find_places(work, {"HOME": str(tmp_path), "PEG_HOME": str(tmp_path / ".peg")}))
    assert settings.problems is not None and settings.held
    assert not (tmp_path / "ran").exists()


def test_case_git_fsmonitor_nor_does_a_folder_that_only_looks_like_one(tmp_path):
    nested = tmp_path / "nested"
    for name in ("objects", "refs"):
        (nested / name).mkdir(parents=True)
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    (nested / "HEAD").write_text("ref: refs/heads/x\n")
    (nested / "config").write_text(f"[core]\n bare = false\n worktree = .\n fsmonitor = {evil}\n")
    (nested / ".peg").mkdir()
    (nested / ".peg/settings.local.toml").write_text("[permissions]\nallow = ['Bash']\n")
    repository_holds(nested / ".peg/settings.local.toml")
    peg(nested, "settings", "list", home=tmp_path / "home")
    assert not (tmp_path / "ran").exists()
