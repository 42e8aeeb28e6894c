"""The private folder of a session: made late, removed at the end, and by the next session where this one was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pegboard_boxes.premises import Premises

KILLED = "import os; from pegboard_boxes.premises import Premises; print(Premises().folder, flush=True); os._exit(1)"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_it_is_made_at_first_use_and_for_its_owner_alone(place):
    made = Premises()
    assert not list(place.iterdir())
    assert made.folder.stat().st_mode & 0o777 == 0o700 and Path(made.tmp).is_dir()
    assert made.folder == made.folder
    made.clear()
    made.clear()
    assert not list(place.iterdir())


def test_a_killed_sessions_folder_goes_and_a_living_ones_stays(place):
    done = subprocess.run([sys.executable, "-c", KILLED], env={"TMPDIR": str(place)}, capture_output=True, text=True)
    left = Path(done.stdout.strip())
    (left / "tmp" / "big").write_text("x")
    assert left.is_dir() and left.parent == place
    first, second = Premises(), Premises()
    kept = first.folder
    assert not left.exists()
    assert second.folder.is_dir() and kept.is_dir()
    first.clear()
    second.clear()


def test_what_is_not_ours_stays(place):
    (place / "peg-box-other").mkdir()
    (place / "peg-box-link").symlink_to(place / "peg-box-other")
    made = Premises()
    assert made.folder and (place / "peg-box-other").is_dir() and (place / "peg-box-link").is_symlink()
    made.clear()
