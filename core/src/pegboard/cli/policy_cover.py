"""Which rules cover another one wholly, so that it can never decide: found by asking the real index about samples.

A wildcard is tried out with a text that no rule has. A rule that matches it there matches anything there, so what is
reported as covered is covered; what cannot be tried out (character classes in paths) is not reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from pegboard.decision import STRENGTH, Judged, Snapshot, allow_rules, order, strict_rules
from pegboard.floors import critical_removal, protected, words
from pegboard.paths import Bound, inside, literal
from pegboard.ruleindex import bind
from pegboard.rules import Rule, command_pattern, host_pattern, kind_of, open_allow, parameter, pieces
from pegboard.tool import Access, AccessKind

if TYPE_CHECKING:
    from collections.abc import Sequence

FRESH = "zq7peg"
"""Stands for "anything": a text that no rule spells out."""

OTHER = "%Q-9_\u00e9.peg"
"""A second one for paths, of other characters and another length, because ``?`` and ``[a-z]`` may fit the first."""


class Sample(NamedTuple):
    """One call that a rule speaks about: the tool's names, and what it touches."""

    names: tuple[str, ...]
    item: Judged | None


class Loss(NamedTuple):
    """Why a rule never decides: the rule that stands before it (None for a floor), and the reason."""

    to: Rule | None
    reason: str
    same: bool
    """The other rule says the same, so nothing is lost."""


def losses(rule: Rule, snapshot: Snapshot) -> list[Loss]:
    """What stands before a rule in everything that it speaks about; empty if it can decide something."""
    tried = list(samples(rule, snapshot))
    if not tried:
        return []
    found = [_floor(rule, tried, snapshot)] if rule.effect == "allow" else []
    each = [_matching(sample, snapshot) for sample in tried]
    for other in each[0].values():
        if other is rule or not all(id(other) in one for one in each):
            continue
        if STRENGTH[other.effect] < STRENGTH[rule.effect]:
            found.append(Loss(other, f"{other.effect} rule {other.text} covers all of it", False))
        elif other.effect == rule.effect and _before(other, rule, snapshot):
            found.append(Loss(other, f"{other.text} says the same", True))
    return [loss for loss in found if loss is not None]


def _before(other: Rule, rule: Rule, snapshot: Snapshot) -> bool:
    """Whether an equal effect makes the second rule superfluous: the other is wider, or comes first."""
    back = [id(rule) in _matching(sample, snapshot) for sample in samples(other, snapshot)]
    return not all(back) or not back or order(other) < order(rule)


def _matching(sample: Sample, snapshot: Snapshot) -> dict[int, Rule]:
    rules = list(snapshot.index.of_tool(sample.names)[0])
    if sample.item is not None:
        rules += strict_rules(sample.item, sample.names, snapshot.index)
        rules += allow_rules(sample.item, sample.names, snapshot.index)
    return {id(rule): rule for rule in rules}


def _floor(rule: Rule, tried: Sequence[Sample], snapshot: Snapshot) -> Loss | None:
    reasons = []
    for _, item in tried:
        word = ""
        if item is not None and item.access.kind is AccessKind.EDIT:
            path = item.names[0]
            word = protected(path) or (path if inside(path, snapshot.guarded) else "")
            word = f"{word} is protected" if word else ""
        elif item is not None and item.access.kind is AccessKind.RUN:
            word = critical_removal(words(item.access.target), snapshot)
        if not word:
            return None
        reasons.append(word)
    return Loss(None, f"{reasons[0]}, so a person is asked whatever rules allow", False) if reasons else None


def samples(rule: Rule, snapshot: Snapshot) -> Iterator[Sample]:
    """Calls that together stand for all that a rule speaks about; none where that cannot be told."""
    if "*" in rule.tool and rule.effect == "allow" and not open_allow(rule):
        return
    tool = rule.tool.replace("*", FRESH)
    if rule.specifier is None or parameter(rule) is not None:
        own = rule.specifier is None and "*" not in rule.tool
        whole = f"{tool}__{FRESH}" if own and tool.startswith("mcp__") and "__" not in tool[5:] else tool
        yield Sample((whole,), None)
        return
    for access in _accesses(rule, snapshot):
        yield Sample((tool,), Judged(access, (access.target,)))


def _accesses(rule: Rule, snapshot: Snapshot) -> Iterator[Access]:
    kind, given = kind_of(rule), rule.specifier or ""
    if kind == "path":
        make = Access.edit if rule.tool == "Edit" else Access.read
        for bound in bind(rule, snapshot.index.anchors):
            yield from (make(path) for fresh in (FRESH, OTHER) for path in _paths(bound, fresh))
    elif kind == "command":
        pattern = command_pattern(given)
        text = FRESH.join(pattern.stem)
        yield Access.run(text)
        if pattern.open:
            yield Access.run(f"{text} {FRESH}")
    elif kind == "host":
        wanted = host_pattern(given)
        if wanted.startswith("*.") or wanted == "*":
            rest = wanted[1:].replace("*", FRESH) or f".{FRESH}"
            yield Access.fetch(FRESH + rest)
            yield Access.fetch(f"{FRESH}.{FRESH}{rest}")
        else:
            yield Access.fetch(wanted.replace("*", FRESH))
    else:
        yield Access.use(FRESH.join(pieces(given)))


def _paths(bound: Bound[Rule], fresh: str) -> Iterator[str]:
    parts: list[tuple[tuple[str, ...], ...]] = []
    if bound.pattern.floats:
        parts.append(((), (fresh, fresh)))
    last = len(bound.pattern.parts) - 1
    for index, part in enumerate(bound.pattern.parts):
        if part == "**":
            parts.append(((fresh,), (fresh, fresh)) if index == last else ((), (fresh,), (fresh, fresh)))
            continue
        text = literal(part)
        if text is None:
            if re.search(r"[\[\\]", part):
                return
            text = re.sub(r"\*+", fresh, part).replace("?", "q")
        parts.append(((text,),))
    if not bound.pattern.exact and bound.pattern.parts[-1:] != ("**",):
        parts.append(((), (fresh,)))
    for chosen in product(*parts):
        yield "/".join((bound.base.rstrip("/"), *(name for names in chosen for name in names))) or "/"
