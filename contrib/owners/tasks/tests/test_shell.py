"""Commands as processes: order, ends, directories, and trees that die whole."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import anyio
import pytest
from pegboard.errors import Code, Refusal
from pegboard_tasks import shell as module
from pegboard_tasks import trees
from pegboard_tasks.shell import Shell
from pegboard_tasks.sink import Sink

pytestmark = pytest.mark.anyio


def start(folder: Path, command: str, **more) -> Shell:
    return Shell.start(command, cwd=folder, env=dict(os.environ), sink=Sink(folder / "o.txt"), **more)


async def done(folder: Path, command: str, **more) -> tuple[int, str, str]:
    """Exit code, output and last directory of a command that leaves nothing running."""
    shell = start(folder, command, **more)
    code = await shell.run()
    told, left = shell.directory, shell.left()
    await shell.end(2)
    assert left == []
    return code, (shell.sink.whole() or b"").decode(), told


async def test_both_streams_in_order_and_no_terminal(tmp_path):
    code, text, _ = await done(tmp_path, "echo a; echo b >&2; echo c; test -t 0 || echo none; cat; tty")
    assert (code, text) == (1, "a\nb\nc\nnone\nnot a tty\n")


async def test_a_group_and_a_session_of_its_own(tmp_path):
    _, text, _ = await done(tmp_path, "ps -o pid=,pgid=,sid= -p $$")
    pid, group, session = text.split()
    assert pid == group == session


@pytest.mark.parametrize(
    ("command", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("nosuchcmd", 127), ("(", 2)]
)
async def test_exit_codes(tmp_path, command, code):
    assert (await done(tmp_path, command))[0] == code


async def test_the_command_sees_itself_as_bash_does(tmp_path):
    """No prelude in line numbers, parameters, variables or messages."""
    script = 'echo "$LINENO $# [$1] $0"\nfoo-bar'
    assert (await done(tmp_path, script))[1] == "1 0 [] bash\nbash: line 2: foo-bar: command not found\n"
    assert (await done(tmp_path, "env | grep -c '^BASH_ENV=\\|^PEG_CWD'"))[1] == "0\n"


async def test_the_users_own_startup_file_is_still_read(tmp_path, monkeypatch):
    (tmp_path / "own.sh").write_text("greet() { echo hello; }\n")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "own.sh"))
    assert (await done(tmp_path, "greet; cd /usr; echo $BASH_ENV"))[1:] == (f"hello\n{tmp_path}/own.sh\n", "/usr")


@pytest.mark.parametrize("end", ["true", "exit 3", "set -e; false", "kill -TERM $$", "exec ls", "set -u; echo $nope"])
async def test_the_last_directory_is_told(tmp_path, end):
    assert (await done(tmp_path, f"cd /usr; {end}"))[2] == "/usr"


async def test_a_plain_sh_tells_it_too(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "program", lambda: "/bin/sh")
    assert await done(tmp_path, "echo a; cd /usr; exit 3") == (3, "a\n", "/usr")


async def test_without_any_shell(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    module.program.cache_clear()
    with pytest.raises(Refusal) as refused:
        start(tmp_path, "true")
    assert refused.value.code is Code.NOT_AVAILABLE
    module.program.cache_clear()


async def test_a_folder_that_is_gone(tmp_path):
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(Refusal) as refused:
        Shell.start("true", cwd=tmp_path / "gone", env={}, sink=Sink(tmp_path / "o"))
    assert refused.value.code is Code.IO_ERROR and "gone" in refused.value.text
    assert set(os.listdir("/proc/self/fd")) <= before


async def test_a_wait_can_be_interrupted_and_taken_up_again(tmp_path):
    shell = start(tmp_path, "echo one; sleep 0.4; echo two")
    with anyio.move_on_after(0.1):
        await shell.run()
    assert shell.code is None and shell.sink.whole() == b"one\n"
    assert await shell.run() == 0 and shell.sink.whole() == b"one\ntwo\n"
    await shell.end(1)


async def test_what_ignores_sigterm_is_killed(tmp_path):
    shell = start(tmp_path, "trap '' TERM; echo ready; sleep 60 & sleep 61")
    while not shell.sink.total:
        with anyio.move_on_after(0.05):
            await shell.run()
    began = time.monotonic()
    await shell.end(0.3)
    assert shell.code == 137 and time.monotonic() - began < 20
    assert shell.tree.members() == []


@pytest.mark.parametrize(
    "escape",
    [
        "sleep 71 &",
        "setsid sleep 71 >/dev/null 2>&1 &",
        "(setsid sh -c 'sleep 71 & sleep 72' &)",
        "nohup sleep 71 >/dev/null 2>&1 & disown",
        "setsid env -i /bin/sh -c 'sleep 71; true' &",
        "(setsid env -i /bin/sh -c 'sleep 71 & sleep 72' >/dev/null 2>&1 &)",
    ],
)
async def test_trees_die_whole(tmp_path, escape):
    shell = start(tmp_path, f"{escape}\necho $$; sleep 73")
    with anyio.move_on_after(0.4):
        await shell.run()
    assert len(shell.tree.members()) >= 3
    kept = shell.tree.members()
    await shell.end(1)
    assert [one for one in kept if trees.alive(one)] == []


async def test_what_is_left_running_is_seen(tmp_path):
    shell = start(tmp_path, "setsid sleep 74 >/dev/null 2>&1 & echo started")
    assert await shell.run() == 0
    assert len(shell.left()) == 1
    await shell.end(1)
    assert shell.tree.members() == []


async def test_nothing_escapes_by_cleaning_its_environment(tmp_path):
    """Right after the shell's end, as often as it takes to meet a process between fork and exec."""
    for _ in range(30):
        shell = start(tmp_path, "(setsid env -i /bin/sleep 78 >/dev/null 2>&1 &)")
        await shell.run()
        left = shell.left()
        assert len(left) == 1
        await shell.end(1)
        assert not [one for one in left if trees.alive(one)]


async def test_output_of_what_is_left_running_goes_on(tmp_path):
    shell = start(tmp_path, "(sleep 0.3; echo late) & echo early")
    await shell.run()
    assert shell.sink.whole() == b"early\n"
    await shell.rest()
    assert shell.sink.whole() == b"early\nlate\n" and shell.left() == []
    await shell.end(1)


class Narrow:
    """A box that lets two variables in and counts what it is told."""

    def __init__(self, *, hears: bool) -> None:
        self.hears = hears
        self.open = 0
        self.asked: list[int] = []

    def wrap(self, argv, env):
        self.open += 1
        return ["nice", *argv], {name: env[name] for name in ("PATH", "HOME") if name in env}

    def signal(self, pid: int, number: int) -> bool:
        self.asked.append(number)
        if self.hears:
            os.killpg(pid, number)
        return self.hears

    def ended(self) -> None:
        self.open -= 1


async def test_in_a_box_the_directory_and_the_mark_are_still_known(tmp_path, monkeypatch):
    monkeypatch.setenv("STRANGER", "1")
    box = Narrow(hears=True)
    code, text, told = await done(tmp_path, "cd /usr; env | grep -c '^STRANGER\\|^PEG_RUN'; echo $0", box=box)
    assert (code, text, told) == (0, "1\nbash\n", "/usr")
    assert (box.open, box.asked) == (0, [])


@pytest.mark.parametrize("hears", [True, False])
async def test_a_box_is_asked_first_and_told_at_the_end(tmp_path, hears):
    box = Narrow(hears=hears)
    shell = start(tmp_path, "sleep 75", box=box)
    with anyio.move_on_after(0.2):
        await shell.run()
    await shell.end(2)
    await shell.end(2)
    assert shell.code == 143 and (box.open, box.asked) == (0, [signal.SIGTERM])


async def test_a_box_is_told_when_nothing_could_be_started(tmp_path):
    box = Narrow(hears=True)
    with pytest.raises(Refusal):
        Shell.start("true", cwd=tmp_path / "gone", env=dict(os.environ), sink=Sink(tmp_path / "o"), box=box)
    assert box.open == 0


async def test_no_descriptor_is_left_open(tmp_path):
    await done(tmp_path, "true")
    before = set(os.listdir("/proc/self/fd"))
    for command in ("true", "exit 3", "yes | head -c 3000000"):
        await done(tmp_path, command)
    assert set(os.listdir("/proc/self/fd")) == before


async def test_it_works_without_a_handle_on_the_process(tmp_path, monkeypatch):
    """As on systems that know no such handle."""
    monkeypatch.setattr(module, "_pidfd", lambda pid: -1)
    assert (await done(tmp_path, "sleep 0.1; echo x"))[:2] == (0, "x\n")


async def test_a_stopped_process_is_ended(tmp_path):
    shell = start(tmp_path, "echo $$; kill -STOP $$; echo never")
    with anyio.move_on_after(0.3):
        await shell.run()
    await shell.end(1)
    assert shell.code == 128 + signal.SIGTERM


async def test_without_proc_group_and_descent_are_known(tmp_path, monkeypatch):
    """As on systems that have no /proc: what stays in the group, or descends from it, is found and ended."""
    monkeypatch.setattr(trees, "_PROC", tmp_path / "none")
    shell = start(tmp_path, "sleep 76 & setsid sleep 77 & echo on; wait")
    with anyio.move_on_after(0.4):
        await shell.run()
    names = sorted(one.name for one in shell.tree.members())
    assert names == ["bash", "sleep", "sleep"]
    await shell.end(2)
    monkeypatch.undo()
    assert shell.tree.members() == [] and shell.code == 143


def test_a_name_with_brackets_is_read():
    one = trees.look(os.getpid())
    assert one is not None and one.pid == os.getpid() and one.parent == os.getppid() and trees.alive(one)
    assert trees.look(2**22 + 5) is None and trees.birth(2**22 + 5) == 0
