"""Thirty files, one writer: the ``pyproject.toml`` of every tool is what its manifest renders to, byte for byte."""

from __future__ import annotations

from pegboard.manifest import read_manifest
from pegboard.packaging import render_pyproject


def test_pyprojects_are_rendered_from_manifests(repository):
    stale = []
    for found in (found for found in repository.distributions if found.kind in ("tool", "template")):
        wanted = render_pyproject(read_manifest(found.source / "tool.toml"))
        if (found.folder / "pyproject.toml").read_text("utf-8") != wanted:
            stale.append(f"run: peg plugins build {repository.shown(found.folder)}")
    assert not stale, "\n".join(stale)
