"""The `pyproject.toml` of a tool's distribution, rendered from its manifest.

Thirty such files stay equal because nobody writes them: the manifest holds what differs, this function the rest.
"""

from __future__ import annotations

import json

from pegboard import names
from pegboard.manifest import Manifest

VERSION = "0.1.0"

_TEXT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{distribution}"
version = "{version}"
description = {summary}
readme = "README.md"
license = "Apache-2.0"
requires-python = ">=3.11"
authors = [{{ name = "The pegboard authors" }}]
dependencies = [
{dependencies}
]

[project.entry-points."pegboard.tools"]
{tool} = "{module}.tool:{tool}"

[tool.hatch.build.targets.wheel]
packages = ["src/{module}"]
"""


def render_pyproject(manifest: Manifest, *, version: str = VERSION) -> str:
    """The whole file, the same text for the same manifest.

    Dependencies are the core, the distributions of the manifest's owners, and its ``requires``, in this order.
    """
    tool = manifest.name
    return _TEXT.format(
        distribution=names.distribution(tool),
        version=version,
        summary=json.dumps(manifest.summary, ensure_ascii=False),
        dependencies="\n".join(f'    "{required}",' for required in _dependencies(manifest)),
        tool=tool,
        module=names.module(tool),
    )


def _dependencies(manifest: Manifest) -> list[str]:
    owners = {owner.partition(":")[0].partition(".")[0] for owner in manifest.owners} - {"pegboard"}
    named = {requirement.split(">")[0].split("=")[0].strip() for requirement in manifest.requires}
    own = [f"{owner.replace('_', '-')}>=0.1" for owner in sorted(owners) if owner.replace("_", "-") not in named]
    return ["pegboard-core>=0.1", *own, *manifest.requires]
