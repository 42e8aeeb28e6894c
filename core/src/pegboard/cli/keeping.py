"""Session folders over time: copied for a fork, deleted when they are old.

Both work beside running sessions: a fork reads what is there and writes elsewhere, and a session in use is never
deleted.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard import events
from pegboard.errors import Locked, TranscriptError, Unreadable, UsageError
from pegboard.lines import FILE_NAME, FORMAT, encode, read
from pegboard.transcript import Transcript

if TYPE_CHECKING:
    from pegboard.places import Places

SWEEP_EVERY = 24 * 3600.0
"""[C] Seconds between two looks for old sessions."""

SWEEP_MOST = 50
"""[C] Sessions that one start deletes at most; the next day goes on."""

NAME_MOST = 80
"""[C] Characters of a session's name."""

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check_name(places: Places, name: str) -> None:
    """Refuse a name that could not be used to find the session again. Raises `UsageError`."""
    from pegboard.sessions import listing

    if not name.strip() or not name.isprintable() or len(name) > NAME_MOST:
        raise UsageError(f"A name needs 1 to {NAME_MOST} printable characters.")
    if any(item.name == name for item in listing(places)):
        raise UsageError(f"There is a session named {name} already; choose another name, or: --resume {name}")


def fork(source: Path, target: Path, *, version: str, name: str = "") -> None:
    """Copy a session to a new id; the original stays as it is, whoever holds it.

    Everything stored with it comes along, except rules that a person's answer added: those were for one session.
    Raises `TranscriptError` and leaves nothing behind then.
    """
    try:
        shutil.copytree(source, target, ignore=_left_behind(source), symlinks=True)
        target.chmod(0o700)
        begun = next((record for record in read(source / FILE_NAME) if isinstance(record, events.Started)), None)
        first = events.Started(
            format=FORMAT,
            session=target.name,
            cwd=begun.cwd if begun else "",
            version=version,
            parent=source.name,
            name=name,
            time=time.time(),
        )
        part = target / f".{FILE_NAME}.part"
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(encode(first))
            for line in _whole_lines(source / FILE_NAME):
                file.write(line + b"\n")
        part.rename(target / FILE_NAME)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise TranscriptError(f"Cannot copy the session to {target}: {error.strerror or error}.") from None


def _left_behind(source: Path) -> Callable[[str, list[str]], set[str]]:
    """Sockets and their kin cannot be copied; the session file is written anew."""

    def ignore(folder: str, names: list[str]) -> set[str]:
        special = {name for name in names if not _plain(Path(folder, name))}
        return special | ({FILE_NAME} if Path(folder) == source else set())

    return ignore


def _plain(path: Path) -> bool:
    return path.is_symlink() or path.is_dir() or path.is_file()


def _whole_lines(path: Path) -> Iterator[bytes]:
    """The lines of a session without its own first line, its approvals, and a last line that is not finished yet."""
    left = path.stat().st_size
    with path.open("rb") as file:
        for line in file:
            left -= len(line)
            text = line.strip(b"\0\r\n\t ").removeprefix(b"\xef\xbb\xbf")
            if text and line.endswith(b"\n") and not text.startswith((b'{"type":"session"', b'{"type":"approved"')):
                yield text
            if left <= 0:
                return


def sweep(places: Places, keep_days: float) -> list[str]:
    """Delete sessions of all projects that nobody wrote to for so many days; returns their ids.

    Looks once a day at most, and deletes a bounded number. Never raises: it is no reason for a start to fail.
    """
    stamp = places.user_dir / "projects" / ".swept"
    try:
        if time.time() - stamp.stat().st_mtime < SWEEP_EVERY:
            return []
    except OSError:
        pass
    gone: list[str] = []
    try:
        if not stamp.parent.is_dir():
            return []
        stamp.touch(0o600)
        for folder in _old(stamp.parent, time.time() - keep_days * 86_400):
            if remove(folder):
                gone.append(folder.name)
            if len(gone) == SWEEP_MOST:
                break
    except OSError:
        pass
    return gone


def _old(projects: Path, before: float) -> Iterator[Path]:
    for project in _folders(projects):
        for session in _folders(project):
            file = session / FILE_NAME
            try:
                if file.exists() or _ID.fullmatch(session.name):  # others are not ours to delete
                    last = (file if file.exists() else session).stat().st_mtime
                    if last < before:
                        yield session
            except OSError:
                continue


def _folders(path: Path) -> list[Path]:
    with os.scandir(path) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def remove(folder: Path) -> bool:
    """Delete a session and everything stored with it; False when it is in use.

    The session file goes first, so that what a crash leaves is no session any more.
    """
    held = None
    try:
        held = Transcript.hold(folder)
        (folder / FILE_NAME).unlink()
    except Locked:
        return False
    except Unreadable:
        pass  # a folder without a session file: left by a crash
    finally:
        if held is not None:
            held.close()
    shutil.rmtree(folder, ignore_errors=True)
    return True
