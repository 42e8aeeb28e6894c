"""The ladder of levels: what is reached when a part is missing, that it is said, and what still holds."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from pegboard_bubblewrap import launcher, programs, syscalls
from pegboard_bubblewrap.confinement import Bubblewrap


@pytest.fixture
def without(monkeypatch, tmp_path):
    """Make a machine where only these programs are found."""

    def only(*names: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name in names:
            (folder / name).symlink_to(programs.find(name))
        monkeypatch.setattr(programs, "FOLDERS", (str(folder),))

    return only


def own_folder(monkeypatch, folder: Path) -> None:
    """Look for programs in a folder of the test's own."""
    monkeypatch.setattr(programs, "FOLDERS", (str(folder),))
    monkeypatch.setattr(programs, "OWNERS", (os.geteuid(),))


def test_everything_there_is_full(room):
    status = room.shared.status(room.need)
    assert (status.level, status.reasons, status.name) == ("full", (), "bubblewrap")


def test_without_nsenter_there_is_no_proxy(room, without):
    without("bwrap", "sh")
    status = room.shared.status(room.need)
    assert status.level == "no-proxy" and "nsenter is missing" in status.reasons[0]


async def test_without_a_proxy_there_is_no_network_and_the_files_are_held(room, without):
    without("bwrap", "sh")
    await room.open(hosts=("example.com",))
    assert room.box.level == "no-proxy"
    done = room.run("curl -sS -m 5 http://1.1.1.1; touch /etc/x; touch a; env | grep -i _proxy=; wc -l < /proc/net/dev")
    assert "Couldn't connect" in done.stderr and "Read-only" in done.stderr and done.stdout == "3\n"
    assert room.run("unshare -U true; mount -o remount,rw /").returncode


def test_an_old_bubblewrap_is_not_used(room, tmp_path, monkeypatch):
    old = tmp_path / "bwrap"
    old.write_text("#!/bin/sh\necho bubblewrap 0.6.1\n")
    old.chmod(0o755)
    own_folder(monkeypatch, tmp_path)
    status = room.shared.status(room.need)
    assert status.level == "landlock" and "bubblewrap 0.6 is too old" in status.reasons[0]


def test_a_bubblewrap_that_makes_no_box_is_not_used(room, tmp_path, monkeypatch):
    broken = tmp_path / "bwrap"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 0.9.0 && exit\necho "bwrap: No permissions" >&2\nexit 1\n'
    )
    broken.chmod(0o755)
    own_folder(monkeypatch, tmp_path)
    status = room.shared.status(room.need)
    assert status.level == "landlock" and "bwrap: No permissions" in status.reasons[0]


def test_a_program_that_others_can_change_is_no_program_of_the_system(tmp_path, monkeypatch):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\n")
    own_folder(monkeypatch, tmp_path)
    for mode, found in ((0o755, True), (0o775, False), (0o777, False), (0o644, False)):
        fake.chmod(mode)
        assert bool(programs.find("bwrap")) is found, oct(mode)
    fake.chmod(0o755)
    monkeypatch.setattr(programs, "OWNERS", (os.geteuid() + 1,))
    assert not programs.find("bwrap")


def test_the_path_of_the_user_is_never_asked(room, tmp_path, monkeypatch):
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert room.shared.status(room.need).level == "full" and not (tmp_path / "ran").exists()


def test_elsewhere_than_on_linux_there_is_none(room, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert room.shared.status(room.need).level == "none"


def test_on_an_unknown_machine_there_is_no_filter_and_it_is_said(room, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert syscalls.program() == b""
    status = room.shared.status(room.need)
    assert status.level == "full" and "no syscall filter" in status.reasons[0]


def test_without_landlock_there_is_none(room, without, monkeypatch):
    without()
    monkeypatch.setattr(launcher, "version", lambda: 0)
    status = room.shared.status(room.need)
    assert status.level == "none" and "no Landlock" in status.reasons[-1]


async def test_the_status_can_be_asked_again_after_closing(room):
    assert room.shared.status(room.need).level == "full"
    await room.shared.close()
    assert room.shared.status(room.need).level == "full"


# -- Landlock ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def kernel(room, without):
    if not launcher.version():
        pytest.skip("this kernel has no Landlock")
    without()
    return room


async def test_landlock_is_labelled(kernel):
    status = kernel.shared.status(kernel.need)
    assert status.level == "landlock" and status.reasons[0].startswith("bubblewrap is not installed")
    assert any("watched, not locked" in reason for reason in status.reasons)


async def test_landlock_holds_writes(kernel):
    await kernel.open()
    done = kernel.run(
        "echo fine > a && cat a && mkdir -p b/c && mv a b/c && rm -r b; touch $TMPDIR/t; touch /etc/escaped"
    )
    assert done.stdout == "fine\n" and not Path("/etc/escaped").exists()
    assert kernel.box.violations(done.stderr) == [
        "file: /etc/escaped was refused: it lies outside of what may be written"
    ]
    for command in (f"touch {kernel.home}/x", "echo x > /proc/sys/kernel/core_pattern", "mount -t tmpfs none /mnt",
                    "chroot / true", "touch /dev/shm/../../etc/escaped"):  # fmt: skip
        assert kernel.run(command).returncode, command


async def test_landlock_hides(kernel):
    (kernel.work / ".env").write_text("hunter2")
    (kernel.work / "open").write_text("open")
    (kernel.home / ".ssh").mkdir()
    (kernel.home / ".ssh/id").write_text("hunter2")
    (kernel.work / "link").symlink_to(kernel.home / ".ssh/id")
    await kernel.open(hidden=(str(kernel.work / ".env"),))
    done = kernel.run("cat .env ~/.ssh/id link; cat open; echo more >> open; cat .env && mv .env x && cat x")
    assert done.stdout == "open" and "hunter2" not in done.stderr
    assert kernel.box.violations(done.stderr)[0] == "file: .env was refused: it is hidden from processes in the sandbox"


async def test_landlock_gives_no_network_at_all(kernel):
    await kernel.open(hosts=("*", "127.0.0.1"))
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as service:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        service.bind(str(kernel.home / "s"))
        service.listen()
        code = (
            "import socket\nfor family, kind in ((2, 1), (2, 2), (10, 1), (1, 1), (16, 3), (40, 1)):\n"
            "    try:\n        socket.socket(family, kind); print('open')\n"
            "    except OSError as error:\n        print(error.errno)\n"
            "a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))"
        )
        done = kernel.run(f'python3 -c "{code}"; env | grep -ic proxy')
    assert done.stdout.split() == ["97"] * 6 + ["b'x'", "0"], done


async def test_landlock_leaves_no_power_and_no_signals(kernel):
    await kernel.open()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        done = kernel.run(f"kill -9 {other.pid}; grep '^Cap' /proc/self/status; cat /proc/{other.pid}/environ")
        assert {line.split()[1] for line in done.stdout.splitlines() if line.startswith("Cap")} == {"0" * 16}
        assert "HOME=" not in done.stdout
        if launcher.version() >= 6:
            assert other.poll() is None and "not permitted" in done.stderr
        other.communicate(b"\n")


async def test_landlock_reports_what_was_planted(kernel):
    kernel.git("init", "-q")
    await kernel.open()
    assert kernel.run("echo x > .git/hooks/post-merge; echo x > .envrc").returncode == 0
    assert {os.path.basename(found.path) for found in await kernel.box.planted()} == {"post-merge", ".envrc"}


async def test_a_command_that_is_missing_is_said_so(kernel):
    await kernel.open()
    argv, env = kernel.box.wrap(["/nonexistent/program"], {})
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode and done.stderr.startswith("sandbox: /nonexistent/program cannot be started")
    assert kernel.box.violations(done.stderr)[0].startswith("sandbox: sandbox: /nonexistent")


def test_half_a_wall_is_none(tmp_path):
    """Without a valid filter the launcher does not become the command."""
    if not launcher.version():
        pytest.skip("this kernel has no Landlock")
    policy = {"writable": [str(tmp_path)], "hidden": [], "filter": "ff" * 16}
    script = Path(launcher.__file__)
    done = subprocess.run(
        [sys.executable, "-S", "-I", str(script), json.dumps(policy), "/bin/touch", str(tmp_path / "ran")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode and "syscall filter" in done.stderr and not (tmp_path / "ran").exists()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_syscalls_program_is_well_formed(machine):
    raw = syscalls.program(machine=machine)
    assert len(raw) % 8 == 0 and len(raw) // 8 < 4096
    jumps = [raw[at : at + 8] for at in range(0, len(raw), 8)]
    for index, one in enumerate(jumps):
        if one[0] in (0x15, 0x35):
            assert index + 1 + max(one[2], one[3]) < len(jumps)
    assert jumps[-1][0] == 0x06


async def test_what_is_mounted_over_hidden_paths_cannot_be_opened(room):
    await room.open()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (room.shared.folder / "sealed").iterdir()}
    assert modes == {"blank": 0o555, "empty": 0o444, "closed": 0o000, "none": 0o000}
    assert isinstance(room.shared, Bubblewrap)
