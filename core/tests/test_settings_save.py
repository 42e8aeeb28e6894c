"""Changing settings files: every other byte stays, nobody's change is lost, nothing is written through a link."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pegboard.errors import UsageError
from pegboard.settings_save import edit_list, remove_value, save_value

STYLED = """# top comment
model   =  "m"   # aligned

[permissions]  # rules
allow = [
    "Read", # first
    # a note
    'Edit(src/**)',
]

# about tools
[tools]
disabled = ["X"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / ".peg/settings.toml"
    found.parent.mkdir()
    return found


def test_a_new_key_leaves_all_other_lines_alone(path: Path) -> None:
    path.write_text(STYLED)
    edit_list(path, "permissions.allow", add=["Bash(ls)", "Read"])
    edit_list(path, "permissions.deny", add=["Bash(rm *)"])
    save_value(path, "run.max_turns", 5)
    new = path.read_text().split("\n")
    assert [line for line in STYLED.split("\n") if line not in new] == []
    assert new[new.index("# about tools") + 1] == "[tools]"
    assert tomllib.loads(path.read_text()) == {
        "model": "m",
        "permissions": {"allow": ["Read", "Edit(src/**)", "Bash(ls)"], "deny": ["Bash(rm *)"]},
        "tools": {"disabled": ["X"]},
        "run": {"max_turns": 5},
    }
    assert not path.with_name("settings.toml.bak").exists()


def test_changed_and_removed_values_leave_a_backup(path: Path) -> None:
    path.write_text(STYLED)
    save_value(path, "model", "n")
    assert path.read_text() == STYLED.replace('"m"   #', '"n"   #')
    assert path.with_name("settings.toml.bak").read_text() == STYLED
    remove_value(path, "tools.disabled")
    edit_list(path, "permissions.allow", remove=["Read"])
    assert tomllib.loads(path.read_text()) == {"model": "n", "permissions": {"allow": ["Edit(src/**)"]}, "tools": {}}
    before = path.stat().st_mtime_ns
    remove_value(path, "no.such")
    edit_list(path, "permissions.allow", remove=["no such"], add=["Edit(src/**)"])
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("text", ["{ broken", "a = 1\na = 2\n", "a = [\n"])
def test_a_file_that_does_not_parse_is_refused_with_its_line(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"{path}:\d+: cannot be read"):
        save_value(path, "model", "m")
    assert path.read_text() == text


def test_a_key_below_a_value_is_refused(path: Path) -> None:
    path.write_text("permissions = 3\n")
    with pytest.raises(UsageError, match="not a table"):
        edit_list(path, "permissions.deny", add=["Bash"])
    path.write_text("permissions.deny = 3\n")
    with pytest.raises(UsageError, match="not a list"):
        edit_list(path, "permissions.deny", add=["Bash"])


def test_tr_symlink_config_projects_links_are_not_followed(tmp_path: Path, path: Path) -> None:
    target = tmp_path / "home.toml"
    target.write_text("")
    path.symlink_to(target)
    with pytest.raises(UsageError, match="symbolic link"):
        save_value(path, "model", "m")
    linked = tmp_path / "project/.peg"
    linked.parent.mkdir()
    linked.symlink_to(path.parent)
    with pytest.raises(UsageError, match="symbolic link"):
        save_value(linked / "settings.local.toml", "model", "m")
    assert target.read_text() == ""


def test_a_users_own_link_stays_a_link(tmp_path: Path) -> None:
    target = tmp_path / "dotfiles/peg.toml"
    target.parent.mkdir()
    target.write_text("# mine\n")
    link = tmp_path / "home/.peg/settings.toml"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    save_value(link, "model", "m", personal=True)
    assert link.is_symlink()
    assert target.read_text() == '# mine\nmodel = "m"\n'


def test_modes_line_ends_and_mark_stay(path: Path) -> None:
    path.write_bytes('\ufeff# é\r\nmodel = "m"\r\n[tools]\r\nenabled = ["A"]\r\n'.encode())
    path.chmod(0o640)
    edit_list(path, "tools.disabled", add=["B"])
    assert path.read_bytes() == (
        '\ufeff# é\r\nmodel = "m"\r\n[tools]\r\nenabled = ["A"]\r\ndisabled = ["B"]\r\n'.encode()
    )
    assert path.stat().st_mode & 0o777 == 0o640


def test_new_files_are_private_where_they_are_personal(tmp_path: Path) -> None:
    mine, local = tmp_path / "u/settings.toml", tmp_path / "p/.peg/settings.local.toml"
    save_value(mine, "model", "m", personal=True)
    save_value(local, "model", "m")
    assert mine.read_text() == 'model = "m"\n'
    assert (mine.stat().st_mode & 0o777, mine.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert "settings.local.toml" in (local.parent / ".gitignore").read_text()
    assert not (mine.parent / ".gitignore").exists()
    assert sorted(os.listdir(local.parent)) == [".gitignore", "settings.local.toml"]


def test_what_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        save_value(tmp_path / "file/.peg/settings.toml", "model", "m")


WRITER = """
import sys
from pathlib import Path
from pegboard.settings_save import edit_list
for number in range(20):
    edit_list(Path(sys.argv[1]), "permissions.allow", add=[f"Bash(r_{sys.argv[2]}_{number})"])
"""


def test_perm_config_race_loses_nothing(path: Path) -> None:
    path.write_text("# kept\nunknown = 1 # too\n")
    stale = path.read_text()
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(number)]) for number in range(10)]
    parsed = 0
    while any(writer.poll() is None for writer in writers):
        tomllib.loads(path.read_text())
        parsed += 1
    assert [writer.returncode for writer in writers] == [0] * 10
    assert parsed
    save_value(path, "model", "m")
    found = tomllib.loads(path.read_text())
    assert set(found["permissions"]["allow"]) == {f"Bash(r_{a}_{b})" for a in range(10) for b in range(20)}
    assert (found["unknown"], found["model"]) == (1, "m")
    assert all(line in path.read_text() for line in stale.splitlines())
    assert os.listdir(path.parent) == ["settings.toml"]


names = st.text("abcdefgh_-", min_size=1, max_size=5)
scalars = st.one_of(st.integers(-9, 9), st.booleans(), st.text(max_size=8).filter(lambda t: "\x7f" not in t))
comments = st.sampled_from(["", "# note\n", "\n", "\n# a\n# b\n\n"])


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A settings text as a person would write it: comments, blank lines, tables, lists over several lines."""
    import tomlkit

    out = ""
    for table in draw(st.lists(names, max_size=3, unique=True)):
        out += f"{draw(comments)}[{table}]{draw(st.sampled_from(['', '  # head']))}\n"
        for name in draw(st.lists(names, max_size=3, unique=True)):
            value = draw(st.one_of(scalars, st.lists(st.text("xyz()*", max_size=4), max_size=3)))
            if isinstance(value, list) and draw(st.booleans()):
                body = "".join(f'  "{item}",{draw(st.sampled_from(["", " # why"]))}\n' for item in value)
                out += f"{name} = [\n{body}]\n"
            else:
                out += f"{name}  = {tomlkit.item(value).as_string()}{draw(st.sampled_from(['', ' # tail']))}\n"
    return out + draw(comments)


@examples(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=documents(), table=names, name=names, value=scalars)
def test_saving_a_value_keeps_every_other_byte(
    tmp_path_factory: pytest.TempPathFactory, text: str, table: str, name: str, value: object
) -> None:
    path = tmp_path_factory.mktemp("save") / "settings.toml"
    path.write_text(text)
    before = tomllib.loads(text)
    save_value(path, f"{table}.{name}", value)
    after = tomllib.loads(path.read_text())
    assert after[table].pop(name) == value
    before.get(table, {}).pop(name, None)
    before.setdefault(table, {})
    assert after == before
    if f"\n{name} " not in text and not text.startswith(f"{name} "):
        left = iter(path.read_text().splitlines(keepends=True))
        assert all(line in left for line in text.splitlines(keepends=True)), path.read_text()


@examples(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=documents(), add=st.lists(st.text("xyz()*", max_size=4), max_size=3))
def test_adding_to_a_list_and_removing_again_restores_its_values(
    tmp_path_factory: pytest.TempPathFactory, text: str, add: list[str]
) -> None:
    path = tmp_path_factory.mktemp("list") / "settings.toml"
    path.write_text(text)
    before = tomllib.loads(text).get("permissions", {}).get("allow", [])
    edit_list(path, "permissions.allow", add=add)
    edit_list(path, "permissions.allow", remove=[item for item in add if item not in before])
    after = tomllib.loads(path.read_text())
    assert after.get("permissions", {}).get("allow", []) == before
