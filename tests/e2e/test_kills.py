"""Nothing kills a session: SIGKILL at every kind of point, files cut at random bytes, disks that are full or fail."""

from __future__ import annotations

import importlib.util
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pegboard.lines import FILE_NAME, begun
from pegboard.testing.faults import Fault

QUARTER = 25
"""A hundred kills in four parts, so that two workers share them; the bench plays every point."""


def scenario() -> ModuleType:
    path = Path(__file__).with_name("kill_scenario.py")
    spec = importlib.util.spec_from_file_location("kill_scenario", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules.setdefault("kill_scenario", importlib.util.module_from_spec(spec))
    if not hasattr(module, "Scene"):
        spec.loader.exec_module(module)
    return module


kills = scenario()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with kills.scene(tmp_path_factory.mktemp("kills")) as made:
        yield made


@pytest.fixture(scope="module")
def whole(scene: Any) -> Any:
    """The run that nothing happens to."""
    ended = scene.play()
    assert (ended.code, ended.out) == (0, "all done\n"), ended.err
    assert scene.files() == kills.END and not scene.rewinds()
    return ended


def spread(points: list[int], part: int) -> list[int]:
    """A quarter's share of these points, evenly over all of them."""
    return [points[(number * 4 + part) * len(points) // (QUARTER * 4)] for number in range(QUARTER)]


@pytest.mark.parametrize("part", range(4))
def test_e2e_7_killed_at_a_step_the_run_ends_as_if_nothing_had_been(scene: Any, whole: Any, part: int) -> None:
    lost = {}
    for at in spread(list(range(1, whole.points + 1)), part)[::2]:
        died = scene.play(Fault("kill", at))
        assert died.code == -9
        if objections := scene.survives(died):
            lost[at, died.trail[-1]] = objections
    assert not lost


@pytest.mark.parametrize("part", range(4))
def test_ses_1_killed_in_the_middle_of_a_write_at_most_the_last_line_is_lost(scene: Any, whole: Any, part: int) -> None:
    lost = {}
    halves = [at for at, name in enumerate(whole.trail, 1) if name.startswith("half ")]
    for at in spread(halves, part)[1::2]:
        died = scene.play(Fault("half", at))
        assert died.code == -9
        if objections := scene.survives(died) or (at % 3 == 0 and scene.rewinds()):
            lost[at, died.trail[-1]] = objections
    assert not lost


def test_killed_at_any_time(scene: Any, whole: Any) -> None:
    chance = random.Random(4)
    lost = {}
    for _ in range(6):
        seconds = chance.uniform(0.0, 0.15)
        if objections := scene.survives(scene.play(seconds=seconds), whole_lines=False):
            lost[seconds] = objections
    assert not lost


def test_files_cut_at_random_bytes(scene: Any, whole: Any) -> None:
    chance = random.Random(5)
    lost = {}
    for _ in range(16):
        died = scene.play(Fault("kill", chance.randrange(20, whole.points)))
        what = scene.damage(chance)
        if objections := scene.survives(died, whole_lines=False, cut=True):
            lost[what] = objections
    assert not lost


def test_killed_again_and_again(scene: Any, whole: Any) -> None:
    chance = random.Random(6)
    died = scene.play(Fault("kill", 60))
    for _ in range(8):
        fault = Fault("kill", chance.randrange(2, 60))
        died = scene.stage.run(["-p", "go on", "-c", *kills.OPTIONS], scene.env, fault)
    assert not scene.survives(died, whole_lines=False)


@pytest.mark.parametrize("kind", ["full", "sync"])
def test_fm_2_whatever_a_failing_disk_does_every_call_has_its_result(scene: Any, whole: Any, kind: Any) -> None:
    lost = {}
    for at in range(3, whole.points, whole.points // 8):
        failed = scene.play(Fault(kind, at))
        assert failed.code in (0, 1) and "Traceback" not in failed.err
        if objections := scene.survives(failed, whole_lines=False) or scene.rewinds():
            lost[at, failed.trail[at - 1]] = objections
    assert not lost


def test_a_file_size_limit_ends_the_run_and_the_next_one_goes_on(scene: Any, whole: Any) -> None:
    """A real limit of the kernel: the write that reaches it is cut, the next one fails."""
    scene.begin()
    size = 3_000
    run = subprocess.run(
        [Path(sys.executable).with_name("peg"), "-p", "go", *kills.OPTIONS],
        cwd=scene.work,
        env={**scene.env, "PYTHONDONTWRITEBYTECODE": "1"},  # the interpreter would keep what the limit cut
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )
    assert run.returncode == 1 and "Cannot write to" in run.stderr and "File too large" in run.stderr
    (path,) = scene.transcripts
    assert path.stat().st_size == size and begun(path)
    done = scene.resume()
    assert (done.code, done.out) == (0, "all done\n"), done.err
    assert scene.files() == kills.END and not scene.rewinds()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_really_full_disk_ends_the_run_and_the_next_one_goes_on(scene: Any, whole: Any) -> None:
    scene.begin()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", scene.home], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        scene.stage.run(["-p", "go", *kills.OPTIONS, "--max-turns", "2"], scene.env)
        ballast = scene.home / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while file.write(b"x" * 512):
                    pass
            except OSError:
                pass
        failed = scene.peg("-p", "go on", "-c", *kills.OPTIONS)
        assert failed.code == 1 and "No space left" in failed.err and "Traceback" not in failed.err
        ballast.unlink()
        done = scene.resume()
        assert (done.code, done.out) == (0, "all done\n"), done.err
        assert scene.files() == kills.END
        assert [path.name for path in scene.transcripts] == [FILE_NAME]
    finally:
        subprocess.run(["umount", scene.home], check=True)
