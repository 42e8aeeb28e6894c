"""The read table: what counts as seen, what is remembered, what falls out."""

from __future__ import annotations

from pegboard_files import FileViews, View
from pegboard_files.views import ENTRIES, KEPT_BYTES, KEPT_TOTAL


def view(extent="full", digest="d", **more):
    return View(digest=digest, size=1, view=extent, **more)


def test_views_of_one_content_add_up():
    table = FileViews()
    table.saw("/a", view("partial", ranges=((1, 10),)), lines=30)
    table.saw("/a", view("range", ranges=((20, 30),)), lines=30)
    assert (table.get("/a").view, table.get("/a").ranges) == ("range", ((1, 10), (20, 30)))
    table.saw("/a", view("range", ranges=((11, 19),)), lines=30)
    assert (table.get("/a").view, table.get("/a").ranges) == ("full", ())
    table.saw("/a", view("range", ranges=((1, 2),)), lines=30)
    assert table.get("/a").view == "full"


def test_another_content_begins_anew():
    table = FileViews()
    table.saw("/a", view("full"))
    table.saw("/a", view("range", digest="e", ranges=((1, 2),)), lines=30)
    assert (table.get("/a").view, table.get("/a").ranges) == ("range", ((1, 2),))


def test_what_is_remembered_is_recalled_piece_by_piece():
    table, again = FileViews(), FileViews()
    table.saw("/a", view(shown_by="c1", encoding="utf-8", ending="\r\n"))
    table.saw("/b", view("range", ranges=((1, 2), (4, 5))))
    assert table.dirty
    first = table.remember()
    table.forget("/a")
    table.forget_shown(["c9"])
    second = table.remember()
    assert first.keys() == {"/a", "/b"} and second == {"/a": None}
    assert table.remember() is None
    again.recall(first)
    assert again.get("/a").ending == "\r\n"
    again.recall(second)
    assert again.get("/a") is None and again.get("/b") == table.get("/b")
    assert not again.dirty


def test_shown_text_and_entries_are_two_things():
    table = FileViews()
    table.saw("/a", view(shown_by="c1"))
    table.saw("/b", view(shown_by="c2"))
    table.forget_shown(["c1"])
    assert (table.get("/a").view, table.get("/a").shown_by, table.get("/b").shown_by) == ("full", "", "c2")
    table.keep_only(["/b"])
    assert table.get("/a") is None and table.get("/b") is not None


def test_the_table_is_bounded():
    table = FileViews()
    for number in range(ENTRIES + 10):
        table.saw(f"/{number}", view())
    assert table.get("/0") is None and table.get(f"/{ENTRIES + 9}") is not None
    size = KEPT_BYTES
    for number in range(KEPT_TOTAL // size + 2):
        table.saw(f"/k{number}", view(digest=f"k{number}"), b"x" * size)
    assert table.kept("k0") is None and table.kept(f"k{KEPT_TOTAL // size + 1}") is not None
    table.saw("/large", view(digest="large"), b"x" * (size + 1))
    assert table.kept("large") is None


def test_repeats_of_a_failure():
    table = FileViews()
    assert not table.failed_before("c1", "/a", "d", "old", "new")
    assert not table.failed_before("c1", "/a", "d", "old", "new"), "one call may be judged twice"
    assert table.failed_before("c2", "/a", "d", "old", "new")
    assert not table.failed_before("c2", "/a", "other content", "old", "new")
