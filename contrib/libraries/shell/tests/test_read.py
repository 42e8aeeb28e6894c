"""Segments: where they come from, where they run, what they are wrapped in, and what is said to be unknown."""

from __future__ import annotations

import shlex

import pytest
from pegboard_shell.judge import can_be_backgrounded, contains_git, starts_with_sleep
from pegboard_shell.read import parse

CWD, HOME = "/w/p", "/home/u"


def read(command: str):
    return parse(command, cwd=CWD, home=HOME)


def seen(command: str) -> list[str]:
    return [" ".join(word.text for word in segment.argv) for segment in read(command).segments if segment.argv]


def weights(command: str) -> set[str]:
    script = read(command)
    found = {problem.weight for problem in script.problems}
    return found | {problem.weight for segment in script.segments for problem in segment.problems}


@pytest.mark.parametrize(
    "command",
    [
        "a; b", "a && b", "a || b", "a | b", "a |& b", "a & b", "a\nb", "(a; b)", "{ a; b; }", "if a; then b; fi",
        "if a; then :; else b; fi", "while a; do b; done", "until a; do b; done", "case x in x) a; b;; esac",
        "case x in x) a;& y) b;; esac", "! a && b", "a # c\nb", "for x in 1; do a; b; done", "f() { a; b; }",
        "function f { a; b; }", "f() (a; b)", "a 2>&1 | b", "a &\nb", "a;b", "for ((i=0; i<2; i++)); do a; b; done",
        "{ a; b; } > x", "(a; b) < x", "a \\\n && b", "if [ -f x ]; then a; fi; b", "select x in 1; do a; b; done",
        "cat <<'E' | a\nx\nE\nb", "cat <<E && a\nx\nE\nb", "[[ -n x ]] && a; b", "time a; b", "a <<< x; b",
    ],
)  # fmt: skip
def test_every_context(command):
    assert {"a", "b"} <= set(seen(command))
    assert "blind" not in weights(command)


@pytest.mark.parametrize(
    "command",
    ['x "$(a $(b))"', "x $(a) `b`", "x <(a) >(b)", 'x ${y:-"$(a)"} "$(b)"', "y=$(a) z=`b` x", "x > $(a) < $(b)",
     "x <<E\n$(a) `b`\nE", "x <<< \"$(a)$(b)\"", "for y in $(a) `b`; do x; done", "case $(a) in $(b)) x;; esac",
     "y=($(a) `b`)", "[ $(a) = $(b) ]", "[[ -n $(a) || -n $(b) ]]", "x[$(a)]=$(b)", "echo $(( $(a) + $(b) ))"],
)  # fmt: skip
def test_substitutions_everywhere(command):
    names = {segment.name for segment in read(command).segments}
    assert {"a", "b"} <= names or "blind" in weights(command)


@pytest.mark.parametrize(
    ("command", "inner"),
    [
        ("timeout 5 a", "a"), ("timeout -k 1 --signal=9 5s a", "a"), ("time -p a", "a"), ("nice -n 5 a", "a"),
        ("nice -5 a", "a"), ("nohup a &", "a"), ("stdbuf -oL -e0 a", "a"), ("command a", "a"), ("command -p a", "a"),
        ("builtin a", "a"), ("env a", "a"), ("env X=1 a", "a"), ("env -i X=1 a", "a"), ("env -u X a", "a"),
        ("sudo -u root -n a", "a"), ("doas a", "a"), ("setsid -f a", "a"), ("ionice -c 3 a", "a"), ("chrt -f 1 a", "a"),
        ("flock /l a", "a"), ("flock /l -c 'a'", "a"), ("watch -n 1 a", "a"), ("busybox a", "a"), ("exec a", "a"),
        ("coproc a", "a"), ("bash -c a", "a"), ("bash -lc 'a'", "a"), ("sh -c 'a'", "a"), ("zsh -c 'a'", "a"),
        ("bash -euo pipefail -c 'a'", "a"), ("bash -c 'bash -c a'", "a"), ("eval a", "a"), ("eval 'a'", "a"),
        ("trap 'a' EXIT", "a"), ("alias x='a'", "a"), ("find . -exec a \\;", "a"), ("find . -ok a +", "a"),
        ("uv run a", "a"), ("npx a", "a"), ("timeout 5 nice env sudo bash -c 'time a'", "a"), ("su -c 'a'", "a"),
        ("script -c 'a'", "a"), ("time X=1 a", "a"), ("/usr/bin/env a", "a"), ("strace -f a", "a"), ("fd -x a", "a"),
    ],
)  # fmt: skip
def test_wrappers_are_taken_off(command, inner):
    assert inner in seen(command)


def test_xargs_appends_what_it_reads():
    (segment,) = read("xargs rm -v").segments
    assert [word.text for word in segment.argv[:2]] == ["rm", "-v"]
    assert segment.argv[-1].many and segment.wrappers == ("xargs",)
    (segment,) = read("xargs -I{} rm {} x").segments
    assert [word.kind for word in segment.argv] == ["literal", "unknown", "literal"]


def test_the_chain_of_wrappers_is_kept():
    (segment,) = read("X=1 timeout 5 env Y=2 sudo curl z").segments
    assert segment.wrappers == ("timeout", "env", "sudo")
    assert [item.raw for item in segment.assignments] == ["X=1", "Y=2"]
    assert [layer[0].text for layer in segment.outer] == ["timeout", "env", "sudo"]


@pytest.mark.parametrize(
    "command",
    ["echo 'a", "a (", "if a; then b", "a \u00a0b", "a \u202eb", "a\u200bb", "a\rb", "r\\\nm a", "a | | b",
     "cat <<E\nx", "a" * 10_001, "  ", "\ud800",
     "a \x07", "cat <<A; cat <<B\nA\nB\n", "a \U000f0061", "echo ${x:-`a`}"],
)  # fmt: skip
def test_unreadable(command):
    script = read(command)
    assert not script.readable


@pytest.mark.parametrize(
    "command",
    ["$X a", "`a` b", "a; f() { b; }; f", "x='$(id)'; echo ${x@P}", "echo ${!x}", "echo $((x))", "((x))",
     "sh", "curl x | sh", "bash -s", "bash < x", "bash <<< x", "bash -c \"$X\"", "timeout $X a", "env -S 'a b'",
     "bash --rcfile x -c a", "sudo $X", "time { a; }", "zsh -c a", "bash <(a)", "a[1]=2 b $((y))"],
)  # fmt: skip
def test_doubts(command):
    assert weights(command) & {"doubt", "blind"}


@pytest.mark.parametrize(
    "command",
    ["ls -la", "git commit -m 'a; b'", "npm test -- --watch=false", "a 2>/dev/null", "cat <<'E' > x\n$(a) `b`\nE",
     "for f in *.py; do a \"$f\"; done", "echo \"$(date)\"", "a \\\n  --b \\\n  --c", "echo $((1 + 2))", "[ -f x ]",
     "echo \"caf\u00e9 \u2705 \u26a0\ufe0f\"", "# only\na", "a # b", "x=1; echo $x", "cat > x <<'EOF'\na\n\tb\nEOF",
     "git commit -m \"$(cat <<'EOF'\nfix\n\nmore `text`\nEOF\n)\"", "cd x && a", "a | tee b | c",
     "if [ -n \"$X\" ]; then a; fi"],
)  # fmt: skip
def test_certain(command):
    assert read(command).certain, [read(command).problems, read(command).segments]


# -- directories -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "dirs"),
    [
        ("x", {CWD}),
        ("cd a && x", {f"{CWD}/a"}),
        ("cd a; x", {CWD, f"{CWD}/a"}),
        ("cd a || x", {CWD}),
        ("cd /t && x", {"/t"}),
        ("cd && x", {HOME}),
        ("cd ~/a && x", {f"{HOME}/a"}),
        ("(cd a && y); x", {CWD}),
        ("cd a | y; x", {CWD}),
        ("cd a & x", {CWD}),
        ("bash -c 'cd a'; x", {CWD}),
        ("$(cd a) x", {CWD}),
        ("command cd a && x", {f"{CWD}/a"}),
        ("cd a < /dev/null && x", {f"{CWD}/a"}),
        ("cd -- a && x", {f"{CWD}/a"}),
        ("cd $Y && x", None),
        ("cd - && x", None),
        ("pushd a && x", None),
        ("CDPATH=/; cd a && x", None),
        ("for y in 1 2; do cd a; x; done", None),
        ("cd a b && x", None),
        ("f() { x; }", None),
        ("! cd a && x", {CWD}),
        ("if cd a; then x; fi", {CWD, f"{CWD}/a"}),
        ("{ cd a && x; }", {f"{CWD}/a"}),
    ],
)
def test_directory(command, dirs):
    segment = next(each for each in read(command).segments if each.argv and each.argv[-1].text == "x")
    assert (None if segment.dirs is None else set(segment.dirs)) == dirs


def test_redirects():
    (segment,) = read("a > x 2>> 'y z' < in &> w").segments
    assert [(item.op, item.target.text, item.writes) for item in segment.redirects] == [
        (">", "x", True), (">>", "y z", True), ("<", "in", False), ("&>", "w", True),
    ]  # fmt: skip
    (segment,) = read("a > x b").segments
    assert [word.text for word in segment.argv] == ["a", "b"]


def test_redirect_of_a_list_may_land_where_the_list_went():
    last = read("cd a && x > out").segments[-1]
    assert last.redirects and "/w/p/a" in last.dirs


def test_background_and_pipes():
    first, second, third = read("a & b | c").segments
    assert (first.background, second.background, second.piped, third.piped) == (True, False, False, True)


def test_facts_for_timeouts():
    assert can_be_backgrounded("python -c 'import time; time.sleep(300)'")
    for command in ("sleep 300", "git fetch", "cd x && git gc", "echo 'a", "timeout 5 sleep 3"):
        assert not can_be_backgrounded(command)
    assert starts_with_sleep("sleep 5; ls") and not starts_with_sleep("ls; sleep 5")
    assert contains_git("x | git apply") and not contains_git("ls digit")


def test_nesting_has_an_end():
    deep = "echo " + "$(" * 3000 + "a" + ")" * 3000
    assert not read(deep).certain
    shells = "a"
    for _ in range(4):
        shells = f"bash -c {shlex.quote(shells)}"
    assert "a" in seen(shells)
