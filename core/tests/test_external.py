"""Hooks as data: what settings of every scope configure, what is wrong with it, and what the doctor says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard.external import BROKEN, EVENTS, KINDS, LATER, Configured, parse
from pegboard.places import Places, find_places
from pegboard.settings import Settings

HOOK = '[[hooks.Stop]]\nhooks = [{{ type = "command", command = "{}" }}]\n'


@pytest.fixture
def places(tmp_path: Path) -> Places:
    for name in ("work/.peg", "work/.claude", "home/.peg", "managed"):
        (tmp_path / name).mkdir(parents=True)
    return find_places(
        tmp_path / "work", {"HOME": str(tmp_path / "home"), "PEG_MANAGED_DIR": str(tmp_path / "managed")}
    )


def write(places: Places, scope: str, text: str) -> None:
    paths = {
        "managed": places.managed_dir / "managed.toml",
        "user": places.user_dir / "settings.toml",
        "project": places.project_dir / "settings.toml",
        "local": places.project_dir / "settings.local.toml",
    }
    paths[scope].write_text(text)


def configured(places: Places, *, trusted: bool = True) -> Configured:
    return Configured(Settings.load(places, trusted=trusted), places)


def test_hooks_of_all_scopes_highest_first_each_with_its_file(places: Places) -> None:
    for scope in ("user", "project", "local", "managed"):
        write(places, scope, HOOK.format(scope))
    found = configured(places).all()
    assert [(hook.scope, hook.what) for hook in found] == [
        (one, one) for one in ("managed", "local", "project", "user")
    ]
    assert [Path(hook.source).name for hook in found] == ["managed.toml", "settings.local.toml", *["settings.toml"] * 2]
    assert not any(hook.why_not for hook in found)
    held = configured(places, trusted=False).all()
    assert {hook.scope: bool(hook.why_not) for hook in held} == {
        "managed": False, "user": False, "project": True, "local": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("scope", "text", "running"),
    [
        ("user", "hooks.disabled = true\n", ["managed"]),
        ("project", "hooks.disabled = true\n", ["managed"]),
        ("managed", "hooks.disabled = true\n", ["managed"]),
        ("managed", "hooks.managed_only = true\n", ["managed"]),
        ("managed", 'hooks.managed_only = "perhaps"\n', ["managed"]),
        ("user", "hooks.managed_only = true\n", ["managed", "user"]),
    ],
)
def test_hook_8_nothing_below_switches_managed_hooks_off(
    places: Places, scope: str, text: str, running: list[str]
) -> None:
    texts = {"managed": HOOK.format("managed"), "user": HOOK.format("user"), "project": ""}
    texts[scope] = text + texts[scope]
    for name, one in texts.items():
        write(places, name, one)
    assert [hook.scope for hook in configured(places).all() if not hook.why_not] == running


def test_a_change_of_any_file_counts(places: Places) -> None:
    loaded = Settings.load(places, trusted=True)
    found = Configured(loaded, places)
    assert found.all() == [] and found.all() is found.all()
    write(places, "user", "compat.hooks = true\n" + HOOK.format("a"))
    loaded.refresh()
    assert [hook.what for hook in found.all()] == ["a"]
    foreign = places.root / ".claude/settings.json"
    foreign.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "b"}]}]}}))
    assert [hook.what for hook in found.all()] == ["a", "b"]
    foreign.write_text("{")
    assert [hook.what for hook in found.all()] == ["a", "b"] and "settings.json" in found.problems[0]
    foreign.unlink()
    assert [hook.what for hook in found.all()] == ["a"] and found.problems == []


@pytest.mark.parametrize(
    ("handler", "fault"),
    [
        (None, "takes groups"),
        ("x", "takes groups"),
        ({}, "no hook type None"),
        ({"type": "command"}, "needs command"),
        ({"type": "command", "command": "  "}, "needs command"),
        ({"type": "command", "command": 5}, "wrong type"),
        ({"type": "command", "command": "x", "args": "y"}, "wrong type"),
        ({"type": "command", "command": "x", "args": [1]}, "list of texts"),
        ({"type": "command", "command": "x", "timeout": True}, "wrong type"),
        ({"type": "command", "command": "x", "timeout": -1}, "above 0"),
        ({"type": "command", "command": "x", "timeout": float("nan")}, "above 0"),
        ({"type": "command", "command": "x", "async": 1}, "wrong type"),
        ({"type": "command", "command": "x", "onFailure": "stop"}, "continue or block"),
        ({"type": "http", "url": "u", "headers": {"a": 1}}, "texts by name"),
        ({"type": "http", "url": "u", "allowedEnvVars": [1]}, "list of texts"),
    ],
)
def test_what_is_wrong_is_said_and_a_managed_guard_is_shut(handler: Any, fault: str) -> None:
    problems: list[str] = []
    table = {"PreToolUse": [{"hooks": [handler, {"type": "command", "command": "fine"}]}]}
    assert [hook.what for hook in parse(table, "user", "file", problems)] == ["fine"]
    assert fault in problems[0] and problems[0].startswith("file: hooks.PreToolUse")
    shut, fine = parse(table, "managed", "file", [])
    assert shut.type == BROKEN and shut.blocks and fine.blocks
    assert [hook.what for hook in parse({"Stop": table["PreToolUse"]}, "managed", "file", [])] == ["fine"]


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*EVENTS, *LATER, "Setup"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from([*KINDS]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["matcher", "hooks", "type", "command", "timeout", "if"]), inner, max_size=4
                )
            ),
            max_leaves=12,
        ),
    )
)
def test_no_configuration_breaks_the_reading(table: dict[str, Any]) -> None:
    for scope in ("managed", "project"):
        problems: list[str] = []
        for hook in parse(table, scope, "file", problems):
            assert hook.shown is not None and hook.event in table
            hash(hook)


def test_the_doctor_names_hooks_that_do_not_run(places: Places, tmp_path: Path) -> None:
    write(places, "user", "[[hooks.Setup]]\nhooks = []\n" + HOOK.format("mine"))
    write(places, "project", HOOK.format("theirs"))
    env = {"HOME": str(places.home), "PATH": os.environ["PATH"], "PEG_MANAGED_DIR": str(places.managed_dir)}
    command = [sys.executable, "-m", "pegboard", "doctor", "--json"]
    done = subprocess.run(command, cwd=places.root, env=env, capture_output=True, text=True)
    told = [one["text"] for one in json.loads(done.stdout)["findings"] if one["area"] == "hooks"]
    assert any("Setup never happens here" in text for text in told)
    assert any("Stop: theirs" in text and "not trusted" in text for text in told)
    assert not any("mine" in text for text in told)
