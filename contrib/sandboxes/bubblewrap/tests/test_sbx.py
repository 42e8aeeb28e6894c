"""The numbered checks of the sandbox, through whole sessions with the shell tool; and the reported cases."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pegboard.call import Status
from pegboard.errors import Code
from pegboard.needs import need_of
from pegboard.process import Process
from pegboard.testing.sessions import Willing
from pegboard_bubblewrap import programs

ON = {"sandbox.enabled": True}


YES = {"settings": ON, "allow": ["Bash"]}


@pytest.fixture
def outside():
    """A folder that is no working directory and lies where a box shows what there is."""
    folder = Path(tempfile.mkdtemp(prefix=".peg-test-", dir=pwd.getpwuid(os.getuid()).pw_dir))
    yield folder
    shutil.rmtree(folder)


async def bash(bench: Any, command: str) -> Any:
    return await bench.call("Bash", {"command": command})


def lines(outcome: Any) -> str:
    return outcome.plain()


async def test_sbx_1_writing_outside_fails_and_the_violation_is_in_the_result(peg_session, outside):
    async with peg_session(**YES, host=Willing()) as bench:
        outcome = await bash(bench, f"echo in > inside; echo x > {outside}/planted; true")
        assert outcome.status is Status.OK, outcome.plain()
        assert not (outside / "planted").exists() and (bench.folder / "inside").exists()
        assert outcome.data["sandboxViolations"] == [
            f"file: {outside}/planted was refused: it lies outside of what may be written"
        ]
        assert f"{outside}/planted was refused" in lines(outcome)
        failed = await bash(bench, f"echo x > {outside}/planted")
        assert failed.status is Status.PARTIAL and "was refused: it lies outside" in lines(failed)


async def test_sbx_2_a_denied_file_is_unreadable_by_a_python_one_liner(peg_session):
    async with peg_session(settings=ON, allow=["Bash"], deny=["Read(./secret.txt)", "Read(**/*.pem)"]) as bench:
        (bench.folder / "secret.txt").write_text("hunter2")
        (bench.folder / "deep").mkdir()
        (bench.folder / "deep/key.pem").write_text("hunter2")
        (bench.folder / "plain.txt").write_text("plain")
        names = "'plain.txt', 'secret.txt', 'deep/key.pem'"
        program = f"for p in {names}:\n try: print(open(p).read())\n except OSError as e: print(e)\n"
        (bench.folder / "show.py").write_text(program)
        outcome = await bash(bench, "python3 show.py")
        assert "plain" in lines(outcome) and "hunter2" not in lines(outcome)
        assert lines(outcome).count("Permission denied") == 2
        assert len(outcome.data["sandboxViolations"]) == 2


async def test_sbx_3_a_host_that_is_not_allowed_is_refused_and_named(peg_session):
    rules = ["Bash", "WebFetch(domain:ok.example)"]
    async with peg_session(settings=ON, allow=rules) as bench:
        outcome = await bash(bench, "curl -sS -m 10 https://evil.example/ ; true")
        assert outcome.data["sandboxViolations"] == [
            "network: evil.example:443 was refused: it is not among the allowed hosts"
        ]
        assert "evil.example" in lines(outcome)
        need = need_of(bench.session)
        assert need.hosts == ("ok.example",)


async def test_sbx_4_required_and_missing_starts_nothing(peg_session, tmp_path, monkeypatch):
    (tmp_path / "managed").mkdir(exist_ok=True)
    (tmp_path / "managed/managed.toml").write_text("[sandbox]\nrequired = true\n")
    (tmp_path / "none").mkdir()
    monkeypatch.setattr(programs, "FOLDERS", (str(tmp_path / "none"),))
    async with peg_session(allow=["Bash"]) as bench:
        outcome = await bash(bench, "touch made")
        assert (outcome.status, outcome.code) == (Status.NOT_STARTED, Code.SANDBOX_REFUSED)
        assert "only landlock is reached: bubblewrap is not installed" in lines(outcome)
        assert not (bench.folder / "made").exists() and outcome.effects == []


async def test_sbx_4_required_and_reached_runs(peg_session, tmp_path):
    (tmp_path / "managed").mkdir(exist_ok=True)
    (tmp_path / "managed/managed.toml").write_text("[sandbox]\nrequired = true\n")
    async with peg_session(allow=["Bash"]) as bench:
        assert (await bash(bench, "echo $PEG_SANDBOX")).data["stdout"] == "full"


WIDER = """
[sandbox]
enabled = false
allowed_hosts = ["*"]
writable = ["/"]
readable = ["~/.ssh"]
variables = ["*"]
level = "landlock"
[permissions]
allow = ["WebFetch(domain:*)"]
directories = ["ELSEWHERE"]
"""


async def test_sbx_5_a_projects_file_cannot_widen(peg_session, outside):
    async with peg_session(**YES, trusted=True, host=Willing()) as bench:
        (bench.folder / ".peg").mkdir()
        (bench.folder / ".peg/settings.toml").write_text(WIDER.replace("ELSEWHERE", str(outside)))
        bench.session.settings.refresh()
        bench.session.directories = (outside,)
        need = need_of(bench.session)
        assert need.roots == (bench.folder,) and need.writable == need.readable == need.hosts == ()
        assert need.level == "full" and "*" not in need.variables
        assert any("a project cannot set it" in str(problem) for problem in bench.session.settings.problems)
        outcome = await bash(bench, f"echo $PEG_SANDBOX; touch {outside}/x; curl -sS -m 5 http://example.com/; true")
        assert outcome.data["stdout"].startswith("full") and not (outside / "x").exists()
        assert len(outcome.data["sandboxViolations"]) == 2


async def test_rules_of_the_user_feed_the_box(peg_session):
    settings = {
        **ON, "sandbox.allowed_hosts": ["own.example:8443"], "sandbox.writable": ["~/cache", "build"],
        "sandbox.variables": ["MY_*"], "sandbox.readable": ["~/.netrc"],
    }  # fmt: skip
    allow = ["Bash", "WebFetch(domain:*.example.org)", "WebFetch"]
    deny = ["WebFetch(domain:bad.example.org)", "Edit(//etc/x)", "Edit(*.lock)", "Read(~/private/**)"]
    async with peg_session(
        settings=settings, allow=allow, ask=["WebFetch(domain:ask.example.org)"], deny=deny
    ) as bench:
        need = need_of(bench.session)
        assert need.hosts == ("own.example:8443", "*.example.org")
        assert set(need.refused_hosts) == {"bad.example.org", "ask.example.org"}
        assert need.writable == (bench.outside / "cache", bench.folder / "build")
        assert need.readable == (bench.outside / ".netrc",) and "MY_*" in need.variables
        assert need.hidden == (str(bench.outside / "private"),) and need.locked == ("/etc/x",)
        assert need.rule is not None
        assert (
            need.rule(str(bench.folder / "a/b.lock"), False) == "lock"
            and need.rule(str(bench.folder / "a"), True) == ""
        )


async def test_a_box_that_falls_short_warns_once(peg_session, tmp_path, monkeypatch):
    (tmp_path / "none").mkdir()
    monkeypatch.setattr(programs, "FOLDERS", (str(tmp_path / "none"),))
    host = Willing()
    async with peg_session(settings=ON, allow=["Bash"], host=host) as bench:
        for _ in range(2):
            assert (await bash(bench, "echo $PEG_SANDBOX")).data["stdout"] == "landlock"
        warnings = [event for event in host.events if getattr(event, "kind", "") == "sandbox"]
        assert len(warnings) == 1 and "reaches the level landlock only, not full" in warnings[0].text


async def test_an_accepted_lower_level_is_enough(peg_session, tmp_path, monkeypatch):
    (tmp_path / "managed").mkdir(exist_ok=True)
    (tmp_path / "managed/managed.toml").write_text("[sandbox]\nrequired = true\nlevel = 'landlock'\n")
    (tmp_path / "none").mkdir()
    monkeypatch.setattr(programs, "FOLDERS", (str(tmp_path / "none"),))
    async with peg_session(allow=["Bash"]) as bench:
        assert (await bash(bench, "echo $PEG_SANDBOX")).data["stdout"] == "landlock"


async def test_without_the_setting_nothing_is_boxed_or_even_loaded(peg_session):
    async with peg_session(allow=["Bash"]) as bench:
        assert (await bash(bench, "echo [$PEG_SANDBOX]")).data["stdout"] == "[]"
        assert bench.session._boxes is not None and bench.session._boxes._found is None


async def test_planted_files_are_in_the_result(peg_session):
    async with peg_session(settings=ON, allow=["Bash"]) as bench:
        (bench.folder / "make.sh").write_text("git init -q n && echo x > n/.git/hooks/post-checkout\n")
        outcome = await bash(bench, "sh make.sh")
        assert "post-checkout is new: Git runs it as a hook" in lines(outcome)


async def test_the_directory_lasts_from_one_box_to_the_next(peg_session):
    async with peg_session(settings=ON, allow=["Bash"]) as bench:
        (bench.folder / "sub").mkdir()
        assert (await bash(bench, "cd sub && export A=1")).status is Status.OK
        outcome = await bash(bench, "pwd; echo [$A]")
        assert outcome.data["stdout"] == f"{bench.folder}/sub\n[]"


async def test_leaving_the_box_needs_a_person_and_is_ignored_where_it_is_required(peg_session, tmp_path):
    given = {"command": "echo [$PEG_SANDBOX]", "dangerouslyDisableSandbox": True}
    narrow = {"settings": ON, "allow": ["Bash(echo *)"]}
    async with peg_session(**narrow) as bench:
        assert (await bench.call("Bash", given)).code is Code.NO_USER
    async with peg_session(**narrow, host=Willing()) as bench:
        assert (await bench.call("Bash", given)).data["stdout"] == "[]"
        (bench.places.managed_dir / "managed.toml").write_text("[sandbox]\nrequired = true\n")
        outcome = await bench.call("Bash", given)
        assert outcome.data["stdout"] == "[full]" and "was ignored" in outcome.plain()


async def test_what_a_session_shares_is_gone_with_it(peg_session):
    async with peg_session(settings=ON, allow=["Bash"]) as bench:
        outcome = await bash(bench, "echo $TMPDIR")
        folder = Path(outcome.data["stdout"])
        assert folder.is_dir()
    assert not folder.parent.exists()


async def test_a_background_run_stays_in_its_box(peg_session):
    async with peg_session(settings=ON, allow=["Bash"]) as bench:
        given = {"command": f"touch {bench.outside}/x; echo $PEG_SANDBOX > level", "run_in_background": True}
        outcome = await bench.call("Bash", given)
        assert outcome.status is Status.LAUNCHED, outcome.plain()
        for _ in range(400):
            if (bench.folder / "level").exists() and (bench.folder / "level").read_text():
                break
            await asyncio.sleep(0.02)
        assert (bench.folder / "level").read_text() == "full\n" and not (bench.outside / "x").exists()


async def test_a_process_of_any_tool_can_be_ended_gently_in_its_box(room):
    await room.open()
    argv, env = room.box.wrap(
        ["/bin/bash", "-c", "trap 'echo bye > bye; exit' TERM; echo ready; while :; do sleep 0.05; done"],
        dict(os.environ),
    )
    async with await Process.start(argv, cwd=room.work, env=env, box=room.box) as process:
        assert await process.stdout.receive() == b"ready\n"
    assert (room.work / "bye").exists() and not (room.work / ".envrc").exists()


# -- reported cases ----------------------------------------------------------------------------------------------------


async def test_case_net_empty_allowlist(room):
    await room.open(hosts=())
    room.run("curl -sS -m 10 https://evil.example:443/")
    assert room.box.violations("")[0].startswith("network: evil.example:443 was refused")


async def test_case_sb_env_secret(peg_session, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k-secret")
    async with peg_session(settings=ON, allow=["Bash"]) as bench:
        assert "k-secret" not in lines(await bash(bench, "env; cat /proc/*/environ | tr '\\0' '\\n'"))


async def test_case_sb_hook_host(room):
    """Both files of the case: the one is held back, the other has no name yet in a new repository."""
    room.git("init", "-q")
    await room.open()
    assert room.run("echo x > .git/hooks/post-merge").returncode and room.run("echo x > .envrc").returncode
    for path in (room.work / ".git/hooks/post-merge", room.work / ".envrc"):
        path.write_text("x")
    assert [found.how for found in await room.box.planted()] == ["new", "new"]


@pytest.mark.parametrize("cwd", ["home", "root"])
async def test_case_sb_cwd(peg_session, outside, cwd):
    """A directory that the model chooses never becomes writable by being chosen."""
    async with peg_session(**YES, host=Willing()) as bench:
        folder = {"home": outside, "root": Path("/")}[cwd]
        outcome = await bash(bench, f"cd {folder}; touch escaped; true")
        assert not (folder / "escaped").exists() and outcome.data["sandboxViolations"]
