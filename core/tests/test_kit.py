"""The kit passes honest tools and catches liars: a whole suite run in a child, over tools made for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pegboard.testing import ToolSuite, case
from pegboard.testing.suite import standard_tests

TOOLS = '''
"""Tools of a test."""

import asyncio
from pathlib import Path

from pydantic import Field

from pegboard.errors import Code, Refusal
from pegboard.model import AbsolutePath, Input, Output
from pegboard.tool import Access, Tool


class Put(Input):
    path: AbsolutePath = Field(description="Where to.")
    text: str = Field(description="What.")
    times: int = Field(1, description="How often.")


class Done(Output):
    size: int


class Honest(Tool[Put, Done]):
    Input = Put
    Output = Done

    async def check(self, input, ctx):
        if Path(input.path).is_dir():
            raise Refusal(Code.PRECONDITION_FAILED, f"{input.path} is a folder.")

    def accesses(self, input, ctx):
        return [Access.edit(input.path)]

    async def run(self, input, ctx):
        await asyncio.sleep(0)
        with ctx.effect("file", input.path):
            Path(input.path).write_text(input.text * input.times)
        await asyncio.sleep(0)
        return Done(size=len(input.text))

    def render(self, output, ctx):
        return f"put {output.size}"


class Silent(Honest):
    """Writes outside of any effect."""

    async def run(self, input, ctx):
        Path(input.path).write_text(input.text)
        return Done(size=len(input.text))


class Late(Honest):
    """Opens its effect when all is over."""

    async def run(self, input, ctx):
        Path(input.path).write_text(input.text)
        with ctx.effect("file", input.path):
            return Done(size=len(input.text))


class Early(Honest):
    """Writes while it only should look, and nothing of it is declared."""

    async def check(self, input, ctx):
        await super().check(input, ctx)
        Path(input.path + ".lock").write_text("")

    def accesses(self, input, ctx):
        return []


class Torn(Honest):
    """Leaves a half-written neighbour when it is stopped."""

    async def run(self, input, ctx):
        part = Path(input.path + ".part")
        part.write_text(input.text)
        await asyncio.sleep(0)
        with ctx.effect("file", input.path):
            part.replace(input.path)
        return Done(size=len(input.text))
'''

MANIFEST = """name = "{name}"
summary = "Puts a text into a file."
api = 1
concurrency = "write"
effects = ["file"]
"""

SUITE = """
from pegboard.testing import ToolSuite, case

class Test{name}(ToolSuite):
    tool = "{name}"
    good = [case({{"path": "{{tmp}}/a", "text": "x"}}, says="put 1", leaves={{"a": "x"}})]
    bad = [case({{"path": "{{tmp}}", "text": "x"}}, code="precondition_failed", says="folder")]
"""

NAMES = ("Honest", "Silent", "Late", "Early", "Torn")


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> dict[str, set[str]]:
    """Failed standard tests of each tool, by the tool's name."""
    from pegboard.manifest import encode_schema, read_manifest, schema_of

    place = tmp_path_factory.mktemp("kit")
    site = place / "site-packages"
    spec: dict[str, object] = {}
    exec(compile(TOOLS, "tools", "exec", dont_inherit=True), spec)
    for name in NAMES:
        package = site / f"fake_{name.lower()}"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text('"""A package of a test."""\n')
        (package / "tool.py").write_text(TOOLS)
        (package / "tool.toml").write_text(MANIFEST.format(name=name))
        (package / "prompt.md").write_text("Puts a text into a file. A refused call has changed nothing; " * 2)
        (package / "schema.json").write_bytes(encode_schema(schema_of(spec[name], package)))
        assert read_manifest(package / "tool.toml").name == name
        info = site / f"fake_{name.lower()}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fake-{name.lower()}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[pegboard.tools]\n{name} = fake_{name.lower()}.tool:{name}\n")
    (place / "test_them.py").write_text("".join(SUITE.format(name=name) for name in NAMES))
    (place / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", "-p", "no:xdist", "test_them.py"],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, set[str]] = {name: set() for name in NAMES}
    for name, test in re.findall(r"^(?:FAILED|ERROR) test_them\.py::Test(\w+)::(\w+)", done.stdout, re.MULTILINE):
        found[name].add(test)
    assert "passed" in done.stdout, done.stdout + done.stderr
    found["output"] = {done.stdout}
    return found


def test_an_honest_tool_passes(report):
    assert not report["Honest"], report["output"].pop()


def test_a_write_outside_of_an_effect_is_caught(report):
    assert {"test_effects_are_true", "test_abort_at_every_await"} <= report["Silent"]


def test_an_effect_that_opens_too_late_is_caught(report):
    assert report["Late"] == {"test_effects_are_true"}


def test_a_check_that_writes_is_caught(report):
    assert {"test_check_changes_nothing", "test_accesses_cover_every_change"} <= report["Early"]
    assert {"test_writers_declare_what_they_touch", "test_effects_are_true"} <= report["Early"]


def test_an_abort_that_leaves_litter_is_caught(report):
    assert report["Torn"] == {"test_abort_at_every_await"}


# -- the suite cannot be thinned out ---------------------------------------------------------------------------

GOOD = [case({"path": "{tmp}/a"})]
BAD = [case({"path": "{tmp}"}, code="not_found")]


def make(**body):
    return type("TestIt", (ToolSuite,), {"tool": "Read", "good": GOOD, "bad": BAD, **body})


def test_about_thirty_standard_tests():
    assert 25 <= len(standard_tests()) <= 40
    assert len(set(standard_tests())) == len(standard_tests())


@pytest.mark.parametrize("name", standard_tests())
def test_no_standard_test_can_be_taken_out(name):
    for own in (None, lambda self: None):
        with pytest.raises(TypeError, match=name):
            make(**{name: own})


def test_an_exemption_needs_a_reason():
    @pytest.mark.xfail(reason="the service is remote")
    def excused(self):
        raise AssertionError

    @pytest.mark.xfail
    def unexplained(self):
        raise AssertionError

    make(test_effects_are_true=excused)
    with pytest.raises(TypeError):
        make(test_effects_are_true=unexplained)


@pytest.mark.parametrize("body", [{"tool": ""}, {"good": []}, {"bad": []}, {"bad": [case({})]}])
def test_a_suite_has_a_tool_and_cases(body):
    with pytest.raises(TypeError):
        make(**body)


def test_own_tests_are_welcome():
    make(test_something_of_my_own=lambda self: None)


def test_the_plugin_imports_nothing():
    """It is loaded in every pytest run of the environment."""
    code = (
        "import sys, pytest; before = set(sys.modules); import pegboard.testing.plugin; "
        "print(sorted(name for name in set(sys.modules) - before if not name.startswith('pegboard')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stdout


def test_watch_sees_directory_handles(tmp_path: Path):
    from pegboard.testing import Watch

    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        with Watch() as watch:
            os.mkdir("made", dir_fd=handle)
            os.rename("made", "moved", src_dir_fd=handle, dst_dir_fd=handle)
            with open(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=handle), "w") as file:
                file.write("x")
            (tmp_path / "file").read_text()
    finally:
        os.close(handle)
    assert [(item.event, item.path) for item in watch.writes] == [
        ("os.mkdir", f"{tmp_path}/made"),
        ("os.rename", f"{tmp_path}/made"),
        ("os.rename", f"{tmp_path}/moved"),
        ("open", "file"),
    ]
    assert watch.writes[-1].concerns(f"{tmp_path}/file")
