"""Example: the standard suite, and what only this tool has to hold."""

from __future__ import annotations

import pytest
from pegboard.testing import ToolSuite, case
from pegboard_example import tool


class TestExample(ToolSuite):
    tool = "Example"
    good = [
        case(
            {"file_path": "{tmp}/a.txt"}, files={"a.txt": "one two\nthree\n"}, says="a.txt: 2 lines, 3 words, 14 bytes"
        ),
        case({"file_path": "a.txt"}, files={"a.txt": "no end"}, says="1 lines, 2 words, 6 bytes"),
        case({"file_path": "empty"}, files={"empty": ""}, says="0 lines, 0 words, 0 bytes"),
    ]
    bad = [
        case({"file_path": "{tmp}/none"}, code="not_found"),
        case({"file_path": "{tmp}"}, code="precondition_failed"),
        case({"file_path": "big"}, files={"big": "12345"}, settings={"example.max_bytes": 4}, code="too_large"),
    ]


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("data", [b"", b" ", b"\n\n", b"one  two", b" one two ", b"a\nbc\r\nd", b"\x00\xff \xe4\n"])
def test_counts_do_not_depend_on_where_a_chunk_ends(data, chunk, tmp_path, monkeypatch):
    path = tmp_path / "data"
    path.write_bytes(data)
    monkeypatch.setattr(tool, "CHUNK", chunk)
    counted = tool.count(str(path))
    ends = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    assert (counted.lines, counted.words, counted.bytes) == (ends, len(data.split()), len(data))
