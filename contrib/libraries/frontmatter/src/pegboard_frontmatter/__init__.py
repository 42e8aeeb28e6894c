"""The fields at the top of a Markdown file. Importing the package loads nothing but the standard library."""

from __future__ import annotations

from pegboard_frontmatter.document import Document, split, texts

__all__ = ["Document", "split", "texts"]
