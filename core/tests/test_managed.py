"""Managed policy: drop-ins, owner, broken files, locks, recommendations."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pegboard.errors import PolicyError
from pegboard.places import Places, find_places
from pegboard.settings import Settings


@pytest.fixture
def places(tmp_path: Path) -> Places:
    found = Places(tmp_path / "p", tmp_path, tmp_path / "p", tmp_path / "user", tmp_path / "managed")
    for folder in (found.project_dir, found.user_dir, found.managed_dir / "managed.d"):
        folder.mkdir(parents=True)
    return found


def drop_in(places: Places, name: str, text: str) -> Path:
    path = places.managed_dir / "managed.d" / name
    path.write_text(text)
    return path


def test_drop_ins_replace_scalars_unite_lists_and_merge_tables(places: Places) -> None:
    (places.managed_dir / "managed.toml").write_text('model = "m"\nmcp.deny = ["a"]\nenv = { A = "0", B = "0" }\n')
    drop_in(places, "20-b.toml", 'model = "b"\nmcp.deny = ["c"]\nenv = { B = "2" }\n')
    first = drop_in(places, "10-a.toml", 'model = "a"\nmcp.deny = ["a", "b"]\n')
    drop_in(places, ".hidden.toml", "{ broken")
    drop_in(places, "readme.txt", "{ broken")
    settings = Settings.load(places)
    assert settings.value("model") == "b"
    assert set(settings.value("mcp.deny")) == {"a", "b", "c"}
    assert settings.value("env") == {"A": "0", "B": "2"}
    assert str(first) in [entry.source for entry in settings.explain("model").passed]


def test_pol_managed_badjson_broken_file_stops_the_start(places: Places) -> None:
    path = drop_in(places, "10.toml", '\ndeny = ["Bash(curl *)"\n')
    with pytest.raises(PolicyError) as caught:
        Settings.load(places)
    assert f"{path}:3" in str(caught.value)
    drop_in(places, "20.toml", 'managed.on_error = "ignore"\nmodel = "m"')
    settings = Settings.load(places)
    assert settings.value("model") == "m"
    assert [problem.source for problem in settings.problems] == [str(path)]


def test_broken_file_cannot_excuse_itself(places: Places) -> None:
    drop_in(places, "10.toml", 'managed.on_error = "ignore"\npermissions.deny = "Bash"')
    with pytest.raises(PolicyError, match=r"permissions\.deny takes a list of rules"):
        Settings.load(places)


@pytest.mark.parametrize(
    "text", ["permissions = 3", 'permissions.deny = ["Bash("]', "permissions.ask = [1]", "permissions.deny = {}"]
)
def test_restrictions_that_cannot_be_read_stop_the_start(places: Places, text: str) -> None:
    path = drop_in(places, "10.toml", text)
    with pytest.raises(PolicyError, match=str(path)):
        Settings.load(places)


@pytest.mark.parametrize("name", ["", "managed.d", "managed.d/10.toml", "managed.toml"])
def test_files_that_others_can_write_are_no_policy(places: Places, name: str) -> None:
    drop_in(places, "10.toml", "")
    (places.managed_dir / "managed.toml").write_text("")
    os.chmod(places.managed_dir / name, 0o777)
    with pytest.raises(PolicyError, match="can be written by others"):
        Settings.load(places)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_files_of_other_users_are_no_policy(places: Places) -> None:
    os.chown(drop_in(places, "10.toml", ""), 12345, 12345)
    with pytest.raises(PolicyError, match="must belong to root"):
        Settings.load(places)


def test_what_is_no_file_or_leads_nowhere_stops_the_start(places: Places) -> None:
    path = places.managed_dir / "managed.toml"
    path.symlink_to(places.cwd / "nowhere")
    with pytest.raises(PolicyError):
        Settings.load(places)
    path.unlink()
    path.mkdir()
    with pytest.raises(PolicyError, match="not a regular file"):
        Settings.load(places)


def test_managed_place_that_is_a_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("")
    with pytest.raises(PolicyError, match="not a folder"):
        Settings.load(Places(tmp_path, tmp_path, tmp_path, tmp_path / "u", tmp_path / "m"))


def test_changes_during_a_run_hold_and_broken_ones_do_not_lift_anything(places: Places) -> None:
    path = drop_in(places, "10.toml", 'permissions.deny = ["Bash"]')
    settings = Settings.load(places)
    drop_in(places, "20.toml", 'permissions.deny = ["Read"]')
    assert settings.refresh()
    assert [rule.text for rule in settings.rules()] == ["Read", "Bash"]
    path.write_text("{ broken")
    assert settings.refresh()
    assert [rule.text for rule in settings.rules()] == ["Read", "Bash"]
    assert "last good managed policy stays in force" in str(settings.problems[0])
    assert not settings.refresh()
    path.write_text("")
    assert settings.refresh()
    assert [rule.text for rule in settings.rules()] == ["Read"]
    assert settings.problems == []


@pytest.mark.parametrize("lock", ['["models.fallback"]', '["models"]', '["*"]', "3", '[["x"]]'])
def test_locked_keys_keep_the_managed_or_built_in_value(places: Places, lock: str) -> None:
    drop_in(places, "10.toml", f"lock = {lock}\n[recommended.models]\nfallback = ['r']")
    (places.user_dir / "settings.toml").write_text('models.fallback = ["u"]')
    settings = Settings.load(places, flags={"models.fallback": ["f"]})
    assert settings.value("models.fallback") == ["r"]
    assert sum("locks it" in str(problem) for problem in settings.problems) == 2


def test_recommended_values_give_way_to_everybody(places: Places) -> None:
    drop_in(places, "10.toml", '[recommended]\nmodel = "r"\npermissions.allow = ["Read"]\n')
    settings = Settings.load(places)
    assert settings.value("model") == "r"
    assert [(rule.text, rule.scope) for rule in settings.rules()] == [("Read", "builtin")]
    assert [rule.scope for rule in settings.parsed_rules()] == ["builtin"]
    (places.user_dir / "settings.toml").write_text('model = "u"')
    settings.refresh()
    assert settings.value("model") == "u"


def test_recommended_cannot_hold_managed_only_keys(places: Places) -> None:
    drop_in(places, "10.toml", "[recommended.sandbox]\nrequired = true\n")
    settings = Settings.load(places)
    assert settings.value("sandbox.required") is False
    assert "only managed policy can set it" in str(settings.problems[0])


def test_pol_env_redirect_only_the_documented_variable_moves_anything(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PEG_MANAGED_PATH": "/tmp/x", "PEG_TRUST": "/tmp/x"}
    assert find_places(tmp_path, environ) == find_places(tmp_path, {"HOME": str(tmp_path)})
