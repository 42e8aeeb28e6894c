"""The ``pyproject.toml`` of every tool is rendered from its manifest, byte for byte: thirty files nobody writes."""

from __future__ import annotations

from pegboard.manifest import read_manifest
from pegboard.packaging import render_pyproject


def test_pyprojects_are_rendered(repository):
    stale = []
    for found in repository.distributions:
        if found.kind in ("tool", "template"):
            wanted = render_pyproject(read_manifest(found.source / "tool.toml"))
            if (found.folder / "pyproject.toml").read_text("utf-8") != wanted:
                stale.append(repository.shown(found.folder))
    assert not stale, f"not as `peg plugins build` renders them: {', '.join(stale)}"


def test_one_version_for_everything(repository):
    """One tag releases all; members ask for a lowest core, never for a highest."""
    versions = {found.name: found.project["version"] for found in repository.distributions}
    assert len(set(versions.values())) <= 1, versions
    capped = [
        f"{found.name}: {line}"
        for found in repository.distributions
        for line in found.project.get("dependencies", ())
        if line.startswith("pegboard") and ("<" in line or "==" in line)
    ]
    assert not capped, f"whether versions fit is decided by the gate, not by the resolver: {capped}"


def test_the_product_pins_what_it_bundles(repository):
    import tomllib

    project = tomllib.loads((repository.root / "pyproject.toml").read_text("utf-8"))["project"]
    pinned = dict(line.split("==") for line in project["dependencies"])
    known = {found.name: found.project["version"] for found in repository.distributions}
    assert pinned.items() <= known.items(), f"pins that nothing here has: {pinned.items() - known.items()}"
    missing = [found.name for found in repository.distributions if found.kind == "tool" and found.name not in pinned]
    assert not missing, f"not part of the product: {missing}"
