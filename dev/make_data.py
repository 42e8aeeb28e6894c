"""Write what is generated from the core's data: settings.json from settings.toml.

A start decodes the JSON, which takes a thirtieth of the time; people edit the TOML. A test fails when they differ.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "core/src/pegboard/settings.toml"


def generated() -> str:
    """The text of settings.json."""
    return json.dumps(tomllib.loads(SOURCE.read_text("utf-8")), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SOURCE.with_suffix(".json").write_text(generated(), "utf-8")
