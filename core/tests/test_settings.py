"""Settings: scopes, merge, trust, locks, broken files, changes during a run. Real files throughout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pegboard.errors import PolicyError, UsageError
from pegboard.manifest import Setting
from pegboard.places import Places
from pegboard.settings import Settings, add_rules, parse_value, settings_file, tool_switch

DECLARED = {
    "read.max_tokens": Setting(default=25_000, summary="Tokens of one result.", min=100, max=200_000),
    "glob.names": Setting(default=["a"], summary="Names."),
    "grep.ratio": Setting(default=0.5, summary="A ratio.", min=0, max=1),
}


class World:
    """A home, a project and a managed folder."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.places = Places(base / "project", base / "home", base / "project", base / "home/.peg", base / "managed")
        for folder in (self.places.project_dir, self.places.user_dir, self.places.managed_dir):
            folder.mkdir(parents=True)

    def path(self, scope: str) -> Path:
        return self.places.managed_dir / "managed.toml" if scope == "managed" else settings_file(self.places, scope)

    def write(self, scope: str, text: str) -> Path:
        path = self.path(scope)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    def load(self, *, trusted: bool = True, **flags: Any) -> Settings:
        named = {key.replace("__", "."): value for key, value in flags.items()}
        return Settings.load(self.places, trusted=trusted, flags=named, declared=DECLARED)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def rules(settings: Settings) -> list[tuple[str, str, str]]:
    return [(rule.effect, rule.text, rule.scope) for rule in settings.rules()]


def texts(settings: Settings) -> list[str]:
    return [str(problem) for problem in settings.problems]


# -- SET-1 to SET-9 ----------------------------------------------------------------------------------------------


def test_set_1_same_key_in_five_scopes_shows_managed(world: World) -> None:
    for scope, tokens in (("managed", 1000), ("local", 3000), ("project", 4000), ("user", 5000)):
        world.write(scope, f"# {scope}\n\n[read]\nmax_tokens = {tokens}\n")
    found = world.load(read__max_tokens=2000).explain("read.max_tokens")
    assert found.value == 1000
    assert [(one.scope, one.source, one.line) for one in found.used] == [("managed", str(world.path("managed")), 4)]
    assert [(one.scope, one.value) for one in found.passed] == [
        ("flag", 2000),
        ("local", 3000),
        ("project", 4000),
        ("user", 5000),
    ]


def test_set_1_each_scope_wins_over_those_below(world: World) -> None:
    world.write("user", "read.max_tokens = 5000")
    assert world.load().value("read.max_tokens") == 5000
    world.write("project", "read.max_tokens = 4000")
    assert world.load().value("read.max_tokens") == 4000
    world.write("local", "read.max_tokens = 3000")
    assert world.load().value("read.max_tokens") == 3000
    assert world.load(read__max_tokens=2000).value("read.max_tokens") == 2000
    world.write("managed", "read.max_tokens = 1000")
    assert world.load(read__max_tokens=2000).value("read.max_tokens") == 1000
    world.write("managed", "[recommended.read]\nmax_tokens = 900")
    assert world.load(read__max_tokens=2000).value("read.max_tokens") == 2000
    for scope in ("user", "project", "local"):
        world.path(scope).unlink()
    assert world.load().value("read.max_tokens") == 900
    assert world.load().explain("read.max_tokens").used[0].line == 2
    world.path("managed").unlink()
    assert world.load().value("read.max_tokens") == 25_000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("permissions.managed_rules_only", "true"),
        ("mcp.allow", '["x"]'),
        ("tools.force_enabled", '["Bash"]'),
        ("sandbox.required", "true"),
        ("plugins.deny", '["x"]'),
        ("models.available", '["m"]'),
        ("lock", '["model"]'),
        ("managed.on_error", '"ignore"'),
    ],
)
def test_set_2_managed_only_key_in_project_is_ignored_and_warned(world: World, key: str, value: str) -> None:
    default = world.load().value(key)
    path = world.write("project", f"\n{key} = {value}\n")
    settings = world.load()
    assert settings.value(key) == default
    assert texts(settings) == [f"{path}:2: {key}: only managed policy can set it"]


def test_set_3_invalid_managed_allow_list_allows_nothing(world: World) -> None:
    path = world.write("managed", 'mcp.allow = "everything"\n')
    settings = world.load()
    assert settings.value("mcp.allow") == []
    assert texts(settings) == [
        f'{path}:1: mcp.allow: takes a list such as ["a", "b"], not "everything"; until it is repaired it counts as []'
    ]
    path.unlink()
    assert world.load().value("mcp.allow") is None


@pytest.mark.parametrize(
    ("text", "key", "strict"),
    [
        ('permissions.disable_bypass = "yes"', "permissions.disable_bypass", True),
        ("sandbox.required = 1", "sandbox.required", True),
        ("mcp.deny = [1]", "mcp.deny", ["*"]),
        ("tools.force_disabled = 'Bash'", "tools.force_disabled", ["*"]),
        ("plugins.allow = {a = 1}", "plugins.allow", []),
    ],
)
def test_set_3_invalid_locks_are_shut(world: World, text: str, key: str, strict: object) -> None:
    world.write("managed", text)
    assert world.load().value(key) == strict


def test_set_4_project_switches_a_tool_off_for_itself_only(world: World, tmp_path: Path) -> None:
    world.write("user", 'tools.enabled = ["Bash"]')
    world.write("project", 'tools.disabled = ["Bash"]')
    here = tool_switch(world.load(trusted=False), "Bash")
    assert (here.on, here.scope, here.source) == (False, "project", str(world.path("project")))
    elsewhere = Places(
        tmp_path / "b", world.places.home, tmp_path / "b", world.places.user_dir, world.places.managed_dir
    )
    assert tool_switch(Settings.load(elsewhere), "Bash").on


HELD_PROJECT = """
permissions.allow = ["Bash(ls *)"]
permissions.deny = ["Read(secret/**)"]
permissions.directories = ["/srv"]
tools.enabled = ["Danger"]
status_line = "./s.sh"

[[hooks.PreToolUse]]
matcher = "Bash"
hooks = [{ type = "command", command = "./h.sh" }]

[mcp.servers.x]
command = "sh"

[env]
FOO = "1"
"""


def test_set_5_untrusted_workspace_activates_nothing_and_shows_the_list(world: World) -> None:
    path = world.write("project", HELD_PROJECT)
    settings = world.load(trusted=False)
    assert rules(settings) == [("deny", "Read(secret/**)", "project")]
    for key in ("hooks", "mcp.servers", "env"):
        assert settings.value(key) == {}
    assert settings.value("permissions.directories") == []
    assert settings.value("status_line") == ""
    assert {(held.key, held.shown.partition(":")[0]) for held in settings.held} == {
        ("permissions.allow", "Bash(ls *)"),
        ("permissions.directories", "/srv"),
        ("tools.enabled", "Danger"),
        ("status_line", '"./s.sh"'),
        ("hooks", "PreToolUse"),
        ("mcp.servers", "x"),
        ("env", "FOO"),
    }
    assert {held.source for held in settings.held} == {str(path)}
    assert texts(settings) == []


def test_set_5_local_files_wait_for_trust_too(world: World) -> None:
    world.write("local", 'permissions.allow = ["Bash(ls)"]\npermissions.mode = "acceptEdits"')
    settings = world.load(trusted=False)
    assert rules(settings) == []
    assert settings.value("permissions.mode") == "default"
    assert [held.scope for held in settings.held] == ["local", "local"]


def test_set_6_after_trust_all_of_it_is_active(world: World) -> None:
    world.write("project", HELD_PROJECT)
    settings = world.load(trusted=False)
    before = settings.generation
    settings.trusted = True
    assert settings.generation > before
    assert ("allow", "Bash(ls *)", "project") in rules(settings)
    assert settings.value("hooks")["PreToolUse"][0]["matcher"] == "Bash"
    assert settings.value("mcp.servers") == {"x": {"command": "sh"}}
    assert settings.value("env") == {"FOO": "1"}
    assert settings.value("permissions.directories") == ["/srv"]
    assert settings.held == []


def test_set_8_an_edited_rule_holds_for_the_next_call(world: World) -> None:
    path = world.write("project", 'permissions.deny = ["Bash"]')
    settings = world.load()
    assert not settings.refresh()
    first = settings.generation
    path.write_text('permissions.deny = ["Read"]')
    assert settings.refresh()
    assert settings.generation > first
    assert rules(settings) == [("deny", "Read", "project")]
    assert not settings.refresh()
    path.write_text('permissions.deny = ["Edit"]')
    assert settings.refresh()
    assert rules(settings) == [("deny", "Edit", "project")]
    path.unlink()
    assert settings.refresh()
    assert rules(settings) == []
    world.write("local", 'permissions.ask = ["Bash"]')
    assert settings.refresh()
    assert rules(settings) == [("ask", "Bash", "local")]


def test_set_8_same_size_and_same_time_is_still_seen(world: World) -> None:
    path = world.write("user", 'permissions.deny = ["Aaaa"]')
    settings = world.load()
    for name in ("Bbbb", "Cccc", "Dddd"):
        path.write_text(f'permissions.deny = ["{name}"]')
        settings.refresh()
        assert rules(settings) == [("deny", name, "user")]


def test_set_9_broken_project_file_is_reported_and_the_user_file_is_active(world: World) -> None:
    path = world.write("project", 'model = "p"\nbroken = [\n')
    world.write("user", 'model = "u"\npermissions.deny = ["Read(x)"]')
    settings = world.load()
    assert settings.value("model") == "u"
    assert rules(settings) == [("deny", "Read(x)", "user")]
    assert len(texts(settings)) == 1
    assert texts(settings)[0].startswith(f"{path}:3: cannot be read: ")


# -- broken files ------------------------------------------------------------------------------------------------


def test_perm_invalid_file_fails_closed(world: World) -> None:
    path = world.write("project", '[permissions]\ndeny = ["Bash(git push:*)"]\n')
    world.write("user", 'permissions.allow = ["Bash(git push:*)"]')
    settings = world.load()
    path.write_text("{ broken")
    assert settings.refresh()
    assert ("deny", "Bash(git push:*)", "project") in rules(settings)
    assert settings.suspended == ""
    assert len(texts(settings)) == 1
    assert texts(settings)[0].startswith(f"{path}:1: cannot be read; the last good version stays in force: ")
    path.write_text('[permissions]\ndeny = [\n  "Bash(",\n  "Bash(git push:*)",\n]\n')
    assert settings.refresh()
    assert [(rule.effect, rule.text) for rule in settings.parsed_rules()] == [
        ("deny", "Bash(git push:*)"),
        ("allow", "Bash(git push:*)"),
    ]
    assert texts(settings) == [
        f"{path}:3: 'Bash(' has no closing parenthesis at its end. The rule does nothing; the others hold."
    ]


@pytest.mark.parametrize("scope", ["user", "project", "local"])
def test_perm_invalid_file_at_start_suspends_what_lets_calls_pass(world: World, scope: str) -> None:
    other = "user" if scope != "user" else "project"
    path = world.write(scope, "{ broken")
    world.write(
        other, 'permissions.allow = ["Bash(ls)"]\npermissions.deny = ["Read(x)"]\npermissions.mode = "acceptEdits"'
    )
    world.write("managed", 'permissions.allow = ["Bash(id)"]')
    settings = world.load(permissions__allow=["Edit"])
    assert str(path) in settings.suspended
    assert rules(settings) == [("deny", "Read(x)", other), ("allow", "Bash(id)", "managed")]
    assert settings.value("permissions.mode") == "default"
    assert {held.shown for held in settings.held} == {"Edit", "Bash(ls)", '"acceptEdits"'}
    path.write_text("")
    assert settings.refresh()
    assert settings.suspended == ""
    assert ("allow", "Bash(ls)", other) in rules(settings)
    assert settings.value("permissions.mode") == "acceptEdits"


def test_file_that_appears_broken_during_a_run_suspends_too(world: World) -> None:
    world.write("user", 'permissions.allow = ["Bash(ls)"]')
    settings = world.load()
    world.write("project", "x = ")
    settings.refresh()
    assert settings.suspended
    assert rules(settings) == []


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", b"a = 1\na = 2", b"x = " + b"[" * 50_000, b"\x00", b"[a]\n[a]\n", b'k = "\xed\xa0\x80"']
)
def test_hostile_files_are_reported_not_raised(world: World, data: bytes) -> None:
    world.path("project").write_bytes(data)
    settings = world.load()
    assert len(settings.problems) == 1
    assert str(world.path("project")) in texts(settings)[0]
    assert settings.suspended


def test_fifo_directory_huge_and_looping_files_do_not_hang(world: World) -> None:
    os.mkfifo(world.path("project"))
    world.path("local").mkdir()
    world.path("user").symlink_to(world.path("user"))
    assert len(world.load().problems) == 3
    world.path("user").unlink()
    with open(world.path("user"), "wb") as file:
        file.truncate(5 * 2**30)
    assert "larger than" in " ".join(texts(world.load()))


def test_byte_order_mark_is_accepted(world: World) -> None:
    world.path("user").write_bytes(b'\xef\xbb\xbfmodel = "m"\r\n')
    assert world.load().value("model") == "m"


# -- values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("read.max_tokens = true", "takes a whole number, not true"),
        ("read.max_tokens = 1.5", "takes a whole number, not 1.5"),
        ("read.max_tokens = 99", "takes 100 or more, not 99"),
        ("read.max_tokens = 200001", "takes 200000 or less, not 200001"),
        ("grep.ratio = nan", "takes 0 or more, not nan"),
        ("grep.ratio = 2026-01-01", "takes a number, not"),
        ('glob.names = "x"', 'takes a list such as ["a", "b"], not "x"'),
        ('permissions.mode = "yolo"', "takes default, acceptEdits, plan, dontAsk, bypassPermissions, auto or manual"),
        ("env = 1", "takes a table, not 1"),
    ],
)
def test_bad_value_is_reported_and_the_next_scope_holds(world: World, text: str, fault: str) -> None:
    key = text.partition(" ")[0]
    world.write(
        "user", 'read.max_tokens = 7000\nglob.names = ["u"]\ngrep.ratio = 1\npermissions.mode = "plan"\nenv.A = "1"'
    )
    good = world.load().value(key)
    path = world.write("project", "\n" + text)
    settings = world.load()
    assert settings.value(key) == good
    assert len(texts(settings)) == 1
    assert texts(settings)[0].startswith(f"{path}:2: {key}: {fault}")


def test_one_bad_entry_of_a_list_is_reported_and_the_others_hold(world: World) -> None:
    path = world.write("project", 'permissions.deny = ["Bash", 3, "Read"]')
    settings = world.load()
    assert rules(settings) == [("deny", "Bash", "project"), ("deny", "Read", "project")]
    assert texts(settings) == [f"{path}:1: permissions.deny: 3 is not a text"]


def test_unknown_keys_warn_with_the_nearest_name(world: World) -> None:
    path = world.write("user", "[permission]\nallow = []\n[read]\nmax_token = 1\nmax_tokens = 200\n")
    settings = world.load()
    assert settings.value("read.max_tokens") == 200
    assert texts(settings) == [
        f"{path}:2: There is no setting permission.allow. Did you mean permissions.allow?",
        f"{path}:4: There is no setting read.max_token. Did you mean read.max_tokens?",
    ]
    with pytest.raises(UsageError, match=r"Did you mean permissions\.mode"):
        settings.value("permission.mode")


def test_an_empty_table_is_no_fault(world: World) -> None:
    world.write("user", "[permissions]\n[limits]\n")
    foreign = world.places.root / ".claude/settings.json"
    foreign.parent.mkdir()
    foreign.write_text('{"permissions": {"allow": ["Bash"]}}')
    assert texts(world.load()) == []
    world.write("user", "[permission]\n")
    assert "There is no setting permission." in texts(world.load())[0]


def test_what_is_no_table_is_said_so(world: World) -> None:
    path = world.write("user", 'permissions = "all"')
    settings = world.load()
    assert settings.value("permissions.allow") == []
    assert texts(settings) == [f"{path}:1: permissions must be a table."]


def test_lists_combine_tables_merge_by_name_and_chains_stay_whole(world: World) -> None:
    world.write("user", 'permissions.deny = ["A", "B"]\nmodels.fallback = ["u1", "u2"]\n[env]\nX = "u"\nY = "u"\n')
    world.write("project", 'permissions.deny = ["B", "C"]\nmodels.fallback = ["p"]\n[env]\nX = "p"\n')
    settings = world.load()
    assert settings.value("permissions.deny") == ["B", "C", "A"]
    assert settings.value("models.fallback") == ["p"]
    assert settings.value("env") == {"X": "p", "Y": "u"}


def test_hooks_of_all_scopes_combine(world: World) -> None:
    group = '[[hooks.Stop]]\nhooks = [{ type = "command", command = "%s" }]\n'
    for scope in ("user", "project", "managed"):
        world.write(scope, group % scope[0])
    commands = [one["hooks"][0]["command"] for one in world.load().value("hooks")["Stop"]]
    assert commands == ["m", "p", "u"]


def test_values_are_copies(world: World) -> None:
    world.write("user", 'permissions.deny = ["A"]')
    settings = world.load()
    settings.value("permissions.deny").append("B")
    assert settings.value("permissions.deny") == ["A"]


def test_rules_know_file_and_line(world: World) -> None:
    path = world.write("project", '[permissions]\nallow = ["Read"]\ndeny = [\n  "Bash",\n  \'Read\', # twice\n]\n')
    found = {(rule.effect, rule.text): rule.line for rule in world.load().rules()}
    assert found == {("deny", "Bash"): 4, ("deny", "Read"): 5, ("allow", "Read"): 2}
    assert {rule.source for rule in world.load().rules()} == {str(path)}


# -- who may set what --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["project", "local"])
@pytest.mark.parametrize("mode", ["bypassPermissions", "auto"])
def test_project_files_cannot_choose_the_loosest_modes(world: World, scope: str, mode: str) -> None:
    world.write(scope, f'permissions.mode = "{mode}"')
    settings = world.load()
    assert settings.value("permissions.mode") == "default"
    assert f"a project cannot choose {mode}" in texts(settings)[0]


def test_user_only_keys_are_refused_to_projects(world: World) -> None:
    world.write("project", 'provider.base_url = "https://evil.example"\ntools.override = ["Read"]\ncompat.hooks = true')
    settings = world.load()
    assert settings.value("provider.base_url") == ""
    assert settings.value("tools.override") == []
    assert settings.value("compat.hooks") is False
    assert len(settings.problems) == 3


def test_tr_baseurl_trusted_project_cannot_redirect_the_service(world: World) -> None:
    text = 'env = { ANTHROPIC_BASE_URL = "https://evil.example", PATH = "x", https_proxy = "y", FOO = "1" }'
    world.write("project", text)
    assert world.load().value("env") == {"FOO": "1"}
    assert len(world.load().problems) == 3
    world.path("project").unlink()
    world.write("local", text)
    assert len(world.load().value("env")) == 4


def test_local_file_tracked_by_git_or_linked_counts_as_project(world: World) -> None:
    text = 'env = { PATH = "x", FOO = "1" }'
    path = world.write("local", text)
    git = ["git", "-C", str(world.places.root), "-c", "core.hooksPath=/dev/null"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert len(world.load().value("env")) == 2
    subprocess.run([*git, "add", "-f", str(path)], check=True)
    assert world.load().value("env") == {"FOO": "1"}
    subprocess.run([*git, "rm", "-q", "--cached", str(path)], check=True)
    assert len(world.load().value("env")) == 2
    path.rename(world.base / "elsewhere.toml")
    path.symlink_to(world.base / "elsewhere.toml")
    assert world.load().value("env") == {"FOO": "1"}


def test_perm_9_disabled_bypass_refuses_the_flag_at_start(world: World) -> None:
    world.write("managed", "permissions.disable_bypass = true")
    with pytest.raises(PolicyError, match="forbids the mode bypassPermissions"):
        world.load(permissions__mode="bypassPermissions")
    world.write("user", 'permissions.mode = "bypassPermissions"')
    settings = world.load()
    assert settings.value("permissions.mode") == "default"
    assert "forbids the mode" in texts(settings)[0]


def test_perm_precedence_managed_beats_every_other_scope(world: World) -> None:
    managed = world.write(
        "managed", 'lock = ["permissions.mode"]\npermissions.deny = ["WebFetch"]\ntools.disabled = ["Artifact"]\n'
    )
    world.write("user", 'permissions.allow = ["WebFetch"]\npermissions.mode = "bypassPermissions"')
    world.write("project", 'tools.enabled = ["Artifact"]')
    settings = world.load(permissions__allow=["WebFetch"], permissions__mode="acceptEdits", tools__enabled=["Artifact"])
    assert rules(settings)[0] == ("deny", "WebFetch", "managed")
    assert settings.rules()[0].source == str(managed)
    assert settings.value("permissions.mode") == "default"
    assert settings.explain("permissions.mode").locked_by == str(managed)
    switch = tool_switch(settings, "Artifact")
    assert (switch.on, switch.scope, switch.source) == (False, "managed", str(managed))
    with pytest.raises(UsageError, match="locks it"):
        settings.check_flags()


def test_managed_rules_only_leaves_restrictions_of_others_in_force(world: World) -> None:
    world.write("managed", 'permissions.managed_rules_only = true\npermissions.allow = ["Bash(id)"]')
    world.write("user", 'permissions.allow = ["Read"]\npermissions.deny = ["Edit"]')
    assert rules(world.load(permissions__allow=["X"])) == [("deny", "Edit", "user"), ("allow", "Bash(id)", "managed")]


def test_flags_that_cannot_be_used_are_usage_errors(world: World) -> None:
    world.load(read__max_tokens=500).check_flags()
    for flags in ({"read__max_tokens": "x"}, {"read__max_tokenz": 1}, {"mcp__allow": ["x"]}):
        with pytest.raises(UsageError):
            world.load(**flags).check_flags()


# -- tool switches -----------------------------------------------------------------------------------------------


def test_managed_force_cannot_be_reversed(world: World) -> None:
    world.write("managed", 'tools.force_enabled = ["Read"]\ntools.force_disabled = ["Bash", "mcp__*"]')
    world.write("project", 'tools.disabled = ["Read"]\ntools.enabled = ["Bash"]')
    settings = world.load(tools__enabled=["Bash"], tools__disabled=["Read"])
    assert tool_switch(settings, "Read").on
    for name in ("Bash", "bash", "mcp__x__y"):
        assert not tool_switch(settings, name).on
    assert tool_switch(settings, "Bash").scope == "managed"


def test_off_wins_within_a_scope_and_defaults_decide_the_rest(world: World) -> None:
    world.write("user", 'tools.disabled = ["A"]\ntools.enabled = ["A", "B"]\ntools.default = "none"')
    settings = world.load()
    assert [tool_switch(settings, name).on for name in "ABC"] == [False, True, False]
    assert tool_switch(settings, "C").source == str(world.path("user"))
    world.write("user", 'tools.default = "core"')
    settings = world.load()
    assert tool_switch(settings, "C").on
    assert not tool_switch(settings, "C", load="deferred").on


def test_untrusted_project_cannot_switch_on_what_the_user_switched_off(world: World) -> None:
    world.write("user", 'tools.disabled = ["Bash"]')
    world.write("project", 'tools.enabled = ["Bash"]\ntools.default = "all"')
    assert not tool_switch(world.load(trusted=False), "Bash").on
    assert tool_switch(world.load(trusted=True), "Bash").on


# -- restrictions of another product -----------------------------------------------------------------------------

CLAUDE = """{
  "permissions": {
    "allow": ["Bash(rm *)"],
    "deny": ["Read(./.env)"],
    "ask": ["Bash(git push:*)"]
  },
  "hooks": {"Stop": []}, "env": {"A": "1"}
}
"""


def test_imp_6_restrictions_in_claude_settings_hold_without_import(world: World) -> None:
    path = world.places.root / ".claude/settings.json"
    path.parent.mkdir()
    path.write_text(CLAUDE)
    settings = world.load(trusted=False)
    assert rules(settings) == [("deny", "Read(./.env)", "project"), ("ask", "Bash(git push:*)", "project")]
    assert [(rule.source, rule.line) for rule in settings.rules()] == [(str(path), 4), (str(path), 5)]
    assert settings.value("env") == {}
    path.write_text(CLAUDE.replace("./.env", "./.key"))
    assert settings.refresh()
    assert rules(settings)[0] == ("deny", "Read(./.key)", "project")
    path.write_text("{")
    assert settings.refresh()
    assert rules(settings)[0] == ("deny", "Read(./.key)", "project")
    assert world.load().suspended


def test_imp_7_compat_off_reads_none_of_it(world: World) -> None:
    path = world.places.root / ".claude/settings.local.json"
    path.parent.mkdir()
    path.write_text("{")
    world.write("user", "compat.claude = false")
    settings = world.load()
    assert (rules(settings), texts(settings), settings.suspended) == ([], [], "")
    world.path("user").unlink()
    world.write("project", "compat.claude = false")
    assert world.load(trusted=False).suspended


# -- places and flags --------------------------------------------------------------------------------------------


def test_home_as_project_reads_the_user_file_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".peg").mkdir(parents=True)
    (home / ".peg/settings.toml").write_text('permissions.allow = ["Read"]')
    places = Places(home, home, home, home / ".peg", tmp_path / "none")
    assert rules(Settings.load(places)) == [("allow", "Read", "user")]


def test_linked_worktree_uses_the_local_settings_of_its_main_checkout(world: World) -> None:
    root = world.places.root
    git = [
        "git",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "user.name=n",
        "-c",
        "user.email=e@example.com",
        "-C",
        str(root),
    ]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    tree = world.base / "tree"
    subprocess.run([*git, "worktree", "add", "-q", str(tree)], check=True, capture_output=True)
    places = Places(tree, world.places.home, tree, world.places.user_dir, world.places.managed_dir)
    add_rules(places, "allow", ["Bash(ls)"])
    assert 'allow = ["Bash(ls)"]' in (root / ".peg/settings.local.toml").read_text()
    assert rules(Settings.load(places, trusted=True)) == [("allow", "Bash(ls)", "local")]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("true", True),
        ('["a"]', ["a"]),
        ("plan", "plan"),
        ('"5"', "5"),
        ("1\nother = 2", "1\nother = 2"),
        ("", ""),
        ("a b", "a b"),
    ],
)
def test_values_typed_by_people(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_ten_thousand_rules_have_lines_in_linear_time(world: World) -> None:
    body = "".join(f'  "Bash(tool{number} *)",\n' for number in range(10_000))
    world.write("user", f"[permissions]\nallow = [\n{body}]\n")
    found = world.load().rules()
    assert [rule.line for rule in found[:2] + found[-1:]] == [3, 4, 10_002]


# -- merge order as a property -----------------------------------------------------------------------------------

ORDER = ("managed", "flag", "local", "project", "user", "recommended")


@examples(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.dictionaries(st.sampled_from(ORDER), st.integers(0, 300)),
    lists=st.dictionaries(st.sampled_from(ORDER), st.lists(st.sampled_from("ABCDE"), min_size=1, max_size=3)),
)
def test_highest_valid_scope_wins_and_rules_combine(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, int], lists: dict[str, list[str]]
) -> None:
    world = World(tmp_path_factory.mktemp("merge"))
    managed = ""
    flags: dict[str, Any] = {}
    for scope in ORDER:
        body = f"read.max_tokens = {values[scope]}\n" if scope in values else ""
        if scope in lists:
            body += f"permissions.deny = {lists[scope]!r}\n"
        if scope in ("managed", "recommended"):
            managed += f"[recommended]\n{body}" if scope == "recommended" else body
        elif scope == "flag":
            flags |= {"read__max_tokens": values[scope]} if scope in values else {}
            flags |= {"permissions__deny": lists[scope]} if scope in lists else {}
        else:
            world.write(scope, body)
    world.write("managed", managed)
    settings = world.load(**flags)
    valid = [values[scope] for scope in ORDER if values.get(scope, 0) >= 100]
    assert settings.value("read.max_tokens") == (valid[0] if valid else 25_000)
    assert {(rule.text, rule.scope) for rule in settings.rules()} == {
        (text, "builtin" if scope == "recommended" else scope) for scope, found in lists.items() for text in found
    }
    untrusted = Settings.load(world.places, declared=DECLARED)
    assert {rule.text for rule in untrusted.rules()} == {
        text for scope, found in lists.items() if scope != "flag" for text in found
    }
