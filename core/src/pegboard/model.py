"""The pydantic side of the tool contract: base models and field types for inputs and outputs.

Import it from a tool's module only. Nothing on the way to the first model request may load pydantic.
"""

from __future__ import annotations

import os
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo
from pydantic.json_schema import WithJsonSchema


class Input(BaseModel):
    """Base of every tool input: unknown fields are refused, safe coercions (``"5"`` to 5) are made."""

    model_config = ConfigDict(extra="forbid", populate_by_name=False, frozen=True)


class Output(BaseModel):
    """Base of every tool output. Fields are named as the published schema names them."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, revalidate_instances="always")


def _absolute(value: str, info: ValidationInfo) -> str:
    context: dict[str, Any] = info.context or {}
    if "\0" in value:
        raise ValueError("the path contains a null byte")
    if not value:
        raise ValueError("the path is empty")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise ValueError("the path holds half a character") from None
    home = context.get("home")
    if home and (value == "~" or value.startswith("~/")):
        value = os.path.join(home, value[2:])
    return os.path.normpath(os.path.join(context.get("cwd", os.getcwd()), value))


AbsolutePath = Annotated[str, AfterValidator(_absolute), WithJsonSchema({"type": "string"})]
"""A path: ``~`` and relative forms are made absolute against the session directory, ``..`` is folded by name."""
