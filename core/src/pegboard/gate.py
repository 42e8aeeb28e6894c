"""The gate: nine questions about a candidate, asked in order before any of its code is imported.

Each is a pure function of the candidate and a frozen snapshot of policy, trust and settings, so that
`peg plugins explain` can print every answer and a test can ask any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from pegboard.candidate import PINNED, RANK, Candidate, Kind, Origin
from pegboard.errors import Refused
from pegboard.manifest import API, Manifest
from pegboard.names import bundled, fold

NONE: Mapping[str, str] = MappingProxyType({})


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """What one settings scope says about tools, as folded names (`pegboard.names.fold`)."""

    scope: str
    source: str
    """The file, or the flag."""
    on: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()
    forced: bool = False
    """True: set by managed policy; nothing below can turn it round."""


class GateSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the nine questions look at."""

    api: int = API
    deny: tuple[str, ...] = ()
    """Managed ``plugins.deny``: names or distributions; ``*`` stands for anything."""
    allow: tuple[str, ...] | None = None
    """Managed ``plugins.allow``; None = not set. What is bundled needs no entry."""
    origins: frozenset[str] = frozenset(Origin)
    """``plugins.sources``: origins that may be used."""
    managed: str = ""
    """Where the managed lists stand."""
    origins_source: str = ""
    trusted: bool = False
    """Whether the workspace is trusted."""
    approved: Mapping[str, str] = NONE
    """Approved digest by `Candidate.key`."""
    switches: tuple[Switch, ...] = ()
    """Highest scope first."""
    default: str = "all"
    """``tools.default``: what holds for tools that no scope names: all, core or none."""
    default_source: str = ""
    override: Mapping[str, tuple[str, str]] = MappingProxyType({})
    """Bundled tool name -> the distribution that may replace it (empty = any), and where that is set."""
    holders: Mapping[tuple[Kind, str], tuple[Candidate, ...]] = MappingProxyType({})
    """Who claims a name, of those that passed the questions before `clashes`."""
    missing: Mapping[str, str] = NONE
    """Need of a manifest -> what is wrong with it here."""


def _refuse(candidate: Candidate, question: str, reason: str, source: str = "") -> Refused:
    return Refused(candidate.name, question, reason, source)


def _listed(candidate: Candidate, patterns: Iterable[str]) -> str | None:
    names = (candidate.name, candidate.distribution, *_aliases(candidate))
    for pattern in patterns:
        for name in names:
            if pattern == name or ("*" in pattern and name and _matches(pattern, name)):
                return pattern
    return None


def _aliases(candidate: Candidate) -> list[str]:
    return candidate.manifest.aliases if isinstance(candidate.manifest, Manifest) else []


def _covers(patterns: frozenset[str], names: set[str]) -> bool:
    if not names.isdisjoint(patterns):
        return True
    return any("*" in pattern and any(_matches(pattern, name) for name in names) for pattern in patterns)


def _matches(pattern: str, name: str) -> bool:
    from fnmatch import fnmatchcase

    return fnmatchcase(name, pattern)


def denied(candidate: Candidate, now: GateSnapshot) -> Refused | None:
    """1. Does managed policy deny it by name?"""
    pattern = _listed(candidate, now.deny) if now.deny else None
    if pattern is None:
        return None
    return _refuse(candidate, "denied", f"managed policy denies it (plugins.deny: {pattern})", now.managed)


def not_allowed(candidate: Candidate, now: GateSnapshot) -> Refused | None:
    """2. Is there a managed allow list that leaves it out?"""
    if now.allow is None or candidate.origin in (Origin.BUNDLED, Origin.MANAGED) or _listed(candidate, now.allow):
        return None
    return _refuse(candidate, "not_allowed", "it is not on the managed list plugins.allow", now.managed)


def origin_off(candidate: Candidate, now: GateSnapshot) -> Refused | None:
    """3. Is the kind of source it comes from switched off?"""
    if candidate.origin in now.origins:
        return None
    reason = f"plug-ins of the source {candidate.origin} are off (plugins.sources)"
    return _refuse(candidate, "origin_off", reason, now.origins_source)


def untrusted(candidate: Candidate, now: GateSnapshot) -> Refused | None:
    """4. Does it need trust that nobody gave?"""
    if candidate.origin is Origin.PROJECT and not now.trusted:
        return _refuse(candidate, "untrusted", "this workspace is not trusted; run: peg trust", "workspace")
    if candidate.origin in PINNED and candidate.key not in now.approved:
        reason = f"nobody has approved its files yet; run: peg plugins trust {candidate.name}"
        return _refuse(candidate, "untrusted", reason, "approvals")
    return None


def changed(candidate: Candidate, now: GateSnapshot) -> Refused | None:
    """5. Are its files other than those that were approved?"""
    approved = now.approved.get(candidate.key) if now.approved else None
    if approved is None or candidate.origin is Origin.FLAG or approved == candidate.digest:
        return None
    reason = f"its files changed since they were approved; look at them, then run: peg plugins trust {candidate.name}"
    return _refuse(candidate, "changed", reason, "approvals")


def switched_off(candidate: Candidate, now: GateSnapshot) -> Refused | None:
    """6. Is the tool off in the highest scope that speaks about it?"""
    if candidate.kind is not Kind.TOOL:
        return None
    switch, on = decided((candidate.name, *_aliases(candidate)), now.switches)
    if switch is not None and on:
        return None
    if switch is not None:
        by = "managed policy switched it off" if switch.forced else f"it is off in the {switch.scope} settings"
        return _refuse(candidate, "switched_off", by, switch.source)
    load = candidate.tool.load if candidate.manifest is not None else "core"
    if now.default == "all" or (now.default == "core" and load == "core"):
        return None
    return _refuse(
        candidate, "switched_off", f"tools.default is {now.default}, and no scope turns it on", now.default_source
    )


def decided(names: Iterable[str], switches: Iterable[Switch]) -> tuple[Switch | None, bool | None]:
    """The highest scope that speaks about a tool of these names, and whether it is on there; (None, None) = none."""
    folded = {fold(name) for name in names} if switches else set()
    for switch in switches:
        if _covers(switch.off, folded):
            return switch, False
        if _covers(switch.on, folded):
            return switch, True
    return None, None


def clashes(candidate: Candidate, now: GateSnapshot) -> Refused | None:
    """7. Does somebody else hold the name?"""
    if candidate.kind is Kind.TOOL:
        reserved = _reserved(candidate, now)
        if reserved is not None:
            return reserved
    rivals = now.holders.get((candidate.kind, candidate.name), ())
    if candidate.kind is Kind.TOOL and candidate.origin is Origin.BUNDLED:
        rivals = tuple(rival for rival in rivals if rival.origin is Origin.BUNDLED)
    if len(rivals) < 2 or not any(rival == candidate for rival in rivals):
        return None
    first = rivals[0]
    if rivals[1].origin is first.origin is candidate.origin:
        others = " and ".join(rival.where for rival in rivals if rival != candidate)
        return _refuse(candidate, "clashes", f"{others} offers the same name from the same kind of source", "names")
    if candidate != first:
        return _refuse(candidate, "clashes", f"{first.where} ({first.origin}) comes first for this name", "names")
    return None


def _reserved(candidate: Candidate, now: GateSnapshot) -> Refused | None:
    """Bundled tool names can be taken over by an explicit override only, and only while the new holder can be used."""
    names = own_names()
    by = now.override.get(candidate.name)
    if candidate.origin is Origin.BUNDLED:
        if by is None:
            return None
        heirs = [held for held in now.holders.get((Kind.TOOL, candidate.name), ()) if _heir(held, now)]
        if not heirs or (len(heirs) > 1 and heirs[0].origin is heirs[1].origin):
            return None
        return _refuse(candidate, "clashes", f"{heirs[0].where} replaces it (tools.override)", by[1])
    if candidate.name in names:
        if _heir(candidate, now):
            return None
        reason = f"{candidate.name} is a bundled tool; only tools.override in your own or managed settings replaces it"
        return _refuse(candidate, "clashes", reason, "names")
    taken = names.intersection(_aliases(candidate))
    if taken:
        return _refuse(candidate, "clashes", f"its alias {min(taken)} is the name of a bundled tool", "names")
    return None


def _heir(candidate: Candidate, now: GateSnapshot) -> bool:
    """Whether an override lets this candidate take over a bundled name."""
    by = now.override.get(candidate.name)
    return by is not None and candidate.origin is not Origin.BUNDLED and by[0] in ("", candidate.distribution)


_own_names: set[str] = set()


def own_names() -> set[str]:
    """Names of the bundled tools, installed or not."""
    if not _own_names:
        _own_names.update(tool for tool in bundled().values() if tool)
    return _own_names


def wrong_api(candidate: Candidate, now: GateSnapshot) -> Refused | None:
    """8. Does its manifest speak another contract than this core?"""
    if candidate.manifest is None or candidate.manifest.api == now.api:
        return None
    newer = "update pegboard" if candidate.manifest.api > now.api else f"update {candidate.where}"
    reason = f"it is made for contract {candidate.manifest.api}, this core speaks {now.api}; {newer}"
    return _refuse(candidate, "wrong_api", reason, "core")


def missing_engine(candidate: Candidate, now: GateSnapshot) -> Refused | None:
    """9. Does it need an engine that is not here?"""
    if candidate.kind is not Kind.TOOL or candidate.manifest is None:
        return None
    for need in candidate.tool.needs:
        problem = now.missing.get(need)
        if problem:
            return _refuse(candidate, "missing_engine", problem, "engines")
    return None


GATE = (denied, not_allowed, origin_off, untrusted, changed, switched_off, clashes, wrong_api, missing_engine)


PASSES = {
    "denied": "managed policy does not deny it",
    "not_allowed": "no managed allow list leaves it out",
    "origin_off": "its kind of source is switched on",
    "untrusted": "it has the trust that its source needs",
    "changed": "its files are those that were approved",
    "switched_off": "no settings scope switches it off",
    "clashes": "nobody else holds its name",
    "wrong_api": "it speaks the contract of this core",
    "missing_engine": "the engines it needs are here",
}
"""What it means, in words, that a question does not object."""


def judge(candidate: Candidate, now: GateSnapshot) -> Refused | None:
    """The first question that objects, or None."""
    for question in GATE:
        refused = question(candidate, now)
        if refused is not None:
            return refused
    return None


def holders(found: Iterable[Candidate], now: GateSnapshot) -> dict[tuple[Kind, str], tuple[Candidate, ...]]:
    """Who claims each name, best origin first: candidates without a fault that pass every question before `clashes`.

    The heir of a bundled name (``tools.override``) counts before everybody else, all others with that name not at all.
    """
    before = GATE[: GATE.index(clashes)]
    claims: dict[tuple[Kind, str], list[Candidate]] = {}
    for candidate in found:
        if not candidate.error and not any(question(candidate, now) for question in before):
            claims.setdefault((candidate.kind, candidate.name), []).append(candidate)
    return {key: tuple(_claims(key, list_, now)) for key, list_ in claims.items()}


def _claims(key: tuple[Kind, str], rivals: list[Candidate], now: GateSnapshot) -> list[Candidate]:
    if len(rivals) < 2:
        return rivals
    if key[0] is Kind.TOOL and key[1] in own_names():
        rivals = [one for one in rivals if one.origin is Origin.BUNDLED or _heir(one, now)]
        return sorted(rivals, key=lambda one: (not _heir(one, now), RANK[one.origin]))
    return sorted(rivals, key=lambda one: RANK[one.origin])
