"""Rules with examples beside them: in settings files, in managed policy, and when a list is changed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pegboard.errors import PolicyError
from pegboard.examples import Examples, apart, faults
from pegboard.places import Places
from pegboard.settings import Settings
from pegboard.settings_save import edit_list


@pytest.mark.parametrize(
    ("effect", "rule", "match", "not_match"),
    [
        ("allow", "Bash(git push *)", ["git push", "git push origin"], ["git pushx", "git pull"]),
        ("deny", "Bash(rm:*)", ["rm -rf x", "/bin/rm x"], ["rmdir x"]),
        ("allow", "Edit(src/**)", ["src/a/b.py"], ["vendor/src/x", "../src/x"]),
        ("deny", "Edit(src/**)", ["src/a", "vendor/src/x"], ["lib/x"]),
        ("deny", "Read(~/.ssh/**)", ["~/.ssh/id"], [".ssh/id", "/etc/passwd"]),
        ("deny", "Read(//etc/shadow)", ["/etc/shadow"], ["etc/shadow"]),
        ("deny", "Read(.env)", [".env", "a/b/.env", ".env/"], ["x.env"]),
        ("allow", "WebFetch(domain:*.example.org)", ["https://a.example.org/x", "b.a.example.org"], ["example.org"]),
        ("allow", "Skill(check-*)", ["check-all"], ["deploy"]),
        ("allow", "mcp__mail__*", ["mcp__mail__send"], ["mcp__other__send"]),
        ("deny", "Bash(description:*deploy*)", ["to deploy it"], ["to test it"]),
        ("deny", "WebSearch", ["WebSearch"], ["WebFetch"]),
    ],
)
def test_examples_are_judged_as_calls_would_be(effect, rule, match, not_match) -> None:
    assert faults(effect, Examples(rule=rule, match=tuple(match), not_match=tuple(not_match))) == []
    turned = faults(effect, Examples(rule=rule, match=tuple(not_match), not_match=tuple(match)))
    assert len(turned) == len(match) + len(not_match)


TEXT = """
model = "m"
[permissions]
allow = [
    "Read",
    { rule = "Bash(make *)", match = ["make test"], not_match = ["makefile"] },  # builds
]
deny = [{ rule = "Bash(git push *)", match = ["git pull"] }]
"""


def test_tables_count_as_their_rule_and_failing_examples_are_problems(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path, tmp_path, tmp_path / "user", tmp_path / "managed")
    places.user_dir.mkdir()
    (places.user_dir / "settings.toml").write_text(TEXT)
    settings = Settings.load(places)
    assert settings.value("permissions.allow") == ["Read", "Bash(make *)"]
    assert [(rule.text, rule.line) for rule in settings.parsed_rules()] == [
        ("Bash(git push *)", 8), ("Read", 5), ("Bash(make *)", 6),
    ]  # fmt: skip
    (problem,) = settings.problems
    assert (problem.line, problem.key) == (8, "permissions.deny")
    assert "should match 'git pull' and does not" in problem.text


@pytest.mark.parametrize("prefix", ["", "recommended."])
def test_managed_policy_that_contradicts_itself(tmp_path: Path, prefix: str) -> None:
    places = Places(tmp_path, tmp_path, tmp_path, tmp_path / "user", tmp_path / "managed")
    places.managed_dir.mkdir()
    (places.managed_dir / "managed.toml").write_text(
        f'[{prefix}permissions]\ndeny = [{{ rule = "Bash(curl *)", match = ["wget x"] }}]\n'
    )
    if not prefix:
        with pytest.raises(PolicyError, match=r"managed\.toml:2.*should match 'wget x'"):
            Settings.load(places)
        return
    settings = Settings.load(places)
    assert [str(rule.where) for rule in settings.parsed_rules()] == [f"builtin ({places.managed_dir}/managed.toml:2)"]
    assert ["should match 'wget x'" in str(problem) for problem in settings.problems] == [True]


@pytest.mark.parametrize("item", ['{ match = ["x"] }', '{ rule = "Read", mach = ["x"] }', "{ rule = 3 }"])
def test_a_table_that_is_no_rule_is_reported_and_the_others_hold(tmp_path: Path, item: str) -> None:
    places = Places(tmp_path, tmp_path, tmp_path, tmp_path / "user", tmp_path / "managed")
    places.user_dir.mkdir()
    (places.user_dir / "settings.toml").write_text(f'permissions.deny = ["Bash", {item}]')
    settings = Settings.load(places)
    assert [rule.text for rule in settings.parsed_rules()] == ["Bash"]
    assert len(settings.problems) == 1
    assert apart({"permissions": 3}) == ({"permissions": 3}, {})


def test_lists_with_tables_are_changed_by_the_text_of_the_rule(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(TEXT)
    edit_list(path, "permissions.allow", add=["Bash(make *)", "Bash(ls *)"], remove=["Read"])
    allow = tomllib.loads(path.read_text())["permissions"]["allow"]
    assert allow == [{"rule": "Bash(make *)", "match": ["make test"], "not_match": ["makefile"]}, "Bash(ls *)"]
    assert "# builds" in path.read_text()
    edit_list(path, "permissions.allow", remove=["Bash(make *)"])
    assert tomllib.loads(path.read_text())["permissions"]["allow"] == ["Bash(ls *)"]
