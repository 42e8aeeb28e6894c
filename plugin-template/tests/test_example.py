"""Example: the standard suite, and what only this tool has to hold."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
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


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=64), chunk=st.integers(1, 8))
def test_counts_do_not_depend_on_where_a_chunk_ends(data, chunk, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "data"
    path.write_bytes(data)
    before, tool.CHUNK = tool.CHUNK, chunk
    try:
        counted = tool.count(str(path))
    finally:
        tool.CHUNK = before
    ends = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    assert (counted.lines, counted.words, counted.bytes) == (ends, len(data.split()), len(data))
