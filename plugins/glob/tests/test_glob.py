"""Glob: the standard suite, GLOB-1 to GLOB-7, and what surrounds them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pegboard.testing import Bench, ToolSuite, case

pytestmark = pytest.mark.anyio


class TestGlob(ToolSuite):
    tool = "Glob"
    good = [
        case({"pattern": "**/*.py"}, files={"a.py": "", "src/b.py": "", "c.txt": ""}, says=["a.py", "src/b.py"]),
        case({"pattern": "*.py", "path": "{tmp}/src"}, files={"a.py": "", "src/b.py": ""}, says="src/b.py"),
        case({"pattern": "absent"}, says="No files found"),
    ]
    bad = [
        case({"pattern": "*", "path": "{tmp}/none"}, code="not_found"),
        case({"pattern": "*", "path": "{tmp}/a.txt"}, files={"a.txt": ""}, code="not_found"),
        case({"pattern": "a\0b"}, code="invalid_input"),
        case({"pattern": "["}, code="invalid_input"),
        case({"pattern": "/etc/*"}, code="invalid_input"),
    ]


@pytest.fixture
async def bench(tmp_path):
    async with Bench(tmp_path) as bench:
        yield bench


def write(bench: Bench, *names: str) -> None:
    for name in names:
        path = bench.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")


async def listed(bench: Bench, pattern: str, **more) -> list[str]:
    outcome = await bench.call("Glob", {"pattern": pattern, **more})
    assert not outcome.is_error, outcome.plain()
    return outcome.data["filenames"]


async def test_glob_1_all_newest_first(bench):
    names = ["old.py", "deep/er/new.py", "mid.py"]
    write(bench, *names, "other.txt")
    for age, name in ((30, "old.py"), (10, "deep/er/new.py"), (20, "mid.py")):
        os.utime(bench.folder / name, (1_000_000_000 - age, 1_000_000_000 - age))
    assert await listed(bench, "**/*.py") == ["deep/er/new.py", "mid.py", "old.py"]


async def test_glob_2_a_hundred_of_150(bench):
    write(bench, *(f"f{n:03}.txt" for n in range(150)))
    outcome = await bench.call("Glob", {"pattern": "*.txt"})
    assert outcome.data["numFiles"] == len(outcome.data["filenames"]) == 100
    assert outcome.data["truncated"] is True
    assert (outcome.data["totalMatches"], outcome.data["countIsComplete"]) == (150, True)
    assert "100 of 150" in outcome.plain()


async def test_glob_3_ignored_files(tmp_path):
    for respect, wanted in ((False, ["kept.txt", "skipped.txt"]), (True, ["kept.txt"])):
        for git in (False, True):
            room = tmp_path / f"{respect}{git}"
            async with Bench(room, settings={"glob.respect_gitignore": respect}) as bench:
                if git:
                    subprocess.run(["git", "init", "-q", bench.folder], check=True)
                write(bench, "kept.txt", "skipped.txt")
                (bench.folder / ".gitignore").write_text("skipped.txt\n")
                outcome = await bench.call("Glob", {"pattern": "*.txt"})
                assert sorted(outcome.data["filenames"]) == wanted
                assert ("1 match ignored by git left out" in outcome.plain()) is respect


async def test_glob_4_null_byte(bench):
    for given in ({"pattern": "a\0"}, {"pattern": "*", "path": "a\0"}):
        outcome = await bench.call("Glob", given)
        assert (outcome.status, outcome.code) == ("not_started", "invalid_input")
        assert "null byte" in outcome.plain()


async def test_glob_5_denied_files_are_left_out(tmp_path):
    async with Bench(tmp_path, deny=["Read(secrets/**)", "Read(**/*.{key})"]) as bench:
        write(bench, "a.txt", "secrets/b.txt", "secrets/deep/c.txt")
        outcome = await bench.call("Glob", {"pattern": "**/*.txt"})
        assert outcome.data["filenames"] == ["a.txt"]
        assert (outcome.data["totalMatches"], outcome.data["truncated"]) == (1, False)
        assert "deny rules left out" in outcome.plain()
        assert await listed(bench, "secrets/*") == []


async def test_glob_5_the_count_of_denied_files_does_not_depend_on_the_pattern(tmp_path):
    async with Bench(tmp_path, deny=["Read(secrets/**)"]) as bench:
        write(bench, "a.txt", "secrets/b.txt", "secrets/deep/c.txt")
        for pattern in ("**/b*", "**/z*", "*"):
            outcome = await bench.call("Glob", {"pattern": pattern})
            assert "[2 files under Read deny rules left out.]" in outcome.plain()


async def test_glob_6_missing_folder_and_no_match(bench):
    outcome = await bench.call("Glob", {"pattern": "*", "path": "none"})
    assert (outcome.status, outcome.code) == ("not_started", "not_found")
    outcome = await bench.call("Glob", {"pattern": "*.none"})
    assert (outcome.status, outcome.plain()) == ("ok", "No files found")
    assert outcome.data == {
        "durationMs": outcome.data["durationMs"],
        "numFiles": 0,
        "filenames": [],
        "truncated": False,
        "totalMatches": 0,
        "countIsComplete": True,
    }


async def test_glob_7_symlink_loops_end(bench):
    write(bench, "a/b/f.txt")
    (bench.folder / "a/b/up").symlink_to("..")
    (bench.folder / "a/self").symlink_to(".")
    assert await listed(bench, "**/*.txt", path="a") == ["a/b/f.txt"]
    assert await listed(bench, "a/self/**/*.txt") == []


async def test_folders_that_git_ignores_are_not_entered_unless_named(tmp_path):
    async with Bench(tmp_path) as bench:
        subprocess.run(["git", "init", "-q", bench.folder], check=True)
        write(bench, "node_modules/x/i.js", "src/a.js", "src/b.log", "z.log")
        (bench.folder / ".gitignore").write_text("node_modules/\n*.log\n")
        outcome = await bench.call("Glob", {"pattern": "**/*.js"})
        assert outcome.data["filenames"] == ["src/a.js"]
        assert "1 match in folders ignored by git (node_modules/) left out" in outcome.plain()
        assert sorted(await listed(bench, "**/*.log")) == ["src/b.log", "z.log"]
        assert await listed(bench, "node_modules/**") == ["node_modules/x/i.js"]
        assert await listed(bench, "**/*.js", path="node_modules") == ["node_modules/x/i.js"]
        assert ".git/HEAD" not in await listed(bench, "**/*")
        assert await listed(bench, ".git/HEAD") == [".git/HEAD"]
    async with Bench(tmp_path, settings={"glob.skip_ignored_folders": False}) as bench:
        assert sorted(await listed(bench, "**/*.js")) == ["node_modules/x/i.js", "src/a.js"]


async def test_only_the_folder_itself_without_a_double_star(bench):
    write(bench, "a.ts", "deep/b.ts", ".hidden.ts")
    assert sorted(await listed(bench, "*.ts")) == [".hidden.ts", "a.ts"]


async def test_links_are_listed_by_their_exact_name_only(bench):
    write(bench, "AGENTS.md", "folder/x.md")
    (bench.folder / "CLAUDE.md").symlink_to("AGENTS.md")
    (bench.folder / "broken.md").symlink_to("gone")
    (bench.folder / "way").symlink_to("folder")
    assert await listed(bench, "*.md") == ["AGENTS.md"]
    assert await listed(bench, "CLAUDE.md") == ["CLAUDE.md"]
    assert await listed(bench, "{broken.md,way,way/x.md}") == []


async def test_strange_names_are_shown_on_one_line(bench):
    for name in (b"line\nend.txt", b"caf\xe9.txt", b"-flag.txt", b"a b.txt"):
        Path(os.fsdecode(os.path.join(os.fsencode(bench.folder), name))).touch()
    assert sorted(await listed(bench, "*.txt")) == ["-flag.txt", "a b.txt", "caf\ufffd.txt", "line\\nend.txt"]


async def test_names_outside_of_the_session_directory_are_absolute(tmp_path):
    async with Bench(tmp_path, allow=["Read(//**)"]) as bench:
        (bench.outside / "o.txt").touch()
        assert await listed(bench, "*.txt", path=str(bench.outside)) == [str(bench.outside / "o.txt")]
        outcome = await bench.call("Glob", {"pattern": "*.txt", "path": str(bench.outside)})
        assert outcome.data["numFiles"] == 1


async def test_the_text_never_outgrows_its_budget(bench):
    folder = "/".join(["d" * 200] * 10)
    write(bench, *(f"{folder}/f{n}" for n in range(60)))
    outcome = await bench.call("Glob", {"pattern": "**"})
    assert len(outcome.plain()) <= 20_000
    assert outcome.data["truncated"] and outcome.data["totalMatches"] == 60
    assert not outcome.attachments


async def test_a_folder_name_as_pattern_is_explained(bench):
    write(bench, "src/a.py")
    assert "add /** to list" in (await bench.call("Glob", {"pattern": "src"})).plain()
    assert await listed(bench, "src/") == ["src/a.py"]


def engine(tmp_path: Path, monkeypatch, text: str) -> None:
    """A program in place of the engine, for what the real one does only on a bad day."""
    path = tmp_path / "engine"
    path.write_text(
        f"#!/bin/sh\nfor last; do :; done\ncase \"$last\" in --version) echo 'ripgrep 99.0.0'; exit;; esac\n{text}\n"
    )
    path.chmod(0o755)
    monkeypatch.setenv("PEG_RG", str(path))


async def test_a_deadline_with_nothing_found_is_no_empty_list(tmp_path, monkeypatch):
    engine(tmp_path, monkeypatch, "sleep 60")
    async with Bench(tmp_path, settings={"glob.deadline_s": 1}) as bench:
        outcome = await bench.call("Glob", {"pattern": "*"})
    assert (outcome.status, outcome.code) == ("not_started", "timeout")
    assert "No files found" not in outcome.plain()


async def test_a_deadline_with_results_says_so(tmp_path, monkeypatch):
    engine(tmp_path, monkeypatch, "printf './a.txt\\0./half'; sleep 60")
    async with Bench(tmp_path, settings={"glob.deadline_s": 1}) as bench:
        write(bench, "a.txt")
        outcome = await bench.call("Glob", {"pattern": "*"})
    assert outcome.data["filenames"] == ["a.txt"]
    assert outcome.data["countIsComplete"] is False
    assert "stopped after 1 s" in outcome.plain()


async def test_a_missing_engine_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PEG_RG", str(tmp_path / "none"))
    async with Bench(tmp_path) as bench:
        outcome = await bench.call("Glob", {"pattern": "*"})
    assert (outcome.status, outcome.code) == ("not_started", "not_available")


async def test_unreadable_folders_are_named(tmp_path, monkeypatch):
    from pegboard_ripgrep.engine import find

    setpriv = shutil.which("setpriv")
    if os.geteuid() == 0 and setpriv is None:
        pytest.skip("a user that may read everything, and no setpriv to give that up")
    if os.geteuid() == 0:
        less = f"exec {setpriv} --bounding-set -dac_override,-dac_read_search"
        engine(tmp_path, monkeypatch, f'{less} {find({"PATH": ""}).path} "$@"')
    async with Bench(tmp_path) as bench:
        write(bench, "ok/a.md", "no/b.md")
        (bench.folder / "no").chmod(0)
        outcome = await bench.call("Glob", {"pattern": "**/*.md"})
        (bench.folder / "no").chmod(0o755)
    assert outcome.data["filenames"] == ["ok/a.md"]
    assert outcome.data["countIsComplete"] is False
    assert "1 file or folder could not be read" in outcome.plain() and ": no." in outcome.plain()


async def test_the_engine_of_the_system_gives_the_same_list(tmp_path, monkeypatch):
    if not os.access("/usr/bin/rg", os.X_OK):
        pytest.skip("the system brings no engine of its own")
    monkeypatch.setenv("PEG_RG", "/usr/bin/rg")
    async with Bench(tmp_path) as bench:
        write(bench, "app/[id]/page.tsx", "app/x/page.tsx", "src/a.ts")
        assert await listed(bench, "app/[id]/*.tsx") == ["app/[id]/page.tsx"]
        assert await listed(bench, "{src/{a,b},x}.ts") == ["src/a.ts"]
        assert (await bench.call("Glob", {"pattern": "["})).code == "invalid_input"
