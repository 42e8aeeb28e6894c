"""Published ways around a permission system, and harmless twins, each decided in its own context.

A case tells the tool, its input, the rules and the mode, and which verdicts hold. Commands are read by the shell
library, as the Bash tool does it; "ask" with nobody to ask is "deny".
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pegboard.manifest import Manifest
from pegboard.policy import Mode, Rule, Snapshot, decide, parse_rule, resolve_accesses
from pegboard.tool import Access
from pegboard_shell.judge import accesses
from pegboard_shell.places import hidden_from

CASES = json.loads((Path(__file__).parent / "security_cases.json").read_text("utf-8"))

TOOLS = {
    "Bash": Manifest(name="Bash", summary="", api=1, effects=["process", "file", "network"]),
    "Read": Manifest(name="Read", summary="", api=1, family="Read", concurrency="read"),
    "Write": Manifest(name="Write", summary="", api=1, family="Edit", effects=["file"]),
    "Edit": Manifest(name="Edit", summary="", api=1, family="Edit", effects=["file"]),
}


def moved(case: dict, base: Path) -> dict:
    """The case with its absolute folders moved below ``base``."""
    text = re.sub(r"(?<![\w.])/(w|home/u)(?=[/\"' ;&])", lambda match: f"{base}/{match[1]}", json.dumps(case))
    return json.loads(text)


def rules(context: dict) -> list[Rule]:
    return [
        parse_rule(text, effect=effect, scope=scope)
        for scope, given in (
            ("user", context),
            ("flag", context.get("cli", {})),
            ("managed", context.get("managed", {})),
        )
        for effect in ("allow", "ask", "deny")
        for text in given.get(effect, [])
    ]


def build(context: dict, given: dict) -> None:
    for name, target in context.get("fs", {}).get("links", {}).items():
        link, target = Path(name), Path(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    if "race" in given:
        Path(given["file_path"]).symlink_to(Path(given["file_path"]).parents[2] / "home" / "u" / ".bashrc")


def verdict(case: dict, base: Path) -> str:
    context, given = case["policy_context"], dict(case["input"])
    for folder in (base / "w" / "proj", base / "home" / "u"):
        folder.mkdir(parents=True)
    build(context, given)
    given |= context.get("hook", {}).get("updatedInput", {})
    snapshot = Snapshot.make(
        rules(context),
        mode=Mode.parse(context["mode"]),
        cwd=context["cwd"],
        home=base / "home" / "u",
        trusted=context["trusted"],
    )
    if case["tool"] == "Bash":
        hidden = hidden_from(
            snapshot.read_deny_globs, lambda path: snapshot.denied("Bash", Access.read(path)) is not None
        )
        found = accesses(
            given["command"],
            cwd=given.get("cwd", snapshot.cwd),
            home=snapshot.home,
            roots=snapshot.roots,
            trusted=snapshot.trusted,
            hidden=hidden,
        ).accesses
    else:
        found = ((Access.read if case["tool"] == "Read" else Access.edit)(given["file_path"]),)
    decision = decide(TOOLS[case["tool"]], given, resolve_accesses(found, snapshot), snapshot)
    lifted = context.get("hook", {}).get("PreToolUse") == "allow" and decision.question_only
    word = "allow" if lifted else decision.verdict
    return "deny" if word == "ask" and context.get("headless") else word


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(case, tmp_path):
    base = tmp_path.resolve()
    assert verdict(moved(case, base), base) in case["accept"], case["why"]


def test_cases_are_all_there():
    assert len(CASES) == 88
    assert sum(case["accept"] == ["allow"] for case in CASES) >= 8, "harmless twins are among them"


# -- one command under one set of rules, many spellings --------------------------------------------------------------


@pytest.fixture
def decided(tmp_path):
    """The verdict on a command in a small project under these rules."""

    def ask(command: str, base: Path = tmp_path, **context: list[str]) -> str:
        case = {"tool": "Bash", "input": {"command": command}}
        where = base / str(len(list(base.iterdir())))
        where.mkdir()
        full = {"mode": "default", "cwd": str(where / "w" / "proj"), "trusted": True, **context}
        return verdict({**case, "policy_context": full}, where.resolve())

    return ask


COMPOUND = json.loads((Path(__file__).parent / "command_forms.json").read_text("utf-8"))


@pytest.mark.parametrize("command", COMPOUND["never_allowed"])
def test_a_denied_program_is_not_reached_by_another_form(decided, command):
    assert decided(command, deny=["Bash(rm:*)"], allow=["Bash(echo:*)"]) in ("deny", "ask")


@pytest.mark.parametrize("command", COMPOUND["never_allowed_beside_others"])
def test_an_allow_rule_does_not_carry_other_text(decided, command):
    given = {"allow": ["Bash(git status)", "Bash(npm run test:*)"], "deny": ["Bash(env)"]}
    assert decided(command, **given) in ("deny", "ask")


@pytest.mark.parametrize("command", COMPOUND["allowed"])
def test_a_mere_argument_is_no_command(decided, command):
    assert decided(command, deny=["Bash(rm:*)"], allow=["Bash(echo:*)", "Bash(git status)"]) == "allow"
