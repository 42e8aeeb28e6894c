"""Reading metadata as files: the same answer as importlib.metadata, from an index that is never more than a hint."""

from __future__ import annotations

import os
import stat
from importlib.metadata import EntryPoints, distributions

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard.candidate import GROUPS
from pegboard.engines import locate, problems
from pegboard.loader import State
from pegboard.scan import LARGEST, Index, parse_points

LINES = st.sampled_from(
    [
        "[pegboard.tools]", "[pegboard.hooks]", "[console_scripts]", "Echo = acme.tool:Echo", "b=c", "x = y:z [extra]",
        "# comment", "; comment", "", "   ", "  Name  =  a.b:c.d  ", "no value", "[pegboard.tools", "pegboard.tools]",
    ]
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(LINES, max_size=8))
def test_any_text_is_read_without_an_error(lines):
    for group, name, value in parse_points("\n".join(lines)):
        assert group in GROUPS and name and "[" not in value


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*GROUPS, "console_scripts", "other.group"]),
        st.dictionaries(st.from_regex(r"[A-Za-z][\w.-]{0,8}", fullmatch=True), st.just("a.b:C"), max_size=3),
        max_size=4,
    )
)
def test_well_formed_files_are_read_as_importlib_does(groups):
    text = "\n".join(
        [f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in items.items()) for group, items in groups.items()]
    )
    theirs = {(one.group, one.name, one.value) for one in EntryPoints._from_text_for(text, None) if one.group in GROUPS}
    assert set(parse_points(text)) == theirs


def test_this_environment_is_seen_as_importlib_sees_it(world):
    import sys

    theirs = {
        (one.group, one.name, one.value) for dist in distributions() for one in dist.entry_points if one.group in GROUPS
    }
    found = world.find(more=tuple(map(type(world.base), sys.path)))
    ours = {
        (group, one.name, one.entry) for one in found.candidates for group, kind in GROUPS.items() if kind is one.kind
    }
    assert theirs and theirs == ours


def index_file(world):
    (path,) = (world.places.user_dir / "cache").iterdir()
    return path


def test_the_index_is_used_and_a_changed_file_is_seen(world, monkeypatch):
    folder = world.add("acme-echo")
    assert "Echo" in world.find().tools()
    assert stat.S_IMODE(index_file(world).stat().st_mode) == 0o600
    import tomllib

    monkeypatch.setattr(tomllib, "load", lambda file: pytest.fail("read again"))
    assert "Echo" in world.find().tools()
    monkeypatch.undo()
    path = folder / "tool.toml"
    status = path.stat()
    path.write_text(path.read_text().replace("Says it again.", "Says it twice."))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert world.find().tools()["Echo"].manifest.summary == "Says it twice."


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"shape": 1}', b"\xff\xfe", b'{"shape": "old"}'])
def test_a_broken_index_is_ignored_and_replaced(world, content):
    world.add("acme-echo")
    world.find()
    index_file(world).write_bytes(content)
    assert "Echo" in world.find().tools()
    assert len(index_file(world).read_bytes()) > len(content)


def test_an_index_that_others_could_write_is_ignored(world):
    folder = world.add("acme-echo")
    world.find()
    path = index_file(world)
    path.write_bytes(path.read_bytes().replace(b"Says it again.", b"Says anything."))
    assert world.find().tools()["Echo"].manifest.summary == "Says anything."
    path.chmod(0o666)
    assert world.find().tools()["Echo"].manifest.summary == "Says it again."
    assert folder.exists()


def test_no_place_for_an_index_is_no_problem(world):
    world.add("acme-echo")
    (world.home / ".peg").mkdir(exist_ok=True)
    (world.home / ".peg" / "cache").write_text("in the way")
    assert "Echo" in world.find().tools()


def test_a_pipe_or_a_giant_in_place_of_a_manifest_costs_nothing(world, only):
    pipe = world.add("acme-pipe", "Pipe")
    (pipe / "tool.toml").unlink()
    os.mkfifo(pipe / "tool.toml")
    giant = world.add("acme-giant", "Giant")
    os.truncate(giant / "tool.toml", LARGEST + 1)
    registry = world.find()
    for name in ("Pipe", "Giant"):
        assert registry.standing(only(registry, name)).state is State.BROKEN
    project = world.project / ".peg" / "plugins" / "trap"
    project.mkdir(parents=True)
    os.mkfifo(project / "pyproject.toml")
    world.find()


def test_engines_are_located_and_asked_once(world):
    bin_ = world.base / "bin"
    bin_.mkdir()
    log = world.base / "log"
    program = bin_ / "acme-engine"
    program.write_text(f"#!/bin/sh\necho asked >> {log}\necho acme-engine v14.2.0-rc1 other 9.9\n")
    program.chmod(0o755)
    environ = {"PATH": f"{bin_}:relative"}
    assert locate("acme-engine", environ) == str(program)
    assert locate("acme-engine", {"PATH": "."}) is None
    needs = ["acme-engine>=14", "acme-engine>=14.2", "acme-engine>=14.2.1", "acme-engine>=15", "acme-engine", "no-such"]
    for _ in range(2):
        index = Index(str(world.base / "cache"), "x")
        found = problems(needs, index, environ)
        index.save()
    assert [need for need in needs if not found[need]] == ["acme-engine>=14", "acme-engine>=14.2", "acme-engine"]
    assert "is version 14.2.0-rc1" in found["acme-engine>=15"]
    assert log.read_text() == "asked\n"
    program.write_text("#!/bin/sh\nexit 3\n")
    assert (
        "does not say its version"
        in problems(["acme-engine>=14"], Index(str(world.base / "cache"), "x"), environ)["acme-engine>=14"]
    )
