"""The cases of the file and search tools, played line by line through a real `peg call --jsonl`.

The machine checks stand in the data; what their prose demands beyond that stands in `expectations.py`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pegboard.testing.cases import plain_user, play, problems

HERE = Path(__file__).parent
CASES = {case["id"]: case for case in json.loads((HERE / "tool_cases.json").read_text("utf-8"))["cases"]}

_spec = importlib.util.spec_from_file_location("expectations", HERE / "expectations.py")
assert _spec is not None and _spec.loader is not None
expectations = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(expectations)

DIRECT = [name for name, case in CASES.items() if case["runner"] == "direct"]


@pytest.fixture
def place(request) -> Iterator[Path]:
    """A folder of its own that any user can reach; file systems that a case mounted in it are taken out again."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="case-")))
    folder.chmod(0o755)
    yield folder
    for path in (folder / "work").glob("*"):
        if os.path.ismount(path):
            subprocess.run(["umount", str(path)], check=True)
    subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=False)
    shutil.rmtree(folder)


def tools_here() -> list[str]:
    from importlib.metadata import entry_points

    return [entry.name for entry in entry_points(group="pegboard.tools")]


@pytest.mark.parametrize("name", DIRECT)
def test_case(name: str, place: Path) -> None:
    case = CASES[name]
    played = play(case, place, installed=tools_here(), options=expectations.OPTIONS.get(name, ()))
    objections = problems(case, played)
    objections += expectations.objections(name, played)
    assert played.exit_code == 0, played.noise
    assert not objections, case["expected"] + "\n" + "\n".join(objections)


@pytest.mark.parametrize("name", sorted(expectations.LONGER))
def test_case_goes_on(name: str, place: Path) -> None:
    """What the prose of a case names and its steps leave out."""
    longer = expectations.LONGER[name]
    own = CASES[name]["input"]["steps"]
    steps = [*longer.get("first", ()), own[0], *longer.get("second", ()), *own[1:], *longer.get("then", ())]
    case = {**CASES[name], "input": {"steps": steps}}
    played = play(case, place, installed=tools_here(), options=expectations.OPTIONS.get(name, ()))
    objections = longer["objections"](played)
    assert not objections, case["expected"] + "\n" + "\n".join(objections)


@pytest.mark.anyio
async def test_write_enospc_without_a_mount(peg_session) -> None:
    """The same as write-enospc-keeps-old where nothing may be mounted: a limit on the size of files."""
    import resource

    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with peg_session(allow=["Edit(//**)"]) as bench:
        path = bench.folder / "f.txt"
        path.write_text("precious\n")
        await bench.call("Read", {"file_path": str(path)})
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, usual[1]))
        try:
            outcome = await bench.call("Write", {"file_path": str(path), "content": "x" * 200_000})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        assert (outcome.status, outcome.code) == ("not_started", "io_error"), outcome.plain()
        assert "too large" in outcome.plain().lower()
        assert [item.name for item in bench.folder.iterdir()] == ["f.txt"]
        assert path.read_text() == "precious\n"


@pytest.mark.anyio
async def test_pipe_truncated_tool_input(peg_session) -> None:
    """A call whose input was cut at the output limit is answered, never run."""
    from pegboard.call import Call

    async with peg_session() as bench:
        path = bench.folder / "f.txt"
        call = Call(id="a", tool="Write", input={"file_path": str(path), "content": "abc "}, incomplete=True)
        (outcome,) = await bench.session.run_calls([call])
        assert outcome.is_error and outcome.code == "invalid_input"
        assert "incomplete" in outcome.plain() and "cut at the output limit" in outcome.plain()
        assert "parts" in outcome.plain()
        assert not path.exists()


def test_every_case_is_played() -> None:
    assert len(CASES) == 60
    other = {name for name in CASES if name not in DIRECT}
    assert other == {"pipe-truncated-tool-input"}
    assert expectations.EXPECTED.keys() == set(DIRECT), "each case has its prose in a table of its own"


def test_cases_that_need_a_plain_user_get_one() -> None:
    for case in CASES.values():
        if "non-root" in case.get("note", "") and os.geteuid() == 0:
            assert plain_user(case)
