"""What the prose of each case demands beyond its machine checks, as assertions.

One function for each case id; a case whose machine checks say it all has an empty one, so that a new case cannot
slip in unread.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from typing import Any

Checked = Callable[[Any], Any]
"""Takes what was played; raises AssertionError."""

OPTIONS = {
    # The case asks what the option does; by default ignored files are listed (they are matched, not searched).
    "glob-hidden-and-ignored": ("--set", "glob.respect_gitignore=true"),
}
"""Case -> options of the command line it is played under."""

EXPECTED: dict[str, Checked] = {}


def expect(name: str) -> Callable[[Checked], Checked]:
    def keep(function: Checked) -> Checked:
        EXPECTED[name] = function
        return function

    return keep


def objections(name: str, played: Any) -> list[str]:
    """What the table objects to for this case."""
    try:
        EXPECTED[name](played)
    except AssertionError as error:
        shown = [(result["outcome"], result["code"], result["text"]) for result in played.results]
        return [f"{error}\nresults: {shown}"]
    return []


def works(played: Any, *calls: int) -> None:
    """These calls (all, when none is named) ended well."""
    for index in calls or range(len(played.results)):
        assert not played.results[index]["is_error"], f"call {index} failed"


def fails(played: Any, call: int, *codes: str) -> str:
    """The call failed without having changed anything; returns its text."""
    result = played.results[call]
    assert result["is_error"] and result["outcome"] == "not_started", f"call {call}: {result['outcome']}"
    assert not codes or result["code"] in codes, f"call {call}: {result['code']}"
    assert result["effects"] == []
    return played.text(call)


def bytes_of(played: Any, name: str) -> bytes:
    return (played.folder / name).read_bytes()


# -- Read ------------------------------------------------------------------------------------------------------


@expect("read-utf16le-bom")
def _(played):
    works(played)
    lines = [line for line in played.text().splitlines() if re.match(r"\d+\t", line)]
    assert lines == ["1\théllo", "2\twörld 日本"], lines
    assert "utf-16" in played.text().lower()


@expect("read-gbk-legacy")
def _(played):
    text = played.text()
    if "\ufffd" in text:
        assert "UTF-8" in text, "replacement characters without a notice"
    else:
        assert "gb" in text.lower() or "UTF-8" in text, "the encoding is not named"


@expect("read-multibyte-on-sniff-boundary")
def _(played):
    works(played)
    assert "\n2\tx" in played.text()


@expect("read-utf8-bom-hidden")
def _(played):
    works(played)
    assert "1\tWrite-Host 'hi'" in played.text(0)


@expect("read-fifo")
def _(played):
    assert "fifo" in fails(played, 0, "precondition_failed").lower()


@expect("read-dev-zero")
def _(played):
    for call in range(3):
        fails(played, call, "precondition_failed")
        assert played.seconds[call] <= 30


@expect("read-offset-past-eof")
def _(played):
    works(played)
    assert "100" in played.text() and "5 lines" in played.text()


@expect("read-empty-file")
def _(played):
    works(played)
    assert "empty" in played.text(0)
    assert bytes_of(played, "e.txt") == b"x\n"


@expect("read-trailing-newline-count")
def _(played):
    works(played)
    assert "2 lines" in played.text(0) and not re.search(r"^3\t", played.text(0), re.MULTILINE)
    assert re.search(r"^2\ty$", played.text(1), re.MULTILINE)


@expect("read-corrupt-png")
def _(played):
    for call in range(3):
        fails(played, call)


@expect("read-oversized-image")
def _(played):
    result = played.results[0]
    if result["is_error"]:
        assert "9600" in played.text(0) and "8" in played.text(0)
    else:
        images = [block for block in result["text"] if block["type"] == "image"]
        assert images and len(images[0]["source"]["data"]) <= 5 * 1024 * 1024


@expect("read-truncated-pdf")
def _(played):
    for call in range(2):
        assert "PDF" in fails(played, call)


@expect("read-nfd-filename")
def _(played):
    works(played, 0, 1)
    if played.results[2]["is_error"]:
        assert "it’s.txt" in played.text(2), "the near name is not listed"
    else:
        assert "it’s.txt" in played.text(2), "another file was read without a word"


# -- Edit ------------------------------------------------------------------------------------------------------


@expect("edit-crlf-multiline")
def _(played):
    works(played)


@expect("edit-lf-stays-lf")
def _(played):
    works(played)
    assert bytes_of(played, "s.sh") == b"#!/bin/sh\necho a\necho b\n"


@expect("edit-bom-kept")
def _(played):
    works(played)


@expect("edit-latin1-bytes-elsewhere")
def _(played):
    before = b"<?php // caf\xe9 \xe0\n$a = 1;\n"
    if played.results[1]["is_error"]:
        fails(played, 1)
        assert bytes_of(played, "p.php") == before
    else:
        assert bytes_of(played, "p.php") == before.replace(b"= 1", b"= 2")


@expect("edit-gbk-roundtrip")
def _(played):
    changed = bytes_of(played, "g.py") == "# 中文\nx = 2\n".encode("gbk")
    assert changed != played.results[1]["is_error"], "the result and the file tell different things"


@expect("edit-dollar-patterns")
def _(played):
    works(played)
    assert bytes_of(played, "a.js") == b'log("$& $$ $1 $` $\' ok");\nkeep\n'


@expect("edit-regex-metachar-old")
def _(played):
    works(played, 0, 1)
    fails(played, 2, "not_found")


@expect("edit-curly-quote-exact")
def _(played):
    works(played)


@expect("edit-no-final-newline")
def _(played):
    works(played)


@expect("edit-multiple-matches")
def _(played):
    text = fails(played, 1, "ambiguous")
    assert "3" in text and "replace_all" in text
    assert re.search(r"\b1\b.*\b2\b.*\b3\b", text, re.DOTALL), "the line numbers are missing"


@expect("edit-old-equals-new")
def _(played):
    fails(played, 1, "invalid_input")
    assert bytes_of(played, "q.txt") == b"x\n"


@expect("edit-exec-bit")
def _(played):
    works(played)
    assert stat.S_IMODE((played.folder / "x.sh").stat().st_mode) == 0o2750


@expect("edit-through-symlink")
def _(played):
    works(played)


@expect("edit-touch-same-content")
def _(played):
    works(played)


@expect("edit-after-own-bash-change")
def _(played):
    content = bytes_of(played, "f.py")
    if played.results[-1]["is_error"]:
        text = fails(played, len(played.results) - 1, "stale")
        assert "a = 1" in text, "the refusal does not say what changed"
        assert content == b"a = 1\nb = 2\nTARGET = 3\n"
    else:
        assert content == b"a = 1\nb = 2\nTARGET = 4\n"


@expect("edit-consecutive-without-reread")
def _(played):
    works(played)


@expect("edit-parallel-same-file")
def _(played):
    works(played)
    lines = [f"E{n}" if n in (20, 60, 100, 140, 180) else str(n) for n in range(1, 201)]
    assert bytes_of(played, "n.txt") == "".join(f"{line}\n" for line in lines).encode()


@expect("edit-unread-file")
def _(played):
    assert "read" in fails(played, 0, "not_read").lower()


@expect("edit-failure-message-breaks-loop")
def _(played):
    first, second = fails(played, 1, "not_found"), fails(played, 2, "not_found")
    assert "return  x+1" in first and "2" in first
    assert re.search(r"again|repeat|same|identical", second, re.IGNORECASE), "the repeat is not marked"
    assert first != second
    assert bytes_of(played, "a.py") == b"def f(x):\n    return  x+1\n"


# -- Write -----------------------------------------------------------------------------------------------------


@expect("write-enospc-keeps-old")
def _(played):
    text = fails(played, len(played.results) - 1, "io_error")
    assert re.search(r"space|too large", text, re.IGNORECASE), text
    assert bytes_of(played, "m/f.txt") == b"precious\n"
    assert {path.name for path in (played.folder / "m").iterdir()} <= {"f.txt", "fill"}


@expect("write-parents")
def _(played):
    works(played)
    targets = {effect["target"] for effect in played.results[0]["effects"]}
    assert str(played.folder / "a") in targets, "the new folders are not in the effects"


@expect("write-bom-kept")
def _(played):
    works(played)
    body = bytes_of(played, "c.aspx").removeprefix(b"\xef\xbb\xbf")
    assert body in ("sécurité\r\n".encode(), "sécurité\n".encode())


@expect("write-new-file-lf")
def _(played):
    works(played)
    assert bytes_of(played, "Makefile") == b"all:\n\techo hi\n"


@expect("write-curly-verbatim")
def _(played):
    works(played)


@expect("write-exec-bit-and-symlink")
def _(played):
    works(played)


@expect("write-existing-unread")
def _(played):
    fails(played, 0, "not_read")


@expect("write-lone-surrogate")
def _(played):
    fails(played, 1, "invalid_input")
    assert bytes_of(played, "s.txt") == b"old\n"


# -- Glob ------------------------------------------------------------------------------------------------------


def names(played: Any, call: int = -1) -> list[str]:
    """File names of a search result, relative to the folder of the case."""
    found = played.results[call]["data"]["filenames"]
    prefix = f"{played.folder}/"
    return [name.removeprefix(prefix) for name in found]


@expect("glob-brackets-in-path")
def _(played):
    works(played)
    assert names(played, 0) == ["app/[id]/page.tsx"]
    assert sorted(names(played, 1)) == ["app/(home)/page.tsx", "app/[id]/page.tsx"]
    assert names(played, 2) == ["app/[id]/page.tsx"]


@expect("glob-relative-dir-in-pattern")
def _(played):
    works(played)
    assert sorted(names(played)) == ["src/a.ts", "src/deep/er/c.ts"]


@expect("glob-multibyte")
def _(played):
    works(played)
    assert names(played, 0) == names(played, 1) == ["한글-폴더/메모.md"]


@expect("glob-hidden-and-ignored")
def _(played):
    works(played)
    assert names(played, 0) == [".github/workflows/ci.yml"]
    assert names(played, 1) == names(played, 2) == []
    assert "ignore" in played.text(1), "the text does not say that ignored files were left out"
    assert names(played, 3) == [".env"]


@expect("glob-symlink-cycle")
def _(played):
    works(played)
    assert played.results[0]["data"]["numFiles"] == 1


@expect("glob-unreadable-subdir")
def _(played):
    assert names(played) == ["ok/a.md"]
    assert re.search(r"unreadable|could not be (read|entered)|permission", played.text(), re.IGNORECASE)


@expect("glob-order-mtime")
def _(played):
    assert names(played) == ["f0.txt", "f3.txt", "f2.txt", "f1.txt"]


@expect("glob-deleted-while-walking")
def _(played):
    works(played)
    assert set(names(played)) <= {"v/a.txt", "v/broken.txt"}


# -- Grep ------------------------------------------------------------------------------------------------------


@expect("grep-leading-dash")
def _(played):
    works(played)
    assert "1:--ctx-size N" in played.text(0)
    assert "3:->x" in played.text(1)
    assert re.search(r"h\.txt:1\b", played.text(2))


@expect("grep-option-injection")
def _(played):
    assert not (played.folder / "PWNED").exists()
    fails(played, 1, "not_found")


@expect("grep-partial-permission")
def _(played):
    works(played)
    assert "the answer is 42" in played.text()
    assert re.search(r"\bl\b", played.text().replace("the answer is 42", "")), "the unreadable folder is not named"


@expect("grep-hidden-dirs")
def _(played):
    works(played)
    assert ".github/workflows/ci.yml" in names(played, 0)
    assert names(played, 1) == [".cfg/a"]


@expect("grep-missing-path")
def _(played):
    assert "nope" in fails(played, 0, "not_found")


@expect("grep-binary-notice")
def _(played):
    works(played)


@expect("grep-nonutf8-line")
def _(played):
    works(played)
    assert re.search(r"needle caf(\ufffd|\\xe9|\\xE9)", played.text()), "the bad byte has no visible sign"


@expect("grep-head-limit-offset")
def _(played):
    works(played)
    first, second = set(names(played, 0)), set(names(played, 1))
    assert len(first) == len(second) == 10 and not first & second
    assert "30" in played.text(0) and "30" in played.text(1)
    assert "No entries at this offset" in played.text(2)


@expect("grep-long-line")
def _(played):
    works(played)
    assert "min.js:1:" in played.text()


@expect("grep-cap-equals-total")
def _(played):
    works(played)
    assert len(names(played, 0)) == 3 and len(names(played, 1)) == 2 and len(names(played, 2)) == 3
    assert re.search(r"2 of 3", played.text(1))
    assert not re.search(r"3 of 3|more", played.text(0)) or "3 of 3" in played.text(0)


# -- Pipeline --------------------------------------------------------------------------------------------------


@expect("pipe-no-hang-on-schema-coercion")
def _(played):
    works(played, 0, 1)
    assert re.search(r"^1\t1$", played.text(0), re.MULTILINE) and not re.search(r"^2\t", played.text(0), re.MULTILINE)
    assert re.search(r"^2\t2$", played.text(1), re.MULTILINE)
    assert "bogus" in fails(played, 2, "invalid_input")


# -- cases that go on ------------------------------------------------------------------------------------------


def call(tool: str, **given: Any) -> dict[str, Any]:
    return {"call": {"tool": tool, "input": given}}


def guarded(function: Checked) -> Callable[[Any], list[str]]:
    def check(played: Any) -> list[str]:
        try:
            function(played)
        except AssertionError as error:
            return [f"{error}\nresults: {[(item['code'], item['text']) for item in played.results]}"]
        return []

    return check


def _every_boundary(played):
    works(played)
    for index in range(1, len(played.results)):
        assert re.search(r"^2\tx$", played.text(index), re.MULTILINE), f"call {index}"
        assert "\ufffd" not in played.text(index)


def _untouched(played):
    fails(played, 1, "invalid_input")
    assert (played.folder / "q.txt").stat().st_mtime == 1_000_000_000


def _operands(played):
    works(played, 0, 1, 2, 3)
    fails(played, 4, "not_found")
    assert names(played, 3) == []


def _still_warned(played):
    works(played)
    assert re.search(r"\bl\b", played.text()), "with zero matches the unreadable folder is not named"


def _by_target(played):
    for index in range(3, 5):
        fails(played, index, "precondition_failed")


LONGER: dict[str, dict[str, Any]] = {
    "read-multibyte-on-sniff-boundary": {
        "then": [call("Read", file_path=f"$W/g{n}.md") for n in (511, 1023, 2047, 4095, 8191)],
        "objections": guarded(_every_boundary),
    },
    "read-dev-zero": {
        "first": [{"sh": "ln -s /dev/zero z; ln -s z zz"}],
        "then": [call("Read", file_path="$W/z"), call("Read", file_path="$W/zz")],
        "objections": guarded(_by_target),
    },
    "edit-old-equals-new": {
        "second": [{"sh": "touch -d @1000000000 q.txt"}],
        "objections": guarded(_untouched),
    },
    "grep-leading-dash": {
        "then": [call("Grep", pattern="x", glob="-x*"), call("Grep", pattern="x", path="-v")],
        "objections": guarded(_operands),
    },
    "grep-partial-permission": {
        "then": [call("Grep", pattern="nothing like this")],
        "objections": guarded(_still_warned),
    },
}
"""Case -> steps before its own, after its first one and after all, and what is checked then."""
