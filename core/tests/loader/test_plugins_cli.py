"""`peg tools` and `peg plugins` as a person runs them: real processes, real packages, real settings files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pegboard.cli.plugin_make import LEFT_OUT, template

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def peg(world):
    """Run `peg` in the project (or another folder); returns the finished process."""

    def run(*arguments, cwd=None, code=0, stdin=None):
        environ = {
            **os.environ,
            "PYTHONPATH": str(world.site),
            "HOME": str(world.home),
            "PEG_HOME": str(world.home / ".peg"),
            "PEG_MANAGED_DIR": str(world.managed),
        }
        done = subprocess.run(
            [sys.executable, "-m", "pegboard", *map(str, arguments)],
            cwd=cwd or world.project, env=environ, input=stdin, stdin=None if stdin else subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"exit {done.returncode}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    return run


def states(done):
    return {row["name"]: row["state"] for row in json.loads(done.stdout)}


def test_cli_1_a_tool_is_switched_off_in_one_project(world, peg):
    world.add("pegboard-bash", "Bash")
    done = peg("tools", "disable", "bash", "--scope", "project")
    assert "Bash is off in the project settings" in done.stdout
    assert states(peg("tools", "list", "--json"))["Bash"] == "refused"
    other = world.base / "other"
    other.mkdir()
    assert states(peg("tools", "list", "--json", cwd=other))["Bash"] == "active"
    facts = json.loads(peg("tools", "explain", "BASH", "--json").stdout)["offers"][0]
    assert facts["decided_by"] == "switched_off"
    assert facts["switches"] == [
        {"scope": "project", "source": str(world.project / ".peg" / "settings.toml"), "state": "off"}
    ]


@pytest.mark.parametrize(
    ("managed", "command", "held"),
    [
        ('tools.force_disabled = ["Echo"]', "enable", "off"),
        ('tools.force_enabled = ["echo"]', "disable", "on"),
        ('tools.disabled = ["Echo"]', "enable", "off"),
    ],
)
def test_cli_1_a_managed_switch_makes_the_command_refuse(world, peg, managed, command, held):
    world.add("acme-echo")
    world.settings("managed", managed)
    done = peg("tools", command, "Echo", "--scope", "local", code=2)
    assert f"Managed policy holds Echo {held}" in done.stderr
    assert str(world.managed / "managed.toml") in done.stderr
    assert not (world.project / ".peg" / "settings.local.toml").exists()


def test_switching_on_and_off_keeps_one_entry_and_every_comment(world, peg):
    world.add("acme-echo")
    world.settings("user", '# mine\ntools.disabled = ["ECHO", "Other"] # two\n')
    peg("tools", "enable", "Echo")
    text = (world.home / ".peg" / "settings.toml").read_text()
    assert "# mine" in text and "ECHO" not in text and '"Other"' in text
    assert states(peg("tools", "list", "--json"))["Echo"] == "active"
    peg("tools", "disable", "echo")
    peg("tools", "disable", "Echo")
    assert (world.home / ".peg" / "settings.toml").read_text().count("Echo") == 1
    done = peg("tools", "enable", "Echo", "--scope", "project")
    assert "not in force here" in done.stderr


def test_names_of_tools_are_forgiven_and_suggested(world, peg):
    done = peg("tools", "explain", "raed", code=2)
    assert "There is no tool raed. Did you mean Read" in done.stderr
    assert "pegboard-lsp" in peg("tools", "explain", "lsp").stdout


def test_tools_explain_says_everything(world, peg):
    world.add("acme-read", "Read", extra='aliases = ["Look"]\n')
    out = peg("tools", "explain", "Read").stdout
    for word in ("clashes", "version:", "source:", "switches:", "trust:", "policy:", "conflict:", "load:", "acme-read"):
        assert word in out


def test_listing_imports_no_plugin_and_nothing_heavy(world, peg):
    world.add("acme-echo")
    peg("tools", "list")
    environ = {**os.environ, "PYTHONPATH": str(world.site), "PEG_HOME": str(world.home / ".peg")}
    done = subprocess.run(
        [sys.executable, "-c", REPORT], env=environ, cwd=world.project, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip().splitlines()[-1] == "[]"
    assert "Echo" in done.stdout
    assert not world.marker("acme-echo").exists()


REPORT = """
import os, sys
import pegboard.cli

HEAVY = {"pydantic", "stevedore", "importlib.metadata", "asyncio", "anyio", "pluggy", "hashlib", "subprocess"}
leave = os._exit

def report(code):
    print(sorted(sys.modules.keys() & (HEAVY | {"acme_echo"})), file=sys.stderr, flush=True)
    leave(code)

os._exit = report
sys.argv[1:] = ["tools", "list"]
pegboard.cli.main()
"""


def test_plugins_list_and_explain_print_the_nine_answers(world, peg):
    world.add("acme-echo")
    world.add("acme-bad", "Bad", manifest="")
    rows = {row["name"]: row for row in json.loads(peg("plugins", "list", "--json").stdout)}
    assert rows["Echo"]["state"] == "active" and rows["Bad"]["state"] == "broken"
    assert "peg plugins build" in rows["Bad"]["reason"]
    out = peg("plugins", "explain", "acme-echo").stdout
    assert out.count("  yes") == 9 and out.rstrip().endswith("active")
    world.settings("managed", 'plugins.deny = ["acme-*"]\n')
    out = peg("plugins", "explain", "Echo").stdout
    assert "  no   managed policy does not deny it - managed policy denies it" in out
    (row,) = json.loads(peg("plugins", "explain", "Echo", "--json").stdout)
    assert [answer["objects"] for answer in row["gate"]] == [True] + [False] * 8
    assert row["digest"].startswith("sha256:")
    assert "Did you mean Echo" in peg("plugins", "explain", "ecko", code=2).stderr


def test_plg_8_trust_shows_what_changed_and_asks_again(world, peg):
    package = world.add("my-echo", into=world.places.user_dir / "plugins" / "my-echo")
    assert states(peg("plugins", "list", "--json"))["Echo"] == "refused"
    assert "Nobody is here to ask" in peg("plugins", "trust", "Echo", code=2).stderr
    assert "Approved" in peg("plugins", "trust", "Echo", "--yes").stdout
    assert states(peg("plugins", "list", "--json"))["Echo"] == "active"
    assert "approved already" in peg("plugins", "trust", "echo").stdout
    (package / "tool.py").write_text((package / "tool.py").read_text() + "\n")
    (package / "new.py").write_text("")
    assert "its files changed" in peg("plugins", "explain", "Echo").stdout
    out = peg("plugins", "trust", "Echo", "--yes").stdout
    assert "~ my_echo/tool.py" in out and "+ my_echo/new.py" in out
    assert states(peg("plugins", "list", "--json"))["Echo"] == "active"


def test_add_a_wheel_and_remove_it_without_running_anything(world, peg, tmp_path):
    made = tmp_path / "made"
    world.add("my-echo", into=made)
    wheel = shutil.make_archive(str(tmp_path / "my_echo-1.0-py3-none-any"), "zip", made)
    os.rename(wheel, wheel := wheel.removesuffix(".zip") + ".whl")
    assert "Nobody is here to ask" in peg("plugins", "add", wheel, code=2).stderr
    assert not list((world.home / ".peg" / "plugins").iterdir())
    out = peg("plugins", "add", wheel, "--yes").stdout
    assert "Says it again. May change: nothing; class write." in out
    assert states(peg("plugins", "list", "--json"))["Echo"] == "active"
    assert not world.marker("my-echo").exists()
    assert "Removed my-echo" in peg("plugins", "remove", "echo", "--yes").stdout
    assert "Echo" not in states(peg("plugins", "list", "--json"))
    world.add("acme-echo")
    assert "uninstall acme-echo" in peg("plugins", "remove", "Echo", "--yes", code=2).stderr


def test_add_refuses_what_policy_or_sense_forbids(world, peg, tmp_path):
    import zipfile

    evil = tmp_path / "evil-1.0-py3-none-any.whl"
    with zipfile.ZipFile(evil, "w") as archive:
        archive.writestr("../escaped.py", "x = 1")
    assert "outside its folder" in peg("plugins", "add", evil, "--yes", code=2).stderr
    assert not (world.home / ".peg" / "escaped.py").exists()
    (tmp_path / "note.txt").write_text("")
    assert "neither a wheel nor a folder" in peg("plugins", "add", tmp_path / "note.txt", code=2).stderr
    world.settings("managed", 'plugins.allow_sources = ["/opt/plugins/*"]\n')
    assert "does not let plug-ins be installed" in peg("plugins", "add", evil, "--yes", code=2).stderr


def test_build_makes_the_files_that_a_package_lacks(world, peg):
    folder = world.add("acme-echo", manifest="")
    (folder / "schema.json").unlink()
    reason = json.loads(peg("plugins", "explain", "Echo", "--json").stdout)[0]["reason"]
    command = reason.partition("run: peg ")[2].split()
    out = peg(*command).stdout
    assert out.count("wrote") == 3
    assert states(peg("tools", "list", "--json"))["Echo"] == "active"
    assert "up to date" in peg(*command).stdout
    assert "offers no tool" in peg("plugins", "build", world.managed, code=2).stderr


def test_new_makes_a_plugin_that_passes_at_once(world, peg):
    """The whole way of a third party: new, validate, break it, be told, repair it, use it."""
    out = peg("plugins", "new", "weather-map").stdout
    folder = world.project / "weather-map"
    assert "Made weather-map" in out
    text = "\n".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    assert "xample" not in text
    assert {path.name for path in folder.iterdir()} == {"README.md", "pyproject.toml", "src", "tests"}
    assert 'WeatherMap = "pegboard_weather_map.tool:WeatherMap"' in (folder / "pyproject.toml").read_text()
    assert "up to date" in peg("plugins", "build", "weather-map").stdout
    assert "checks passed" in peg("plugins", "validate", "weather-map").stdout

    prompt = folder / "src" / "pegboard_weather_map" / "prompt.md"
    prompt.write_text(prompt.read_text() + "\nOne more thing.\n")
    done = peg("plugins", "validate", "weather-map", code=1)
    assert "failed  test_schema_file_is_current" in done.stdout and "peg plugins build" in done.stdout
    peg("plugins", "build", "weather-map")

    (folder / "src" / "pegboard_weather_map" / "__pycache__").mkdir(exist_ok=True)
    peg("plugins", "add", "weather-map", "--yes")
    assert states(peg("tools", "list", "--json"))["WeatherMap"] == "active"
    assert not list((world.home / ".peg" / "plugins").rglob("__pycache__"))


@pytest.mark.parametrize(
    ("name", "says"),
    [("read", "part of pegboard"), ("Example", "part of pegboard"), ("1x", "no name"), ("ä/b", "no name")],
)
def test_new_refuses_names_that_cannot_be(peg, name, says):
    assert says in peg("plugins", "new", name, code=2).stderr


def test_new_overwrites_nothing(world, peg):
    (world.project / "weather-map").mkdir()
    (world.project / "weather-map" / "mine").write_text("x")
    assert "exists already" in peg("plugins", "new", "WeatherMap", code=2).stderr


def test_plg_9_the_template_builds_and_its_wheel_passes_its_tests(tmp_path):
    source = tmp_path / "plugin-template"
    shutil.copytree(template(), source, ignore=shutil.ignore_patterns(*LEFT_OUT))
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    target = tmp_path / "target"
    shutil.unpack_archive(wheel, target, "zip")
    environ = {**os.environ, "PYTHONPATH": str(target), "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "hypothesis")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-o", "addopts=",
         "--rootdir", str(source), str(source / "tests")],
        cwd=tmp_path, env=environ, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_the_wheel_of_the_core_carries_the_template(tmp_path):
    import zipfile

    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT / "core", check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = {name.removeprefix("pegboard/plugin-template/") for name in zipfile.ZipFile(wheel).namelist()
              if name.startswith("pegboard/plugin-template/")}  # fmt: skip
    source = ROOT / "plugin-template"
    tracked = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and not set(path.relative_to(source).parts) & set(LEFT_OUT)
    }
    assert inside == tracked
