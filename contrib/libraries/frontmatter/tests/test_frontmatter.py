"""Front matter as people write it, and as nobody should."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard_frontmatter import split, texts

quick = settings(max_examples=100, deadline=None)


def fields(text: str) -> dict[str, Any]:
    found = split(f"---\n{text}\n---\nbody\n")
    assert found.body == "body\n"
    assert found.problems == []
    return found.fields


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: b", {"a": "b"}),
        ("a:", {"a": None}),
        ("a: 'it''s'", {"a": "it's"}),
        (r'a: "x\n\"y\" # no comment"', {"a": 'x\n"y" # no comment'}),
        ("a: b # comment\n# whole line\n\nc: d", {"a": "b", "c": "d"}),
        ("a: colour#3", {"a": "colour#3"}),
        ("description: Use this when: the user asks", {"description": "Use this when: the user asks"}),
        ("url: https://example.org/a", {"url": "https://example.org/a"}),
        ("a: true\nb: False\nc: null\nd: ~\ne: 3\nf: -2.5\ng: 1.2.3\nh: 007\ni: yes",
         {"a": True, "b": False, "c": None, "d": None, "e": 3, "f": -2.5, "g": "1.2.3", "h": "007", "i": "yes"}),
        ("tools: Read, Grep", {"tools": "Read, Grep"}),
        ("tools: [Read, 'Gr ep', 3,]", {"tools": ["Read", "Gr ep", 3]}),
        ("paths:\n  - src/**\n  - \"*.md\"", {"paths": ["src/**", "*.md"]}),
        ("paths:\n- a\n- b\nc: d", {"paths": ["a", "b"], "c": "d"}),
        ("a: |\n  one\n    two\n\n  three\nb: c", {"a": "one\n  two\n\nthree\n", "b": "c"}),
        ("a: >-\n  one\n  two\n\n  three", {"a": "one two\nthree"}),
        ("a: one\n  two\n  three\nb: c", {"a": "one two three", "b": "c"}),
        ("a: [one,\n  two]\nb: c", {"a": ["one", "two"], "b": "c"}),
        ("a: {b: c, 'd': [1, 2], e: {f: g}}", {"a": {"b": "c", "d": [1, 2], "e": {"f": "g"}}}),
        ("h:\n  Pre:\n    - matcher: Bash\n      hooks:\n        - type: command\n          command: ./a b\n    - m: x",
         {"h": {"Pre": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./a b"}]}, {"m": "x"}]}}),
        ("mcpServers:\n  - name\n  - other:\n      command: x", {"mcpServers": ["name", {"other": {"command": "x"}}]}),
        ("allowed-tools: Bash(git add:*), Read", {"allowed-tools": "Bash(git add:*), Read"}),
        ("'quoted key': v\n\"other\": w", {"quoted key": "v", "other": "w"}),
        ("a: {not closed", {"a": "{not closed"}),
        ("a: [x] y", {"a": "[x] y"}),
        ("a: *.ts", {"a": "*.ts"}),
        ("a:\n\tb: c", {"a": {"b": "c"}}),
    ],
)  # fmt: skip
def test_what_people_write(text: str, value: dict[str, Any]) -> None:
    assert fields(text) == value


def test_ends_of_lines_and_marks() -> None:
    found = split("\ufeff---\r\na: b\r\nc: |\r\n  x\r\n---\r\nbody\r\n")
    assert found.fields == {"a": "b", "c": "x\n"} and found.body == "body\r\n"


@pytest.mark.parametrize("text", ["", "# no fields\n---\na: b\n---\n", "----\na: b\n", " ---\na: b\n---\n"])
def test_files_without_fields_are_all_body(text: str) -> None:
    found = split(text)
    assert (found.fields, found.body, found.problems) == ({}, text, [])


def test_fields_without_an_end_are_body_and_said() -> None:
    found = split("---\na: b\n")
    assert (found.fields, found.body) == ({}, "---\na: b\n") and "no end" in found.problems[0]


def test_odd_lines_are_passed_over_and_named() -> None:
    found = split("---\nname: a\n??? what\n- stray\ntools: Read\nname: b\n---\n")
    assert found.fields == {"name": "b", "tools": "Read"}
    assert [problem.split(":")[0] for problem in found.problems] == ["line 3", "line 4", "line 6"]


@quick
@given(st.text(max_size=200))
def test_anything_can_be_split(text: str) -> None:
    for source in (text, f"---\n{text}\n---\n"):
        found = split(source)
        assert all(isinstance(key, str) for key in found.fields)
        json.dumps(found.fields)


plain = st.from_regex(r"[A-Za-z][A-Za-z0-9 _./-]{0,20}[A-Za-z0-9]", fullmatch=True).filter(
    lambda text: text.lower() not in ("true", "false", "null")
)
keys = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,12}", fullmatch=True)
values = st.recursive(
    st.one_of(plain, st.text(max_size=20), st.booleans(), st.none(), st.integers(-999, 999)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)


@quick
@given(st.dictionaries(keys, values, max_size=4))
def test_json_is_read_back(value: dict[str, Any]) -> None:
    """Every line of JSON is a line of this notation too."""
    lines = [f"{key}: {json.dumps(one, ensure_ascii=False)}" for key, one in value.items()]
    if any("\\u" in line or "\\b" in line or "\\f" in line or len(line.splitlines()) > 1 for line in lines):
        return
    assert fields("\n".join(lines)) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, []), (True, []), ({"a": 1}, []), ("", []),
        ("Read", ["Read"]), ("Read, Grep ,", ["Read", "Grep"]), (["Read", " Grep ", 3, None], ["Read", "Grep", "3"]),
        ("Bash(git a, b), Read", ["Bash(git a, b)", "Read"]), ("src/**/*.{ts,tsx}, b", ["src/**/*.{ts,tsx}", "b"]),
    ],
)  # fmt: skip
def test_lists_of_texts(value: Any, expected: list[str]) -> None:
    assert texts(value) == expected
