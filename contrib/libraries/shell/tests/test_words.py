"""Words: what a program gets of each way to write it. The differential test tries the same in a real bash."""

from __future__ import annotations

import pytest
from pegboard_shell.read import parse
from pegboard_shell.words import ansi, braces

HOME = "/home/u"


def words(text: str) -> list[tuple[str, str]]:
    (segment,) = parse(f"x {text}", cwd="/w", home=HOME).segments[-1:]
    return [(word.kind, word.text) for word in segment.argv[1:]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b", ["a", "b"]),
        ("'a b' \"c d\" e\\ f", ["a b", "c d", "e f"]),
        ("a'b'\"c\"d", ["abcd"]),
        ("'' \"\" a''", ["", "", "a"]),
        ("'$(id) `id` $x'", ["$(id) `id` $x"]),
        ('"\\$x \\`id\\` \\" \\\\ \\n"', ['$x `id` " \\ \\n']),
        ("$'a\\tb\\x41\\101\\u00e9\\''", ["a\tbAA\u00e9'"]),
        ('$"hi" a$"b" $ a$', ["hi", "ab", "$", "a$"]),
        ("~ ~/x ~/", [HOME, f"{HOME}/x", f"{HOME}/"]),
        ("\\~ '~' a~ \"~\"", ["~", "~", "a~", "~"]),
        ('$HOME "$HOME/a b" ${HOME}', [HOME, f"{HOME}/a b", HOME]),
        ("$PWD/x", ["/w/x"]),
        ("a{b,c}d {1..3} {3..1} {a} {} {a,}", ["abd", "acd", "1", "2", "3", "3", "2", "1", "{a}", "{}", "a"]),
        ("{a,b}{c,d} {a,{b,c}}", ["ac", "ad", "bc", "bd", "a", "b", "c"]),
        ("'{a,b}' \\{a,b} {a,\"b,c\"}", ["{a,b}", "{a,b}", "a", "b,c"]),
        ("'*' \\* \"[a]\" a\\?", ["*", "*", "[a]", "a?"]),
        ("-- -x --y=z", ["--", "-x", "--y=z"]),
        ("<(id)", ["/dev/fd/63"]),
        ("a#b '#c'", ["a#b", "#c"]),
        ("\u00e9 \u4f60", ["\u00e9", "\u4f60"]),
    ],
)
def test_literal(text, expected):
    assert words(text) == [("literal", each) for each in expected]


@pytest.mark.parametrize(
    "text",
    ["$x", '"$x"', "a$x", "$(id)", "`id`", '"$@"', "$1", "~bob", "~+", "${x:-a}", "{a..c}", "{01..03}", "$((1+1))",
     "a{b,c", "$'\\xff'"],
)  # fmt: skip
def test_unknown(text):
    kinds = {kind for kind, _ in words(text)}
    assert "unknown" in kinds or words(text) == [("literal", text)] == [("literal", "a{b,c")]


@pytest.mark.parametrize("text", ["*", "*.py", "src/**", "a?c", "[ab]c", "'a b'*"])
def test_pattern(text):
    assert [kind for kind, _ in words(text)] == ["glob"]


def test_pattern_keeps_what_was_quoted():
    assert words("'*'*") == [("glob", "[*]*")]
    assert words("a\\ *") == [("glob", "a *")]


def test_lead_is_the_certain_beginning():
    (segment,) = parse('x --include=*.py src/$v "$v" -n$v', cwd="/w", home=HOME).segments
    assert [word.lead for word in segment.argv[1:]] == ["--include=", "src/", "", "-n"]
    assert [word.may_be_option for word in segment.argv[1:]] == [True, False, True, True]


@pytest.mark.parametrize("text", ["HOME=/x; x ~ $HOME", "read HOME; x ~", "for HOME in a; do x ~; done"])
def test_home_is_unknown_where_it_is_set(text):
    segment = next(each for each in parse(text, cwd="/w", home=HOME).segments if each.name == "x")
    assert all(word.kind == "unknown" for word in segment.argv[1:])


def test_ansi():
    assert ansi("a\\nb") == "a\nb"
    for odd in ("\\q", "\\xff", "\\0", "\\ud800", "a\\"):
        assert ansi(odd) is None


def test_braces():
    assert braces("a") == ["a"]
    assert braces("{a,b}{1..2}") == ["a1", "a2", "b1", "b2"]
    assert braces("{1..100000}") is None
    assert braces("{a,b}" * 20) is None
