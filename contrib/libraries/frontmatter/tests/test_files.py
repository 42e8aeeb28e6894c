"""What is read as a text file, and what is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pegboard_frontmatter.files import Unread, text_of


def test_text_with_a_mark_and_foreign_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\n")
    assert text_of(str(path), 100) == "a\nb\n"


def test_what_is_no_text_file_is_said(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_text("x" * 11)
    (tmp_path / "latin").write_bytes(b"\xe4\n")
    (tmp_path / "zero").write_bytes(b"a\0")
    for name, why in (
        ("pipe", "no file"), ("large", "11 bytes; the limit is 10"), ("latin", "UTF-8"), ("zero", "no text"),
        ("gone", "No such file"), (".", "directory|no file"),
    ):  # fmt: skip
        with pytest.raises(Unread, match=why):
            text_of(str(tmp_path / name), 10)
    (tmp_path / "large").write_text("x" * 10)
    assert text_of(str(tmp_path / "large"), 10) == "x" * 10
