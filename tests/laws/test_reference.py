"""docs/reference.md is what the code says: every hook, error code, manifest field, setting and command."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
from pegboard.errors import Code
from pegboard.hooks import Specs
from pegboard.manifest import Manifest


@pytest.fixture(scope="module")
def maker(repository) -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", repository.root / "docs" / "make_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(repository) -> str:
    return (repository.root / "docs" / "reference.md").read_text("utf-8")


def test_reference_is_current(maker, page):
    assert page == maker.reference(), "run: python docs/make_reference.py"


def test_every_hook_is_listed_with_its_arguments(page):
    for name, function in vars(Specs).items():
        if name.startswith("peg_"):
            arguments = ", ".join(function.__code__.co_varnames[1 : function.__code__.co_argcount])
            assert f"`{name}({arguments})`" in page


def test_every_code_and_manifest_field_is_described(page):
    for code in Code:
        assert f"| `{code.value}` | {code.meaning} |" in page
    for field in Manifest.__struct_fields__:
        line = next(line for line in page.splitlines() if line.startswith(f"| `{field}` |"))
        assert line.rstrip("| ").count("|") >= 3, f"the manifest field {field} has no description"


def test_every_command_has_help(maker, page):
    from pegboard.cli import COMMANDS

    for name in COMMANDS:
        assert f"### `peg {name}`" in page
    bare = [line for line in page.splitlines() if line.startswith("| `--") and line.endswith("|  |")]
    assert not bare, f"options without help: {bare}"
