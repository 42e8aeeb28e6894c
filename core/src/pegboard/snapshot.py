"""From settings, approvals and the machine to the frozen snapshot that the gate judges by.

Kept apart from the gate so that the nine questions stay pure, and from the settings so that those know no plug-ins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from pegboard.candidate import Candidate
from pegboard.gate import GateSnapshot, Switch, holders, own_names
from pegboard.names import fold, pick

if TYPE_CHECKING:
    from pegboard.settings import Settings
    from pegboard.settings_entries import Entry

SCOPES = ("managed", "flag", "local", "project", "user", "recommended")
"""Settings scopes, highest first."""


def take(
    found: Sequence[Candidate], settings: Settings, approved: Mapping[str, str], missing: Mapping[str, str]
) -> GateSnapshot:
    """The snapshot of this moment for these candidates.

    ``approved``: digests by `Candidate.key`. ``missing``: what `pegboard.engines` says of their needs.
    """
    deny, allow = _counted(settings, "plugins.deny"), _counted(settings, "plugins.allow")
    origins, default = _counted(settings, "plugins.sources"), _counted(settings, "tools.default")
    now = GateSnapshot(
        deny=tuple(settings.value("plugins.deny")) if deny else (),
        allow=tuple(settings.value("plugins.allow")) if allow else None,
        managed=", ".join(dict.fromkeys(entry.source for entry in (*deny, *allow))),
        origins=frozenset(settings.value("plugins.sources")) if origins else GateSnapshot().origins,
        origins_source=_place(origins[0]) if origins else "",
        trusted=settings.trusted,
        approved=approved,
        switches=tuple(switches(settings)),
        default=settings.value("tools.default") if default else "all",
        default_source=_place(default[0]) if default else "",
        override=_overrides(settings),
        missing=missing,
    )
    return msgspec.structs.replace(now, holders=holders(found, now))


def switches(settings: Settings) -> Iterator[Switch]:
    """What each scope says about tools, highest first; managed force before everything."""
    forced_off, forced_on = _counted(settings, "tools.force_disabled"), _counted(settings, "tools.force_enabled")
    if forced_off or forced_on:
        yield _switch("managed", forced_off, forced_on, forced=True)
    off, on = _counted(settings, "tools.disabled"), _counted(settings, "tools.enabled")
    for scope in SCOPES if off or on else ():
        ours = [[entry for entry in entries if entry.scope == scope] for entries in (off, on)]
        if any(ours):
            yield _switch(scope, *ours)


def _switch(scope: str, off: list[Entry], on: list[Entry], *, forced: bool = False) -> Switch:
    return Switch(
        scope=scope,
        source=", ".join(dict.fromkeys(entry.source for entry in (*off, *on))),
        on=frozenset(fold(name) for entry in on for name in entry.value),
        off=frozenset(fold(name) for entry in off for name in entry.value),
        forced=forced,
    )


def _overrides(settings: Settings) -> dict[str, tuple[str, str]]:
    """``tools.override``: ``"Read"`` lets any other plug-in take the name, ``"Read=acme-read"`` this one alone."""
    found: dict[str, tuple[str, str]] = {}
    for entry in _counted(settings, "tools.override"):
        for text in entry.value:
            tool, _, dist = text.partition("=")
            name = pick(tool.strip(), own_names())
            if name is not None:
                found.setdefault(name, (dist.strip(), _place(entry)))
    return found


def _counted(settings: Settings, key: str) -> list[Entry]:
    return [entry for entry in settings.entries(key) if not entry.why_not]


def _place(entry: Entry) -> str:
    return f"{entry.source}:{entry.line}" if entry.line else entry.source
