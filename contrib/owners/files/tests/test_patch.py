"""Hunks: applied to the old text they give the new one, whatever the size."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard_files.patch import NO_NEWLINE, hunks, lines_of, short

TEXT = st.lists(st.sampled_from(["", "a", "b", "c", "long line"]), max_size=14).map("\n".join)


def applied(old: str, patch) -> str:
    source = lines_of(old) if old else []
    result, at, open_end = [], 0, bool(old) and not old.endswith("\n")
    for hunk in patch:
        start = hunk.oldStart - 1 if hunk.oldLines else hunk.oldStart
        result += source[at:start]
        at = start
        for index, line in enumerate(hunk.lines):
            if line == NO_NEWLINE:
                if hunk.lines[index - 1][0] in " +":
                    open_end = True
                continue
            if line[0] in " -":
                assert source[at] == line[1:]
                at += 1
                if line[0] == "-" and at == len(source):
                    open_end = False
            if line[0] in " +":
                result.append(line[1:])
    result += source[at:]
    return "\n".join(result) + ("" if open_end or not result else "\n")


@settings(max_examples=200, deadline=None)
@given(TEXT, TEXT)
def test_a_patch_leads_from_old_to_new(old, new):
    patch = hunks(old, new)
    assert bool(patch) == (old != new)
    assert applied(old, patch) == new
    for hunk in patch:
        assert hunk.oldLines == sum(line[0] in " -" for line in hunk.lines)
        assert hunk.newLines == sum(line[0] in " +" for line in hunk.lines)


def test_one_change_in_a_large_text_is_one_small_hunk():
    old = "".join(f"line {number}\n" for number in range(300_000))
    (hunk,) = hunks(old, old.replace("line 150000\n", "changed\nmore\n"))
    assert (hunk.oldStart, hunk.oldLines, hunk.newStart, hunk.newLines) == (149_998, 7, 149_998, 8)


def test_many_changes_of_single_lines_are_many_hunks():
    old = "".join(f"v{number % 100}\n" for number in range(2_000))
    patch = hunks(old, old.replace("v7\n", "w\n"))
    assert len(patch) == 20 and patch[1].newStart == 105


def test_short_differences():
    assert short("a\nb\nc\n", "a\nB\nc\n", 10) == (["2\t-b", "2\t+B"], True)
    lines, complete = short("a\n" * 50, "b\n" * 50, 10)
    assert len(lines) == 10 and not complete
