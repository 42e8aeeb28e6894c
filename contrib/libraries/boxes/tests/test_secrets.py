"""What is hidden by default, which variables pass, and how refusals are read from output."""

from __future__ import annotations

import socket

from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard_boxes.planted import runners
from pegboard_boxes.secrets import credentials, environment, secrets, sockets
from pegboard_boxes.violations import of_files


def test_credentials_that_exist_are_hidden_by_their_real_names(tmp_path):
    home = tmp_path / "home"
    for name in (".ssh", ".config/gh", "elsewhere"):
        (home / name).mkdir(parents=True)
    (home / ".netrc").touch()
    (home / ".aws").symlink_to(home / "elsewhere")
    found = credentials(home, {})
    ours = [path for path in found if path.startswith(str(home))]
    assert ours == [str(home / name) for name in (".ssh", "elsewhere", ".config/gh", ".netrc")]


def test_sockets_that_variables_speak_of(tmp_path):
    (tmp_path / "agent").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "bus").touch()
    environ = {
        "SSH_AUTH_SOCK": f"{tmp_path}/agent",
        "XDG_RUNTIME_DIR": f"{tmp_path}/run",
        "DOCKER_HOST": f"unix://{tmp_path}/missing",
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={tmp_path}/bus,guid=1",
        "GPG_AGENT_INFO": "/:1:1",
        "TMUX": "",
    }
    found = credentials(tmp_path / "home", environ)
    assert {f"{tmp_path}/agent", f"{tmp_path}/run", f"{tmp_path}/bus"} <= set(found)
    assert "/" not in found


def test_listening_sockets_are_found_wherever_they_are(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as idle:
        listener.bind(str(tmp_path / "service"))
        listener.listen()
        idle.bind(str(tmp_path / "idle"))
        found = sockets()
        assert str(tmp_path / "service") in found and str(tmp_path / "idle") not in found
    assert sockets(str(tmp_path / "no listing")) == []


def test_variables_pass_by_name_and_credentials_never():
    env = {
        "PATH": "/bin", "LC_ALL": "C", "GIT_AUTHOR_NAME": "a", "ANTHROPIC_API_KEY": "k", "GITHUB_TOKEN": "t",
        "LD_PRELOAD": "/x.so", "SSH_AUTH_SOCK": "/s", "BASH_ENV": "/x", "DATABASE_URL": "d", "MY_ONE": "1",
        "MY_SECRET": "s", "http_proxy": "http://elsewhere",
    }  # fmt: skip
    found = environment(env, ("MY_*", "GITHUB_TOKEN"), {"http_proxy": "http://own"})
    assert found == {"PATH": "/bin", "LC_ALL": "C", "GIT_AUTHOR_NAME": "a", "MY_ONE": "1", "http_proxy": "http://own"}


def test_the_list_of_variables_holds_nothing_that_starts_programs_or_names_a_service():
    risky = ("LD_", "DYLD_", "BASH_ENV", "ENV", "IFS", "PROMPT_COMMAND", "GIT_SSH", "GIT_CONFIG", "PYTHONSTARTUP")
    assert not [name for name in secrets().variables if name.startswith(risky)]
    assert not set(secrets().variables) & set(secrets().socket_variables)


def test_every_protected_name_has_somebody_who_runs_it():
    assert all(name == name.casefold() for name in runners())
    assert runners()["*"]


def why(path: str, sign: str) -> str:
    return f"{sign}!" if path in ("/etc/x", "a.txt", ".git/hooks/x", "/w/a b", "/root/x") else ""


def test_refusals_in_the_words_of_many_programs():
    said = """\
touch: cannot touch '/etc/x': Read-only file system
bash: line 1: /etc/x: Read-only file system
PermissionError: [Errno 13] Permission denied: 'a.txt'
OSError: [Errno 30] Read-only file system: '/w/a b'
cp: cannot create regular file ‘/etc/x’: Permission denied
Error: EACCES: permission denied, open '/root/x'
sh: 1: cannot create .git/hooks/x: Read-only file system
cat: other.txt: Permission denied
mv: cannot move '.git' to '.g': Device or resource busy
all is well: /etc/x
"""
    assert of_files(said, why) == [
        "file: /etc/x was refused: Read-only file system!",
        "file: a.txt was refused: Permission denied!",
        "file: /w/a b was refused: Read-only file system!",
        "file: /etc/x was refused: Permission denied!",
        "file: /root/x was refused: EACCES!",
        "file: .git/hooks/x was refused: Read-only file system!",
    ]


def test_refusals_are_counted_once_and_up_to_a_limit():
    same = "touch: cannot touch '/etc/x': Read-only file system\n" * 50
    assert len(of_files(same, why)) == 1
    many = "".join(f"rm: cannot remove '/f{number}': Read-only file system\n" for number in range(100))
    assert len(of_files(many, lambda path, sign: "no")) == 20


@given(st.text(max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_output_can_be_read(text):
    of_files(text + ": Permission denied", lambda path, sign: "")


def test_a_hostile_line_costs_little():
    of_files(("a:" * 1990 + "EPERM\n") * 50, lambda path, sign: "")
    of_files("'" * 3990 + " EPERM\n", lambda path, sign: "")
