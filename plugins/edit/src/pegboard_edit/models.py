"""What Edit takes and what it returns."""

from __future__ import annotations

from pegboard.model import AbsolutePath, Input, Output
from pegboard_files.patch import Hunk
from pydantic import Field


class EditInput(Input):
    """One replacement."""

    file_path: AbsolutePath = Field(description="Absolute path of the file")
    old_string: str = Field(description="Text to replace, exactly as in the file; empty to create a file")
    new_string: str = Field(description="Text to put in its place")
    replace_all: bool = Field(default=False, description="Replace every occurrence")


class EditOutput(Output):
    """A finished edit."""

    filePath: str
    oldString: str
    newString: str
    originalFile: str | None = None
    """The text before; left out above 1 MB."""
    structuredPatch: list[Hunk]
    userModified: bool = False
    replaceAll: bool
