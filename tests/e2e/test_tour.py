"""`peg tour`: the founding scenario, as a user sees it."""

from __future__ import annotations


def test_the_tour_repairs_the_sample_and_ends_with_the_ledger(world):
    done = world.peg("tour")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert "scripted" in said.splitlines()[0]
    for step in ("Glob", "Grep", "not_read", "Edited config.toml"):
        assert step in said
    assert said.index("fails") < said.index("passes") < said.index("What this session changed")
    ledger = said[said.index("What this session changed") :]
    assert "config.toml: changed" in ledger
    assert "UNKNOWN: nothing" in ledger
    assert "ANTHROPIC_API_KEY" in ledger
    assert not list(world.project.iterdir())


def test_the_tour_can_be_kept(world):
    done = world.peg("tour", "--keep", env={"TMPDIR": str(world.root)})
    kept = next(world.root.glob("pegboard-tour-*"))
    assert str(kept) in done.stdout
    assert "rate_percent = 19" in (kept / "till/config.toml").read_text()
