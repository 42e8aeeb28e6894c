"""`peg policy list` and `peg policy lint`: every rule with its place and level, and what keeps it from deciding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from pegboard.cli.policy_judge import Judge, Request, rule_problems
from pegboard.errors import UsageError

if TYPE_CHECKING:
    from pegboard.cli.policy_cover import Loss
    from pegboard.rules import Rule
    from pegboard.settings import Settings

KEYS = ("permissions.deny", "permissions.ask", "permissions.allow")


@dataclass
class Row:
    """One rule as it was written, and its standing."""

    rule: Rule
    why_not: str = ""
    """Empty, or why it does not count."""
    losses: list[Loss] = field(default_factory=list)

    @property
    def level(self) -> str:
        """``mandatory`` and ``recommended`` are managed; ``own`` is everybody else's; ``plug-in`` came with one."""
        named = {"managed": "mandatory", "plugin": "plug-in"}
        if self.rule.scope == "builtin":
            return "recommended" if self.rule.source else "built-in"
        return named.get(self.rule.scope, "own")

    @property
    def dead(self) -> str:
        """Why it can decide nothing; empty if it can, or another rule says the same."""
        return self.why_not or next((loss.reason for loss in self.losses if not loss.same), "")

    def shown(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            **self.rule.shown(),
            "level": self.level,
            "counts": not self.why_not,
            "why_not": self.why_not or None,
            "loses_to": [
                {"rule": loss.to.shown() if loss.to else None, "reason": loss.reason, "says_the_same": loss.same}
                for loss in self.losses
            ],
        }


def rows(judge: Judge) -> list[Row]:
    """Every rule of this directory, deny first, highest scope first; also those that do not count."""
    from pegboard.cli.policy_cover import losses
    from pegboard.decision import order

    session, snapshot, _ = judge.session(Request(tool=""))
    found = [Row(rule, losses=losses(rule, snapshot)) for rule in snapshot.rules]
    managed_only = snapshot.managed_rules_only
    void = "managed policy admits only managed allow rules" if managed_only else "the workspace is not trusted"
    found += [Row(rule, void) for rule in snapshot.void]
    found += _passed_over(session.settings)
    return sorted(found, key=lambda row: order(row.rule))


def _passed_over(settings: Settings) -> Iterator[Row]:
    """Rules of settings files that the settings themselves hold back."""
    from pegboard.rules import parse_rule

    for key in KEYS:
        for entry in settings.entries(key):
            if not entry.why_not or not isinstance(entry.value, list):
                continue
            scope = "builtin" if entry.scope == "recommended" else entry.scope
            for text in entry.value:
                effect = key.rpartition(".")[2]
                line = entry.layer.line(key, text)
                try:
                    rule = parse_rule(text, effect=effect, scope=scope, source=entry.source, line=line)
                except UsageError:
                    continue  # it is among the problems
                yield Row(rule, entry.why_not)


def run_list(flags: Mapping[str, Any], conflicts: bool, as_json: bool) -> None:
    """Print the rules; ``conflicts``: only those that lose or do not count."""
    judge = _judge(flags)
    found = [row for row in rows(judge) if not conflicts or row.why_not or row.losses]
    if as_json:
        _print_json([row.shown() for row in found])
        return
    for row in found:
        rule = row.rule
        place = f"{rule.source}:{rule.line}" if rule.source and rule.line else rule.source or "-"
        click.echo(_clean(f"{rule.effect:5} {rule.text}  [{row.level}, {rule.scope}, {place}]"))
        if row.why_not:
            click.echo(_clean(f"      does not count: {row.why_not}"))
        for loss in row.losses:
            where = f" ({loss.to.where})" if loss.to else ""
            click.echo(_clean(f"      {'superfluous' if loss.same else 'never decides'}: {loss.reason}{where}"))
    if not found:
        click.echo("No rule is in conflict." if conflicts else "There are no rules; peg policy starter shows some.")


def run_lint(flags: Mapping[str, Any], as_json: bool) -> int:
    """Print what is wrong with the rules; 1 when a rule is dead, misspelt, or contradicts its own examples."""
    judge = _judge(flags, quiet=True)
    settings = judge.start(None).settings
    found: list[dict[str, Any]] = [
        _finding("unusable", problem.text, problem.source, problem.line)
        for problem in settings.problems
        if problem.key in KEYS or not problem.key
    ]
    listed = rows(judge)
    for problem in rule_problems([row.rule for row in listed], judge.start(None).registry):
        rule = problem.rule
        text = f"{rule.effect} {rule.text}: {problem.text}" + (f"; write {problem.fix}" if problem.fix else "")
        found.append(_finding("misspelt", text, rule.source, rule.line))
    for row in listed:
        text = f"{row.rule.effect} {row.rule.text}: "
        if row.dead:
            kind = "not counting" if row.why_not else "shadowed"
            found.append(_finding(kind, text + row.dead, row.rule.source, row.rule.line))
        elif row.losses:
            found.append(_finding("superfluous", text + row.losses[0].reason, row.rule.source, row.rule.line))
    if as_json:
        _print_json(found)
    for one in found if not as_json else ():
        place = f"{one['file']}:{one['line']}" if one["line"] else one["file"]
        click.echo(_clean(f"{one['kind']}: {place + ': ' if place else ''}{one['text']}"))
    if not found and not as_json:
        click.echo(f"{len(listed)} rules, nothing to object.")
    return 1 if any(one["kind"] not in ("superfluous", "not counting") for one in found) else 0


def _finding(kind: str, text: str, file: str, line: int | None) -> dict[str, Any]:
    return {"kind": kind, "text": text, "file": file, "line": line}


def _judge(flags: Mapping[str, Any], *, quiet: bool = False) -> Judge:
    from pegboard.cli.start import flags_of

    judge = Judge(trust=bool(flags.get("trust")), flags=flags_of(flags))
    for problem in judge.start(None).settings.problems if not quiet else ():
        click.echo(f"peg: {problem}", err=True)
    return judge


def _clean(text: str) -> str:
    from pegboard.decision import visible

    return visible(text)


def _print_json(value: object) -> None:
    import json

    click.echo(json.dumps(value, ensure_ascii=False, indent=2))
