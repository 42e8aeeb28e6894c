"""The profile for macOS's own sandbox, as text: what may be read, written, signalled and contacted.

The last rule that fits decides, so what is open comes first, what is locked in it next, and what is hidden, last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

HEAD = """\
(version 1)
(deny default)
(allow process-exec)
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow file-read*)
(allow file-ioctl (literal "/dev/tty") (literal "/dev/null") (literal "/dev/zero"))
(allow file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty") (literal "/dev/dtracehelper"))
(allow file-write-data (literal "/dev/stdout") (literal "/dev/stderr") (subpath "/dev/fd"))
(allow pseudo-tty)
(allow file-read* file-write* file-ioctl (literal "/dev/ptmx"))
(allow file-read* file-write* file-ioctl (regex #"^/dev/ttys[0-9]+$"))
(allow ipc-posix-sem)
(allow ipc-posix-shm)
(allow user-preference-read)
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership")
  (global-name "com.apple.system.logger")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.bsd.dirhelper")
  (global-name "com.apple.trustd.agent")
  (global-name "com.apple.logd")
  (global-name "com.apple.diagnosticd")
  (global-name "com.apple.coreservices.launchservicesd")
  (global-name "com.apple.FSEvents"))
"""
"""What every command needs. Services that act for their caller (keychain, clipboard, Apple events) are not in it."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a profile is made of; all paths are real ones."""

    writable: Sequence[str] = ()
    locked: Sequence[str] = ()
    """Must not be written, created, renamed or removed; whether it exists makes no difference."""
    locked_names: Sequence[str] = ()
    """File and folder names that are locked at any depth of what is writable."""
    opened: Sequence[str] = ()
    """Stays writable although something around it is locked."""
    hidden: Sequence[str] = ()
    port: int = 0
    """Where the proxy listens on the loopback; 0 = no network."""


def quoted(text: str) -> str:
    """A text as a literal of the profile language. Raises `ValueError` for what cannot be written in it."""
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise ValueError(f"{text!r} holds control characters, which a profile cannot name")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def pattern(text: str) -> str:
    """A text as a part of a regular expression of the profile language that matches it, whatever its case.

    A double quote would end the expression; any character stands for it, so more is matched and never less.
    """
    found = []
    for char in text:
        if char.isascii() and char.isalpha():
            found.append(f"[{char.lower()}{char.upper()}]")
        else:
            found.append("." if char == '"' else char if re.fullmatch(r"[\w/-]", char) else f"\\{char}")
    return "".join(found)


def profile(terms: Terms) -> str:
    """The profile text."""
    parts = [HEAD]
    parts += _rule("allow file-read* file-write*", _subpaths(terms.writable))
    locked = [*_subpaths(terms.locked), *_named(terms.writable, terms.locked_names)]
    parts += _rule("deny file-write*", locked)
    parts += _rule("deny file-write-unlink", _ancestors(terms.locked, terms.writable))
    parts += _rule("allow file-read* file-write*", _subpaths(terms.opened))
    parts += _rule("deny file-read* file-write*", _subpaths(terms.hidden))
    parts.append("(deny network*)\n")
    parts += _rule("allow network*", _subpaths(terms.writable))
    if terms.port:
        parts.append(f'(allow network-outbound (remote ip "localhost:{int(terms.port)}"))\n')
    parts.append('(allow network-bind (local ip "localhost:*"))\n(allow network-inbound (local ip "localhost:*"))\n')
    return "".join(parts)


def _rule(what: str, filters: Iterable[str]) -> list[str]:
    listed = list(dict.fromkeys(filters))
    if not listed:
        return []
    return [f"({what}\n", *(f"  {one}\n" for one in listed), ")\n"]


def _subpaths(paths: Iterable[str]) -> list[str]:
    return [f"(subpath {quoted(path)})" for path in paths]


def _named(folders: Iterable[str], names: Iterable[str]) -> list[str]:
    """Names at any depth below the folders, and everything below what bears such a name."""
    listed = "|".join(sorted(pattern(name) for name in names))
    return [f'(regex #"^{pattern(folder)}/(.*/)?({listed})(/|$)")' for folder in folders] if listed else []


def _ancestors(paths: Iterable[str], writable: Sequence[str]) -> list[str]:
    """The folders between what is locked and the working directory: renaming one would move the lock away."""
    found = []
    for path in paths:
        parent = path.rpartition("/")[0]
        while any(parent.startswith(folder.rstrip("/") + "/") for folder in writable):
            found.append(f"(literal {quoted(parent)})")
            parent = parent.rpartition("/")[0]
    return found
