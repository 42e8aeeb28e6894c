"""`--bare`: nothing of the project and of the user's folders counts, and managed policy holds all the same."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from shells import Shell, call, shell

__all__ = ["shell"]


def hooks(who: str) -> str:
    command = f"touch hooked-by-{who}"
    return f'[[hooks.PreToolUse]]\nmatcher = "Echo"\nhooks = [{{ type = "command", command = "{command}" }}]\n'


def fill(it: Shell) -> None:
    """A project and a user that set everything they can."""
    (it.work / ".peg").mkdir()
    (it.work / ".peg/settings.toml").write_text('permissions.deny = ["Edit"]\nmodel = "claude-opus-5-5"\n')
    (it.work / "AGENTS.md").write_text("Always say please.")
    home = it.home / ".peg"
    home.mkdir()
    (home / "settings.toml").write_text(hooks("user"))
    (home / "AGENTS.md").write_text("Mumble in Latin.")


def test_bare_leaves_out_what_is_not_bundled(shell: Callable[..., Shell]) -> None:
    it = shell(call("Echo"), call("Touch", "f"), "done")
    fill(it)
    code, lines = it.stream("--bare", "--allow", "Edit(//**)", "--model", "claude-haiku-5-5")
    assert code == 0 and lines[-1]["permission_denials"] == [] and (it.work / "f").exists()
    assert not list(it.work.glob("hooked-by-*"))
    said = json.dumps(it.service.bodies)
    assert "please" not in said and "Mumble" not in said


def test_without_bare_all_of_it_counts(shell: Callable[..., Shell]) -> None:
    it = shell(call("Echo"), call("Touch", "f"), "done")
    fill(it)
    code, lines = it.stream("--allow", "Edit(//**)")
    assert code == 0 and lines[0]["model"] == "claude-opus-5-5" and (it.work / "hooked-by-user").exists()
    assert [denied["code"] for denied in lines[-1]["permission_denials"]] == ["denied_by_rule"]
    said = json.dumps(it.service.bodies)
    assert "please" in said and "Mumble" in said


def test_managed_policy_holds_in_bare_runs(shell: Callable[..., Shell]) -> None:
    it = shell(call("Echo"), call("Touch", "f"), "done")
    managed = Path(it.env["PEG_MANAGED_DIR"])
    managed.mkdir()
    (managed / "managed.toml").write_text('permissions.deny = ["Edit"]\n' + hooks("policy"))
    code, lines = it.stream("--bare", "--allow", "Edit(//**)")
    assert code == 0 and [denied["tool_name"] for denied in lines[-1]["permission_denials"]] == ["Touch"]
    assert (it.work / "hooked-by-policy").exists() and not (it.work / "f").exists()


def test_bare_and_trust_exclude_each_other(shell: Callable[..., Shell]) -> None:
    it = shell("x")
    done = it.run("-p", "go", "--bare", "--trust")
    assert done.returncode == 2 and it.service.requests == []
