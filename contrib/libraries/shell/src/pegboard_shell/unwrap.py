"""Takes off what a command is wrapped in, until the program is found that really runs.

Wrappers, shells with a text, `find -exec`, `eval` and `trap` all carry commands; each becomes a segment of its own.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from pegboard_shell.script import UNKNOWN, Assignment, Segment, Word
from pegboard_shell.tables import Wrapper, builtins, scan, wrappers

if TYPE_CHECKING:
    from pegboard_shell.read import Walk

_NAMED = re.compile(r"([A-Za-z_]\w*)\+?=")
_EQUALS = re.compile(r"([^=]*)=")
"""What a program takes for an assignment, which is more than the shell does."""

_HERE = ("command", "builtin", "time")
"""Wrappers that leave a command in the same shell."""

_PLAIN = frozenset(("bash", "sh", "timeout", "time", "nice", "nohup", "stdbuf", "command", "builtin", "eval", "trap"))
"""Wrappers that leave the environment as it is."""

DEEPEST = 8
"""[C] Wrappers around one command that are taken off."""

_APPENDED = Word("", "", UNKNOWN, True, "")
_EXEC = ("-exec", "-execdir", "-ok", "-okdir")
_STREAM = re.compile(r"-?|/dev/(?:stdin|fd/.*)|/proc/(?:self|\d+)/fd/.*")


def emit(walk: Walk, segment: Segment) -> Segment | None:
    """Unwrap a segment and add it, and whatever it carries, to the walk.

    Gives the segment if its command runs in the shell that is being read, and so may change its directory.
    """
    carried = False
    for _ in range(DEEPEST):
        if not segment.argv:
            break
        head = segment.argv[0]
        if not head.literal:
            segment.problem("doubt", f"the program {head.raw} is chosen when the command runs")
            break
        if head.raw in builtins().reserved and head.raw != "[[":
            segment.problem("doubt", f"{head.raw} stands where a command is expected")
            break
        if "[" in head.raw and head.raw not in ("[", "[["):
            segment.problem("doubt", f"{head.raw} may be an assignment")
        entries = wrappers().get(segment.name)
        if entries is None:
            break
        if entries[0].kind == "shell":
            if _shell(walk, segment, entries[0]):
                return None
            break
        if _names_itself(segment):
            break
        done = _take(walk, segment, entries)
        carried = carried or done == "text"
        if done != "on":
            break
    else:
        segment.problem("doubt", "it is wrapped too often")
    walk.segments.append(segment)
    if not carried:
        _carried(walk, segment)
    return segment if all(name in _HERE for name in segment.wrappers) else None


def _names_itself(segment: Segment) -> bool:
    """``command -v x`` looks a name up and runs nothing."""
    argv = segment.argv
    return segment.name == "command" and len(argv) > 1 and bool(re.fullmatch(r"-p?[vV]p?", argv[1].text))


def _take(walk: Walk, segment: Segment, entries: tuple[Wrapper, ...]) -> str:
    """Take one wrapper off. ``on``: there is an inner command; ``text``: it carried shell text; ``""``: no wrapper."""
    argv, name = segment.argv, segment.name
    fits = [entry for entry in entries if tuple(word.text for word in argv[1 : 1 + len(entry.words)]) == entry.words]
    if not fits:
        return ""
    for entry in fits:
        found = scan(argv[1 + len(entry.words) :], entry.grammar, stop=True)
        if found is not None:
            break
    else:
        segment.problem("doubt", f"{name} has an option that is not known, so what it runs is not")
        return ""
    if entry.kind == "risk":
        segment.problem("risk", f"{name} runs another command in its own way")
    if found.unsure:
        segment.problem("doubt", f"what {name} runs is made when the command runs")
    at = 1 + len(entry.words) + found.end + entry.operands
    flags = {f"-{name}" if len(name) == 1 else f"--{name}" for name in entry.script}
    texts = found.values(entry.script) + [
        word for before, word in pairwise(argv[at - entry.operands :]) if before.literal and before.text in flags
    ]
    if texts:
        for each in texts:
            nested(walk, each, segment)
        return "text"
    if any(word.many for word in argv[1 + len(entry.words) : at]):
        segment.problem("doubt", f"what {name} runs is made when the command runs")
    more: list[Assignment] = []
    form = _NAMED if name in ("time", "coproc") else _EQUALS
    while entry.assigns and at < len(argv) and (named := form.match(argv[at].text)):
        word = argv[at]
        value = word.text.partition("=")[2]
        more.append(Assignment(named[1], Word(value, value, word.kind, word.many, value), word.raw))
        at += 1
    inner = argv[at:]
    if not inner:
        return ""
    replaced = [word.text for word in found.values(entry.replaces)] + [
        "{}" for option, value in found.options if option in entry.replaces and value is None
    ]
    if entry.appends and not replaced:
        inner = (*inner, _APPENDED)
    for mark in replaced:
        inner = tuple(_open(word) if not mark or mark in word.raw else word for word in inner)
    segment.assignments += tuple(more)
    segment.outer += (argv,)
    segment.wrappers += (name,)
    if entry.kind != "clear" and segment.spoken is None:
        segment.spoken = argv
    segment.argv = inner
    if entry.shell:
        if all(word.literal for word in inner):
            text = " ".join(word.text for word in inner)
            nested(walk, Word(text, text, lead=text), segment)
            return "text"
        segment.problem("doubt", f"{name} reads a shell text that is made when the command runs")
    return "on"


def _open(word: Word) -> Word:
    return Word(word.raw, word.text, UNKNOWN, word.many, "")


def _shell(walk: Walk, segment: Segment, shell: Wrapper) -> bool:
    """A shell as a command. True: it was given a text, which stands in its place."""
    argv, at, has_text = segment.argv, 1, False
    while at < len(argv) and argv[at].literal and argv[at].text[:1] in "-+" and argv[at].text not in ("-", ""):
        text = argv[at].text
        at += 1
        if text == "--":
            break
        if text.startswith("--"):
            if text[2:] not in shell.grammar.long:
                segment.problem("doubt", f"{segment.name} has an option that is not known: {text}")
            continue
        if text[:1] == "+" or set(text[1:]) - set(shell.grammar.short) - {"o"}:
            segment.problem("doubt", f"{segment.name} has an option that is not known: {text}")
        has_text = has_text or "c" in text
        if "o" in text[1:]:
            if at >= len(argv) or argv[at].text not in shell.settings:
                segment.problem("doubt", f"{segment.name} has a setting that is not known")
            at += 1
    rest = argv[at:]
    if shell.foreign:
        segment.problem("doubt", f"{segment.name} reads its text in its own way")
    if not has_text:
        if not rest or not rest[0].literal or rest[0].many or _STREAM.fullmatch(rest[0].text):
            segment.problem("doubt", f"{segment.name} runs what it is given when the command runs")
        return False
    if not rest:
        segment.problem("doubt", f"{segment.name} has no text to run")
        return False
    if segment.redirects:
        walk.segments.append(Segment((), segment.source, segment.dirs, segment.redirects))
    segment.wrappers += (segment.name,)
    segment.outer += (argv,)
    nested(walk, rest[0], segment, bash=segment.name in ("bash", "rbash"))
    return True


def nested(walk: Walk, text: Word, segment: Segment, *, bash: bool = False) -> None:
    """Read a shell text inside a command; its segments know what they are wrapped in.

    ``bash``: it is read by bash; another shell may know neither braces nor ``$'...'``.
    """
    from pegboard_shell.read import DEPTH, Walk

    if not text.literal or walk.depth >= DEPTH:
        walk.doubt(f"{segment.source[:60]} reads a shell text that is made when the command runs")
        return
    if not text.text.strip():
        return
    loose = walk.loose or bool(segment.assignments) or not _PLAIN.issuperset(segment.wrappers)
    child = Walk(walk.home, depth=walk.depth + 1, bash=bash, loose=loose)
    child.read(text.text, segment.dirs)
    for each in child.segments:
        each.outer = (*segment.outer, *each.outer)
        each.wrappers = (*segment.wrappers, *each.wrappers)
        each.assignments = (*segment.assignments, *each.assignments)
        each.background = each.background or segment.background
        each.problems += segment.problems
        if each.spoken is None:
            each.spoken = segment.spoken
        if each.name and each.name in child.functions:
            each.problem("doubt", f"{each.name} is a function of this command")
    walk.segments += child.segments
    walk.problems += child.problems
    if not child.segments:
        walk.problems += segment.problems


def _carried(walk: Walk, segment: Segment) -> None:
    """Commands in the arguments of `find`, `eval`, `trap` and `alias`: judged too, though the whole asks anyway."""
    name, rest = segment.name, segment.argv[1:]
    if name in ("find", "fd", "fdfind"):
        for index, word in enumerate(rest):
            if word.text in _EXEC or (name != "find" and word.text in ("-x", "-X", "--exec", "--exec-batch")):
                inner = []
                for each in rest[index + 1 :]:
                    if each.literal and each.text in (";", "+"):
                        break
                    inner.append(_open(each) if "{}" in each.text else each)
                if inner:
                    part = Segment(tuple(inner), segment.source, segment.dirs, piped=True)
                    part.wrappers, part.outer = (*segment.wrappers, name), (*segment.outer, segment.argv)
                    part.spoken = segment.spoken or segment.argv
                    emit(walk, part)
    elif name == "eval" and rest and all(word.literal for word in rest):
        text = " ".join(word.text for word in rest)
        nested(walk, Word(text, text, lead=text), _inside(segment), bash=walk.bash)
    elif name == "trap" and rest and rest[0].literal and rest[0].text not in ("-", "--"):
        nested(walk, rest[0], _inside(segment), bash=walk.bash)
    elif name == "alias":
        for word in rest:
            if word.literal and "=" in word.text:
                text = word.text.partition("=")[2]
                nested(walk, Word(text, text, lead=text), _inside(segment))


def _inside(segment: Segment) -> Segment:
    inner = Segment(segment.argv, segment.source, segment.dirs)
    inner.wrappers, inner.outer = (*segment.wrappers, segment.name), (*segment.outer, segment.argv)
    return inner
