"""Names, diagnostics and lists: what is shown, and what the engine meant."""

from __future__ import annotations

import json
import os

from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard_ripgrep.order import newest
from pegboard_ripgrep.runner import End, Run
from pegboard_ripgrep.view import shown_name, skip_folders, split_outside_braces, trouble


def said(text: str):
    return trouble(Run(End.DONE, 2, text))


def test_unreadable_places_are_sorted_from_the_rest():
    found = said(
        "rg: ./no: Permission denied (os error 13)\n"
        "./old: Permission denied (os error 13)\n"
        "rg: ./x: IO error for operation on ./x: Permission denied (os error 13)\n"
        "rg: ./gone: No such file or directory (os error 2)\n"
    )
    assert found.unreadable == ["no", "old", "x"]
    assert found.other == ""
    assert found.note("sub/") == (
        "3 files or folders could not be read, so the answer may be incomplete: sub/no, sub/old, sub/x."
    )


def test_only_five_places_are_named():
    found = said("".join(f"rg: ./d{n}: Permission denied (os error 13)\n" for n in range(9)))
    assert found.note("").endswith("d0, d1, d2, d3, d4 and 4 more.")


def test_what_the_engine_says_of_a_pattern_is_kept():
    found = said("rg: regex parse error:\n    (\n    ^\nerror: unclosed group\n")
    assert found.other.startswith("regex parse error:") and found.other.endswith("unclosed group")
    assert said("").note("") == ""


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40))
def test_every_name_becomes_one_line_of_json(name):
    text = shown_name(name)
    json.dumps(text, ensure_ascii=False).encode("utf-8")
    assert "\n" not in text and "\x1b" not in text
    assert shown_name(os.fsdecode(name)) == text


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="{}\\,", exclude_categories=["Z", "C"]), min_size=1)))
def test_lists_are_split_at_commas_and_blanks(parts):
    assert list(split_outside_braces(", ".join(parts))) == parts
    assert list(split_outside_braces(" ".join(parts))) == parts


def test_braces_and_escapes_hold_a_part_together():
    assert list(split_outside_braces(r"*.{a,b},c\,d e")) == ["*.{a,b}", r"c\,d", "e"]


def test_version_control_folders_are_skipped_unless_named():
    assert "--glob=!.git/" in skip_folders()
    assert "--glob=!.git/" not in skip_folders({".git"})


def test_newest_first_and_equal_times_by_name(tmp_path):
    for name, time in (("b", 2), ("a", 2), ("new", 3), ("old", 1)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time, time))
    (tmp_path / "folder").mkdir()
    names = [b"old", b"b", b"gone", b"new", b"a", b"folder"]
    assert newest(tmp_path, names) == ([b"new", b"a", b"b", b"old"], 4)
    assert newest(tmp_path, names, 2) == ([b"new", b"a"], 4)
