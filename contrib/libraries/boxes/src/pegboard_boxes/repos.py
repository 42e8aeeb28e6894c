"""What in a Git repository decides which programs Git starts: where it lies, and what of it must not be written.

Read as files: asking Git would already run what the repository says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LARGEST = 262_144
"""[C] Bytes of a configuration that are looked at; a longer one counts as dangerous."""

MOST_INNER = 64
"""[C] Submodule and worktree folders of one repository that are looked into."""

_HOOKS = re.compile(r"^[ \t]*hookspath[ \t]*=[ \t]*\"?([^\"\n;#]+?)\"?[ \t]*$", re.IGNORECASE | re.MULTILINE)
_SECTION = re.compile(r"^[ \t]*\[[ \t]*([\w.-]+)(?:[ \t]+\"((?:[^\"\\]|\\.)*)\")?[ \t]*\](.*)$")
_KEY = re.compile(r"^[ \t]*([A-Za-z][\w-]*)[ \t]*(?:=[ \t]*(.*))?$")

RUNS = {
    "core": {"fsmonitor", "hookspath", "sshcommand", "editor", "pager", "askpass", "gitproxy", "worktree",
             "alternaterefscommand"},
    "credential": {"helper"},
    "filter": {"clean", "smudge", "process"},
    "diff": {"command", "textconv", "external"},
    "difftool": {"cmd"},
    "merge": {"driver"},
    "mergetool": {"cmd"},
    "gpg": {"program"},
    "sequence": {"editor"},
    "submodule": {"update"},
    "include": {"path"},
    "includeif": {"path"},
    "uploadpack": {"packobjectshook"},
    "remote": {"uploadpack", "receivepack", "vcs", "proxy"},
    "url": {"insteadof", "pushinsteadof"},
    "http": {"proxy", "sslverify", "cookiefile"},
    "protocol": {"allow"},
    "trailer": {"command", "cmd"},
    "web": {"browser"},
    "browser": {"cmd", "path"},
    "man": {"cmd", "path"},
    "interactive": {"difffilter"},
    "sendemail": {"smtpserver", "tocmd", "cccmd"},
}  # fmt: skip
"""Section -> keys by which a repository makes Git start programs, read other settings or go elsewhere."""


@dataclass(frozen=True)
class Repository:
    """One repository as the file system tells it."""

    marker: str
    """The ``.git`` folder or file, or the folder of a bare repository."""
    gitdir: str
    common: str
    """Where hooks, configuration and objects are; of a linked worktree, the main repository's folder."""
    registered: bool = True
    """The main repository knows the marker as its own worktree, so the link was not made up here."""

    @property
    def linked(self) -> bool:
        """It is a worktree of a repository elsewhere."""
        return self.common != self.gitdir

    def folders(self) -> Iterator[str]:
        """Folders that hold hooks and a configuration: its own, and those of its submodules."""
        yield self.common
        yield from inner(f"{self.common}/modules")

    def deciding(self) -> Iterator[tuple[str, bool]]:
        """What must not be written, with whether it is a folder. Some of it may not exist yet."""
        for folder in self.folders():
            yield f"{folder}/hooks", True
            yield f"{folder}/config", False
            if os.path.lexists(f"{folder}/config.worktree"):
                yield f"{folder}/config.worktree", False
            for path in hook_folders(f"{folder}/config", os.path.dirname(self.marker)):
                yield path, True
        if self.linked and os.path.lexists(f"{self.gitdir}/config.worktree"):
            yield f"{self.gitdir}/config.worktree", False


def read(marker: str) -> Repository | None:
    """The repository of a ``.git`` folder or file, or of a bare one; None where the link leads nowhere."""
    if os.path.isdir(marker):
        return Repository(marker, marker, _common(marker))
    try:
        text = Path(marker).read_text("utf-8", "surrogateescape")[:4096]
    except OSError:
        return None
    if not text.startswith("gitdir:"):
        return None
    gitdir = os.path.realpath(os.path.join(os.path.dirname(marker), text[7:].strip()))
    if not os.path.isdir(gitdir):
        return None
    common = _common(gitdir)
    return Repository(marker, gitdir, common, _registered(marker, gitdir, common))


def _common(gitdir: str) -> str:
    try:
        text = Path(gitdir, "commondir").read_text("utf-8", "surrogateescape").strip()
    except OSError:
        return gitdir
    return os.path.realpath(os.path.join(gitdir, text))


def _registered(marker: str, gitdir: str, common: str) -> bool:
    if os.path.dirname(gitdir) != f"{common}/worktrees":
        return False
    try:
        back = Path(gitdir, "gitdir").read_text("utf-8", "surrogateescape").strip()
    except OSError:
        return False
    return os.path.realpath(os.path.join(gitdir, back)) == os.path.realpath(marker)


def inner(folder: str) -> Iterator[str]:
    """Git folders below ``modules``: those of submodules, also nested ones."""
    todo, seen = [folder], 0
    while todo and seen < MOST_INNER:
        here = todo.pop()
        try:
            names = sorted(os.listdir(here))
        except OSError:
            continue
        if "HEAD" in names and "objects" in names:
            seen += 1
            yield here
            names = ["modules"] if "modules" in names else []
        todo += [f"{here}/{name}" for name in names if os.path.isdir(f"{here}/{name}")]
        seen += 1


def worktrees(common: str) -> list[str]:
    """The folders of the linked worktrees of a repository."""
    try:
        found = sorted(os.listdir(f"{common}/worktrees"))[:MOST_INNER]
    except OSError:
        return []
    return [f"{common}/worktrees/{name}" for name in found]


def _text(path: str) -> str | None:
    """A configuration; None when it is too long to be looked at, empty when there is none."""
    try:
        with open(path, "rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError:
        return ""
    return None if len(raw) > LARGEST else raw.decode("utf-8", "surrogateescape")


def hook_folders(config: str, tree: str) -> list[str]:
    """Folders that a configuration names for hooks; relative ones count from the working tree."""
    found = _HOOKS.findall(_text(config) or "")
    return [os.path.normpath(os.path.join(tree, os.path.expanduser(path))) for path in found]


def dangers(config: str) -> list[str]:
    """The keys of a configuration by which Git would start something, such as ``core.fsmonitor``."""
    text = _text(config)
    if text is None:
        return ["a configuration too long to be looked at"]
    found, section = [], ""
    for line in text.replace("\\\n", " ").splitlines():
        opened = _SECTION.match(line)
        if opened:
            section, line = opened[1].partition(".")[0].casefold(), opened[3]
        key = _KEY.match(line)
        if key is None:
            continue
        name, value = key[1].casefold(), (key[2] or "").strip().strip('"')
        if section == "alias":
            if value.startswith("!"):
                found.append(f"alias.{name}")
        elif name in RUNS.get(section, ()) and not _harmless(section, name, value):
            found.append(f"{section}.{name}")
    return list(dict.fromkeys(found))


def _harmless(section: str, name: str, value: str) -> bool:
    if (section, name) == ("core", "fsmonitor"):
        return value.casefold() in ("false", "no", "0", "")
    if (section, name) == ("http", "sslverify"):
        return value.casefold() in ("true", "yes", "1")
    if (section, name) == ("core", "worktree"):
        return not os.path.isabs(value)
    if (section, name) == ("submodule", "update"):
        return not value.startswith("!")
    return not value
