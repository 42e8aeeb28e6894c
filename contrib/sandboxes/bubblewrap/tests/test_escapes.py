"""Ways out of a box that worked somewhere once, each tried for real, as root and as a user without power."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

PROBE = """
import ctypes, errno, fcntl, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *given):
    ctypes.set_errno(0)
    return libc.syscall(number, *given), errno.errorcode.get(ctypes.get_errno(), "")
"""


def python(room, code: str) -> subprocess.CompletedProcess[str]:
    (room.work / "probe.py").write_text(PROBE + code)
    return room.run(f"exec {sys.executable} -S -I probe.py")


@pytest.fixture(params=["self", "nobody"])
async def box(request, room):
    """A room whose commands run as this user, or as one without any power outside of the box too."""
    if request.param == "self":
        await room.open()
        yield room.run
        return
    uid = request.getfixturevalue("nobody")
    folder = Path(tempfile.mkdtemp(prefix="peg-nobody-"))
    for path in (folder, folder / "work", folder / "home"):
        path.mkdir(exist_ok=True)
        os.chown(path, uid, uid)
    user = {"user": uid, "group": uid, "extra_groups": []}
    program = Path(__file__).with_name("as_user.py")
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    interpreter = readable(user)

    def run(command: str) -> subprocess.CompletedProcess[str]:
        words = [interpreter, str(program), str(folder / "work"), str(folder / "home"), command]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, env=env, cwd="/", **user)

    try:
        done = run("id -u")
        assert done.stdout == f"{uid}\n", done.stderr
        yield run
    finally:
        shutil.rmtree(folder)


def readable(user) -> str:
    """An interpreter of this version that another user can start."""
    for path in (sys.executable, f"/usr/bin/python3.{sys.version_info[1]}"):
        with contextlib.suppress(OSError):
            if not subprocess.run([path, "-I", "-c", "pass"], cwd="/", env={}, check=False, **user).returncode:
                return path
    pytest.skip("the interpreter lies where another user cannot reach it")


async def test_there_is_no_power_inside(box):
    done = box("grep -i '^Cap' /proc/self/status; grep NoNewPrivs /proc/self/status; grep Seccomp: /proc/self/status")
    assert {line.split()[1] for line in done.stdout.splitlines() if line.startswith("Cap")} == {"0" * 16}
    assert "NoNewPrivs:\t1" in done.stdout and "Seccomp:\t2" in done.stdout


MORE_POWER = (
    "mount -o remount,rw / && touch /etc/escaped", "mount -o remount,rw,bind / && touch /etc/escaped",
    "mount -t tmpfs none /mnt", "umount -l /", "umount /proc", "mount --bind /tmp /etc", "pivot_root / /tmp",
    "unshare -U true", "unshare -Ur mount -t tmpfs none /mnt", "unshare -m true", "unshare -n true",
    "unshare -p true",
    "chroot / true", "nsenter -t 1 -m true", "mknod /tmp/disk b 8 0", "mknod $PWD/mem c 1 1", "chown 12345 .",
    "echo x > /proc/sys/kernel/core_pattern", "echo x > /proc/sys/kernel/modprobe", "echo 1 > /proc/sysrq-trigger",
    "echo x > /proc/sys/vm/drop_caches", "echo x > /sys/kernel/uevent_helper", "echo x > /proc/self/attr/current",
    "echo x > /proc/1/oom_score_adj", "touch /proc/1/root/etc/escaped", "touch /proc/self/root/etc/escaped",
    "touch /proc/self/root/usr/bin/escaped", "echo 0 > /proc/sys/user/max_user_namespaces",
    "echo 10 > /proc/sys/user/max_user_namespaces", "sysctl -w kernel.hostname=x", "hostname escaped",
    "echo x >> /etc/passwd", "ln /etc/passwd p && echo x >> p", "ln -s /etc/passwd q && echo x >> q",
    "ls /run/dbus", "insmod x.ko",
)  # fmt: skip
"""Each must fail."""


async def test_no_way_to_more(box):
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    script = "".join(f"bash -c {shlex.quote(command)} >/dev/null 2>&1; echo $?\n" for command in MORE_POWER)
    codes = box(script).stdout.split()
    worked = [command for command, code in zip(MORE_POWER, codes, strict=True) if code == "0"]
    assert not worked
    assert not Path("/etc/escaped").exists() and not Path("/usr/bin/escaped").exists()
    assert Path("/proc/sys/kernel/core_pattern").read_text() == pattern
    assert Path("/proc/sys/kernel/hostname").read_text().strip() != "escaped"


async def test_only_what_is_inside_is_writable(box):
    done = box("awk '$4 ~ /^rw/ {print $2}' /proc/self/mounts | sort -u")
    allowed = ("/dev", "/tmp", "/var/tmp", "/run", "/var/run")
    stray = [path for path in done.stdout.split() if not path.startswith(allowed)]
    hit = [path for path in stray if box(f"touch {path}/escaped").returncode == 0 and "/work" not in path]
    assert not hit


async def test_processes_outside_are_out_of_sight_and_reach(box):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        done = box(f"kill -9 {other.pid}; kill -9 {os.getpid()}; ls -d /proc/[0-9]* | wc -l")
        assert done.stderr.count("No such process") == 2 and int(done.stdout) < 12
        assert other.poll() is None
        other.communicate(b"\n")


async def test_there_is_no_terminal_to_type_into(box):
    done = box("echo x > /dev/tty; ps -o tty= -p $$ 2>/dev/null || cut -d' ' -f7 /proc/$$/stat")
    assert "No such device" in done.stderr
    assert done.stdout.split() in (["?"], ["0"])


async def test_neither_abstract_sockets_nor_the_hosts_loopback_are_reached(box):
    with (
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket() as tcp,
        socket.socket(type=socket.SOCK_DGRAM) as udp,
    ):
        abstract.bind("\0pegboard-escape")
        abstract.listen()
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(0.2)
        code = (
            "import socket\nfor make, where in ((socket.AF_UNIX, '\\0pegboard-escape'), "
            f"(socket.AF_INET, ('127.0.0.1', {tcp.getsockname()[1]}))):\n"
            "    s = socket.socket(make)\n    s.settimeout(5)\n    print(s.connect_ex(where))\n"
            f"socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp.getsockname()[1]}))\n"
            "s = socket.socket(type=socket.SOCK_DGRAM)\n"
            "try:\n    s.sendto(b'x', ('1.1.1.1', 53))\nexcept OSError as error:\n    print(error.errno)\n"
        )
        done = box(f"cat > p.py <<'END'\n{code}END\npython3 -S -I p.py")
        assert done.stdout.split() == ["111", "111", "101"], done
        with pytest.raises(TimeoutError):
            udp.recv(10)


async def test_sockets_of_services_are_not_reached(room):
    path = room.home / "service.sock"
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(path))
        service.listen()
        await room.open(writable=(room.home,))
        code = f"s = socket.socket(socket.AF_UNIX)\nprint(s.connect_ex({str(path)!r}))\n"
        assert python(room, code).stdout.strip() in ("13", "111")


async def test_a_socket_of_the_working_directory_is_its_own_business(room):
    with socket.socket(socket.AF_UNIX) as service:
        os.chdir(room.work)
        service.bind("own.sock")
        service.listen()
        await room.open()
        assert python(room, "print(socket.socket(socket.AF_UNIX).connect_ex('own.sock'))\n").stdout.strip() == "0"


async def test_the_filter_refuses_what_leads_past_the_walls(room):
    await room.open()
    done = python(
        room,
        """
from ctypes import byref, c_int
numbers = {"x86_64": dict(bpf=321, uring=425, keyctl=250, mount=165, perf=298, setns=308, handle=304, user=323),
           "aarch64": dict(bpf=280, uring=425, keyctl=219, mount=40, perf=241, setns=268, handle=265, user=282)}
for name, number in numbers[os.uname().machine].items():
    print(name, *call(number, 0, 0, 0, 0, 0))
for family in (40, 17, 38, 31, 42, 44):
    try:
        socket.socket(family, socket.SOCK_DGRAM)
        print(family, "opened")
    except OSError as error:
        print(family, errno.errorcode[error.errno])
for family in (1, 2, 10):
    socket.socket(family).close()
left, right = os.openpty()
for request in (0x5412, 0x541C):
    try:
        fcntl.ioctl(right, request, b"x")
        print("typed")
    except OSError as error:
        print(errno.errorcode[error.errno])
""",
    )
    lines = done.stdout.splitlines()
    assert lines == [
        "bpf -1 EPERM", "uring -1 ENOSYS", "keyctl -1 EPERM", "mount -1 EPERM", "perf -1 EPERM", "setns -1 EPERM",
        "handle -1 EPERM", "user -1 EPERM", "40 EAFNOSUPPORT", "17 EAFNOSUPPORT", "38 EAFNOSUPPORT", "31 EAFNOSUPPORT",
        "42 EAFNOSUPPORT", "44 EAFNOSUPPORT", "EPERM", "EPERM",
    ], done  # fmt: skip


async def test_calls_by_the_numbers_of_another_machine_are_refused(room):
    if os.uname().machine != "x86_64":
        pytest.skip("only x86_64 speaks two more sets of numbers")
    await room.open()
    assert python(room, "print(*call(0x40000000 + 41, 40, 2, 0))").stdout == "-1 ENOSYS\n"


async def test_a_file_made_inside_cannot_gain_power_outside(room):
    await room.open()
    room.run("cp /bin/true suid && chmod 6755 suid; chown 12345 suid")
    made = room.work / "suid"
    assert made.stat().st_uid == os.geteuid()


async def test_the_private_folder_of_the_session_is_out_of_reach(room):
    await room.open()
    folder = room.shared.folder
    done = room.run(f"ls {folder}; echo x > {folder}/filter; cat {folder}/filter; ls {folder}/sealed")
    assert "sealed" not in done.stdout and (folder / "filter").stat().st_size > 100
