"""The dependency law: who may import whom, in sources and in pyproject files alike."""

from __future__ import annotations

import ast
import sys

import pytest

MAY_IMPORT = {
    "core": (),
    "library": ("core",),
    "owner": ("core", "library"),
    "tool": ("core", "library", "owner"),
    "template": ("core", "library", "owner"),
    "source": ("core", "library", "owner"),
    "provider": ("core", "library", "owner"),
    "host": ("core", "library", "owner"),
    "sandbox": ("core", "library", "owner"),
    "runner": ("core", "library", "owner"),
    "extra": ("core", "library", "owner"),
}
"""No tool imports a tool, no owner an owner. What two tools share is state (an owner) or it is not (a library)."""

CORE_PARTIES = {"anyio", "click", "msgspec", "pluggy", "pydantic", "stevedore", "tomli_w", "tomlkit"}
"""All that the core may import beside the standard library."""

OPTIONAL_PARTIES = {"cli/structured.py": {"jsonschema", "referencing"}}
"""Modules of the core that need more, from an extra of its distribution, and only when they are used."""

KIT_PARTIES = {"pytest"}
"""What the kit (`pegboard.testing`) may import beyond that: it runs inside pytest."""

IMPORT_NAMES = {"pymupdf": "pymupdf", "pillow": "PIL", "pypdfium2": "pypdfium2", "tomli-w": "tomli_w"}
"""Distributions whose import name is not their own name."""

KIT_MODULES = ("pegboard.testing",)

CONTRACT = {"anyio", "msgspec", "pluggy", "pydantic"}
"""What every plug-in may use because the contract itself speaks in its terms; it comes with the core."""


def own_packages(repository):
    return {distribution.package: distribution for distribution in repository.distributions}


def test_sources_import_only_what_the_law_allows(repository, imported):
    packages = own_packages(repository)
    broken = []
    for distribution in repository.distributions:
        allowed = MAY_IMPORT[distribution.kind]
        for path in distribution.files():
            for line, module in imported(path):
                other = packages.get(module.partition(".")[0])
                if other is None or other is distribution:
                    continue
                if other.kind not in allowed:
                    broken.append(f"{repository.shown(path)}:{line} imports {module}, a {other.kind}")
    assert not broken, "\n".join(broken)


def test_pyprojects_require_only_what_the_law_allows(repository):
    names = {distribution.name: distribution for distribution in repository.distributions}
    broken = []
    for distribution in repository.distributions:
        for required in distribution.requires & names.keys():
            if names[required].kind not in MAY_IMPORT[distribution.kind]:
                broken.append(f"{distribution.name} requires {required}, a {names[required].kind}")
    assert not broken, "\n".join(broken)


def test_what_is_imported_is_required(repository, imported):
    """A dependency that comes along by luck breaks the first installation that lacks it."""
    packages = own_packages(repository)
    missing = []
    for distribution in repository.distributions:
        known = {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in distribution.requires}
        if "pegboard_core" in known:
            known |= {"pegboard", *CONTRACT}
        known |= {
            IMPORT_NAMES.get(name, name.replace("-", "_"))
            for extra in distribution.project.get("optional-dependencies", {}).values()
            for name in (line.split(">")[0].split("=")[0].split("[")[0].strip() for line in extra)
        }
        for path in distribution.files():
            for line, module in imported(path):
                top = module.partition(".")[0]
                if top in sys.stdlib_module_names or top == distribution.package or top in known:
                    continue
                if "testing" in path.parts and (top in KIT_PARTIES or top in packages):
                    continue
                missing.append(f"{repository.shown(path)}:{line} imports {module}, which pyproject.toml does not list")
    assert not missing, "\n".join(missing)


def test_core_imports_its_eight_parties_only(repository, imported):
    core = repository.distributions[0]
    broken = []
    for path in core.files():
        allowed = CORE_PARTIES | {"pegboard"} | (KIT_PARTIES if "testing" in path.parts else set())
        allowed |= OPTIONAL_PARTIES.get(path.relative_to(core.source).as_posix(), set())
        for line, module in imported(path):
            top = module.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in allowed:
                broken.append(f"{repository.shown(path)}:{line} imports {module}")
    assert not broken, "\n".join(broken)


def test_the_product_never_imports_its_kit(repository, imported):
    """The kit is for tests; only the commands that run it (and the tour's service) may ask for it, by name."""
    broken = []
    for distribution in repository.distributions:
        for path in distribution.files():
            if "testing" in path.parts or "cli" in path.parts or path.name == "tour.py":
                continue
            for line, module in imported(path):
                if module.startswith(KIT_MODULES):
                    broken.append(f"{repository.shown(path)}:{line} imports {module}")
    assert not broken, "\n".join(broken)


def test_tasks_live_in_task_groups(repository):
    """A loose task outlives its call, and its error is lost."""
    broken = []
    for distribution in repository.distributions:
        for path in distribution.files():
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Attribute) and node.attr in ("create_task", "ensure_future"):
                    broken.append(f"{repository.shown(path)}:{node.lineno} calls {node.attr}")
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("banned", ["contextvars"])
def test_no_hidden_arguments(repository, imported, banned):
    """What a function needs is in its signature."""
    broken = [
        f"{repository.shown(path)}:{line} imports {module}"
        for distribution in repository.distributions
        for path in distribution.files()
        for line, module in imported(path)
        if module == banned
    ]
    assert not broken, "\n".join(broken)
