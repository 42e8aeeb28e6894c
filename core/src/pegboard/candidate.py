"""What the loader found, as data: Candidate, its Kind and its Origin.

A candidate exists before any of its code was imported; the gate judges it by what stands here and by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from pegboard.manifest import HooksManifest, Manifest, ProviderManifest

if TYPE_CHECKING:
    from pegboard.loader import Registry


class Kind(StrEnum):
    """What a candidate brings."""

    TOOL = "tool"
    HOOKS = "hooks"
    PROVIDER = "provider"
    HOST = "host"
    SANDBOX = "sandbox"
    COMMAND = "command"
    SKILL = "skill"
    AGENT = "agent"
    SERVER = "server"


GROUPS = {
    "pegboard.tools": Kind.TOOL,
    "pegboard.hooks": Kind.HOOKS,
    "pegboard.providers": Kind.PROVIDER,
    "pegboard.hosts": Kind.HOST,
    "pegboard.sandboxes": Kind.SANDBOX,
    "pegboard.commands": Kind.COMMAND,
}
"""Entry-point groups of Python packages."""


class Origin(StrEnum):
    """Where a candidate comes from. The order is the one in which a disputed name is given away."""

    BUNDLED = "bundled"
    """A distribution of the product, installed beside the core."""
    MANAGED = "managed"
    """A plug-in folder of the machine's administrator."""
    FLAG = "flag"
    """A folder named by ``--plugin-dir``."""
    USER = "user"
    """A plug-in folder in the user directory."""
    MARKETPLACE = "marketplace"
    """Installed from a catalogue."""
    PACKAGE = "package"
    """Any other package of the environment; whoever installs there decides for this environment."""
    PROJECT = "project"
    """A plug-in folder inside the project."""


RANK = {origin: place for place, origin in enumerate(Origin)}

PINNED = frozenset({Origin.USER, Origin.MARKETPLACE, Origin.PROJECT})
"""Origins whose content must be approved: by digest, so that a changed file holds the plug-in."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that could be loaded."""

    kind: Kind
    name: str
    origin: Origin
    where: str
    """Distribution and version, or path, or command and URL."""
    manifest: Manifest | ProviderManifest | HooksManifest | None = None
    digest: str = ""
    """Over every file of the folder; for servers over command, arguments, names of variables, URL and script.

    Empty for what the environment's owner installed, unless somebody approved it by digest."""
    folder: str = ""
    """Where the manifest and its neighbours lie."""
    entry: str = ""
    """``module:attribute``; empty where nothing is imported."""
    distribution: str = ""
    version: str = ""
    root: str = ""
    """The plug-in folder whose files ``digest`` covers; empty for packages of the environment."""
    paths: tuple[str, ...] = ()
    """Folders to append to the import path once the gate has passed."""
    error: str = ""
    """Why it cannot work, known without importing: no manifest, a broken one, a name that does not agree."""

    def __eq__(self, other: object) -> bool:
        """Two records of the same thing: what it is called, where it lies, what it names. Content may have changed."""
        return isinstance(other, Candidate) and self._same == other._same

    @property
    def _same(self) -> tuple[str, ...]:
        return (self.kind, self.name, self.where, self.entry)

    def __hash__(self) -> int:
        return hash(self._same)

    @property
    def tool(self) -> Manifest:
        """The manifest of a tool. Only for candidates of kind ``tool`` without an error."""
        assert isinstance(self.manifest, Manifest)
        return self.manifest

    @property
    def key(self) -> str:
        """What an approval is filed under: the folder, or the distribution."""
        return self.root or f"package:{self.distribution}"


def ranked(found: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Candidates in the order in which a disputed name is given away, then by name."""
    return tuple(sorted(found, key=lambda one: (RANK[one.origin], one.name)))


class Source(Protocol):
    """A place that can hold candidates, contributed by a plug-in through `peg_sources`."""

    def find(self, registry: Registry) -> Iterable[Candidate]:
        """Everything there, as data. Must not import or start anything."""
        ...

    def load(self, candidate: Candidate) -> object:
        """Make one usable. Called by the loader alone, after the gate."""
        ...
