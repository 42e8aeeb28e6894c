"""Puts Landlock and a syscall filter on itself, then becomes the command: the wall where bubblewrap is missing.

A script for a bare interpreter, with the standard library alone. Arguments: the policy as JSON, then the command.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import struct
import sys
from typing import Any

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVS, _SECCOMP, _DROP = 38, 22, 24
_BENEATH = 1

EXECUTE, WRITE, READ, LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL = 1 << 14, 1 << 15
ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
"""File rights by version of the interface; later ones have one more."""

DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd")

libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """The version of Landlock that the kernel speaks; 0 = none."""
    return max(0, int(libc.syscall(_CREATE, None, 0, 1)))


def rights(abi: int) -> int:
    """Every file right of that version."""
    return ALL.get(abi, (1 << 16) - 1)


def fail(what: str) -> None:
    """Leave without having become the command: half a wall is none."""
    raise SystemExit(f"sandbox: {what}: {os.strerror(ctypes.get_errno())}")


class Walls:
    """A Landlock ruleset in the making."""

    def __init__(self) -> None:
        self.abi = version()
        self.all = rights(self.abi)
        scopes = 3 if self.abi >= 6 else 0
        size = 24 if self.abi >= 6 else 16 if self.abi >= 4 else 8
        given = struct.pack("=QQQ", self.all, 0, scopes)[:size]
        self.handle = libc.syscall(_CREATE, given, size, 0)
        if self.handle < 0:
            fail("Landlock cannot be used")

    def allow(self, path: str, wanted: int) -> None:
        """Allow rights on a path and below it; a path that is not there needs none."""
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if not stat.S_ISDIR(os.fstat(handle).st_mode):
                wanted &= EXECUTE | WRITE | READ | TRUNCATE | IOCTL
            if libc.syscall(_ADD, self.handle, _BENEATH, struct.pack("=Qi", wanted & self.all, handle), 0):
                fail(f"Landlock does not take {path}")
        finally:
            os.close(handle)

    def readable(self, folder: str, hidden: set[str]) -> None:
        """Allow to read everything below a folder but what is hidden. Rules know no exception: it is gone around."""
        look = EXECUTE | READ | LIST
        lead = folder.rstrip("/") + "/"
        if folder in hidden:
            return
        if not any(path.startswith(lead) for path in hidden):
            self.allow(folder, look)
            return
        try:
            names = os.listdir(folder)
        except OSError:
            return
        for name in names:
            if not os.path.islink(lead + name):
                self.readable(lead + name, hidden)

    def writable(self, folder: str, hidden: set[str]) -> None:
        """Allow everything below a folder but what is hidden in it."""
        lead = folder.rstrip("/") + "/"
        if folder in hidden:
            return
        if not any(path.startswith(lead) for path in hidden):
            self.allow(folder, self.all)
            return
        try:
            names = os.listdir(folder)
        except OSError:
            return
        self.allow_here(folder)
        for name in names:
            if not os.path.islink(lead + name):
                self.writable(lead + name, hidden)

    def allow_here(self, folder: str) -> None:
        """Rights that work on the entries of a folder and say nothing about reading what is below."""
        self.allow(folder, self.all & ~(READ | EXECUTE | WRITE | TRUNCATE))

    def close(self) -> None:
        """From here on the walls stand."""
        if libc.syscall(_RESTRICT, self.handle, 0):
            fail("Landlock cannot be switched on")
        os.close(self.handle)


def powerless() -> None:
    """Give up every capability for good."""
    for number in range(64):
        libc.prctl(_DROP, number, 0, 0, 0)
    header = struct.pack("=Ii", 0x20080522, 0)
    libc.capset(header, b"\0" * 24)


def filtered(raw: bytes) -> None:
    """Switch the syscall filter on."""
    program = ctypes.create_string_buffer(raw)
    given = struct.pack("@HP", len(raw) // 8, ctypes.addressof(program))
    if libc.prctl(_SECCOMP, 2, given, 0, 0):
        fail("the syscall filter cannot be switched on")


def main() -> None:
    """Raise the walls and become the command."""
    policy: dict[str, Any] = json.loads(sys.argv[1])
    hidden = set(policy["hidden"])
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        fail("privileges cannot be given up")
    powerless()
    walls = Walls()
    walls.readable("/", hidden)
    for folder in policy["writable"]:
        walls.writable(folder, hidden)
    for name in DEVICES:
        walls.allow(f"/dev/{name}", walls.all)
    walls.close()
    filtered(bytes.fromhex(policy["filter"]))
    argv = sys.argv[2:]
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        raise SystemExit(f"sandbox: {argv[0]} cannot be started: {error.strerror}") from None


if __name__ == "__main__":
    main()
