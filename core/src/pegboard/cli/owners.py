"""The owner types behind the tools that passed the gate: who holds what a tool changes.

Only these are ever imported; a name in a session file opens nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegboard.account import Holder
    from pegboard.loader import Found
    from pegboard.state import Owner


def classes(tools: Mapping[str, Found]) -> dict[str, type[Owner]]:
    """The owner types of these tools, by the name that they have in transcripts."""
    from pegboard.state import owner_name

    names = {name for found in tools.values() for name in found.manifest.owners}
    types = [found for name in sorted(names) if (found := load(name)) is not None]
    return {owner_name(found): found for found in types}


def load(name: str) -> type[Owner] | None:
    """An owner type by the name in a manifest; None when it cannot be imported."""
    import importlib

    module, _, cls = name.partition(":")
    try:
        found: type[Owner] = getattr(importlib.import_module(module), cls)
    except Exception:  # an owner that cannot be imported holds nothing that could be brought back
        return None
    return found


def holder_of(tools: Mapping[str, Found]) -> Callable[[str], Holder | None]:
    """Who holds what a tool changes: the first owner of its manifest that can go back, else its first owner."""
    from pegboard.account import Holder
    from pegboard.state import Owner

    @cache
    def holder(tool: str) -> Holder | None:
        found = tools.get(tool)
        names = found.manifest.owners if found is not None else []
        types = [(name, load(name)) for name in names]
        owners = [Holder(name, one is not None and one.mark is not Owner.mark) for name, one in types]
        return next((owner for owner in owners if owner.rewinds), owners[0] if owners else None)

    return holder
