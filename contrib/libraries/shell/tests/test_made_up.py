"""Commands that nobody would write: the reader never fails, and a part of a command does not vanish in a longer one."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pegboard_shell.judge import accesses
from pegboard_shell.known import stands_for
from pegboard_shell.read import parse
from pegboard_shell.special import sed_script
from pegboard_shell.words import ansi, braces

sys.path.insert(0, str(Path(__file__).parent))
from makeshell import MARKS, Maker

ATOMS = st.sampled_from(
    [*MARKS, *"abcd", "rm", "cd", "git", "$x", "-n", "echo", "EOF", "if", "then", "fi", "é", "\x00"]
)
SOUP = st.lists(ATOMS, max_size=30).map("".join)
COMMANDS = st.integers(0, 2**32).map(lambda seed: Maker(seed).command())
FINE = settings(max_examples=100, deadline=None)


def judge(command: str):
    return accesses(command, cwd="/w", home="/home/u", roots=("/w",))


@FINE
@given(st.one_of(SOUP, st.text(max_size=60), COMMANDS, st.integers(0, 2**32).map(lambda seed: Maker(seed).mutant())))
def test_no_text_is_too_odd(command):
    judged = judge(command)
    assert judged.problems or judged.accesses or not judged.script.segments
    if not judged.script.readable:
        assert any(access.grade == "blind" for access in judged.accesses)
    assert len(judged.read_only) == len(judged.script.segments)


@FINE
@given(COMMANDS, st.sampled_from([" && ", "; ", " | ", "\n", " & ", " || "]), st.sampled_from(["zz a", "A=1 zz 'b c'"]))
def test_a_command_behind_another_is_seen(first, between, second):
    assume("#" not in first and "<<" not in first)
    script = parse(first + between + second, cwd="/w", home="/home/u")
    assert not script.readable or any(segment.name == "zz" for segment in script.segments)


@FINE
@given(
    COMMANDS,
    st.sampled_from(["( {} )", "{{ {}\n}}", "if true; then {}\nfi", "echo $( {} )", "x <( {} )", "f() {{ {}\n}}"]),
)
def test_a_command_inside_another_is_seen(command, form):
    alone = parse(command, cwd="/w", home="/home/u")
    within = parse(form.format(command), cwd="/w", home="/home/u")
    if alone.readable and within.readable:
        names = [segment.name for segment in within.segments]
        assert all(segment.name in names for segment in alone.segments)


@FINE
@given(st.text(alphabet="ab{},.0123456789", max_size=20))
def test_braces_keep_to_their_limit(text):
    made = braces(text)
    assert made is None or 1 <= len(made) <= 256


@FINE
@given(st.text(alphabet="ab\\xu0'nt1", max_size=12), st.text(alphabet="spewWrg/;{}\n1,$!a b\\", max_size=20))
def test_small_languages_never_fail(escape, script):
    assert ansi(escape) is None or isinstance(ansi(escape), str)
    assert sed_script(script) in ("", "runs", "unknown")


@FINE
@given(st.text(alphabet="-abcexpf=", max_size=8))
def test_an_option_stands_for_itself(text):
    assert stands_for("--" + "abc" + text.replace("=", ""), "--abc" + text.replace("=", ""))
