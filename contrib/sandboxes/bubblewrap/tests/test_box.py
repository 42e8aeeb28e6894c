"""What a box of bubblewrap lets through and what it holds, tried with real commands."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from pegboard.sandbox import HIDE, LOCK

# -- files -------------------------------------------------------------------------------------------------------------


async def test_work_goes_on_in_the_working_directory(room):
    room.git("init", "-q", "-b", "main")
    await room.open()
    done = room.run("echo hello > a.txt && mkdir -p d/e && mv a.txt d/e/b.txt && cat d/e/b.txt && git add -A && "
                    "git commit -qm one && git status --porcelain && git log --oneline | wc -l")  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n1\n", "")
    assert sorted(os.listdir(room.work)) == [".git", "d"]
    assert room.box.violations(done.stdout + done.stderr) == [] == await room.box.planted()


async def test_writing_elsewhere_fails_and_is_named(room):
    await room.open()
    (room.home / "notes").write_text("old")
    for path in (f"{room.home}/new", f"{room.home}/notes", "/etc/sandboxed", "/usr/bin/sandboxed"):
        done = room.run(f"echo x > {path}")
        assert (done.returncode and not Path(path).exists()) or (room.home / "notes").read_text() == "old"
    done = room.run("touch /etc/sandboxed")
    assert room.box.violations(done.stderr) == [
        "file: /etc/sandboxed was refused: it lies outside of what may be written"
    ]


async def test_the_temporary_folder_is_private_and_lasts_for_the_session(room):
    await room.open()
    outside = Path("/tmp/pegboard-outside-marker")
    outside.touch()
    try:
        done = room.run(
            "ls /tmp/pegboard-outside-marker; echo kept > /tmp/kept; echo also > $TMPDIR/also; pwd > /var/tmp/v"
        )
        assert "No such file" in done.stderr
        assert room.run("cat /tmp/kept /tmp/also").stdout == "kept\nalso\n"
        assert Path(room.shared.tmp, "kept").read_text() == "kept\n"
        assert not Path("/tmp/kept").exists() and not Path("/var/tmp/v").exists()
    finally:
        outside.unlink()
    folder = room.shared.folder
    await room.shared.close()
    assert not folder.exists()


async def test_credentials_are_shown_as_empty(room):
    for name in (".ssh/id", ".aws/credentials", ".netrc", ".config/gh/hosts.yml"):
        (room.home / name).parent.mkdir(parents=True, exist_ok=True)
        (room.home / name).write_text("hunter2")
    roots = (room.work, room.home / "code")
    (room.home / "code").mkdir()
    await room.open(roots=roots, writable=(room.home,))
    done = room.run(
        "cat ~/.ssh/id ~/.aws/credentials ~/.config/gh/hosts.yml; cat ~/.netrc; grep -rs hunter2 ~; ls -a ~/.ssh"
    )
    assert "hunter2" not in done.stdout + done.stderr
    assert done.stdout.split() == [".", ".."]
    await room.open(readable=(room.home / ".netrc",))
    assert room.run("cat ~/.netrc").stdout == "hunter2"


async def test_hidden_paths_cannot_be_read_renamed_or_reached_by_a_link(room):
    (room.work / "secret").mkdir()
    (room.work / "secret/key").write_text("hunter2")
    (room.work / ".env").write_text("hunter2")
    (room.work / "link").symlink_to(room.work / ".env")
    await room.open(hidden=(str(room.work / "secret"), str(room.work / ".env"), str(room.work / "missing")))
    for command in (
        "cat .env", "cat link", "cat secret/key", "ls secret", "cp -r secret copy", "mv .env x && cat x",
        "ln .env y && cat y",
        "chmod 600 .env && cat .env", "mv secret z && cat z/key", "cat /proc/self/root/$PWD/.env",
        "cat /proc/self/cwd/.env",
        "python3 -c 'print(open(\".env\").read())'", "umount .env && cat .env", "tar cf - .env", "sudo cat .env",
    ):  # fmt: skip
        done = room.run(command)
        assert "hunter2" not in done.stdout, command
    found = room.box.violations(room.run("cat .env").stderr)
    assert found == ["file: .env was refused: it is hidden from processes in the sandbox"]
    assert (room.work / ".env").read_text() == "hunter2"


async def test_patterns_hide_and_lock_what_they_match_at_any_depth(room):
    for name in ("a/b/.env", "node_modules/p/.env", "lock/file.lock", "plain.txt"):
        (room.work / name).parent.mkdir(parents=True, exist_ok=True)
        (room.work / name).write_text("hunter2")

    def rule(path: str, folder: bool) -> str:
        if path.endswith("/.env"):
            return HIDE
        return LOCK if path.endswith(".lock") else ""

    await room.open(rule=rule)
    done = room.run("cat a/b/.env node_modules/p/.env; echo x > lock/file.lock; cat lock/file.lock plain.txt")
    assert done.stdout == "hunter2hunter2" and done.stderr.count("Permission denied") == 2
    (room.work / "later").mkdir()
    (room.work / "later/.env").write_text("hunter2")
    assert room.run("cat later/.env").stdout == ""


async def test_locked_paths_cannot_be_changed(room):
    (room.work / "keep").mkdir()
    (room.work / "keep/file").write_text("old")
    await room.open(locked=(str(room.work / "keep"), str(room.work / "nothing")))
    done = room.run("echo x > keep/file; rm -rf keep; mv keep other; touch keep/new; cat keep/file")
    assert done.stdout == "old" and os.listdir(room.work / "keep") == ["file"]
    found = room.box.violations(done.stderr)
    assert any("keep/file was refused: it is protected" in line for line in found)


async def test_further_paths_that_the_user_opened(room):
    (room.home / "cache").mkdir()
    (room.work / ".yarn").mkdir()
    await room.open(writable=(room.home / "cache",))
    assert room.run("echo x > ~/cache/a && cat ~/cache/a").stdout == "x\n"
    assert room.run("touch .yarn/state").returncode
    await room.open(writable=(room.home / "cache", room.work / ".yarn"))
    assert room.run("touch .yarn/state").returncode == 0


async def test_the_root_directory_is_never_writable(room):
    await room.open(roots=(Path("/"),))
    assert room.run("touch /sandboxed").returncode


# -- what runs by itself -----------------------------------------------------------------------------------------------


async def test_what_git_runs_cannot_be_written(room):
    room.git("init", "-q")
    await room.open()
    for command in (
        "echo x > .git/hooks/pre-commit", "git config core.fsmonitor ./x", "echo '[core]' >> .git/config", "mv .git .g",
        "rm -rf .git/hooks && mkdir .git/hooks", "mv .git/hooks .git/h", "ln -sf /tmp/x .git/config",
        "cp /bin/true .git/hooks/",
    ):  # fmt: skip
        assert room.run(command).returncode, command
    assert not (room.work / ".git/hooks/pre-commit").exists() and (room.work / ".git/config").exists()
    assert await room.box.planted() == []


async def test_a_missing_hook_folder_is_not_a_way_in(room):
    room.git("init", "-q", "--template=")
    assert not (room.work / ".git/hooks").exists()
    await room.open()
    assert room.run("mkdir -p .git/hooks && echo x > .git/hooks/pre-commit").returncode
    assert not (room.work / ".git/hooks").exists()


async def test_names_that_do_not_exist_yet_are_locked_and_leave_no_trace(room):
    await room.open()
    for name in (".envrc", ".mcp.json", ".vscode", ".peg", ".idea"):
        done = room.run(f"echo x > {name} || mkdir {name}/x || rmdir {name} || mv {name} y")
        assert done.returncode, name
        assert not (room.work / name).exists()
    assert os.listdir(room.work) == [] == await room.box.planted()


async def test_existing_protected_files_are_locked(room):
    (room.work / ".vscode").mkdir()
    (room.work / "package").mkdir()
    for name in (".vscode/tasks.json", ".envrc", "package/.npmrc"):
        (room.work / name).write_text("old")
    await room.open()
    done = room.run("for f in .vscode/tasks.json .envrc package/.npmrc; do echo x > $f; done; mv .vscode v; rm .envrc")
    assert all((room.work / name).read_text() == "old" for name in (".vscode/tasks.json", ".envrc", "package/.npmrc"))
    assert len(room.box.violations(done.stderr)) >= 3


async def test_two_processes_share_the_locked_names(room):
    await room.open()
    argv, env = room.box.wrap(["/bin/bash", "-c", "read x; echo x > .envrc; true"], dict(os.environ))
    with subprocess.Popen(
        argv, env=env, cwd=room.work, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as slow:
        while not (room.work / ".envrc").exists() and slow.poll() is None:
            time.sleep(0.01)
        assert room.run("echo x > .envrc").returncode
        assert (room.work / ".envrc").is_dir(), "the first process still needs it"
        _, said = slow.communicate("go\n", timeout=30)
    room.box.ended()
    assert "Read-only" in said or "Is a directory" in said
    assert os.listdir(room.work) == []


async def test_leftovers_of_a_killed_session_go_away(room):
    (room.work / ".envrc").mkdir()
    (room.work / ".mcp.json").mkdir()
    (room.work / ".mcp.json/mine").touch()
    await room.open()
    assert sorted(os.listdir(room.work)) == [".mcp.json"]


async def test_what_a_command_plants_is_reported(room):
    room.git("init", "-q")
    await room.open()
    done = room.run(
        "git init -q n && echo x > n/.git/hooks/post-checkout && mkdir -p sub/.vscode && "
        "echo x > sub/.vscode/tasks.json && "
        "echo 'gitdir: /tmp/evil' > sub/.git; mkdir b && cd b && mkdir objects refs && echo 'ref: x' > HEAD && "
        "printf '[core]\\n fsmonitor = ./x\\n' > config"
    )
    assert done.returncode == 0, done.stderr
    found = {planted.path[len(str(room.work)) + 1 :] for planted in await room.box.planted()}
    assert found == {"n/.git/hooks/post-checkout", "sub/.vscode/tasks.json", "b/config"}


async def test_a_nested_repository_is_locked_from_the_next_command_on(room):
    await room.open()
    assert room.run("git init -q n").returncode == 0
    assert room.run("echo x > n/.git/hooks/pre-commit").returncode
    assert room.run("cd n && echo a > a && git add a && git commit -qm a").returncode == 0


async def test_a_worktree_commits_to_its_repository_and_no_further(room, tmp_path):
    main = tmp_path / "main"
    main.mkdir()
    room.git("init", "-q", "-b", "main", cwd=main)
    room.git("commit", "-q", "--allow-empty", "-m", "one", cwd=main)
    room.git("worktree", "add", "-q", "-b", "side", str(room.work / "tree"), cwd=main)
    tree = room.work / "tree"
    await room.open(roots=(tree,), cwd=tree)
    done = room.run("cd tree && echo a > a && git add a && git commit -qm two && git log --oneline | wc -l")
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    for path in (
        ".git/hooks/x",
        ".git/config",
        ".git/HEAD",
        ".git/worktrees/tree/commondir",
        ".git/description",
    ):
        assert room.run(f"echo x >> {main}/{path}").returncode, path
    assert room.run("echo x > tree/.git").returncode


async def test_a_forged_link_opens_no_other_repository(room, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    room.git("init", "-q", cwd=other)
    (room.work / ".git").write_text(f"gitdir: {other}/.git\n")
    await room.open()
    for path in ("objects/x", "refs/x", "HEAD", "hooks/x"):
        assert room.run(f"echo x > {other}/.git/{path}").returncode, path


async def test_worktrees_below_a_protected_folder_stay_open(room):
    (room.work / ".peg/worktrees/w").mkdir(parents=True)
    (room.work / ".peg/settings.toml").touch()
    await room.open()
    assert room.run("touch .peg/worktrees/w/new").returncode == 0
    assert room.run("echo x > .peg/settings.toml").returncode
    await room.open(roots=(room.work, room.work / ".peg/worktrees/w"))
    assert room.run("touch .peg/worktrees/w/more").returncode == 0


# -- processes ---------------------------------------------------------------------------------------------------------


async def test_exit_codes_and_streams_are_the_commands_own(room):
    await room.open()
    done = room.run("echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert room.run("kill -9 $$").returncode == 137


async def test_variables_pass_by_list(room):
    await room.open(variables=("MY_*",))
    done = room.run(
        "env",
        ANTHROPIC_API_KEY="k",
        AWS_SECRET_ACCESS_KEY="s",
        SSH_AUTH_SOCK="/x",
        LD_PRELOAD="",
        MY_OWN="1",
        OTHER="2",
    )
    names = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert {"PATH", "HOME", "MY_OWN", "TMPDIR", "HTTPS_PROXY"} <= names
    assert not names & {"ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "LD_PRELOAD", "OTHER"}
    assert room.run("echo $PEG_SANDBOX").stdout == "full\n"


async def test_a_signal_reaches_the_command_so_that_it_can_clean_up(room):
    await room.open()
    argv, env = room.box.wrap(
        ["/bin/bash", "-c", "trap 'echo bye > bye; exit 0' TERM; touch ready; while :; do sleep 0.05; done"],
        dict(os.environ),
    )
    with subprocess.Popen(argv, env=env, cwd=room.work, start_new_session=True) as process:
        while not (room.work / "ready").exists() and process.poll() is None:
            time.sleep(0.01)
        assert room.box.signal(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0
        assert not room.box.signal(process.pid, signal.SIGTERM)
    room.box.ended()
    assert (room.work / "bye").read_text() == "bye\n"


async def test_killing_the_box_kills_everything_in_it(room):
    await room.open()
    argv, env = room.box.wrap(
        ["/bin/bash", "-c", "setsid bash -c 'while :; do date +%N > beat; sleep 0.05; done' & touch ready; sleep 100"],
        dict(os.environ),
    )
    with subprocess.Popen(argv, env=env, cwd=room.work, start_new_session=True) as process:
        while not (room.work / "beat").exists() and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
    room.box.ended()
    time.sleep(0.3)
    last = (room.work / "beat").read_text()
    time.sleep(0.3)
    assert (room.work / "beat").read_text() == last


async def test_a_box_that_cannot_start_is_a_violation(room):
    await room.open()
    (room.work / ".envrc").symlink_to("/nonexistent/x")
    said = room.box.violations("bwrap: Can't mkdir /x: Read-only file system\n")
    assert said[0] == "sandbox: bwrap: Can't mkdir /x: Read-only file system"
    assert room.run("echo fine").stdout == "fine\n"


@pytest.mark.parametrize("name", ["with space", "quo'te", 'dou"ble', "new\nline", "ünï", "-dash", "$(x)", "{a,b}", "*"])
async def test_working_directories_of_any_name(room, tmp_path, name):
    odd = tmp_path / name
    odd.mkdir()
    room.git("init", "-q", cwd=odd)
    room.work = odd
    await room.open(roots=(odd,), cwd=odd)
    assert room.run("echo x > made && cat made").stdout == "x\n"
    assert room.run("echo x > .git/hooks/a").returncode and room.run("echo x > .envrc").returncode
