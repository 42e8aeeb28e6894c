"""Published ways around a permission system, as far as the deciding function meets them; and what must just work."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from pegboard.policy import Mode, Snapshot, decide, judge_mode_change, lint, parse_rule, resolve_accesses
from pegboard.tool import Access

sys.path.insert(0, str(Path(__file__).parent))
from policyworld import TOOLS

LINES = (Path(__file__).parent / "policy_cases.jsonl").read_text("utf-8").splitlines()
IDS = [json.loads(line)["id"] for line in LINES]


def moved(line: str, base: Path) -> dict:
    """A case with its absolute folders moved below ``base``."""
    for folder in ("/w/", "/home/u"):
        line = line.replace(f'"{folder}', f'"{base}{folder}')
    return json.loads(line)


def accesses(case: dict) -> list[Access]:
    given = case["input"]
    if case["tool"] == "WebFetch":
        return [Access.fetch(given["url"].split("/")[2])]
    if "file_path" not in given:
        return []
    kind = Access.read if case["tool"] == "Read" else Access.edit
    return [kind(given["file_path"])]


def verdict(case: dict, base: Path) -> str:
    context, given = case["policy_context"], case["input"]
    for folder in (context["cwd"], base / "home" / "u" / ".ssh"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    for link, target in context.get("fs", {}).get("links", {}).items():
        Path(link).symlink_to(target)
    texts = {**context, **{key: given[key] for key in ("allow", "deny") if key in given}}
    rules = [
        parse_rule(text, effect=effect, scope="user")
        for effect in ("allow", "ask", "deny")
        for text in [
            *texts.get(effect, []),
            *(context.get("skill", {}).get("allowed_tools", ()) if effect == "allow" else ()),
        ]
    ]
    snapshot = Snapshot.make(
        rules,
        mode=Mode.parse(context["mode"]),
        cwd=context["cwd"],
        home=base / "home" / "u",
        trusted=context["trusted"],
        disable_bypass=context.get("managed", {}).get("disable_bypass", False),
    )
    if case["tool"] == "@mode":
        decision = judge_mode_change(Mode.parse(given["set_mode"]), snapshot, False, scope="agent")
        return {"deny": "refuse", "allow": "load"}[decision.verdict]
    if case["tool"] == "@policy-load":
        return "strip" if lint(rules, TOOLS.values()) else "load"
    manifest = TOOLS[case["tool"]]
    return decide(manifest, given, resolve_accesses(accesses(case), snapshot), snapshot).verdict


@pytest.mark.parametrize("line", LINES, ids=IDS)
def test_case(line, tmp_path):
    case = moved(line, tmp_path.resolve())
    assert verdict(case, tmp_path.resolve()) in case["accept"], case["why"]
