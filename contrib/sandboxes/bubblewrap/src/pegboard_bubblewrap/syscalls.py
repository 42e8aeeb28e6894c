"""The syscall filter as a BPF program: what no build or test needs and what would lead past the other walls.

Sockets of other families than the usual ones reach beyond a network namespace (a virtual machine's host, for one).
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Sequence

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
ORDINARY = (UNIX, INET, INET6, NETLINK)
"""Socket families that a program in a namespace of its own may use."""

X86, ARM = "x86_64", "aarch64"
AUDIT = {X86: 0xC000003E, ARM: 0xC00000B7}
_SOCKET = {X86: 41, ARM: 198}
_IOCTL = {X86: 16, ARM: 29}
_X32 = 0x40000000

STUFFING = (0x5412, 0x541C)
"""ioctl requests TIOCSTI and TIOCLINUX: they type into a terminal."""

REFUSED = {
    # name: (number on x86_64, number on aarch64)
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "chroot": (161, 51),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
}
"""Answered with "not permitted"."""

ABSENT = {"io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427)}
"""Answered with "no such call", so that programs fall back: a ring would carry socket calls past this filter."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCH, _ARGUMENT = 0, 4, 16


def program(families: Sequence[int] = ORDINARY, machine: str = "") -> bytes:
    """The filter for this machine, as the kernel reads it; empty where the machine's numbers are not known here.

    ``families``: those that `socket` may be called with.
    """
    machine = machine or platform.machine()
    if machine not in AUDIT:
        return b""
    column = (X86, ARM).index(machine)
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, AUDIT[machine]),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == X86:
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for table, answer in ((REFUSED, errno.EPERM), (ABSENT, errno.ENOSYS)):
        for numbers in table.values():
            code += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _ERRNO | answer)]
    code += _argument(_SOCKET[machine], 0, families, allow=True, answer=errno.EAFNOSUPPORT)
    code += _argument(_IOCTL[machine], 1, STUFFING, allow=False, answer=errno.EPERM)
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *one) for one in code)


def _argument(
    number: int, argument: int, values: Sequence[int], *, allow: bool, answer: int
) -> list[tuple[int, int, int, int]]:
    """Judge one call by the lower half of one argument: only these values pass, or all but these."""
    hit, miss = (_ALLOW, _ERRNO | answer) if allow else (_ERRNO | answer, _ALLOW)
    body: list[tuple[int, int, int, int]] = [(_LOAD, 0, 0, _ARGUMENT + 8 * argument)]
    for value in values:
        body += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, hit)]
    body.append((_RETURN, 0, 0, miss))
    return [(_EQUAL, 0, len(body), number), *body]
