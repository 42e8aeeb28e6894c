"""The one function that decides: `decide(manifest, input, accesses, snapshot)`, pure, over frozen rules.

Deny, ask, floors, mode, allow, question, in this order, for each access of a call; the strictest verdict is the call's.
Everything that asks for permission asks here, so that explaining, testing and replaying a decision are the same code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pegboard.call import DecidedBy
from pegboard.decision import (
    STRENGTH,
    Decision,
    Finding,
    Judged,
    Mode,
    Snapshot,
    VerdictWord,
    allow_rules,
    by_rule,
    order,
    resolve_accesses,
    strict_rules,
    visible,
)
from pegboard.floors import critical_removal, protected, words
from pegboard.manifest import Manifest
from pegboard.paths import escape, inside
from pegboard.ruleindex import names_of
from pegboard.rules import Problem, Rule, escape_text, glob, host_of, lint, parse_rule, pieces
from pegboard.tool import Access, AccessKind

if TYPE_CHECKING:
    from pegboard.session import Session

__all__ = [
    "Decision",
    "Finding",
    "Judged",
    "Mode",
    "Problem",
    "Rule",
    "Snapshot",
    "critical_removal",
    "decide",
    "judge_mode_change",
    "lint",
    "parse_rule",
    "resolve_accesses",
    "snapshot_of",
    "suggest",
    "visible",
]

ACTING = frozenset(("file", "process", "network", "remote"))
"""Effects that plan mode keeps behind a question, whatever allow rules say."""

MOST_RULES = 5
"""[D] Rules that one answer may save."""

_READ, _EDIT, _RUN, _FETCH, _USE = AccessKind
_BUILT_IN = "built-in"
_QUOTES = {**dict.fromkeys(map(ord, "'\"\\")), ord("\n"): " "}
_REMOVES = re.compile(r"\brm(?:dir)?\b|\bfind\b")


def decide(manifest: Manifest, input: Mapping[str, Any], accesses: Iterable[Judged], snapshot: Snapshot) -> Decision:
    """Decide about a call. Pure: no I/O, and the order of rules makes no difference.

    ``accesses`` come from `resolve_accesses`. "Ask" with nobody to ask is turned into a refusal by the caller.
    """
    names = names_of(manifest)
    about_tool, params = snapshot.index.of_tool(names)
    if params:
        about_tool = about_tool + [
            rule
            for field, value in input.items()
            for wanted, rule in params.get(field, ())
            if (told := _told(value)) is not None and glob(pieces(wanted), told)
        ]
    findings = [_judge(manifest, item, names, about_tool, snapshot) for item in accesses] or [
        _judge(manifest, None, names, about_tool, snapshot)
    ]
    top = min(findings, key=_weight) if len(findings) > 1 else findings[0]
    winner = top.rules[0] if top.ruled else None
    losers = {id(rule): rule for found in findings for rule in found.rules if rule is not winner}
    return Decision(top.verdict, top.by, winner, tuple(losers.values()), tuple(findings))


def _weight(found: Finding) -> tuple[int, bool]:
    return STRENGTH[found.verdict], found.open


def _told(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _judge(
    manifest: Manifest, item: Judged | None, names: tuple[str, ...], about_tool: list[Rule], snapshot: Snapshot
) -> Finding:
    """Judge one access, or the bare tool. A mode that forbids stands before the ask rules: they only restrict."""
    rules = about_tool
    if item is not None:
        rules = about_tool + strict_rules(item, names, snapshot.index) + allow_rules(item, names, snapshot.index)
    if len(rules) > 1:
        rules = sorted({id(rule): rule for rule in rules}.values(), key=order)

    def found(verdict: VerdictWord, by: DecidedBy, *, open: bool = False, ruled: bool = False) -> Finding:
        if verdict == "ask" and snapshot.mode is Mode.DONT_ASK:
            reason = f"it needs a question ({by.reason}), and the mode never asks"
            verdict, by, ruled = "deny", DecidedBy(by="mode", source="dontAsk", reason=reason), False
        if item is None:
            return Finding(None, verdict, by, tuple(rules), open, ruled)
        return Finding(item.access, verdict, by, tuple(rules), open, ruled, item.names, item.folder)

    if rules and rules[0].effect == "deny":
        return found("deny", by_rule(rules[0], item), ruled=True)
    plan = _by_plan(item, snapshot)
    if plan == "deny":
        reason = "in plan mode nothing is changed but the plan"
        return found("deny", DecidedBy(by="mode", source="plan", reason=reason))
    if rules and rules[0].effect == "ask":
        return found("ask", by_rule(rules[0], item), ruled=True)
    if plan == "allow":
        return found("allow", DecidedBy(by="mode", source="plan", reason="the plan may be written"))
    floor = _floor(manifest, item, rules, snapshot)
    if floor:
        return found("ask", DecidedBy(by="rule", source=_BUILT_IN, reason=floor))
    free = _by_mode(item, snapshot) or _free(manifest, item, snapshot)
    if free:
        return found("allow", DecidedBy(by="mode", source=snapshot.mode.value, reason=free))
    counting = rules
    if rules and snapshot.mode is Mode.PLAN and manifest.concurrency != "read" and ACTING & set(manifest.effects):
        counting = [rule for rule in rules if rule.scope == "builtin"]
    if counting:
        return found("allow", by_rule(counting[0], item), ruled=counting[0] is rules[0])
    return found("ask", DecidedBy(by="mode", source=snapshot.mode.value, reason=_want(manifest, item)), open=True)


def _want(manifest: Manifest, item: Judged | None) -> str:
    if item is None:
        return f"no rule allows {manifest.name}"
    target = visible(item.access.target)
    if item.names[-1] != item.names[0]:
        target += f" (really {visible(item.names[-1])})"
    return f"no rule allows {manifest.name} to {item.access.kind.value} {target}"


def _within(item: Judged, folders: Sequence[str]) -> bool:
    return item.certain and all(inside(name, folders) for name in item.names)


def _by_plan(item: Judged | None, snapshot: Snapshot) -> str:
    """What plan mode says to a change: ``allow`` for the plan itself, else ``deny``; empty where it says nothing."""
    if snapshot.mode is not Mode.PLAN or item is None or item.access.kind is not _EDIT:
        return ""
    return "allow" if snapshot.plan_file and _within(item, (snapshot.plan_file,)) else "deny"


def _floor(manifest: Manifest, item: Judged | None, rules: Sequence[Rule], snapshot: Snapshot) -> str:
    """Why no allow rule may lift the question; empty if it may."""
    if manifest.person:
        return f"only a person can answer {manifest.name}"
    if item is None:
        return ""
    if item.access.kind is _RUN:
        return _run_floor(item.access, rules, snapshot)
    if item.access.kind is _EDIT and snapshot.mode is not Mode.BYPASS:
        for name in item.names:
            word = protected(name) or (inside(name, snapshot.guarded) and name)
            if word:
                return f"{word} is protected: changing it needs a person's yes"
    return ""


def _run_floor(access: Access, rules: Sequence[Rule], snapshot: Snapshot) -> str:
    """Critical removals; what a deny or ask rule may cover; what is dangerous or not known.

    Where the whole tool is allowed and no rule speaks about single commands or paths, not knowing is no reason to ask.
    """
    for text in (access.target, *access.also):
        if "rm" in text and (found := critical_removal(words(text), snapshot)):
            return found
    if access.head is not None and (rule := snapshot.index.reachable(access.head)) is not None:
        return f"{rule.effect} rule {rule.text} may cover it: a part of it is made when it runs"
    if not access.why:
        return ""
    whole = any(rule.effect == "allow" and rule.specifier is None for rule in rules)
    lifted = access.grade == "doubt" and whole and not snapshot.index.restricts
    if lifted or snapshot.mode is Mode.BYPASS:
        plain = "\n".join((access.target, *access.also)).replace("\\\n", "").translate(_QUOTES)
        return f"it may remove anything: {access.why}" if access.grade != "risk" and _REMOVES.search(plain) else ""
    return f"{access.why}; nothing but a person's yes allows that"


def _by_mode(item: Judged | None, snapshot: Snapshot) -> str:
    """Why the mode allows the call before any allow rule is heard; empty if it does not."""
    if snapshot.mode is Mode.BYPASS:
        return "the mode allows what no rule and no floor stops"
    if snapshot.mode is not Mode.ACCEPT_EDITS or item is None:
        return ""
    if item.access.kind is _RUN and item.access.grade == "edits":
        return "a command that only edits is as free as its edits"
    if item.access.kind is not _EDIT:
        return ""
    return "edits inside the working directories are accepted" if _within(item, snapshot.roots) else ""


def _free(manifest: Manifest, item: Judged | None, snapshot: Snapshot) -> str:
    """Why the call needs no question and no rule; empty if it does."""
    if item is None:
        if not manifest.ask:
            return f"{manifest.name} needs no question"
        silent = manifest.concurrency == "read" and not manifest.name.startswith("mcp__")
        return f"{manifest.name} only reads" if silent else ""
    kind, grade = item.access.kind, item.access.grade
    if kind is _RUN and grade == "reads":
        return "it only reads"
    if grade == "mention" or (grade == "part" and _within(item, snapshot.roots)):
        return "its command is what is asked about"
    if kind is _READ and _within(item, (*snapshot.roots, *snapshot.readable)):
        return "reading inside the working directories needs no question"
    if not manifest.ask and (kind is _USE or (kind is _EDIT and _within(item, snapshot.roots))):
        return f"{manifest.name} needs no question"
    return ""


# -- what an answer would save ---------------------------------------------------------------------------------------


def suggest(
    manifest: Manifest, accesses: Sequence[Access], decision: Decision, snapshot: Snapshot
) -> tuple[list[str], list[str]]:
    """The allow rules that answer a question "for this session", and those that "always" would save.

    Both are empty where no rule could help (an ask rule or a floor stands behind the question) or too many would be
    needed. Edits are for the session only, and in an untrusted workspace everything is: a saved rule would not count
    there. ``accesses`` are those of the decided call.
    """
    if (
        not decision.question_only
        or snapshot.managed_rules_only
        or len(accesses) != sum(found.access is not None for found in decision.findings)
    ):
        return [], []
    session: dict[str, bool] = {}
    for found in decision.findings:
        if found.verdict == "ask":
            for text in _rules_for(manifest, found, snapshot):
                session[text] = found.access is None or found.access.kind is not _EDIT
    if not session or len(session) > MOST_RULES:
        return [], []
    return list(session), list(session) if snapshot.trusted and all(session.values()) else []


def _rules_for(manifest: Manifest, found: Finding, snapshot: Snapshot) -> list[str]:
    access = found.access
    if access is None or manifest.name.startswith("mcp__"):
        return [manifest.name]
    if access.kind is _FETCH:
        host = host_of(access.target)
        return [_rule(manifest.name, f"domain:{host}")] if host else []
    if access.kind is _RUN:
        return [_rule("Bash", escape_text(access.target.strip()))] if manifest.name == "Bash" else [manifest.name]
    if access.kind is _USE:
        return [_rule(manifest.name, escape_text(access.target))]
    family = "Edit" if access.kind is _EDIT else "Read"
    folders = found.names if found.folder else [name.rpartition("/")[0] for name in found.names]
    wide = [folder.count("/") < 2 or folder == snapshot.home for folder in folders]
    return list(
        dict.fromkeys(
            _rule(family, f"/{escape(name)}" if broad else f"/{escape(folder)}/**")
            for name, folder, broad in zip(found.names, folders, wide, strict=True)
        )
    )


def _rule(tool: str, specifier: str) -> str:
    return Rule(effect="allow", tool=tool, specifier=specifier, scope="session").text


# -- modes, and the snapshot of a session ----------------------------------------------------------------------------


def judge_mode_change(
    mode: Mode, snapshot: Snapshot, root_user: bool, *, scope: str = "session", boxed: bool = False, auto: bool = False
) -> Decision:
    """Decide whether a mode may be entered. ``scope`` is who asks for it: a rule scope, or ``agent``.

    ``boxed``: the process runs in a container. ``auto``: a classifier plug-in is there. Never asks.
    """
    why, by = "", "policy"
    if (mode is Mode.BYPASS and snapshot.disable_bypass) or (mode is Mode.AUTO and snapshot.disable_auto):
        why = f"managed policy forbids the mode {mode}"
    elif mode in (Mode.BYPASS, Mode.AUTO) and scope in ("project", "local", "plugin", "agent"):
        why, by = f"{scope} settings may not select the mode {mode}", "trust"
    elif mode is Mode.BYPASS and root_user and not boxed:
        why = "bypassPermissions is refused for root outside a container; start as another user"
    elif mode is Mode.AUTO and not auto:
        why, by = "no classifier plug-in is installed, so the mode auto is not available", "mode"
    decided = DecidedBy(by=by if why else "mode", source=scope, reason=why or f"the mode {mode} may be entered")
    return Decision("deny" if why else "allow", decided)


def snapshot_of(session: Session, configured: Sequence[Rule] | None = None) -> Snapshot:
    """Freeze the policy of a session: the rules of its settings, its plug-ins and its answers.

    ``configured`` stands for the rules of the settings, to see what others would decide.
    """
    settings, places = session.settings, session.places
    rules = settings.parsed_rules() if configured is None else list(configured)
    for listed in session.manager.hook.peg_rules(registry=session.registry):
        rules += (msgspec.structs.replace(rule, scope="plugin") for rule in listed)
    return Snapshot.make(
        [*rules, *session.session_rules],
        mode=session.mode,
        cwd=session.cwd,
        home=places.home,
        roots=session.roots,
        project=places.root,
        trusted=session.trusted,
        managed_rules_only=bool(settings.value("permissions.managed_rules_only")),
        disable_bypass=bool(settings.value("permissions.disable_bypass")),
        disable_auto=bool(settings.value("permissions.disable_auto")),
        readable=(session.directory / "tool-output",),
        guarded=(places.user_dir, places.managed_dir),
    )
