"""Which external hooks may run: those of the user and the operator, and of a project's own what was looked at.

A command says nothing about the script behind it, and a script changes while nobody looks; so an approval covers the
definition and every file that the command names, and both are compared again before each run.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pegboard.errors import UsageError
from pegboard.trust import Trust, changes, digest_files, digest_of

if TYPE_CHECKING:
    from pegboard.external import Hook
    from pegboard.places import Places

KIND = "hook"
"""What approvals of hooks are filed under."""

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/nix", "/snap", "/System", "/Library", "/Applications",
          "/dev", "/proc")  # fmt: skip
"""Programs of the machine are no part of an approval: whoever can change them needs no hook."""

LARGEST_COPY = 256 * 1024
"""[C] Bytes. A copy of an approved script up to this size is kept, so that a change can be shown as a diff."""

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?[-=?][^}]*)?\}|(\w+))")
_EXECUTOR = re.compile(
    r"\.|source|eval|(?:ba|da|z|k|fi|a)?sh|python[\d.]*|pypy[\d.]*|uv|node|nodejs|deno|bun|tsx|ts-node|ruby|perl|php"
    r"|lua[\d.]*|Rscript|julia|java|go|dotnet|swift|osascript|pwsh|powershell|[gm]?awk|g?make|just"
)
"""Programs that run a file that they are given."""

_BREAK = re.compile(r"[\s;&|<>()\"'`=]+")


def words(hook: Hook, places: Places) -> list[str]:
    """Every part of a command that could name a file, with the variables for the project and the home filled in."""
    if hook.type != "command":
        return []
    known = {"CLAUDE_PROJECT_DIR": str(places.root), "PEG_PROJECT_DIR": str(places.root), "HOME": str(places.home)}

    def filled(text: str) -> str:
        return _VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), text)

    command, args = filled(hook.what), [filled(one) for one in hook.args or ()]
    found = [*_BREAK.split(command), *args]
    for text in args:
        found += _BREAK.split(text)
    with suppress(ValueError):  # a quote is not closed; the plain pieces are there all the same
        found += shlex.split(command)
    home = str(places.home)
    return [home + word[1:] if word.startswith("~/") else word for word in dict.fromkeys(found) if word]


def paths(hook: Hook, places: Places, cwd: Path) -> list[str]:
    """Where the files of a command would be.

    Relative names count from the project's root, from ``cwd``, and from every folder that the command names.
    """
    named = [word for word in words(hook, places) if "\0" not in word]
    folders = [str(places.root), str(cwd)]
    folders += [path for word in named if os.path.isdir(path := os.path.join(places.root, word))]
    found = {os.path.normpath(os.path.join(folder, word)): None for word in named for folder in folders}
    return [path for path in found if not _of_the_machine(path, places)]


def _of_the_machine(path: str, places: Places) -> bool:
    mine = _below(path, str(places.root)) or _below(path, str(places.home))
    return not mine and any(_below(path, folder) for folder in SYSTEM)


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def scripts(hook: Hook, places: Places, cwd: Path) -> dict[str, str]:
    """The files behind a command that could run, as they are reached, and where each really lies.

    What is only read (a file given to a formatter) is none of them; where that cannot be told, it is.
    """
    all_run = _runs_what_it_is_given(hook, places)
    found = (path for path in paths(hook, places, cwd) if os.path.isfile(path))
    return {path: os.path.realpath(path) for path in found if all_run or _runs(path)}


def _runs_what_it_is_given(hook: Hook, places: Places) -> bool:
    text = " ".join([hook.what, *(hook.args or ())])
    try:
        shlex.split(hook.what)
    except ValueError:
        return True
    programs = (os.path.basename(word) for word in words(hook, places))
    return any(sign in text for sign in ("$(", "`", "<(")) or any(map(_EXECUTOR.fullmatch, programs))


def _runs(path: str) -> bool:
    """Whether a file can be started by itself: it is executable, or says what it is written for."""
    try:
        if os.stat(path).st_mode & 0o111:
            return True
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True


def content(hook: Hook, places: Places, cwd: Path) -> dict[str, str]:
    """What an approval covers: the definition, and the digest of each file. Raises OSError for an unreadable file."""
    shape = msgspec.structs.replace(hook, scope="", source="", why_not="")
    covered = {"definition": msgspec.json.encode(shape, order="deterministic").decode()}
    for path, real in scripts(hook, places, cwd).items():
        covered[_label(path, places)] = digest_files(Path(real))[os.path.basename(real)]
    return covered


def _label(path: str, places: Places) -> str:
    return os.path.relpath(path, places.root) if _below(path, str(places.root)) else path


def needs_approval(hook: Hook, places: Places, cwd: Path) -> bool:
    """Whether a hook, or a script behind it, comes with the workspace."""
    if hook.scope == "managed":
        return False
    if hook.own:
        return True
    root, own = os.path.realpath(places.root), os.path.realpath(places.user_dir)
    if root == os.path.realpath(places.home):
        return False
    reached = [path for pair in scripts(hook, places, cwd).items() for path in pair]
    return any(_below(path, root) and not _below(path, own) for path in reached)


class Approvals:
    """Says of each hook whether it may run now. Files are read again only when one of them has changed."""

    def __init__(self, places: Places, trusted: bool) -> None:
        self._places = places
        self._trusted = trusted
        self._trust = Trust.load(places)
        self._store: object = None
        self._known: dict[Hook, tuple[object, str]] = {}

    def why_not(self, hook: Hook, cwd: Path) -> str:
        """Empty, or why a hook does not run: not approved, or changed since then."""
        store = _stamp(str(self._trust.path))
        if store != self._store:
            self._trust, self._store = Trust.load(self._places), store
        now = (store, cwd, *(_stamp(path) for path in paths(hook, self._places, cwd)))
        known = self._known.get(hook)
        if known is None or known[0] != now:
            known = self._known[hook] = (now, self._judge(hook, cwd))
        return known[1]

    def known(self, hook: Hook) -> bool:
        """Whether a hook was approved once, in whatever form."""
        return self._trust.approval(KIND, hook.name, where=str(self._places.root)) is not None

    def _judge(self, hook: Hook, cwd: Path) -> str:
        if not needs_approval(hook, self._places, cwd):
            return ""
        if not self._trusted:
            return "it comes with the workspace, which is not trusted"
        told = compared(hook, self._places, self._trust, cwd)
        if told is None:
            # Trust for one run (--trust) takes the workspace as it is; stored trust covers what was shown.
            return UNSEEN if self._trust.trusted() else ""
        return told


UNSEEN = "nobody has approved it yet"


def compared(hook: Hook, places: Places, trust: Trust, cwd: Path) -> str | None:
    """Empty when a hook is what was approved, else what is different; None when it was never approved."""
    given = trust.approval(KIND, hook.name, where=str(places.root))
    if given is None:
        return None
    try:
        covered = content(hook, places, cwd)
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    if digest_of(covered) == given.digest:
        return ""
    return f"it changed since it was approved ({', '.join(changes(given.files, covered))})"


def approve(hook: Hook, shown: Mapping[str, str], places: Places, trust: Trust) -> None:
    """Remember a hook as it was shown, and keep a copy of its scripts. Raises OSError and `UsageError`."""
    covered = content(hook, places, places.root)
    if covered != shown:
        raise UsageError(f"{hook.name} changed while it was looked at. It is not approved; look again.")
    for path, real in scripts(hook, places, places.root).items():
        _keep(Path(real), covered[_label(path, places)], places)
    trust.approve(KIND, hook.name, digest_of(covered), files=covered, where=str(places.root))


def _keep(script: Path, digest: str, places: Places) -> None:
    from pegboard import atomic

    if script.stat().st_size <= LARGEST_COPY and digest.startswith("sha256:"):
        target = _copy(digest, places)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic.replace(target, script.read_bytes(), mode=0o600)


def _copy(digest: str, places: Places) -> Path:
    return places.user_dir / "approved" / digest.removeprefix("sha256:")


def difference(hook: Hook, places: Places, trust: Trust) -> Iterator[str]:
    """What changed since a hook was approved, as the lines of a diff; nothing where it was never approved."""
    import difflib

    given = trust.approval(KIND, hook.name, where=str(places.root))
    if given is None:
        return
    covered = content(hook, places, places.root)
    files = {_label(path, places): real for path, real in scripts(hook, places, places.root).items()}
    for name in sorted(name for name in {*given.files, *covered} if given.files.get(name) != covered.get(name)):
        before, after = given.files.get(name, ""), covered.get(name, "")
        if name != "definition":
            before, after = _text(_copy(before, places)) if before else "", _text(files[name]) if after else ""
        yield from difflib.unified_diff(
            before.splitlines(), after.splitlines(), f"{name} (approved)", f"{name} (now)", lineterm=""
        )


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return "(no copy is kept)"


def _stamp(path: str) -> tuple[int, ...] | None:
    """What tells one state of a file from another; None = it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode)
