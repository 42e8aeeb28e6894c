"""What is generated from the core's data is current."""

from __future__ import annotations

import importlib.util


def maker(repository, name):
    spec = importlib.util.spec_from_file_location(name, repository.root / f"dev/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_settings_json_is_current(repository):
    module = maker(repository, "make_data")
    committed = module.SOURCE.with_suffix(".json").read_text("utf-8")
    assert committed == module.generated(), "run: .venv/bin/python dev/make_data.py"


def test_published_schemas_are_current(repository):
    wanted = maker(repository, "make_schemas").generated()
    stale = [path.name for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    assert not stale, f"{', '.join(stale)} differ; run: .venv/bin/python dev/make_schemas.py"
    folders = {path.parent for path in wanted}
    assert {path for folder in folders for path in folder.glob("*")} == wanted.keys()
