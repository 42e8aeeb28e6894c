"""Rules that carry their own examples: ``{ rule = "Bash(make *)", match = ["make test"], not_match = ["makefile"] }``.

A pattern says less or more than its author meant sooner or later; an example beside it makes that a fault of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from pegboard.errors import UsageError

if TYPE_CHECKING:
    from pegboard.ruleindex import Anchors
    from pegboard.rules import Rule

EFFECTS = ("deny", "ask", "allow")
HERE, HOME = "/example/project", "/example/home"
"""Where relative paths and ``~`` of examples are: an example means the same in every directory."""


class Examples(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule as a table: its text, and what it must and must not match."""

    rule: str
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()


def apart(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, tuple[Examples, ...]]]:
    """A file's values with rule tables as plain rules, and the examples by the key they were written under.

    A table that is none of ours stays as it is, to be reported as a value of the wrong type.
    """
    found: dict[str, tuple[Examples, ...]] = {}
    for prefix, table in (("", data), ("recommended.", data.get("recommended"))):
        permissions = table.get("permissions") if isinstance(table, Mapping) else None
        for effect in EFFECTS:
            listed = permissions.get(effect) if isinstance(permissions, Mapping) else None
            if isinstance(listed, list) and any(isinstance(item, Mapping) for item in listed):
                assert isinstance(table, Mapping) and isinstance(permissions, Mapping)
                rows = [_read(item) for item in listed]
                key = f"{prefix}permissions.{effect}"
                found[key] = tuple(row for row in rows if isinstance(row, Examples))
                permissions = {**permissions, effect: [row.rule if isinstance(row, Examples) else row for row in rows]}
                table = {**table, "permissions": permissions}
        data = {**data, "recommended": table} if prefix and table is not None else table or data
    return data, found


def _read(item: Any) -> Any:
    try:
        return msgspec.convert(item, Examples) if isinstance(item, Mapping) else item
    except msgspec.ValidationError:
        return item


def faults(effect: str, examples: Examples) -> list[str]:
    """What is wrong with a rule by its own examples; empty if they hold. A rule that is none is reported elsewhere."""
    from pegboard.ruleindex import Anchors
    from pegboard.rules import parse_rule

    try:
        rule = parse_rule(examples.rule, effect=effect, scope="user", root=HERE)
    except UsageError:
        return []
    anchors = Anchors(HERE, HOME, HERE, (HERE,))
    wrong = [
        f"{rule.text} should match {one!r} and does not" for one in examples.match if not covers(rule, one, anchors)
    ]
    return wrong + [
        f"{rule.text} matches {one!r} and should not" for one in examples.not_match if covers(rule, one, anchors)
    ]


def covers(rule: Rule, example: str, anchors: Anchors) -> bool:
    """Whether a rule speaks about an example.

    The example is a simple command (Bash), a path, a host or URL (WebFetch), the value of the field
    (``Tool(field:value)``), a name, and for a rule about whole tools the name of a tool. Pure.
    """
    from pegboard.paths import plain
    from pegboard.ruleindex import RuleIndex
    from pegboard.rules import glob, host_of, kind_of, parameter, pieces

    index, strict = RuleIndex([rule], anchors, {}), rule.effect != "allow"
    field = parameter(rule)
    if rule.specifier is None:
        return bool(index.of_tool((example,))[0])
    kind = kind_of(rule)
    if field is not None and not (kind == "command" and field[1] == "*"):  # Bash(rm:*) is a command
        return glob(pieces(field[1]), example)
    if kind == "command":
        return any(index.commands(example, strict))
    if kind == "host":
        host = example.partition("://")[2].partition("/")[0] if "://" in example else example
        return any(index.hosts((rule.tool,), host_of(host), strict))
    if kind == "name":
        return any(index.names((rule.tool,), example, strict))
    home, slash, rest = example.partition("/")
    path = f"{anchors.home}{slash}{rest}" if home == "~" else example
    path = plain(path if path.startswith("/") else f"{anchors.cwd}/{path}")
    return any(index.paths(rule.tool, path, example.endswith("/"), strict))
