"""How often the starter policy asks about everyday commands, and whether it lets a dangerous one pass.

Run it directly: ``python tests/bench/starter.py [--json] [--all]``. `core/tests/test_starter.py` holds it to its word.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

LIST = Path(__file__).with_name("commands.txt")
STARTER = Path(__file__).parents[2] / "core" / "src" / "pegboard" / "starter.toml"


def commands() -> list[tuple[str, str]]:
    """Class and text of each command."""
    lines = (line for line in LIST.read_text("utf-8").splitlines() if line and not line.startswith("#"))
    return [(kind, text) for kind, _, text in (line.partition("\t") for line in lines)]


def verdicts(rules: dict[str, list[str]] | None = None) -> list[tuple[str, str, dict]]:
    """Every command with its explanation under the starter policy, or under other rules."""
    if rules is None:
        given = tomllib.loads(STARTER.read_text("utf-8"))["permissions"]
        rules = {
            effect: [rule["rule"] if isinstance(rule, dict) else rule for rule in listed]
            for effect, listed in given.items()
        }
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder).resolve()
        (room / "home" / "work" / "src").mkdir(parents=True)
        fixed = {"tool": "Bash", "trusted": True, "rules": rules}
        asked = [{**fixed, "input": {"command": text}} for _, text in commands()]
        done = subprocess.run(
            [sys.executable, "-m", "pegboard", "policy", "explain", "--jsonl"],
            input="".join(json.dumps(one) + "\n" for one in asked),
            cwd=room / "home" / "work",
            env={"HOME": str(room / "home"), "PATH": os.environ["PATH"], "PEG_MANAGED_DIR": str(room / "managed")},
            capture_output=True,
            text=True,
            check=True,
        )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return [(kind, text, one) for (kind, text), one in zip(commands(), told, strict=True)]


def main() -> None:
    found = verdicts()
    counts = Counter((kind, one["verdict"]) for kind, _, one in found)
    kinds = list(dict.fromkeys(kind for kind, _, _ in found))
    if "--json" in sys.argv:
        print(json.dumps({kind: {word: counts[kind, word] for word in ("allow", "ask", "deny")} for kind in kinds}))
        return
    for kind in kinds:
        total = sum(counts[kind, word] for word in ("allow", "ask", "deny"))
        share = counts[kind, "allow"] / total
        print(
            f"{kind:8} {total:4}   no question {share:6.1%}   ask {counts[kind, 'ask']}   deny {counts[kind, 'deny']}"
        )
    for kind, text, one in found:
        unexpected = kind != "changes" and (kind in ("reads", "works")) != (one["verdict"] == "allow")
        if unexpected or "--all" in sys.argv:
            print(f"  {kind:8} {one['verdict']:5}  {text}    {one['decided_by'].get('reason', '')}")


if __name__ == "__main__":
    main()
