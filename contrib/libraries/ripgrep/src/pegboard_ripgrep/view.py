"""What every search leaves out, how names are shown, and how the engine's diagnostics read.

Grep and Glob must agree on these, or a file is found by one and denied by the other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pegboard.tool import Access, Context

from pegboard_ripgrep.engine import Engine
from pegboard_ripgrep.runner import End, Limits, Run, run

VCS_FOLDERS = (".git", ".hg", ".svn", ".jj", ".sl", ".bzr")
"""[C] Folders of version-control metadata; entered only when the call names them."""

_COUNT_DEADLINE = 2.0
_UNPORTABLE = set("{}[]\\!")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")
_DIAGNOSTIC = re.compile(
    r"^(?:rg: )?(?P<path>.*?): (?:IO error for operation on .*?: )?(?P<why>[^:]*) \(os error (?P<number>\d+)\)$"
)
_GONE = {"2", "20"}
"""ENOENT and ENOTDIR: the entry vanished while the engine walked."""


def skip_folders(named: Iterable[str] = ()) -> list[str]:
    """Flags that keep the engine out of version-control folders, except those in ``named``."""
    return [f"--glob=!{folder}/" for folder in VCS_FOLDERS if folder not in named]


@dataclass
class Denies:
    """The Read deny rules that reach below one folder."""

    ctx: Context
    root: Path
    globs: list[str]

    @classmethod
    def below(cls, ctx: Context, root: Path) -> Denies:
        """The rules that matter for a search in ``root``."""
        return cls(ctx, root, ctx.read_denies(root))

    def __bool__(self) -> bool:
        return bool(self.globs)

    def flags(self) -> list[str]:
        """Flags that exclude what the engine can exclude. `hides` stays the authority."""
        return [f"--glob=!{glob}" for glob in self._portable()]

    def hides(self, name: str) -> bool:
        """Whether the file of this name, relative to the folder, must not appear."""
        return bool(self.globs) and self.ctx.denied(Access.read(os.path.join(self.root, name))) is not None

    async def note(self, engine: Engine, flags: Sequence[str]) -> str:
        """A sentence about what was left out; empty when nothing was.

        The count is of files below the folder, whatever the pattern: a count of hidden matches would let a caller
        guess the content of a hidden file piece by piece.
        """
        names: set[bytes] = set()
        known = len(self._portable()) == len(self.globs)
        if known:
            found = await run(
                self.ctx,
                engine,
                ["--files", "--hidden", "--null", *flags, *(f"--glob={glob}" for glob in self.globs), *skip_folders()],
                ["./"],
                root=self.root,
                take=lambda records: names.update(filter(None, records)),
                separator=b"\0",
                limits=Limits(deadline=_COUNT_DEADLINE),
            )
            known = found.end is End.DONE
        if known and not names:
            return ""
        many = f"{len(names):,} {'file' if len(names) == 1 else 'files'}" if known else "Files"
        return f"{many} under Read deny rules left out."

    def _portable(self) -> list[str]:
        return [glob for glob in self.globs if not _UNPORTABLE & set(glob)][:1000]


def shown_name(name: bytes | str) -> str:
    """A file name as text that JSON can carry: invalid bytes become U+FFFD, control characters are escaped."""
    raw = os.fsencode(name) if isinstance(name, str) else name
    text = raw.decode("utf-8", "replace")
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def shown_prefix(ctx: Context, folder: Path) -> str:
    """What stands before a name below ``folder``: nothing in the session directory, else its path with a slash."""
    shown = ctx.shown(folder)
    return "" if shown == "." else shown_name(shown.rstrip("/") + "/")


def plain(name: bytes) -> bytes:
    """A name as the engine prints it, without the leading ``./``."""
    return name[2:] if name.startswith(b"./") else name


@dataclass(frozen=True)
class Trouble:
    """What the engine complained about: places it could not read, and everything else."""

    unreadable: list[str]
    """Names below the root, in the engine's order."""
    other: str

    def note(self, prefix: str) -> str:
        """A warning that names up to five places; empty when all could be read."""
        if not self.unreadable:
            return ""
        names = ", ".join(shown_name(prefix + name) for name in self.unreadable[:5])
        more = f" and {len(self.unreadable) - 5:,} more" if len(self.unreadable) > 5 else ""
        many = "1 file or folder" if len(self.unreadable) == 1 else f"{len(self.unreadable):,} files or folders"
        return f"{many} could not be read, so the answer may be incomplete: {names}{more}."


def trouble(ended: Run) -> Trouble:
    """Sort the diagnostics of a run."""
    unreadable: dict[str, None] = {}
    other = []
    for line in ended.diagnostics.splitlines():
        found = _DIAGNOSTIC.match(line)
        if found is None:
            other.append(line)
        elif found["number"] not in _GONE:
            path = found["path"]
            unreadable[path[2:] if path.startswith("./") else path] = None
    return Trouble(list(unreadable), "\n".join(other).strip().removeprefix("rg: "))


def blocks(text: str, limit: int = 2000) -> str:
    """A diagnostic cut to a readable length."""
    return text if len(text) <= limit else text[:limit] + " [cut]"


def split_outside_braces(text: str) -> Iterator[str]:
    """Parts of a list separated by commas or white space, except inside braces and after a backslash."""
    depth, part, escaped = 0, "", False
    for char in text:
        if escaped or char == "\\":
            escaped = not escaped
        elif char in "{}":
            depth = max(0, depth + (1 if char == "{" else -1))
        elif depth == 0 and (char == "," or char.isspace()):
            if part:
                yield part
            part = ""
            continue
        part += char
    if part:
        yield part
