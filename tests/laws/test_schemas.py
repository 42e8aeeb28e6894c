"""The committed ``schema.json`` of every tool is what its models and its prompt say today."""

from __future__ import annotations

import importlib
from pathlib import Path

from pegboard.manifest import encode_schema, read_manifest, schema_of


def test_schema_files_are_current(repository):
    stale = []
    for found in repository.distributions:
        points = found.project.get("entry-points", {}).get("pegboard.tools", {})
        for name, value in points.items():
            module, _, attribute = value.partition(":")
            folder = found.folder / "src" / Path(*module.split(".")[:-1])
            tool = getattr(importlib.import_module(module), attribute)
            if encode_schema(schema_of(tool, folder)) != (folder / "schema.json").read_bytes():
                stale.append(f"{name}: run peg plugins build {repository.shown(found.folder)}")
            assert read_manifest(folder / "tool.toml").name == name
    assert not stale, "\n".join(stale)
