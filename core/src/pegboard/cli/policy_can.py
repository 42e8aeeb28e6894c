"""`peg policy can`: the most that each tool could ever do here without anybody being asked.

The question an operator has about an agent is not what one call would do, but what all calls together may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from pegboard.cli.policy_judge import Judge, Request, known_tools, manifest_of

if TYPE_CHECKING:
    from pegboard.decision import Snapshot
    from pegboard.manifest import Manifest
    from pegboard.rules import Rule
    from pegboard.session import Session
    from pegboard.tool import Access


def run_can(flags: Mapping[str, Any], wanted: Sequence[str], as_json: bool) -> None:
    """Print a summary for each tool."""
    from pegboard.cli.start import flags_of
    from pegboard.decision import visible

    judge = Judge(trust=bool(flags.get("trust")), flags=flags_of(flags))
    session, snapshot, _ = judge.session(Request(tool=""))
    named = [*wanted] or [*session.tools(), *_servers(snapshot)]
    found = [summary(name, session, snapshot) for name in named]
    if as_json:
        import json

        click.echo(json.dumps({"mode": snapshot.mode.value, "tools": found}, ensure_ascii=False, indent=2))
        return
    click.echo(f"mode: {snapshot.mode.value}; trusted: {'yes' if snapshot.trusted else 'no'}")
    for one in found:
        for line in _in_words(one):
            click.echo(visible(line))


def summary(name: str, session: Session, snapshot: Snapshot) -> dict[str, Any]:
    """What a tool may do without a question, by rules, mode and its own nature; what is asked; what never runs."""
    from pegboard.cli.policy_cover import losses

    manifest, installed = manifest_of(name, session)
    denied = snapshot.bare_denied(manifest)
    ours = [rule for rule in snapshot.rules if _speaks(rule, manifest, session)]
    free = [] if denied else list(_free(manifest, session, snapshot))
    allows = [
        rule for rule in ours if rule.effect == "allow" and not any(not one.same for one in losses(rule, snapshot))
    ]
    return {
        "tool": manifest.name,
        "installed": installed,
        "never": denied.source if denied else None,
        "without_question": free,
        "allowed": [] if denied else [rule.shown() for rule in allows],
        "asked": [rule.shown() for rule in ours if rule.effect == "ask"],
        "denied": [rule.shown() for rule in ours if rule.effect == "deny"],
    }


def _free(manifest: Manifest, session: Session, snapshot: Snapshot) -> Iterator[str]:
    """What passes without any rule: tried out with things that no rule names."""
    from pegboard.policy import decide, resolve_accesses

    for what, accesses in _trials(manifest, session, snapshot):
        decision = decide(manifest, {}, resolve_accesses(accesses, snapshot), snapshot)
        if decision.verdict == "allow" and decision.winner is None:
            yield f"{what}: {decision.decided_by.reason}"
    passing = [text for text in known_tools().get(manifest.name, {}).get("try", ()) if _passes(text, manifest, session)]
    if passing:
        yield f"of the commands that were tried: {', '.join(passing)}"


def _trials(manifest: Manifest, session: Session, snapshot: Snapshot) -> Iterator[tuple[str, list[Access]]]:
    from pegboard.cli.policy_cover import FRESH
    from pegboard.tool import Access

    inside, outside = f"{snapshot.cwd}/{FRESH}", f"/{FRESH}/{FRESH}"
    fields = known_tools().get(manifest.name, {})
    if manifest.family == "Read":
        yield "files in the working directories", [Access.read(inside)]
        yield "any other file", [Access.read(outside)]
    elif manifest.family == "Edit":
        yield "files in the working directories", [Access.edit(inside)]
        yield "any other file", [Access.edit(outside)]
    elif manifest.name == "Bash":
        yield "any command", [Access.run(FRESH)]
    elif "host" in fields:
        yield "any host", [Access.fetch(f"{FRESH}.{FRESH}")]
    elif fields.get("use"):
        yield "any name", [Access.use(FRESH)]
    else:
        yield "any call", []


def _passes(command: str, manifest: Manifest, session: Session) -> bool:
    """Whether a command runs unasked for what it is, not for a rule."""
    from pegboard.cli.policy_judge import accesses_of
    from pegboard.policy import decide, resolve_accesses

    snapshot = session.snapshot()
    accesses, problem = accesses_of(manifest, {"command": command}, session, snapshot)
    decision = decide(manifest, {"command": command}, resolve_accesses(accesses, snapshot), snapshot)
    return not problem and decision.verdict == "allow" and not any(found.ruled for found in decision.findings)


def _speaks(rule: Rule, manifest: Manifest, session: Session) -> bool:
    """Whether a rule may have a say in a call of this tool."""
    from pegboard.ruleindex import names_of
    from pegboard.rules import glob, pieces

    names = set(names_of(manifest))
    if manifest.family == "Edit" or manifest.name == "Bash":
        names |= {"Edit", "Read"} if rule.effect != "allow" or manifest.name == "Bash" else {"Edit"}
    elif manifest.family == "Read" and rule.effect == "allow":
        names |= {"Edit"}
    if "*" in rule.tool:
        return any(glob(pieces(rule.tool), name) for name in names)
    return rule.tool in names or (manifest.name.startswith("mcp__") and manifest.name.startswith(f"{rule.tool}__"))


def _servers(snapshot: Snapshot) -> list[str]:
    """Tools of servers that rules name: they may come at any time."""
    return sorted({rule.tool for rule in snapshot.rules if rule.tool.startswith("mcp__") and "*" not in rule.tool})


def _in_words(one: Mapping[str, Any]) -> Iterator[str]:
    if one["never"]:
        yield f"{one['tool']}: never ({one['never']})"
        return
    state = "" if one["installed"] else " (not installed)"
    yield f"{one['tool']}{state}:" + (
        "" if one["without_question"] or one["allowed"] else " nothing without a question"
    )
    for text in one["without_question"]:
        yield f"  may   {text}"
    for word, key in (("may", "allowed"), ("asks", "asked"), ("never", "denied")):
        for rule in one[key]:
            place = f"{rule['file']}:{rule['line']}" if rule["line"] else rule["file"]
            yield f"  {word:5} {rule['rule']}  ({rule['scope']}, {place})"
