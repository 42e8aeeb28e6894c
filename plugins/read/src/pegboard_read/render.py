"""A view in words and pictures, as the model reads it."""

from __future__ import annotations

from pegboard.call import Block

from pegboard_read.models import ImageFile, NotebookFile, PdfFile, ReadOutput, TextFile
from pegboard_read.notebook import words


def blocks(output: ReadOutput) -> str | list[Block]:
    """Text where text is enough; blocks where a picture is part of it."""
    file = output.file
    if isinstance(file, TextFile):
        lines = file.content.split("\n") if file.numLines else []
        return "\n".join([f"{number}\t{line}" for number, line in enumerate(lines, file.startLine)])
    if isinstance(file, ImageFile):
        return [_image(file.base64, file.type)]
    if isinstance(file, NotebookFile):
        return "\n".join(words(cell) for cell in file.cells)
    if isinstance(file, PdfFile):
        return _pages(file)
    return "The file is unchanged since it was read; its text is above in this conversation."


def _pages(file: PdfFile) -> list[Block]:
    parts: list[Block] = []
    for page in file.pages:
        parts.append({"type": "text", "text": f"Page {page.number} of {file.count}\n{page.text or '(no text)'}"})
        if page.picture:
            parts.append(_image(page.picture, "image/jpeg"))
    return parts


def _image(data: str, media: str) -> Block:
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}
