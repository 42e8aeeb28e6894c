"""What a decision is made of: modes, judged accesses, findings, and the frozen snapshot of the policy.

Apart from the function that decides (`pegboard.policy`), so that this is the vocabulary and that is one page of order.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec

from pegboard.call import DecidedBy
from pegboard.errors import Code, Refusal, UsageError
from pegboard.floors import INVISIBLE
from pegboard.manifest import Manifest
from pegboard.paths import below, follow, plain, same
from pegboard.ruleindex import Anchors, RuleIndex, heads, names_of
from pegboard.rules import EFFECTS, SCOPES, Rule, host_of
from pegboard.tool import Access, AccessKind

VerdictWord = Literal["allow", "ask", "deny"]

_generations = count(1)
STRENGTH = {word: rank for rank, word in enumerate(EFFECTS)}
"""Rank of each verdict and effect: the smallest wins."""
_SCOPE = {word: rank for rank, word in enumerate(SCOPES)}
_READ, _EDIT, _RUN, _FETCH, _USE = AccessKind


class Mode(StrEnum):
    """How calls are judged when no rule covers them."""

    DEFAULT = "default"
    """Asks for anything that is not read-only and not allowed."""
    ACCEPT_EDITS = "acceptEdits"
    """Edits inside the working directories pass."""
    PLAN = "plan"
    """No edits but of the plan file; other changes ask."""
    DONT_ASK = "dontAsk"
    """Never asks: what is not allowed is denied."""
    BYPASS = "bypassPermissions"
    """Everything passes that no deny or ask rule and no floor stops."""
    AUTO = "auto"
    """A classifier plug-in answers the questions."""

    @classmethod
    def parse(cls, text: str) -> Mode:
        """The mode of this name; ``manual`` is another name of ``default``. Raises `UsageError`."""
        try:
            return cls.DEFAULT if text == "manual" else cls.BYPASS if text == "bypass" else cls(text)
        except ValueError:
            raise UsageError(f"There is no permission mode {text!r}; known are {', '.join(cls)}, manual.") from None


@dataclass(frozen=True)
class Judged:
    """An access with what the file system says about its target. Made by `resolve_accesses`."""

    access: Access
    names: tuple[str, ...]
    """Every spelling of the target; for a path as written, after each symlink, and where it really is (last)."""
    folder: bool = False
    certain: bool = True
    """False: a path that cannot be followed, so that no allow rule and no working directory speaks for it."""


class Finding(msgspec.Struct, frozen=True):
    """The verdict on one access; ``access`` is None where the call is judged by the tool's bare name."""

    access: Access | None
    verdict: VerdictWord
    by: DecidedBy
    rules: tuple[Rule, ...]
    """Every rule that matches, strongest first."""
    open: bool = False
    """The verdict is a question only for want of an allow rule."""
    ruled: bool = False
    """The first of the rules decided."""
    names: tuple[str, ...] = ()
    folder: bool = False


class Decision(msgspec.Struct, frozen=True):
    """What was decided about a call, and everything that had a say in it."""

    verdict: VerdictWord
    decided_by: DecidedBy
    winner: Rule | None = None
    losers: tuple[Rule, ...] = ()
    """Matching rules that did not decide."""
    findings: tuple[Finding, ...] = ()

    @property
    def question_only(self) -> bool:
        """The call asks for want of an allow rule, not because a rule or a floor wants a person."""
        return self.verdict == "ask" and all(found.open for found in self.findings if found.verdict == "ask")

    def explain(self) -> dict[str, object]:
        """The decision JSON-ready: verdict, who decided, the deciding rule, the losers, and each access."""
        return {
            "verdict": self.verdict,
            "decided_by": msgspec.to_builtins(self.decided_by),
            "rule": self.winner.shown() if self.winner else None,
            "losers": [rule.shown() for rule in self.losers],
            "accesses": [
                {
                    "kind": found.access.kind.value if found.access else None,
                    "target": found.access.target if found.access else None,
                    "names": list(found.names),
                    "verdict": found.verdict,
                    "decided_by": msgspec.to_builtins(found.by),
                    "rules": [rule.id for rule in found.rules],
                }
                for found in self.findings
            ],
        }


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The policy of one moment. A call is judged and run under the same one. Made by `Snapshot.make`."""

    generation: int
    mode: Mode
    cwd: str
    home: str
    roots: tuple[str, ...]
    """The working directories, free of symlinks."""
    trusted: bool
    rules: tuple[Rule, ...]
    """The rules that count."""
    void: tuple[Rule, ...]
    """Allow rules that do not: of an untrusted workspace, or beside managed ones that must stand alone."""
    index: RuleIndex
    aliases: tuple[tuple[str, str], ...] = ()
    """Spellings of those folders that go through a symlink, and where they lead."""
    managed_rules_only: bool = False
    disable_bypass: bool = False
    disable_auto: bool = False
    readable: tuple[str, ...] = ()
    """Further folders that may be read without a question: the session's own output."""
    guarded: tuple[str, ...] = ()
    """Further paths that are protected: pegboard's own folders, wherever they are."""
    plan_file: str = ""
    """What may be edited in plan mode: a file, or everything below a folder."""

    @classmethod
    def make(
        cls,
        rules: Iterable[Rule] = (),
        *,
        mode: Mode = Mode.DEFAULT,
        cwd: str | Path,
        home: str | Path,
        roots: Sequence[str | Path] = (),
        project: str | Path = "",
        trusted: bool = False,
        managed_rules_only: bool = False,
        disable_bypass: bool = False,
        disable_auto: bool = False,
        readable: Sequence[str | Path] = (),
        guarded: Sequence[str | Path] = (),
        plan_file: str | Path = "",
    ) -> Snapshot:
        """Freeze the policy. Does I/O: finds where the folders, and what path rules name, really are.

        A mode that managed policy forbids becomes ``default``, whoever set it.
        """
        if (disable_bypass and mode is Mode.BYPASS) or (disable_auto and mode is Mode.AUTO):
            mode = Mode.DEFAULT
        given = [str(item) for item in (cwd, home, *(roots or (cwd,)), *readable, *guarded, project or cwd)]
        real = {item: str(Path(item).resolve()) for item in given}
        anchors = Anchors(
            real[str(cwd)],
            real[str(home)],
            real[str(project or cwd)],
            tuple(real[str(item)] for item in roots or (cwd,)),
            sys.platform in ("darwin", "win32"),
        )
        all_rules = tuple(rules)
        void = tuple(rule for rule in all_rules if _is_void(rule, trusted, managed_rules_only))
        counting = tuple(rule for rule in all_rules if not _is_void(rule, trusted, managed_rules_only))
        return cls(
            generation=next(_generations),
            mode=mode,
            cwd=anchors.cwd,
            home=anchors.home,
            roots=anchors.roots,
            trusted=trusted,
            rules=counting,
            void=void,
            index=RuleIndex(counting, anchors, heads(counting, anchors)),
            aliases=tuple((plain(old), new) for old, new in real.items() if plain(old) != new),
            managed_rules_only=managed_rules_only,
            disable_bypass=disable_bypass,
            disable_auto=disable_auto,
            readable=tuple(real[str(item)] for item in readable),
            guarded=tuple(real[str(item)] for item in guarded),
            plan_file=str(Path(plan_file).resolve()) if str(plan_file) not in ("", ".") else "",
        )

    def with_mode(self, mode: Mode) -> Snapshot:
        """The same policy in another mode, as a new generation."""
        return replace(self, mode=mode, generation=next(_generations))

    def denied(self, tool: str, access: Access) -> DecidedBy | None:
        """The deny rule that covers this access, or None. Does I/O for paths when there is any rule about them."""
        if access.kind in (_READ, _EDIT) and not self._hides_paths:
            return None
        item = _resolve(access, self)
        found = [rule for rule in strict_rules(item, (tool,), self.index) if rule.effect == "deny"]
        return by_rule(min(found, key=order), item) if found else None

    def refuse(self, tool: str, access: Access, decision: DecidedBy) -> NoReturn:
        """Raise the `Refusal` for a denied access: denied_by_policy for a managed rule, else denied_by_rule."""
        code = Code.DENIED_BY_POLICY if decision.by == "policy" else Code.DENIED_BY_RULE
        text = f"{tool} may not {access.kind} {visible(access.target)}: {decision.reason} ({decision.source})."
        raise Refusal(code, text, hint="Work without it.", decision=decision)

    def read_deny_globs(self, root: str | Path) -> list[str]:
        """Globs in gitignore syntax, relative to ``root``, of what Read deny rules hide below it."""
        base = same(self.real_name(str(Path(root).resolve())), self.index.anchors.fold)
        if any(rule.effect == "deny" for rule in self.index.of_tool(("Read",))[0]):
            return ["/**"]
        table = self.index.path_table("Read", True)
        return sorted({line for bound in table.all if bound.item.effect == "deny" for line in below(bound, base)})

    def bare_denied(self, tool: str | Manifest) -> DecidedBy | None:
        """The rule that denies a whole tool, so that it is not even offered; or None. Give the manifest if at hand."""
        names = (tool,) if isinstance(tool, str) else names_of(tool)
        found = [rule for rule in self.index.of_tool(names)[0] if rule.effect == "deny"]
        return by_rule(min(found, key=order), None) if found else None

    def explain(self, manifest: Manifest, input: Mapping[str, Any], accesses: Iterable[Access]) -> dict[str, object]:
        """Why a call would be decided so, JSON-ready; with the rules that do not count here."""
        from pegboard.policy import decide

        told = decide(manifest, input, resolve_accesses(accesses, self), self).explain()
        return {**told, "mode": self.mode.value, "void": [rule.shown() for rule in self.void]}

    def real_name(self, path: str) -> str:
        """A path with its beginning replaced where that is a link to one of the snapshot's folders."""
        for old, new in self.aliases:
            if path == old or path.startswith(old.rstrip("/") + "/"):
                return new + path[len(old) :]
        return path

    @property
    def _hides_paths(self) -> bool:
        index = self.index
        return any(index.path_table(name, True).all or index.of_tool((name,))[0] for name in ("Read", "Edit"))


def _is_void(rule: Rule, trusted: bool, managed_only: bool) -> bool:
    if rule.effect != "allow":
        return False
    return (not trusted and rule.scope in ("project", "local")) or (
        managed_only and rule.scope not in ("managed", "builtin")
    )


def resolve_accesses(accesses: Iterable[Access], snapshot: Snapshot) -> list[Judged]:
    """Find out where the paths of accesses really lead. All I/O of a decision happens here."""
    return [_resolve(access, snapshot) for access in accesses]


def _resolve(access: Access, snapshot: Snapshot) -> Judged:
    if access.kind not in (_READ, _EDIT):
        return Judged(access, (access.target,))
    target = access.target if access.target.startswith("/") else f"{snapshot.cwd}/{access.target}"
    way = follow(target)
    names = way.names
    if snapshot.aliases:
        names = tuple(dict.fromkeys(map(snapshot.real_name, names)))
    return Judged(access, names, way.folder, way.certain)


# -- matching --------------------------------------------------------------------------------------------------------


def order(rule: Rule) -> tuple[int, int, str, str]:
    """Sort key: strongest effect first, then scope; the order of files and lines makes no difference."""
    return STRENGTH[rule.effect], _SCOPE[rule.scope], rule.source, rule.text


def strict_rules(item: Judged, names: tuple[str, ...], index: RuleIndex) -> list[Rule]:
    """Deny and ask rules about one access, by its kind: one spelling of the target is enough."""
    kind = item.access.kind
    found: list[Rule] = []
    if kind is _READ or kind is _EDIT:
        for family in ("Read", "Edit") if kind is _EDIT else ("Read",):
            found += index.of_tool((family,))[0]
            for name in item.names:
                found += index.paths(family, name, item.folder, True)
    elif kind is _RUN:
        found += index.of_tool(("Bash",))[0]
        for text in (item.access.target, *item.access.also):
            found += index.commands(text, True)
    elif kind is _FETCH:
        found += index.of_tool(("WebFetch",))[0]
        found += index.hosts(dict.fromkeys((*names, "WebFetch")), host_of(item.access.target), True)
    if kind is _USE or kind is _FETCH:
        found += index.names(names, item.access.target, True)
    return [rule for rule in found if rule.effect != "allow"]


def allow_rules(item: Judged, names: tuple[str, ...], index: RuleIndex) -> list[Rule]:
    """Allow rules about one access: every spelling of the target must be covered."""
    kind, target = item.access.kind, item.access.target
    if not item.certain:
        return []
    if kind is _RUN:
        return list(index.commands(target, False)) if "Bash" in names else []
    if kind is _FETCH:
        return list(index.hosts(names, host_of(target), False))
    if kind is _USE:
        return list(index.names(names, target, False))
    families = ("Edit",) if kind is _EDIT else ("Read", "Edit")
    found = [rule for family in families for rule in index.of_tool((family,))[0] if rule.effect == "allow"]
    each = [[r for f in families for r in index.paths(f, name, item.folder, False)] for name in item.names]
    return found + [rule for rules in each for rule in rules] if all(each) else found


def by_rule(rule: Rule, item: Judged | None) -> DecidedBy:
    """Who decided, where a rule did."""
    by = "policy" if rule.scope == "managed" else "rule"
    target = f" covers {visible(item.access.target)}" if item is not None else ""
    return DecidedBy(by=by, source=rule.where, reason=f"{rule.effect} rule {rule.text}{target}")


def visible(text: str) -> str:
    """A text for one line of a question: what shows nothing or turns the reading direction is escaped."""
    return INVISIBLE.sub(lambda match: f"\\u{{{ord(match[0]):x}}}" if match[0] != "\n" else "\\n", text)
