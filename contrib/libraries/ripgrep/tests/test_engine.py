"""Which engine is found, and the outputs on which the tools rely: GREP-1, GREP-2, GREP-4, with every engine here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pegboard.errors import Code, Refusal
from pegboard_ripgrep.engine import MINIMUM, SETTING, find

F = "zero\nMATCH first\nafter one\nafter two\nMATCH second\nafter three\nend\n"


def engines() -> list[str]:
    """The engine of the product, and the system's own where there is one."""
    system = [path for path in ("/usr/bin/rg", "/usr/local/bin/rg") if os.access(path, os.X_OK)]
    return list(dict.fromkeys([str(find({"PATH": ""}).path), *system]))


@pytest.fixture(params=engines())
def rg(request, tmp_path):
    def run(*flags: str, **files: str) -> subprocess.CompletedProcess[str]:
        for name, text in files.items():
            (tmp_path / f"{name}.txt").write_text(text)
        command = [request.param, "--no-config", *flags]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_grep_1_engine_prints_promised_lines_after_the_last_match(rg):
    done = rg("-n", "-m", "1", "-A", "2", "--regexp=MATCH", "--", "F.txt", F=F)
    assert done.stdout == "2:MATCH first\n3-after one\n4-after two\n"


def test_grep_2_engine_prints_lines_on_both_sides(rg):
    done = rg("-n", "-m", "1", "-C", "2", "--regexp=MATCH", "--", "F.txt", F=F)
    assert done.stdout == "1-zero\n2:MATCH first\n3-after one\n4-after two\n"


def test_grep_4_engine_omits_long_lines(rg):
    flags = ["-H", "-n", "--max-columns", "500", "--regexp=needle", "--"]
    done = rg(*flags, "long.txt", long="x" * 600 + "needle" + "y" * 611)
    assert done.stdout == "long.txt:1:[Omitted long matching line]\n"


def test_exit_codes_and_the_size_limit(rg):
    assert rg("--regexp=absent", "--", "F.txt", F=F).returncode == 1
    assert rg("--regexp=(", "--", "F.txt", F=F).returncode == 2
    done = rg("--regex-size-limit", "104857600", "--regexp=a{1,1000000000}", "--", "F.txt", F=F)
    assert done.returncode == 2
    assert "regex exceeds size limit of 104857600" in done.stderr.lower()


def test_the_wheel_comes_before_the_path(tmp_path):
    found = find({"PATH": "/usr/bin"})
    assert found.version >= MINIMUM
    assert found.origin == "wheel"
    assert str(found.path) in str(found)


def program(folder: Path, text: str) -> Path:
    path = folder / "rg"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo 'ripgrep 12.1.1'", "version 12.1.1, too old"),
        ("echo 'something else'", "is not ripgrep"),
        ("exit 3", "does not run"),
    ],
)
def test_an_engine_that_the_operator_names_is_the_only_one_tried(tmp_path, text, why):
    path = program(tmp_path, text)
    with pytest.raises(Refusal) as refused:
        find({SETTING: str(path), "PATH": "/usr/bin"})
    assert refused.value.code is Code.NOT_AVAILABLE
    assert why in refused.value.text and str(path) in refused.value.text
    assert SETTING in refused.value.hint


def test_a_missing_engine_is_refused(tmp_path):
    with pytest.raises(Refusal) as refused:
        find({SETTING: str(tmp_path / "none")})
    assert refused.value.code is Code.NOT_AVAILABLE


def test_relative_folders_on_the_path_are_not_searched(tmp_path, monkeypatch):
    program(tmp_path, "echo 'ripgrep 99.0.0'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pegboard_ripgrep.engine._scripts", lambda scheme: str(tmp_path / "absent"))
    with pytest.raises(Refusal):
        find({"PATH": "." + os.pathsep})
    assert find({"PATH": str(tmp_path)}).version == (99, 0, 0)
