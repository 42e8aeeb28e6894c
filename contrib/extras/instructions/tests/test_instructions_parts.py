"""Names behind ``@``, and the globs of rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard_instructions.globs import matches
from pegboard_instructions.imports import names, spellings, without
from pegboard_instructions.loaded import heading

quick = settings(max_examples=100, deadline=None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@a.md", ["a.md"]),
        ("See @docs/a.md and @~/b.md\n@/c.md", ["docs/a.md", "~/b.md", "/c.md"]),
        ("mail me@example.org", []),
        ("`@a.md` and ``x `@b.md` ``", []),
        ("```\n@a.md\n```\n@b.md", ["b.md"]),
        ("~~~md\n@a.md\n```\n@c.md\n~~~\n@b.md", ["b.md"]),
        ("text\n\n    @a.md\n\n@b.md", ["b.md"]),
        ("- item\n    @a.md", ["a.md"]),
        ("<!-- @a.md -->@b.md\n<!--\n@c.md\n-->\n@d.md", ["b.md", "d.md"]),
        ("a `b\n@a.md` c", []),
        ("it costs 5` and @a.md", ["a.md"]),
        ("@a\\ b.md", ["a b.md"]),
        ("@a.md @a.md", ["a.md"]),
        ("```\n@never closed", []),
    ],
)
def test_names(text: str, found: list[str]) -> None:
    assert names(text) == found


def test_a_name_at_the_end_of_a_sentence() -> None:
    assert list(spellings("a.md).")) == ["a.md).", "a.md)", "a.md"]
    assert "README" in spellings("README!")


def test_lines_that_only_import() -> None:
    assert without("@a.md\n- @b.md\nsee @a.md\n@c.md", {"@a.md", "@b.md"}) == "see @a.md\n@c.md"


@quick
@given(st.text(alphabet="@a` \n~-<!>.md\t#", max_size=80))
def test_any_text_can_be_looked_through(text: str) -> None:
    for name in names(text):
        assert name and all(spelling for spelling in list(spellings(name))[:1])


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("src/**/*.ts", ["src/a.ts", "src/a/b.ts"], ["a.ts", "src/a.tsx", "xsrc/a.ts"]),
        ("**/*.py", ["a.py", "x/y/a.py"], ["a.pyc"]),
        ("*.md", ["a.md"], ["x/a.md"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "lib/src/a"]),
        ("docs/", ["docs/a", "docs/a/b"], ["docs"]),
        ("**", ["a", "a/b"], []),
        ("{src,lib}/**/*.{ts,tsx}", ["src/a.ts", "lib/b/c.tsx"], ["src/a.js", "x/a.ts"]),
        ("./a?.[ch]", ["ab.c", "ab.h"], ["a/.c", "abc.c", "ab.x"]),
        ("a[!b].c", ["ac.c"], ["ab.c", "a/.c"]),
        ("a.b+(c)", ["a.b+(c)"], ["aXb+(c)"]),
        ("{one}", ["{one}"], ["one"]),
        ("/abs/*.c", ["abs/a.c"], ["x/abs/a.c"]),
    ],
)
def test_globs(glob: str, yes: list[str], no: list[str]) -> None:
    assert [path for path in yes if not matches([glob], path)] == []
    assert [path for path in no if matches([glob], path)] == []


@quick
@given(st.text(alphabet="ab/*?[]{},!.^-\\", max_size=25), st.text(alphabet="ab/.", max_size=10))
def test_any_glob_is_an_answer(glob: str, path: str) -> None:
    assert matches([glob], path) in (True, False)


def test_many_braces_do_not_explode() -> None:
    assert not matches(["{a,b}" * 40], "a" * 40)


def test_every_kind_has_a_heading() -> None:
    for kind in ("managed", "user", "project", "local", "nested", "rule", "import"):
        assert heading(kind).endswith("permissions are decided elsewhere.")
