"""What is generated from the core's data is current."""

from __future__ import annotations

import importlib.util


def test_settings_json_is_current(repository):
    spec = importlib.util.spec_from_file_location("make_data", repository.root / "dev/make_data.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    committed = module.SOURCE.with_suffix(".json").read_text("utf-8")
    assert committed == module.generated(), "run: .venv/bin/python dev/make_data.py"
