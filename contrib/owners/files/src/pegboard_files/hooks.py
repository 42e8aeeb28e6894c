"""The hook that the files owner brings: `peg_file_changed`.

It lets a language server, a formatter or an index hear of a change without any tool knowing them. An implementation
marks itself ``@hook(optionalhook=True)``, because this spec exists only where the owner is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pegboard.hooks import spec

if TYPE_CHECKING:
    import pluggy
    from pegboard.tool import Context


@dataclass(frozen=True)
class FileChange:
    """One finished change of one file."""

    path: str
    """Real path: absolute, free of symlinks."""
    kind: str
    """create, update or delete"""
    content: bytes | None
    """The bytes that are on disk now; None after a delete."""
    digest: str | None
    """SHA-256 of the content in hex: the version that an answer is about."""


class FileSpecs:
    """The manual of this hook."""

    @spec
    async def peg_file_changed(self, change: FileChange, ctx: Context | None) -> str | None:
        """A file was changed by a tool, or by a rewind (then ``ctx`` is None).

        Return text for the model (fresh diagnostics of exactly this version, for example), or None.
        """


def add_specs(manager: pluggy.PluginManager) -> None:
    """Teach a plug-in manager this hook, once."""
    caller = getattr(manager.hook, "peg_file_changed", None)
    if caller is None or caller.spec is None:
        manager.add_hookspecs(FileSpecs)
