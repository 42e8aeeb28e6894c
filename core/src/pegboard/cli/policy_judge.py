"""Judge a call that nobody makes: what the policy would say, for every tool, without running anything.

`peg policy explain`, `test`, `replay` and `can` ask here, and here the same function decides as in a session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pegboard.errors import UsageError

if TYPE_CHECKING:
    from pegboard.cli.start import Start
    from pegboard.decision import Decision, Snapshot
    from pegboard.loader import Registry
    from pegboard.manifest import Manifest
    from pegboard.rules import Problem, Rule
    from pegboard.session import Session
    from pegboard.tool import Access


class RuleTexts(msgspec.Struct, frozen=True, kw_only=True):
    """Rules that stand for all configured ones."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A call to be judged, as one line of ``peg policy explain --jsonl`` has it. Other fields are passed over."""

    tool: str
    input: dict[str, Any] = {}
    mode: str | None = None
    cwd: str | None = None
    """The session's directory; it need not exist."""
    here: str | None = None
    """Where the session has moved to since; its working directories stay those of ``cwd``."""
    trusted: bool | None = None
    rules: RuleTexts | None = None
    root_user: bool = False
    """Judge the mode as for root outside a container."""
    id: Any = None


class Judge:
    """Judges requests. What a directory needs for it is found once."""

    def __init__(self, *, trust: bool = False, flags: Mapping[str, Any] | None = None) -> None:
        self._trust = trust
        self._flags = dict(flags or {})
        self._starts: dict[str, Start] = {}

    def start(self, cwd: str | None) -> Start:
        """Settings and tools of a directory."""
        key = cwd or ""
        if key not in self._starts:
            from pegboard.cli.start import start

            self._starts[key] = start(Path(cwd) if cwd else None, self._trust, self._flags)
        return self._starts[key]

    def session(self, request: Request) -> tuple[Session, Snapshot, list[str]]:
        """A session that is never entered, its policy, and what is wrong with the rules of the request."""
        from pegboard.policy import Mode, snapshot_of
        from pegboard.session import Session

        begun = self.start(request.cwd)
        trusted = begun.trusted if request.trusted is None else request.trusted
        begun.settings.trusted = trusted
        mode = Mode.parse(request.mode) if request.mode else None
        here = Path(request.here) if request.here else None
        parts = (begun.places, begun.settings, begun.registry)
        session = Session.create(*parts, trusted=trusted, mode=mode, cwd=here)
        if request.rules is None:
            return session, snapshot_of(session), []
        rules, problems = _parsed(request.rules)
        return session, snapshot_of(session, rules), problems

    def explain(self, request: Request) -> dict[str, Any]:
        """Why a call would be decided so, JSON-ready. Raises `UsageError` for a mode that does not exist."""
        from pegboard.decision import visible
        from pegboard.policy import Mode, decide, judge_mode_change, resolve_accesses, suggest
        from pegboard.tool import AccessKind

        session, snapshot, problems = self.session(request)
        manifest, installed = manifest_of(request.tool, session)
        told: dict[str, Any] = {"id": request.id} if request.id is not None else {}
        told |= {"tool": manifest.name, "installed": installed, "mode": snapshot.mode.value}
        if request.mode is not None and session.mode is not Mode.DEFAULT:
            entered = judge_mode_change(session.mode, snapshot, request.root_user, scope="flag")
            if entered.verdict == "deny":
                return {**told, **_told(entered, problems), "mode": session.mode.value}
        accesses, problem = accesses_of(manifest, request.input, session, snapshot)
        judged = resolve_accesses(accesses, snapshot)
        if problem:
            problems.append(problem)
            judged = [replace(item, certain=item.certain and item.access.kind is not AccessKind.RUN) for item in judged]
        decision = decide(manifest, request.input, judged, snapshot)
        told |= _told(decision, problems)
        told["trusted"] = session.trusted
        told["void"] = [rule.shown() for rule in snapshot.void]
        if decision.verdict == "ask":
            once, always = suggest(manifest, accesses, decision, snapshot)
            told["would_save"] = {
                "session": [visible(text) for text in once],
                "always": [visible(text) for text in always],
            }
        return told


def _told(decision: Decision, problems: list[str]) -> dict[str, Any]:
    """The decision with the segment that decided it."""
    told = decision.explain()
    deciding = next((found for found in decision.findings if found.by is decision.decided_by), None)
    segment = deciding.access.target if deciding is not None and deciding.access is not None else None
    return {
        **told,
        "segment": segment,
        "headless": "allow" if decision.verdict == "allow" else "deny",
        "problems": problems,
    }


def _parsed(texts: RuleTexts) -> tuple[list[Rule], list[str]]:
    from pegboard.rules import parse_rule

    rules: list[Rule] = []
    problems: list[str] = []
    for effect in ("deny", "ask", "allow"):
        for text in getattr(texts, effect):
            try:
                rules.append(parse_rule(text, effect=effect, scope="user", source="the request"))
            except UsageError as error:
                problems.append(str(error))
    return rules, problems


def manifest_of(name: str, session: Session) -> tuple[Manifest, bool]:
    """The manifest of a tool, and whether it is installed; of a tool that is not, what is known of it by its name."""
    found = session.find_tool(name)
    return (found.manifest, True) if found is not None else (_by_name(name), False)


def _by_name(name: str) -> Manifest:
    from pegboard.manifest import API, Manifest

    for own, fields in known_tools().items():
        if name == own or name in fields.get("aliases", ()):
            given = {key: value for key, value in fields.items() if key in Manifest.__struct_fields__}
            return Manifest(name=own, summary="", api=API, **given)
    effects: list[Any] = ["remote"] if name.startswith("mcp__") else []
    return Manifest(name=name, summary="", api=API, effects=effects)


def rule_problems(rules: Sequence[Rule], registry: Registry) -> list[Problem]:
    """What is wrong with rules, measured by the tools that are here and those that are known by name."""
    from pegboard.rules import lint

    here = {name: one.manifest for name, one in registry.tools().items()}
    found = lint(rules, here.values())
    known = [*here.values(), *(_by_name(name) for name in known_tools() if name not in here)] if found else []
    return lint([problem.rule for problem in found], known)


@cache
def known_tools() -> dict[str, dict[str, Any]]:
    """What is known of the product's own tools, by name."""
    import tomllib

    return tomllib.loads(Path(__file__).with_name("known_tools.toml").read_text("utf-8"))


def accesses_of(
    manifest: Manifest, raw: Mapping[str, Any], session: Session, snapshot: Snapshot
) -> tuple[list[Access], str]:
    """What a call would touch, and what stood in the way of asking the tool itself.

    The installed tool says it; without one, or with an input that it would refuse, the fields that rules speak about
    are taken as they stand.
    """
    from pegboard.errors import PegError

    found = session.find_tool(manifest.name)
    problem = f"{manifest.name} is not installed here; it is judged by what is known of it"
    if found is not None:
        try:
            return _asked(found, raw, session, snapshot), ""
        except PegError as error:
            problem = f"the call would be refused before it is judged: {error}"
    return list(_guessed(manifest.name, raw, snapshot)), problem


def _asked(found: Any, raw: Mapping[str, Any], session: Session, snapshot: Snapshot) -> list[Access]:
    from pegboard import shaping
    from pegboard.call import Ledger
    from pegboard.tool import Context

    tool = session.toolbox.load(found)
    places = {"cwd": str(session.cwd), "home": str(session.places.home)}
    given, _ = shaping.parse_input(tool.Input, dict(raw), found.manifest, places)
    context = Context(session, call_id="explain", tool=found.manifest.name, ledger=Ledger(), snapshot=snapshot)
    return list(tool.accesses(given, context))


def _guessed(name: str, raw: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Access]:
    from pegboard.tool import Access

    fields = known_tools().get(name, {})
    if "path" in fields:
        path = str(raw.get(fields["path"]) or ".")
        path = f"{snapshot.home}{path[1:]}" if path == "~" or path.startswith("~/") else path
        path = path if path.startswith("/") else f"{snapshot.cwd}/{path}"
        yield Access.edit(path) if fields["family"] == "Edit" else Access.read(path)
    elif "host" in fields:
        yield Access.fetch(_host(str(raw.get(fields["host"], ""))))
    elif "use" in fields:
        yield Access.use(str(raw.get(fields["use"], "")) if fields["use"] else name)
    elif "command" in fields:
        yield from _commands(str(raw.get(fields["command"], "")))


def _host(url: str) -> str:
    """The host of a plain web address; empty for one that two programs could read differently."""
    found = re.fullmatch(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?(?:[/?#][^\s\\]*)?", url)
    host = found[1] if found else ""
    number = re.fullmatch(r"(?:0[xX][0-9A-Fa-f]*|\d+)(?:\.(?:0[xX][0-9A-Fa-f]*|\d+))*\.?", host)
    plain = re.fullmatch(r"(?:0|[1-9]\d{0,2})(?:\.(?:0|[1-9]\d{0,2})){3}", host)
    return "" if number and not plain else host


def _commands(command: str) -> Iterator[Access]:
    """A command without the tool that reads commands: one piece, for which no allow rule can speak."""
    from pegboard.tool import Access

    yield Access.run(command)
