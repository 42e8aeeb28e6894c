"""`peg policy test`: unit tests of a policy in TOML, and the examples that its rules carry.

[[test]]
name = "a push asks"
tool = "Bash"
input = { command = "git push origin main" }
expect = "ask"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from pegboard.cli.policy_judge import Judge, Request, RuleTexts
from pegboard.cli.policy_rules import KEYS
from pegboard.errors import UsageError


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One test: a call, and the verdict it must get."""

    tool: str
    expect: Literal["allow", "ask", "deny"]
    name: str = ""
    input: dict[str, Any] = {}
    mode: str | None = None
    trusted: bool | None = None
    cwd: str | None = None
    """Relative to the folder of the test file."""
    root_user: bool = False
    rules: RuleTexts | None = None
    """Stands for all configured rules."""
    rule: str = ""
    """Text of the rule that must decide."""


class CaseFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of tests; ``rules`` hold for each test that has none of its own."""

    test: tuple[Case, ...] = ()
    rules: RuleTexts | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one test or example."""

    file: str
    name: str
    passed: bool
    reason: str = ""


def run_test(flags: Mapping[str, Any], files: Sequence[Path], as_json: bool) -> int:
    """Run every test of the files, and every example of the rules in force; 1 when one fails."""
    from pegboard.cli.start import flags_of
    from pegboard.decision import visible

    judge = Judge(trust=bool(flags.get("trust")), flags=flags_of(flags))
    found = [*examples(judge), *(outcome for path in files for outcome in _of_file(judge, path))]
    failed = [one for one in found if not one.passed]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        for one in found:
            reason = f": {one.reason}" if one.reason else ""
            click.echo(visible(f"{'ok  ' if one.passed else 'FAIL'} {one.name}{reason}"))
        click.echo(f"{len(found) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def examples(judge: Judge) -> Iterator[Outcome]:
    """What the rules of the settings files say about themselves."""
    from pegboard.examples import faults

    settings = judge.start(None).settings
    for key in KEYS:
        for entry in settings.entries(key):
            prefix = "recommended." if entry.scope == "recommended" else ""
            for one in entry.layer.examples.get(prefix + key, ()):
                effect = key.rpartition(".")[2]
                wrong = faults(effect, one)
                name = f"{effect} {one.rule} ({entry.source}:{entry.layer.line(key, one.rule)})"
                yield Outcome(file=entry.source, name=name, passed=not wrong, reason="; ".join(wrong))


def _of_file(judge: Judge, path: Path) -> Iterator[Outcome]:
    for number, case in enumerate(read_cases(path), 1):
        name = case.name or f"{case.tool} {msgspec.json.encode(case.input).decode()}"
        reason = _failure(judge, case, path)
        yield Outcome(file=str(path), name=f"{path.name} {number}: {name}", passed=not reason, reason=reason)


def read_cases(path: Path) -> list[Case]:
    """The tests of a file. Raises `UsageError` naming the file and what is wrong."""
    import tomllib

    try:
        found = msgspec.convert(tomllib.loads(path.read_text("utf-8")), CaseFile)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}. It should hold [[test]] tables with tool, input and expect.") from None
    rules = found.rules
    return [case if case.rules or rules is None else msgspec.structs.replace(case, rules=rules) for case in found.test]


def _failure(judge: Judge, case: Case, path: Path) -> str:
    """Empty, or what was got instead."""
    cwd = str((path.parent / case.cwd).absolute()) if case.cwd else None
    told = judge.explain(
        Request(
            tool=case.tool,
            input=case.input,
            mode=case.mode,
            cwd=cwd,
            trusted=case.trusted,
            rules=case.rules,
            root_user=case.root_user,
        )
    )
    by = told["decided_by"]
    got = f"{told['verdict']}, decided by {by['by']}: {by.get('reason', '')}"
    if told["verdict"] != case.expect:
        return f"expected {case.expect}, got {got}"
    rule = told["rule"]["rule"] if told["rule"] else ""
    if case.rule and case.rule != rule:
        return f"expected the rule {case.rule} to decide, got {got}"
    return ""
