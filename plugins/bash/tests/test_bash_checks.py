"""The numbered checks of the specification (2.10), and what goes on around a command."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from pegboard.call import Call, Status
from pegboard.errors import Code
from pegboard.host import Host
from pegboard.testing import Willing
from pegboard_bash.reading import reading_of
from pegboard_shell.judge import accesses
from pegboard_tasks import trees
from pegboard_tasks.runs import Runs

pytestmark = pytest.mark.anyio
ALLOW = ["Bash", "Read(//**)", "Edit(//**)"]


async def bash(bench, command: str, **more):
    return await bench.call("Bash", {"command": command, **more}, id=f"call-{time.monotonic_ns()}")


def runs(bench) -> Runs:
    (held,) = [owner for kind, _, owner in bench.session.owners if kind is Runs]
    return held


def alive(word: str) -> list[str]:
    """Living processes whose command line holds this word."""
    found = []
    for one in trees.processes():
        try:
            line = Path(f"/proc/{one.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if word in line and one.pid != os.getpid():
            found.append(line)
    return found


async def test_bash_1_one_denied_segment_denies_all(peg_session):
    async with peg_session(allow=["Bash(npm test)"], deny=["Bash(curl *)"], host=Willing()) as bench:
        outcome = await bash(bench, "npm test && curl x")
        assert (outcome.status, outcome.code) == (Status.NOT_STARTED, Code.DENIED_BY_RULE)
        assert outcome.effects == [] and not runs_opened(bench)


def runs_opened(bench) -> bool:
    return any(kind is Runs for kind, _, _ in bench.session.owners)


async def test_bash_2_a_substitution_is_judged(peg_session):
    async with peg_session(allow=["Bash(echo *)"], host=Host()) as bench:
        outcome = await bash(bench, "echo $(rm -rf ~)")
        assert outcome.status is Status.NOT_STARTED and outcome.code is Code.NO_USER
        assert (await bash(bench, "echo safe")).plain() == "safe"


async def test_bash_3_cd_before_git_asks(peg_session):
    async with peg_session(host=Host(), trusted=True) as bench:
        (bench.folder / "sub").mkdir()
        subprocess.run(["git", "init", "-q"], cwd=bench.folder, check=True)
        asked = await bash(bench, "cd sub && git status")
        assert asked.code is Code.NO_USER, asked.plain()
        free = await bash(bench, "cd . && git status")
        assert not free.is_error and "sub" not in free.plain(), free.plain()


async def test_bash_4_directory_lasts_and_variables_do_not(peg_session):
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        (bench.folder / "sub").mkdir()
        await bash(bench, "export A=1; A2=2")
        assert (await bash(bench, 'echo "[$A$A2]"')).plain() == "[]"
        await bash(bench, "cd sub")
        assert (await bash(bench, "pwd")).plain() == str(bench.folder / "sub")
        left = await bash(bench, "cd /")
        assert f"Shell cwd was reset to {bench.folder}" in left.plain()
        assert left.data["stderr"] == f"Shell cwd was reset to {bench.folder}"
        assert (await bash(bench, "pwd")).plain() == str(bench.folder)


@pytest.mark.parametrize(
    "end", ["exit 0", "set -e; true", "exec true", "kill -TERM $$", "(exit 0)", "trap - EXIT; true"]
)
async def test_the_directory_is_known_however_the_shell_ends(peg_session, end):
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        (bench.folder / "sub").mkdir()
        await bash(bench, f"cd sub\n{end}")
        expected = bench.folder if "trap - EXIT" in end else bench.folder / "sub"
        assert bench.session.cwd == expected


async def test_the_directory_stays_inside_subshells_and_subagents(peg_session):
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        (bench.folder / "sub").mkdir()
        await bash(bench, "(cd sub); echo $(cd sub)")
        assert bench.session.cwd == bench.folder
        call = Call(id="child", tool="Bash", input={"command": "cd sub; pwd"})
        (outcome,) = await bench.session.run_calls([call], agent="child")
        assert outcome.plain().startswith(str(bench.folder / "sub"))
        assert f"Shell cwd was reset to {bench.folder}" in outcome.plain()
        assert bench.session.cwd == bench.folder


async def test_bash_5_changed_files_are_named_and_stale(peg_session):
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        path = bench.folder / "a.txt"
        path.write_text("x\n")
        (bench.folder / "other.txt").write_text("x\n")
        await bench.call("Read", {"file_path": str(path)}, id="r1")
        await bench.call("Read", {"file_path": str(bench.folder / "other.txt")}, id="r2")
        changed = await bash(bench, "echo x >> a.txt")
        assert "a.txt" in changed.data["staleReadFileStateHint"] and "a.txt" in changed.plain()
        assert "other.txt" not in changed.plain()
        edit = await bench.call("Edit", {"file_path": str(path), "old_string": "x", "new_string": "z"}, id="e")
        assert edit.code is Code.STALE
        assert "staleReadFileStateHint" not in (await bash(bench, "touch unrelated")).data, "named once for each change"
        failed = await bash(bench, "echo y > other.txt; exit 4")
        assert "other.txt" in failed.plain()


async def test_bash_6_a_failure_is_partial(peg_session):
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        outcome = await bash(bench, "touch made; exit 3")
        assert (outcome.status, outcome.code) == (Status.PARTIAL, Code.COMMAND_FAILED)
        assert outcome.plain().splitlines()[0] == "Exit code 3"
        assert (bench.folder / "made").exists()
        assert [(effect.kind, effect.state) for effect in outcome.effects] == [("process", "done")]


async def test_bash_7_timeouts_stop_or_go_on(peg_session):
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        stopped = await bash(bench, "sleep 307", timeout=1000)
        assert (stopped.status, stopped.code) == (Status.PARTIAL, Code.TIMEOUT)
        assert stopped.plain().startswith("Exit code 143\n") and "1 s" in stopped.plain()
        assert not alive("sleep 307")
        program = f"{shlex.quote(sys.executable)} -c 'import time; print(7, flush=True); time.sleep(300)'"
        moved = await bash(bench, program, timeout=1000)
        assert moved.status is Status.LAUNCHED and not moved.is_error
        assert moved.data["timedOutAfterMs"] == 1000
        run = runs(bench).get(moved.data["backgroundTaskId"])
        assert run is not None and run.running and run.output == moved.data["persistedOutputPath"]
        assert "7" in moved.plain() and Path(run.output).read_text() == "7\n"
    assert run.status == "stopped" and not alive("time.sleep(300)")


@pytest.mark.parametrize("command", ["git gc; true", "if (", "sh -c 'sleep 5 & wait'"])
async def test_what_is_stopped_at_its_timeout(command):
    assert reading(command).stops_late
    assert not reading("npm run build").stops_late


def reading(command: str):
    return reading_of(accesses(command, cwd="/", home="/root", roots=("/",)))


async def test_bash_8_long_output_is_kept_whole(peg_session):
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        outcome = await bash(bench, "seq 1 40000; printf '%0.sx' $(seq 1 1000)")
        text, path = outcome.plain(), Path(outcome.data["persistedOutputPath"])
        assert len(text) <= 30_000 and str(path) in text and outcome.attachments == [str(path)]
        assert text.startswith("1\n2\n") and "xxxx" in text and "left out" in text
        whole = path.read_text()
        assert len(whole) == outcome.data["persistedOutputSize"] > 200_000
        assert whole.startswith("1\n2\n") and whole.endswith("x" * 1000)


async def test_bash_9_a_background_cd_moves_nothing(peg_session):
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        outcome = await bash(bench, "cd /tmp; sleep 1", run_in_background=True)
        assert outcome.status is Status.LAUNCHED
        assert str(bench.folder) in outcome.data["backgroundCwdHint"] and "does not move" in outcome.plain()
        assert bench.session.cwd == bench.folder
        run = await runs(bench).wait(outcome.data["backgroundTaskId"], 20)
        assert run is not None and (run.status, run.exit_code) == ("completed", 0)
        assert bench.session.cwd == bench.folder


async def test_bash_10_a_required_sandbox_whose_program_is_missing_starts_nothing(peg_session, tmp_path, monkeypatch):
    (tmp_path / "managed").mkdir(exist_ok=True)
    (tmp_path / "managed" / "managed.toml").write_text("[sandbox]\nrequired = true\n")
    (tmp_path / "bin").mkdir()
    for name in ("bash", "sh", "env", "touch"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("pegboard_bubblewrap.programs.FOLDERS", (str(tmp_path / "bin"),))
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        assert bench.places.managed_dir == tmp_path / "managed"
        outcome = await bash(bench, "touch made")
        assert (outcome.status, outcome.code) == (Status.NOT_STARTED, Code.SANDBOX_REFUSED), outcome.plain()
        assert outcome.effects == [] and not (bench.folder / "made").exists() and not runs_opened(bench)


# -- processes -----------------------------------------------------------------------------------------------------


async def test_streams_stay_in_order_and_stdin_is_at_its_end(peg_session):
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        outcome = await bash(
            bench, "for i in 1 2 3; do echo out$i; echo err$i >&2; done; cat; read -p '? ' x; echo rc=$?"
        )
        assert outcome.plain() == "out1\nerr1\nout2\nerr2\nout3\nerr3\nrc=1"


async def test_keys_do_not_reach_the_command(peg_session, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    monkeypatch.setenv("MY_SERVICE_TOKEN", "secret-2")
    monkeypatch.setenv("HARMLESS", "yes")
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        outcome = await bash(bench, "env")
        assert "secret" not in outcome.plain() and "HARMLESS=yes" in outcome.plain()
        assert "BASH_ENV" not in outcome.plain() and "PEG_CWD_FD" not in outcome.plain()


async def test_what_is_left_running_becomes_a_task(peg_session):
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        outcome = await bash(bench, "sleep 308 & setsid sleep 309 >/dev/null 2>&1 & echo started")
        assert not outcome.is_error and outcome.plain().startswith("started\n")
        (run,) = runs(bench).list(running=True)
        assert run.id in outcome.plain() and "pid " in outcome.plain()
        assert len(alive("sleep 308")) == len(alive("sleep 309")) == 1
        stopped = await bench.call("TaskStop", {"task_id": run.id}, id="stop")
        assert not stopped.is_error and "stopped" in stopped.plain()
        assert not alive("sleep 308") and not alive("sleep 309")


async def test_an_abort_ends_the_tree(peg_session):
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        async with anyio.create_task_group() as tasks:

            async def soon() -> None:
                while not alive("sleep 310"):
                    await anyio.sleep(0.02)
                bench.session.abort()

            tasks.start_soon(soon)
            outcome = await bash(bench, "setsid sleep 310 & sleep 311 | cat")
        assert (outcome.status, outcome.code) == (Status.PARTIAL, Code.CANCELLED)
        assert not alive("sleep 310") and not alive("sleep 311")


async def test_too_much_output_ends_the_command(peg_session):
    settings = {"bash.max_output_bytes": 2_000_000, "bash.output_bytes": 1_000_000}
    async with peg_session(host=Willing(), allow=ALLOW, settings=settings) as bench:
        outcome = await bash(bench, "yes")
        assert (outcome.status, outcome.code) == (Status.PARTIAL, Code.TOO_LARGE)
        assert outcome.plain().startswith("Exit code 137\n") and len(outcome.plain()) < 12_000
        assert not alive("yes over and over")


async def test_a_background_command_keeps_within_its_file(peg_session):
    settings = {"bash.max_output_bytes": 8_000_000, "bash.output_bytes": 1_000_000}
    async with peg_session(host=Willing(), allow=ALLOW, settings=settings) as bench:
        outcome = await bash(bench, "yes", run_in_background=True)
        run = await runs(bench).wait(outcome.data["backgroundTaskId"], 30)
        assert run is not None and run.status == "failed" and run.exit_code == 137
        assert "more than a command may write" in run.reason
        assert Path(run.output).stat().st_size < 2_000_000
        assert "Output limit reached" in Path(run.output).read_text()


async def test_killed_in_the_background_is_never_completed(peg_session):
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        outcome = await bash(bench, "sleep 312", run_in_background=True)
        run = runs(bench).get(outcome.data["backgroundTaskId"])
        assert run is not None
        while not (found := [one for one in trees.Tree(run.mark).members() if one.name == "sleep"]):
            await anyio.sleep(0.01)
        os.kill(found[0].pid, 9)
        await runs(bench).wait(run.id, 20)
        assert (run.status, run.exit_code) == ("failed", 137) and "SIGKILL" in run.reason
        (told,) = bench.session.take_posts()
        assert told.origin == "task-notification" and "137" in told.content[0]["text"]


async def test_a_rewind_brings_back_what_a_command_removed(peg_session):
    from pegboard_files.history import FileHistory

    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        (bench.folder / "a.txt").write_text("before\n")
        history = await bench.session.owners.get(FileHistory, bench.session.place("main"))
        mark = await history.mark()
        assert mark is not None
        assert not (await bash(bench, "echo after > a.txt && echo new > b.txt")).is_error
        kept = await history.rewind(mark)
        assert kept == [] and (bench.folder / "a.txt").read_text() == "before\n"
        assert not (bench.folder / "b.txt").exists()


async def test_a_directory_that_is_gone_is_left(peg_session):
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        await bash(bench, "mkdir sub && cd sub")
        gone = await bash(bench, "rm -rf ../sub")
        assert not gone.is_error
        outcome = await bash(bench, "echo alive; pwd")
        assert outcome.plain().startswith(f"alive\n{bench.folder}")
        assert "Shell cwd was reset" in outcome.plain()


async def test_the_directory_is_remembered_by_a_resumed_session(peg_session):
    from pegboard.session import Session
    from pegboard.transcript import Transcript

    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        session = bench.session
        folder = session.directory
        session.transcript = Transcript.create(folder, cwd=session.cwd, version="0")
        await bash(bench, "mkdir sub; cd sub")
    again = Session.create(bench.places, session.settings, session.registry, transcript=Transcript.resume(folder))
    assert again.cwd == bench.folder / "sub"
    again.transcript.close()


async def test_two_ends_of_a_failure_are_shown(peg_session):
    async with peg_session(host=Willing(), allow=ALLOW) as bench:
        outcome = await bash(bench, "seq 1 100000; echo the end; exit 9")
        text = outcome.plain()
        assert text.startswith("Exit code 9\n1\n2\n") and re.search(r"the end\n\[The whole output is in ", text)
        assert len(text) < 11_000 and len(outcome.attachments) == 1
