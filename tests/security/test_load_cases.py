"""Reported cases about what is loaded, installed or started: real packages and wheels, the real command line.

The cases themselves lie in ``load_cases.json``; a test carries the id of its case.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from pegboard.errors import UsageError
from pegboard.policy import Mode, judge_mode_change

CASES = {case["id"]: case for case in json.loads(Path(__file__).with_name("load_cases.json").read_text("utf-8"))}
TOOLS = {entry.name for entry in entry_points(group="pegboard.tools")}
needs_tools = pytest.mark.skipif(not {"Write", "Glob"} <= TOOLS, reason="Write or Glob is not installed")
ALLOWED = "--allow", "Echo"
PROMPT = "-p", "hello", "--model", "anthropic/x", "--set", "anthropic.max_retries=0"

TOOL = """
from pathlib import Path

Path({marker!r}).touch()

from pegboard.model import Input, Output
from pegboard.tool import Tool


class In(Input):
    text: str


class Out(Output):
    text: str


class Echo(Tool[In, Out]):
    Input, Output = In, Out

    async def run(self, input, ctx):
        return Out(text=input.text)

    def render(self, output, ctx):
        return output.text
"""


class World:
    """A project, a home, a managed folder, and a recorder in place of the programs that would fetch packages."""

    def __init__(self, room: Path) -> None:
        self.room, self.work, self.home, self.managed = room, room / "work", room / "home", room / "managed"
        self.ran, self.fetched, self.programs = room / "ran", room / "fetched", room / "programs"
        for folder in (self.work / ".peg", self.home / ".peg", self.managed, self.programs):
            folder.mkdir(parents=True)
        uv = self.programs / "uv"
        uv.write_text(f"#!/bin/sh\npwd > {self.fetched}\nexit 1\n")
        uv.chmod(0o755)

    def settings(self, scope: str, text: str) -> None:
        folder = {"managed": self.managed / "managed.toml", "user": self.home / ".peg/settings.toml"}
        folder.get(scope, self.work / ".peg/settings.toml").write_text(text)

    def peg(self, *words: object, start: tuple[str, ...] = ("-m", "pegboard"), **environ: str) -> Any:
        env = {"PATH": f"{self.programs}:{os.environ['PATH']}", "HOME": str(self.home), **environ}
        env |= {"PEG_MANAGED_DIR": str(self.managed), "ANTHROPIC_API_KEY": "none"}
        env |= {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
        done = subprocess.run(
            [sys.executable, *start, *map(str, words)], cwd=self.work, env=env, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=100, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def plugin(self, into: Path, package: str = "acme_echo") -> Path:
        """A plug-in as an installer leaves it, with one tool that leaves a mark when it is imported."""
        folder, info = into / package, into / "acme_echo-1.0.dist-info"
        folder.mkdir(parents=True)
        info.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "tool.py").write_text(TOOL.format(marker=str(self.ran)))
        (folder / "tool.toml").write_text('name = "Echo"\nsummary = "Says it again."\napi = 1\n')
        schema = {"description": "Says it again.", "input": {"type": "object"}, "output": {"type": "object"}}
        (folder / "schema.json").write_text(json.dumps(schema))
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-echo\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[pegboard.tools]\nEcho = {package}.tool:Echo\n")
        names = sorted(str(path.relative_to(into)) for path in into.rglob("*") if path.is_file())
        (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))
        return folder

    def wheel(self, *more: str) -> Path:
        """The same as a wheel, with further files in it."""
        made, path = self.room / "made", self.room / "acme_echo-1.0-py3-none-any.whl"
        shutil.rmtree(made, ignore_errors=True)
        self.plugin(made)
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(made.rglob("*")):
                archive.write(file, file.relative_to(made))
            for name in more:
                archive.writestr(name, f"import pathlib; pathlib.Path({str(self.ran)!r}).touch()\n")
        return path

    def add(self, spec: object, code: int = 2) -> str:
        """Try to install; what was said. A refusal leaves nothing behind."""
        done = self.peg("plugins", "add", spec, "--yes")
        assert done.returncode == code, done.stdout + done.stderr
        assert not self.ran.exists()
        home = self.home / ".peg/plugins"
        assert code == 0 or not home.exists() or not list(home.iterdir())
        return done.stderr + done.stdout

    def state(self, name: str = "Echo") -> dict[str, Any]:
        done = self.peg("plugins", "list", "--json")
        return next((row for row in json.loads(done.stdout) if row["name"] == name), {})

    def value(self, key: str, **environ: str) -> Any:
        return json.loads(self.peg("settings", "explain", key, "--json", **environ).stdout)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# -- installing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["", "acme_echo-1.0.data/purelib/", "acme_echo-1.0.data/platlib/"])
def test_case_pl_pth_no_wheel_brings_what_every_start_of_python_runs(world: World, where: str) -> None:
    name = CASES["pl-pth"]["input"]["wheel_files"][0]
    assert f"{name}, which Python runs at every start" in world.add(world.wheel(where + name))
    assert "belongs to Python" in world.add(world.wheel(where + "sitecustomize.py"))


def test_case_pl_pth_data_of_a_package_may_be_called_so(world: World) -> None:
    """Weights of models are, too; only what lies directly on an import path is read."""
    assert "Installed" in world.add(world.wheel("acme_echo/weights.pth"), 0)


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        (CASES["pl-shadow-module"]["input"]["wheel_files"][0], "anthropic"), ("json.py", "Python"),
        ("click/__init__.py", "click"), ("pegboard/__init__.py", "pegboard"), ("msgspec.abi3.so", "msgspec"),
        ("acme_echo-1.0.data/purelib/click.py", "click"), ("src/click.py", "click"),
    ],
)  # fmt: skip
def test_case_pl_shadow_module_no_wheel_carries_what_belongs_to_another(world: World, name: str, owner: str) -> None:
    if owner == "anthropic" and not any(path for path in sys.path if os.path.isdir(f"{path}/anthropic")):
        pytest.skip("the vendor's library is not installed")
    assert f"belongs to {owner}" in world.add(world.wheel(name))


def test_case_pl_shadow_module_holds_for_editable_distributions_and_folders(world: World) -> None:
    if "Glob" not in TOOLS:
        pytest.skip("Glob is not installed")
    folder = world.room / "folder"
    world.plugin(folder, package="pegboard_glob")
    assert "pegboard_glob, which belongs to pegboard-glob" in world.add(folder)


@pytest.mark.parametrize(
    "source",
    [
        CASES["pl-managed-source"]["input"]["source"], "https://evil.example/x-1-py3-none-any.whl", "acme-echo",
        "https://evil.example/a.corp.example/x-1-py3-none-any.whl", "acme @ https://evil.example/x-1-py3-none-any.whl",
        "https://a.corp.example/plugins/../evil/x-1-py3-none-any.whl",
        "https://a.corp.example/plugins/%2e%2e/evil/x-1-py3-none-any.whl",
        "https://a.corp.example@evil.example/plugins/x-1-py3-none-any.whl",
    ],
)  # fmt: skip
def test_case_pl_managed_source_is_refused_before_anything_is_fetched(world: World, source: str) -> None:
    (listed,) = CASES["pl-managed-source"]["policy_context"]["managed"]["plugin_sources"]
    world.settings("managed", f'plugins.allow_sources = ["{listed}", "https://*.corp.example/plugins/*"]\n')
    assert f"Managed policy does not let plug-ins be installed from {source}" in world.add(source)
    assert not world.fetched.exists()


def test_case_pl_managed_source_that_is_listed_is_fetched_away_from_the_project(world: World) -> None:
    """Settings of an installer that lie in the project must not name another index."""
    world.settings("managed", 'plugins.allow_sources = ["acme-*", "https://*.corp.example/plugins/*"]\n')
    for source in ("acme-echo", "https://a.corp.example/plugins/acme_echo-1.0-py3-none-any.whl"):
        assert f"{source} could not be fetched" in world.add(source)
        assert world.fetched.read_text().strip() == os.path.realpath(world.home / ".peg/plugins")
        world.fetched.unlink()


def test_case_pl_managed_source_on_disk_counts_by_where_it_really_is(world: World) -> None:
    allowed, wheel = world.room / "allowed", world.wheel()
    allowed.mkdir()
    (allowed / "link.whl").symlink_to(wheel)
    world.settings("managed", f'plugins.allow_sources = ["{allowed}/*"]\n')
    for source in (wheel, f"{allowed}/../{wheel.name}", allowed / "link.whl"):
        assert "Managed policy does not let" in world.add(source)
    shutil.copy(wheel, allowed)
    assert "Installed" in world.add(allowed / wheel.name, 0)


def test_case_pl_managed_source_of_the_user_can_be_switched_off(world: World) -> None:
    world.settings("managed", 'plugins.sources = ["bundled", "managed"]\n')
    assert "plugins.sources has no user" in world.add(world.wheel())
    assert "plugins.sources has no user" in world.add("acme-echo") and not world.fetched.exists()


@pytest.mark.parametrize(
    "source",
    [
        json.dumps(CASES["pl-cmd-source"]["input"]["source"]), "git+https://evil.example/x", "-rx", "--index-url=x",
        "acme @ git+ssh://evil.example/x", "https://evil.example/acme-1.0.tar.gz", "file:///tmp/acme.tar.gz",
        "acme --config-settings=x", "https://evil.example/acme.tar.gz#x.whl",
    ],
)  # fmt: skip
def test_case_pl_cmd_source_no_source_runs_code_while_it_is_installed(world: World, source: str) -> None:
    world.settings("managed", "hooks.managed_only = true\n")
    words = ("plugins", "add", "--yes", "--", source)
    done = world.peg(*words)
    assert done.returncode == 2 and "installing them runs their code" in done.stderr, done.stderr
    assert not world.fetched.exists()


def test_case_pl_cmd_source_a_script_is_not_run(world: World) -> None:
    script = world.work / "make.sh"
    script.write_text(f"#!/bin/sh\ntouch {world.ran}\n")
    script.chmod(0o755)
    assert "neither a wheel nor a folder" in world.add("./make.sh")


# -- loading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["user", "project"])
def test_case_pl_import_what_nobody_approved_is_seen_and_not_imported(world: World, origin: str) -> None:
    home = world.home / ".peg" if origin == "user" else world.work / ".peg"
    world.plugin(home / "plugins/acme-echo")
    assert world.state()["question"] == "untrusted"
    for words in (("tools", "list"), ("plugins", "explain", "Echo"), ("tools", "explain", "Echo"), ("doctor",)):
        world.peg(*words)
    done = world.peg("call", "Echo", '{"text": "x"}', *ALLOWED)
    assert done.returncode != 0 and not world.ran.exists()


def test_case_pl_extra_file_that_no_list_names_is_part_of_what_was_approved(world: World) -> None:
    folder = world.plugin(world.home / ".peg/plugins/acme-echo")
    assert "Approved" in world.peg("plugins", "trust", "Echo", "--yes").stdout
    assert world.state()["state"] == "active"
    (folder / "extra.py").write_text("")
    assert "extra.py" not in (folder.parent / "acme_echo-1.0.dist-info/RECORD").read_text()
    assert world.state()["question"] == "changed"
    done = world.peg("call", "Echo", '{"text": "x"}', *ALLOWED)
    assert done.returncode != 0 and not world.ran.exists()
    (folder / "extra.py").unlink()
    assert world.peg("call", "Echo", '{"text": "x"}', *ALLOWED).returncode == 0
    (folder.parent / "late").mkdir()
    (folder.parent / "late/other.py").write_text("")
    assert world.state()["question"] == "changed"


@pytest.mark.parametrize("start", [("-m", "pegboard"), ("-c", "from pegboard.cli import main; main()")])
@pytest.mark.parametrize("path", ["", ".", "work"])
def test_case_pl_egg_the_current_directory_offers_nothing(world: World, start: tuple[str, ...], path: str) -> None:
    """However the directory came to the import path, and also where it is trusted."""
    world.peg("trust", "--yes")
    world.plugin(world.work, package="evil")
    (world.work / "evil.egg-info").mkdir()
    (world.work / "evil.egg-info/entry_points.txt").write_text("[pegboard.tools]\nEcho = evil.tool:Echo\n")
    environ = {"PYTHONPATH": str(world.work) if path == "work" else path} if path else {}
    done = world.peg("tools", "list", "--json", start=start, **environ)
    assert done.returncode == 0 and "Echo" not in {row["name"] for row in json.loads(done.stdout)}
    done = world.peg("call", "Echo", '{"text": "x"}', *ALLOWED, start=start, **environ)
    assert done.returncode != 0 and not world.ran.exists()


# -- policy, settings and modes --------------------------------------------------------------------------------------


@needs_tools
@pytest.mark.parametrize("scope", ["user", "managed"])
@pytest.mark.parametrize("rule", ["*", "W*", "*rite"])
def test_case_pol_unanchored_allow_lets_nothing_pass(world: World, scope: str, rule: str) -> None:
    world.settings(scope, f'permissions.allow = ["{rule}"]\n')
    done = world.peg("call", "Write", json.dumps({"file_path": "new.txt", "content": "x"}))
    assert done.returncode == 3 and not (world.work / "new.txt").exists()
    assert f"allow {rule}" in done.stderr


async def test_case_pol_bypass_off_no_route_enters_the_mode(peg_session, tmp_path: Path) -> None:
    """Not for any scope that may ask, by no answer of a hook, and not even where somebody sets it all the same."""
    from pegboard import grants

    (tmp_path / "managed").mkdir(exist_ok=True)
    (tmp_path / "managed/managed.toml").write_text("permissions.disable_bypass = true\n")
    by = grants.Granter("a hook", "flag", False)
    async with peg_session() as bench:
        session = bench.session
        for scope in ("agent", "plugin", "project", "local", "user", "flag", "session"):
            decision = judge_mode_change(Mode.BYPASS, session.snapshot(), False, scope=scope, boxed=True)
            assert decision.verdict == "deny" and "managed policy forbids" in decision.decided_by.reason
        for destination in grants.SCOPES:
            with pytest.raises(UsageError):
                await grants._mode(session, "bypassPermissions", destination, by)
        session.set_mode(Mode.BYPASS, "a definition of an agent")
        assert session.snapshot().mode is Mode.DEFAULT


def test_case_tr_gemini_ci_servers_of_the_workspace_wait_for_trust_from_outside(world: World) -> None:
    world.settings("project", 'mcp.servers.x = { command = "sh" }\n')
    told = world.value("mcp.servers", CI="true", GITHUB_ACTIONS="true", PEG_TRUST="1")
    assert told["value"] == {}, told
    world.peg("trust", "--yes")
    assert world.value("mcp.servers", CI="true")["value"] == {"x": {"command": "sh"}}


def test_case_tr_statusline_of_a_project_waits_for_trust(world: World) -> None:
    world.settings("project", 'status_line = "./s.sh"\n')
    assert world.value("status_line")["value"] == ""
    world.peg("trust", "--yes")
    assert world.value("status_line")["value"] == "./s.sh"


# -- starting --------------------------------------------------------------------------------------------------------

WITHOUT = """
import sys
try:
    from pegboard_bubblewrap import programs
    programs.FOLDERS = ({empty!r},)
except ImportError:
    pass
from pegboard.cli import main
main()
"""


@needs_tools
@pytest.mark.parametrize("words", [PROMPT, ("call", "Glob", '{"pattern": "*"}')])
@pytest.mark.parametrize("way", ["absent", "denied"])
def test_case_sb_missing_refuses_the_start_and_names_what_is_missing(
    world: World, words: tuple[str, ...], way: str
) -> None:
    """The program is not there, or policy keeps the plug-ins out: no session, no request, no file of one."""
    text = "[sandbox]\nrequired = true\n"
    world.settings("managed", text + ('[plugins]\ndeny = ["bubblewrap", "seatbelt"]\n' if way == "denied" else ""))
    start = ("-c", WITHOUT.format(empty=str(world.room / "none"))) if way == "absent" else ("-m", "pegboard")
    done = world.peg(*words, start=start)
    assert done.returncode == 2 and not done.stdout, done.stdout
    assert "A sandbox of the level full is required here (sandbox.required)" in done.stderr
    assert not (world.home / ".peg/projects").exists()
    if way == "denied":
        assert "no sandbox plug-in is installed" in done.stderr
    elif sys.platform == "linux":
        assert "bubblewrap is not installed" in done.stderr
    world.settings("managed", text.replace("required", "enabled"))
    assert "is required here" not in world.peg(*words, start=start).stderr


@needs_tools
@pytest.mark.parametrize("trusted", [False, True])
def test_case_git_email_nothing_of_a_repository_reaches_a_shell(world: World, trusted: bool) -> None:
    """Neither the name and address of its configuration nor the name of its branch."""
    subprocess.run(["git", "init", "-q"], cwd=world.work, check=True)
    evil = f'a@b";touch {world.ran};"$(touch {world.ran})`touch {world.ran}`'
    assert CASES["git-email"]["input"]["git_config"]["user.email"].startswith('a@b";')
    for key in ("user.email", "user.name", "init.defaultBranch", "remote.origin.url"):
        subprocess.run(["git", "config", key, evil], cwd=world.work, check=True)
    (world.work / ".git/HEAD").write_text(f"ref: refs/heads/x;touch${{IFS}}{world.ran}\n")
    if trusted:
        world.peg("trust", "--yes")
    assert world.peg("call", "Glob", '{"pattern": "*"}').returncode == 0
    assert "Cannot connect to 127.0.0.1" in world.peg(*PROMPT).stderr
    for words in (("doctor",), ("tools", "list"), ("sessions", "list")):
        world.peg(*words)
    assert not world.ran.exists()
