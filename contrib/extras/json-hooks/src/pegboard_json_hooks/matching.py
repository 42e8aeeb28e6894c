"""Which hooks an event is for: matchers over names, and permission rules over calls."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from pegboard.call import Call

if TYPE_CHECKING:
    from pegboard.decision import Snapshot
    from pegboard.manifest import Manifest
    from pegboard.tool import Context

REPORTED = {"Task": "Agent"}
"""[D] Tools that hooks know under another name."""

_NAMES = re.compile(r"[A-Za-z0-9_\-\s,|]*")

OPEN = ("doubt", "blind")
"""Grades of accesses whose target is not fully known; a rule that might cover them counts as covering them."""


def reported(tool: str) -> str:
    """The name of a tool as hooks read it."""
    return REPORTED.get(tool, tool)


def names_of(manifest: Manifest) -> tuple[str, ...]:
    """Every name that a matcher may use for a tool."""
    return tuple(dict.fromkeys((reported(manifest.name), manifest.name, *manifest.aliases)))


def matches(matcher: str, names: Iterable[str]) -> bool:
    """Whether a matcher fits one of the names. Raises `re.error` for one that is no regular expression.

    Empty or ``*`` fits everything; a list of plain names fits those names; anything else is searched for.
    """
    if matcher in ("", "*"):
        return True
    if _NAMES.fullmatch(matcher):
        wanted = {name.strip() for name in re.split(r"[,|]", matcher)}
        return not wanted.isdisjoint(names)
    pattern = re.compile(matcher)
    return any(pattern.search(name) for name in names)


def fits(rule: str, call: Call, ctx: Context) -> bool:
    """Whether a permission rule is about a call. Raises `UsageError` for one that is none.

    The rule is read like a deny rule: one segment of a command, or one spelling of a path, is enough.
    """
    from pegboard import policy

    session = ctx._session
    found = session.find_tool(call.tool)
    if found is None:
        return False
    frozen = _frozen(rule, str(session.cwd), str(session.places.home), str(session.places.root))
    tool = session.toolbox.load(found)
    accesses = list(tool.accesses(tool.Input.model_validate(call.input), ctx))
    judged = policy.resolve_accesses(accesses, frozen)
    told = policy.decide(found.manifest, call.input, judged, frozen)
    if told.verdict == "deny":
        return True
    about = {reported(one.tool) for one in frozen.rules} & set(names_of(found.manifest))
    return bool(about) and any(item.grade in OPEN for item in accesses)


@lru_cache(maxsize=256)
def _frozen(rule: str, cwd: str, home: str, root: str) -> Snapshot:
    from pegboard.policy import Snapshot, parse_rule

    parsed = parse_rule(rule, effect="deny", scope="session", source="if", root=root)
    return Snapshot.make([parsed], cwd=cwd, home=home, roots=(cwd,), project=root, trusted=True)
