"""Grep: the standard suite, GREP-3 to GREP-10, and what surrounds them. GREP-1 and GREP-2 are checks of the engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from pegboard.call import json_safe
from pegboard.testing import Bench, ToolSuite, Willing, case
from pegboard_ripgrep.engine import find

pytestmark = pytest.mark.anyio


class TestGrep(ToolSuite):
    tool = "Grep"
    good = [
        case({"pattern": "needle"}, files={"a.txt": "a needle\n", "b.txt": "hay\n"}, says="a.txt"),
        case(
            {"pattern": "needle", "output_mode": "content", "-C": 1, "path": "{tmp}/a.txt"},
            files={"a.txt": "one\nneedle\nthree\n"},
            says=["a.txt-1-one", "a.txt:2:needle", "a.txt-3-three"],
        ),
        case({"pattern": "needle", "output_mode": "count"}, files={"a.txt": "needle\nneedle\n"}, says="a.txt:2"),
        case({"pattern": "absent"}, says="No files found"),
    ]
    bad = [
        case({"pattern": "("}, code="invalid_input"),
        case({"pattern": "x", "path": "{tmp}/none"}, code="not_found"),
        case({"pattern": "x", "type": "no such type"}, code="invalid_input"),
        case({"pattern": "x", "glob": "["}, code="invalid_input"),
        case({"pattern": "x", "-o": True}, code="invalid_input"),
        case({"pattern": "x", "head_limit": -1}, code="invalid_input"),
    ]


ENGINES = [None] + (["/usr/bin/rg"] if os.access("/usr/bin/rg", os.X_OK) else [])


@pytest.fixture(params=ENGINES, ids=lambda path: path or "wheel")
def any_engine(request, monkeypatch):
    """The product's engine, and the system's own where there is one."""
    if request.param:
        monkeypatch.setenv("PEG_RG", request.param)


@pytest.fixture
async def bench(tmp_path):
    async with Bench(tmp_path) as bench:
        yield bench


def write(bench: Bench, **files: str | bytes) -> None:
    for name, text in files.items():
        (bench.folder / f"{name}.txt").write_bytes(text.encode() if isinstance(text, str) else text)


async def grep(bench: Bench, pattern: str, **more: Any) -> Any:
    outcome = await bench.call("Grep", {"pattern": pattern, **more})
    assert not outcome.is_error, outcome.plain()
    return outcome


async def content(bench: Bench, pattern: str, **more: Any) -> Any:
    return await grep(bench, pattern, output_mode="content", **more)


def engine(tmp_path: Path, monkeypatch, text: str) -> None:
    """A program in place of the engine, for what the real one does only on a bad day."""
    path = tmp_path / "engine"
    path.write_text(
        f"#!/bin/sh\nfor last; do :; done\ncase \"$last\" in --version) echo 'ripgrep 99.0.0'; exit;; esac\n{text}\n"
    )
    path.chmod(0o755)
    monkeypatch.setenv("PEG_RG", str(path))


async def test_grep_3_an_expression_over_the_limit(bench, any_engine):
    write(bench, a="aaa\n")
    with anyio.fail_after(30):
        outcome = await bench.call("Grep", {"pattern": "a{1,1000000000}"})
    assert (outcome.status, outcome.code, outcome.retry) == ("not_started", "invalid_input", "safe")
    assert "regex exceeds size limit of 104857600" in outcome.plain().lower()
    assert (await grep(bench, "a+")).data["filenames"] == ["a.txt"]


async def test_grep_3_the_engine_stays_below_its_memory_ceiling(tmp_path):
    script = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], capture_output=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    (tmp_path / "a.txt").write_text("aaa\n")
    flags = ["--no-config", "--regex-size-limit=104857600", "--regexp=a{1,1000000000}", "./"]
    done = subprocess.run(
        ["python3", "-c", script, str(find().path), *flags], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 512 * 1024


async def test_grep_3_the_next_turn_of_the_model_goes_on(tmp_path, monkeypatch):
    from pegboard.agent import Agent, AgentSpec
    from pegboard.provider import ModelRef
    from pegboard.testing.messages import MessagesService
    from pegboard.transcript import Transcript

    asks = {"type": "tool_use", "name": "Grep", "input": {"pattern": "a{1,1000000000}"}}
    with MessagesService([{"content": [asks]}, "done"]) as service:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", service.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
        async with Bench(tmp_path, host=Willing()) as bench:
            write(bench, a="aaa\n")
            session = bench.session
            folder = session.places.sessions_dir / session.id
            session.transcript = Transcript.create(folder, cwd=session.cwd, version="0")
            provider = session.registry.provider(ModelRef.parse("claude-haiku-5-5"), session.settings, os.environ)
            agent = Agent(session, provider, AgentSpec(model="claude-haiku-5-5"), session.transcript)
            result = await agent.run("go")
            await provider.close()
        last = service.bodies[-1]["messages"]
    assert (result.text, result.is_error) == ("done", False)
    used = last[1]["content"][0]
    answer = last[2]["content"][0]
    assert answer["tool_use_id"] == used["id"] and answer["is_error"] is True
    assert "size limit of 104857600" in json.dumps(answer)


async def test_grep_4_a_long_line(bench, any_engine):
    write(bench, long="x" * 600 + "needle" + "y" * 611 + "\n")
    outcome = await content(bench, "needle")
    assert outcome.data["content"] == "long.txt:1:[Omitted long matching line]"
    rows, _, notes = outcome.plain().partition("\n\n")
    assert rows == "long.txt:1:[Omitted long matching line]"
    assert notes.startswith("[long.txt:1: 1,217 characters: …xxx") and "xneedley" in notes
    assert (await content(bench, "needle", path="long.txt")).data["content"] == outcome.data["content"]


async def test_grep_5_a_broken_expression(bench, any_engine):
    outcome = await bench.call("Grep", {"pattern": "("})
    assert (outcome.status, outcome.code) == ("not_started", "invalid_input")
    assert "unclosed group" in outcome.plain() and "No matches" not in outcome.plain()


async def test_grep_6_fifty_thousand_lines(bench, any_engine):
    write(bench, a="a needle\n" * 30_000, b="another needle\n" * 20_000)
    outcome = await content(bench, "needle")
    assert outcome.data["numLines"] == 250 == outcome.data["appliedLimit"]
    assert (outcome.data["totalLines"], outcome.data["numMatches"]) == (50_000, 50_000)
    assert "Next offset: 250." in outcome.plain() and "50,000" in outcome.plain()
    seen, offset = 0, 0
    for _ in range(3):
        outcome = await content(bench, "needle", head_limit=0, offset=offset)
        assert len(outcome.plain()) <= 20_000
        assert outcome.data["totalLines"] == outcome.data["numMatches"] == 50_000
        rows = outcome.data["content"].splitlines()
        assert rows[0] == f"a.txt:{offset + 1}:a needle" and len(rows) == outcome.data["numLines"] > 250
        seen += len(rows)
        offset += len(rows)
        assert f"Next offset: {offset}." in outcome.plain()
    assert seen == offset
    assert not outcome.attachments


async def test_grep_7_count_covers_everything(bench, any_engine):
    write(bench, a="n\n", b="n\nn\n", c="n\nn\nn\n")
    outcome = await grep(bench, "n", output_mode="count", head_limit=1)
    assert outcome.data["content"] == "a.txt:1"
    assert (outcome.data["numFiles"], outcome.data["totalFiles"], outcome.data["numMatches"]) == (1, 3, 6)
    assert "Files 1-1 of 3. Next offset: 1. Total: 6 matching lines." in outcome.plain()


async def test_grep_8_an_offset_past_the_end(bench):
    write(bench, a="n\n" * 5)
    for mode in ("content", "count", "files_with_matches"):
        outcome = await grep(bench, "n", output_mode=mode, offset=100)
        assert outcome.plain().startswith("No entries at this offset")
        assert "No matches" not in outcome.plain() and "No files" not in outcome.plain()
    assert (await grep(bench, "absent", offset=100)).plain() == "No files found"


@pytest.mark.parametrize("field", ["max_count", "-m", "maxCount"])
async def test_grep_9_there_is_no_field_for_a_maximum(bench, field):
    outcome = await bench.call("Grep", {"pattern": "x", field: 1})
    assert (outcome.status, outcome.code) == ("not_started", "invalid_input")
    assert field in outcome.plain()


async def test_grep_10_an_engine_that_hangs(tmp_path, monkeypatch):
    engine(tmp_path, monkeypatch, f"echo $$ > {tmp_path}/pid; sleep 60 & echo $! >> {tmp_path}/pid; wait")
    async with Bench(tmp_path, settings={"grep.deadline_s": 2}) as bench:
        with anyio.fail_after(30):
            outcome = await bench.call("Grep", {"pattern": "x"})
    assert (outcome.status, outcome.code, outcome.retry) == ("not_started", "timeout", "safe")
    assert "within 2 s" in outcome.plain() and "No files" not in outcome.plain()
    for pid in (tmp_path / "pid").read_text().split():
        for _ in range(500):
            if not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text():
                break
            await anyio.sleep(0.01)
        else:
            raise AssertionError("the process is still there")


async def test_grep_10_the_deadline_is_twenty_seconds(bench):
    assert bench.session.settings.value("grep.deadline_s") == 20


async def test_a_deadline_with_results_keeps_them(tmp_path, monkeypatch):
    engine(tmp_path, monkeypatch, "printf './a.txt\\0001:needle\\n./a.txt\\0002:hal'; sleep 60")
    async with Bench(tmp_path, settings={"grep.deadline_s": 1}) as bench:
        outcome = await content(bench, "needle")
    assert outcome.data["content"] == "a.txt:1:needle"
    assert "stopped after 1 s; rows are missing" in outcome.plain()


async def test_a_full_buffer_keeps_whole_rows(tmp_path):
    async with Bench(tmp_path, settings={"grep.buffer_bytes": 1_000_000}) as bench:
        write(bench, a="needle needle needle\n" * 60_000)
        outcome = await content(bench, "needle", head_limit=1)
    assert "stopped at 1,000,000 bytes" in outcome.plain() and "of at least " in outcome.plain()
    assert outcome.data["totalLines"] < 60_000


async def test_an_engine_that_dies_is_no_empty_answer(tmp_path, monkeypatch):
    engine(tmp_path, monkeypatch, "kill -ABRT $$")
    async with Bench(tmp_path) as bench:
        outcome = await bench.call("Grep", {"pattern": "x"})
    assert (outcome.status, outcome.code) == ("not_started", "too_large")


async def test_a_missing_engine_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PEG_RG", str(tmp_path / "none"))
    async with Bench(tmp_path) as bench:
        outcome = await bench.call("Grep", {"pattern": "x"})
    assert (outcome.status, outcome.code) == ("not_started", "not_available")


async def test_pages_are_disjoint_and_in_one_order(bench):
    write(bench, **{f"f{n:02}": "needle\n" for n in range(30)})
    for mode in ("files_with_matches", "count", "content"):
        pages = [await grep(bench, "needle", output_mode=mode, head_limit=10, offset=at) for at in (0, 10, 20)]
        names = [name for page in pages for name in page.data["filenames"]]
        assert len(set(names)) == 30
        assert all("30" in page.plain() for page in pages)
        assert "Next offset: 10." in pages[0].plain() and "Next offset" not in pages[2].plain()


async def test_a_full_page_that_is_complete_says_so(bench):
    write(bench, a="n\n", b="n\n", c="n\n")
    assert "3 of 3 files, complete" in (await grep(bench, "n", head_limit=3)).plain()
    assert "Files 1-2 of 3. Next offset: 2." in (await grep(bench, "n", head_limit=2)).plain()
    assert "3 of 3 files, complete" in (await grep(bench, "n", head_limit=0)).plain()
    assert "3 of 3 rows, complete" in (await content(bench, "n", head_limit=3)).plain()


async def test_files_come_newest_first(bench):
    write(bench, old="n\n", new="n\n", same="n\n")
    for name, time in (("old", 1), ("new", 3), ("same", 3)):
        os.utime(bench.folder / f"{name}.txt", (time, time))
    assert (await grep(bench, "n")).data["filenames"] == ["new.txt", "same.txt", "old.txt"]


async def test_context_lines_and_gaps(bench, any_engine):
    write(bench, a="\n".join(f"{n}" for n in range(1, 21)), b="5\n")
    outcome = await content(bench, "^(5|15)$", **{"-C": 2, "-A": 1})
    rows = ["a.txt-3-3", "a.txt-4-4", "a.txt:5:5", "a.txt-6-6", "--"]
    rows += ["a.txt-13-13", "a.txt-14-14", "a.txt:15:15", "a.txt-16-16", "--", "b.txt:1:5"]
    assert outcome.plain().splitlines() == rows
    assert (outcome.data["numLines"], outcome.data["numMatches"]) == (9, 3)
    page = await content(bench, "^(5|15)$", **{"context": 2, "-n": False}, head_limit=2, offset=4)
    assert page.data["content"].splitlines() == ["a.txt-7", "--", "a.txt-13"]


async def test_fields_of_content_mode_elsewhere(bench):
    write(bench, a="n\n")
    outcome = await grep(bench, "n", **{"-A": 1, "-n": True})
    assert "[-A, -n ignored in files_with_matches mode.]" in outcome.plain()
    outcome = await bench.call("Grep", {"pattern": "n", "-o": True, "output_mode": "count"})
    assert outcome.code == "invalid_input"


async def test_only_matching_and_multiline(bench, any_engine):
    write(bench, a="foo bar foo\nend\n")
    assert (await content(bench, "fo+", **{"-o": True})).data["content"] == "a.txt:1:foo\na.txt:1:foo"
    outcome = await bench.call("Grep", {"pattern": "foo\\nend", "output_mode": "content"})
    assert outcome.code == "invalid_input" and "multiline" in outcome.plain()
    outcome = await content(bench, "bar.*end", multiline=True)
    assert outcome.data["content"] == "a.txt:1:foo bar foo\na.txt:2:end"


async def test_what_is_searched(bench, any_engine):
    subprocess.run(["git", "init", "-q", bench.folder], check=True)
    for name in (".github/ci.yml", "node_modules/x.js", "src/a.js", "src/gen/b.js", "skipped.log"):
        (bench.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (bench.folder / name).write_text("needle ref:\n")
    (bench.folder / ".git/needle").write_text("needle\n")
    (bench.folder / ".gitignore").write_text("node_modules/\n*.log\ngen/\n")

    async def names(**more: Any) -> list[str]:
        return sorted((await grep(bench, "needle", **more)).data["filenames"])

    assert await names() == [".github/ci.yml", "src/a.js"]
    assert await names(path="skipped.log") == ["skipped.log"]
    assert await names(path="node_modules") == ["node_modules/x.js"]
    assert await names(glob="*.yml, *.rs") == [".github/ci.yml"]
    assert await names(glob="**/*") == [".github/ci.yml", "src/a.js"]
    assert await names(glob="src/**") == ["src/a.js"]
    assert await names(glob="src/*.{js,ts}") == ["src/a.js"]
    assert await names(glob="!*.yml") == ["src/a.js"]
    assert await names(type="js") == ["src/a.js"]
    assert await names(glob="", type="") == [".github/ci.yml", "src/a.js"]
    assert (await content(bench, "needle", path="src/a.js")).data["content"] == "src/a.js:1:needle ref:"


async def test_operands_are_never_options(bench):
    write(bench, a="--pre=./p.sh -v x\n")
    (bench.folder / "p.sh").write_text("#!/bin/sh\ntouch PWNED\n")
    (bench.folder / "p.sh").chmod(0o755)
    (bench.folder / "-v").write_text("x\n")
    assert (await grep(bench, "--pre=./p.sh")).data["filenames"] == ["a.txt"]
    assert (await grep(bench, "-v", output_mode="count")).data["numMatches"] == 1
    assert (await grep(bench, "x", glob="--pre=./p.sh")).data["filenames"] == []
    assert (await grep(bench, "x", glob="-v")).data["filenames"] == ["-v"]
    assert (await grep(bench, "x", path="-v")).data["filenames"] == ["-v"]
    outcome = await bench.call("Grep", {"pattern": "x", "path": "--pre=./p.sh"})
    assert outcome.code == "not_found"
    outcome = await bench.call("Grep", {"pattern": "x", "type": "--pre=./p.sh"})
    assert outcome.code == "invalid_input"
    assert not (bench.folder / "PWNED").exists()


@pytest.mark.parametrize(
    "given",
    [
        {"pattern": "a\0"},
        {"pattern": "x", "glob": "\0"},
        {"pattern": "\ud800"},
        {"pattern": "x" * 200_000},
        {"pattern": "x", "head_limit": 1.5},
        {"pattern": "x", "-A": -1},
        {"pattern": "x", "output_mode": "all"},
    ],
)
async def test_input_that_no_engine_can_take(bench, given):
    outcome = await bench.call("Grep", given)
    assert (outcome.status, outcome.code) == ("not_started", "invalid_input")


async def test_a_pipe_is_not_waited_for(bench):
    os.mkfifo(bench.folder / "pipe")
    outcome = await bench.call("Grep", {"pattern": "x", "path": "pipe"})
    assert outcome.code == "invalid_input"
    write(bench, a="x\n")
    with anyio.fail_after(30):
        assert (await grep(bench, "x")).data["filenames"] == ["a.txt"]


async def test_bytes_that_are_no_text(bench, any_engine):
    write(bench, l=b"needle caf\xe9\r\n", b=b"needle\n" * 3 + b"\0" * 10 + b"needle\n")
    outcome = await content(bench, "needle")
    assert outcome.data["content"] == "b.txt: binary file matches\nl.txt:1:needle caf\ufffd"
    json.dumps(json_safe(outcome.data), ensure_ascii=False).encode("utf-8")
    assert set((await grep(bench, "needle")).data["filenames"]) == {"b.txt", "l.txt"}
    assert "b.txt:4" in (await grep(bench, "needle", output_mode="count")).plain()


async def test_names_that_look_like_rows(bench, any_engine):
    for name in ("a:1:needle.txt", "two\nlines.txt", "--"):
        (bench.folder / name).write_text("zero\nneedle\n")
    wanted = ["--:2:needle", "a:1:needle.txt:2:needle", "two\\nlines.txt:2:needle"]
    assert (await content(bench, "needle")).data["content"].splitlines() == wanted
    assert len((await grep(bench, "needle")).data["filenames"]) == 3
    assert (await grep(bench, "needle", output_mode="count")).data["numMatches"] == 3


async def test_a_giant_line_is_previewed(bench, any_engine):
    write(bench, min="x" * 2_000_000 + "needle" + "y" * 100)
    outcome = await content(bench, "needle")
    assert len(outcome.plain()) < 2_000
    assert "[min.txt:1: 2,000,106 characters: …xxx" in outcome.plain() and "xneedley" in outcome.plain()


async def test_only_the_first_long_lines_are_previewed(bench):
    write(bench, a=("x" * 700 + "needle" + "\n") * 8)
    outcome = await content(bench, "needle")
    assert outcome.plain().count("706 characters") == 5
    assert "8 lines are too long to show" in outcome.plain()


async def test_denied_files_are_not_searched(tmp_path):
    async with Bench(tmp_path, deny=["Read(secrets/**)", "Read(*.pem)"]) as bench:
        (bench.folder / "secrets").mkdir()
        for name in ("secrets/a.txt", "b.pem", "c.txt"):
            (bench.folder / name).write_text("needle\n")
        for mode in ("files_with_matches", "content", "count"):
            outcome = await grep(bench, "needle", output_mode=mode)
            assert outcome.data["filenames"] == ["c.txt"]
            assert "[2 files under Read deny rules left out.]" in outcome.plain()
            assert (
                "[2 files under Read deny rules left out.]" in (await grep(bench, "absent", output_mode=mode)).plain()
            )
        assert (await bench.call("Grep", {"pattern": "needle", "path": "b.pem"})).code == "denied_by_rule"


async def test_denied_files_that_the_engine_cannot_exclude_are_filtered(tmp_path):
    async with Bench(tmp_path, deny=["Read([s]ecret.txt)"]) as bench:
        write(bench, secret="needle\n", open="needle\n")
        outcome = await content(bench, "needle")
        assert outcome.data["content"] == "open.txt:1:needle"
        assert outcome.data["numMatches"] == 1
        assert "left out" in outcome.plain()


async def test_unreadable_folders_are_named(tmp_path, monkeypatch):
    setpriv = shutil.which("setpriv")
    if os.geteuid() == 0 and setpriv is None:
        pytest.skip("a user that may read everything, and no setpriv to give that up")
    if os.geteuid() == 0:
        less = f"exec {setpriv} --bounding-set -dac_override,-dac_read_search"
        engine(tmp_path, monkeypatch, f'{less} {find({"PATH": ""}).path} "$@"')
    async with Bench(tmp_path) as bench:
        for name in ("r", "l"):
            (bench.folder / name).mkdir()
            (bench.folder / name / "n.txt").write_text("the answer is 42\n")
        write(bench, closed="answer\n")
        (bench.folder / "l").chmod(0)
        (bench.folder / "closed.txt").chmod(0)
        found = await content(bench, "answer")
        nothing = await grep(bench, "absent")
        alone = await bench.call("Grep", {"pattern": "answer", "path": "closed.txt"})
        (bench.folder / "l").chmod(0o755)
    assert found.data["content"] == "r/n.txt:1:the answer is 42"
    for outcome in (found, nothing):
        assert "2 files or folders could not be read" in outcome.plain()
        assert "closed.txt" in outcome.plain() and " l" in outcome.plain()
    assert (alone.status, alone.code) == ("not_started", "io_error")


async def test_the_settings_hold(tmp_path):
    options = {"grep.result_chars": 1_000, "grep.max_columns": 80}
    async with Bench(tmp_path, settings=options) as bench:
        write(bench, a=("y" * 70 + "\n") * 100, b="y" * 90 + "\n")
        outcome = await content(bench, "y")
        assert len(outcome.plain()) <= 1_000 and outcome.data["appliedLimit"] < 100
        assert "More did not fit" in outcome.plain()
        assert (await content(bench, "y", path="b.txt")).plain().startswith("b.txt:1:[Omitted long matching line]")


async def test_progress_goes_to_the_host(tmp_path, monkeypatch):
    engine(tmp_path, monkeypatch, "sleep 2; exit 1")
    host = Willing()
    async with Bench(tmp_path, host=host) as bench:
        await grep(bench, "x")
    assert host.said and "results so far" in host.said[0]
