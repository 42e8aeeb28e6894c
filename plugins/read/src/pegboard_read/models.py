"""What Read takes and what it returns.

Kept apart from the tool so that the modules for each kind of file can build their part of the answer.
"""

from __future__ import annotations

from typing import Literal

from pegboard.model import AbsolutePath, Input, Output
from pydantic import Field


class ReadInput(Input):
    """The file, and which part of it."""

    file_path: AbsolutePath = Field(description="Absolute path of the file")
    offset: int | None = Field(
        default=None, ge=1, description="First line to show, counted from 1; cells for a notebook"
    )
    limit: int | None = Field(default=None, ge=1, description="Number of lines to show; cells for a notebook")
    pages: str | None = Field(default=None, description='Pages of a PDF: "3" or "1-5", at most 20')


class TextFile(Output):
    """Lines of a text file."""

    filePath: str
    content: str
    """The lines as shown, without their numbers."""
    numLines: int
    startLine: int
    totalLines: int | None = None
    """Lines of the whole file; null where a huge file was not read to its end."""
    truncatedByTokenCap: bool = False


class Dimensions(Output):
    """Sizes of a picture in pixels."""

    originalWidth: int
    originalHeight: int
    displayWidth: int
    displayHeight: int


class ImageFile(Output):
    """A picture as the model sees it."""

    filePath: str
    base64: str
    type: str
    """Media type of ``base64``."""
    originalSize: int
    """Bytes of the file."""
    dimensions: Dimensions


class Cell(Output):
    """A cell of a notebook."""

    id: str
    """The cell's id, or ``cell-N`` (from 0) where the format has none."""
    cellType: str
    source: str
    executionCount: int | None = None
    outputs: list[str] = []


class NotebookFile(Output):
    """The cells of a notebook that were shown."""

    filePath: str
    cells: list[Cell]
    totalCells: int


class Page(Output):
    """The text of one page of a PDF."""

    number: int
    text: str
    picture: str = Field(default="", exclude=True)
    """Base64 of a JPEG; goes to the model, not into the data."""


class PdfFile(Output):
    """Pages of a PDF."""

    filePath: str
    originalSize: int
    count: int
    """Pages of the whole file."""
    pages: list[Page]


class UnchangedFile(Output):
    """A file whose whole text is still above in the conversation."""

    filePath: str


class ReadOutput(Output):
    """One view of one file. ``parts`` is a part of a PDF, ``pdf`` a whole one."""

    type: Literal["text", "image", "notebook", "pdf", "parts", "file_unchanged"]
    file: TextFile | ImageFile | NotebookFile | PdfFile | UnchangedFile
