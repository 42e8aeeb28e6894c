"""From a command line to the accesses that a permission decision is made of.

Each segment becomes one RUN access, the files it names and its redirects become READ and EDIT accesses, and whatever
is not known or dangerous by itself is written on the access, so that the deciding function asks.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from pegboard.paths import inside, plain
from pegboard.tool import Access

from pegboard_shell.known import Known, Use, know
from pegboard_shell.places import Hidden, Places, devices
from pegboard_shell.read import parse
from pegboard_shell.script import Problem, Script, Segment, Word
from pegboard_shell.special import local_name, safe_assignment
from pegboard_shell.tables import builtins

_GIT_PARTS = frozenset((".git", "hooks", "head", "objects", "refs", "config", "commondir", "gitdir", ".gitattributes",
    ".gitmodules", ".gitconfig", "worktrees", "modules"))  # fmt: skip
"""Names that make a folder a repository, or tell git what to run."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a command would touch, as far as that is known."""

    script: Script
    accesses: tuple[Access, ...]
    """In the order of the segments; for `pegboard.policy.decide`."""
    problems: tuple[Problem, ...]
    """What is not known, or dangerous whatever the rules."""
    read_only: tuple[bool, ...]
    """For each segment: nothing remains of it."""

    @property
    def reads_only(self) -> bool:
        """Every part was seen, and nothing remains of any."""
        return self.script.readable and not self.problems and all(self.read_only)

    @property
    def edits(self) -> tuple[str, ...]:
        """Paths that it is known to change."""
        return tuple(dict.fromkeys(item.target for item in self.accesses if item.kind == "edit"))


def accesses(
    command: str,
    *,
    cwd: str,
    home: str,
    roots: Sequence[str] = (),
    trusted: bool = True,
    hidden: Hidden | None = None,
) -> Judgement:
    """Judge a command that a shell in ``cwd`` would run. Never raises for any text.

    Looks at the file system: file name patterns are expanded as they would be now. ``roots`` are the working
    directories; in an untrusted one git is never free. ``hidden`` finds what a recursive reading must not see.
    """
    script = parse(command, cwd=cwd, home=home)
    return _Judge(script, plain(cwd), home, tuple(roots) or (cwd,), trusted, hidden).judge()


@dataclass(slots=True)
class _Judge:
    script: Script
    cwd: str
    home: str
    roots: tuple[str, ...]
    trusted: bool
    hidden: Hidden | None
    out: list[Access] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    read_only: list[bool] = field(default_factory=list)
    moves: int = 0
    git_made: bool = False
    quiet: bool = True
    """Nothing was written yet, so file name patterns mean what they mean now."""
    made: list[str] = field(default_factory=list)
    """Paths that may have become links meanwhile."""

    def judge(self) -> Judgement:
        for segment in self.script.segments:
            self.segment(segment)
        self.problems += self.script.problems
        first = next((problem for problem in self.script.problems if problem.weight == "blind"), None)
        first = first or (self.script.problems[0] if self.script.problems else None)
        if first is not None:
            self.out.append(_unclear(self.script.command, first))
        unique = tuple(dict.fromkeys(self.out))
        return Judgement(self.script, unique, tuple(dict.fromkeys(self.problems)), tuple(self.read_only))

    def segment(self, segment: Segment) -> None:
        places = Places(segment.dirs, self.cwd, self.quiet)
        if any(word.kind == "glob" for word in segment.argv[1:]):
            segment = replace(segment, argv=places.expand(segment.argv))
        known = know(segment)
        problems = [*segment.problems, *(Problem("doubt", text) for text in known.doubts)]
        problems += [Problem("risk", text) for text in known.risks]
        problems += self.course(segment)
        unsafe = [item for item in segment.assignments if not safe_assignment(item.name, item.value)]
        if segment.spoken is not None or any(segment.argv or not local_name(item.name) for item in unsafe):
            known.does = ""
        if segment.name == "git" and known.does == "reads" and not self.git_is_ours(segment):
            known.does = ""
        if segment.name in builtins().moving:
            self.moving(segment, known)
        paths, doubts = self.paths(segment, known, places)
        problems += [Problem("doubt", text) for text in doubts]
        if segment.argv or segment.assignments:
            self.out.append(self.run(segment, known, problems, unsafe))
        elif problems:
            self.out.append(_unclear(segment.source, problems[0]))
        self.out += paths
        self.problems += problems
        writes = any(item.kind == "edit" for item in paths)
        self.read_only.append(known.does == "reads" and not problems and not writes)
        self.quiet = self.quiet and self.read_only[-1]

    # -- the command itself ------------------------------------------------------------------------------------------

    def course(self, segment: Segment) -> list[Problem]:
        """What the commands before make of this one."""
        found = []
        if segment.name in builtins().moving:
            self.moves += 1
            if self.moves == 2:
                found.append(Problem("risk", "the directory is changed more than once"))
        if segment.name == "git":
            here = {plain(each) for each in segment.dirs} if segment.dirs is not None else {""}
            if here != {self.cwd}:
                found.append(Problem("risk", "git runs in another directory, which may bring its own settings"))
            if self.git_made:
                found.append(Problem("risk", "git runs after its own files were changed"))
        return found

    def git_is_ours(self, segment: Segment) -> bool:
        """The repository that git would find is the one of a working directory that is trusted."""
        if not self.trusted or segment.dirs is None:
            return False
        folder = self.cwd
        while folder not in self.roots:
            if os.path.lexists(f"{folder}/.git") or os.path.lexists(f"{folder}/HEAD") or folder in ("", "/"):
                return False
            folder = folder.rpartition("/")[0]
        return True

    def moving(self, segment: Segment, known: Known) -> None:
        """A change of directory is free while it stays in the working directories."""
        words = [word for word in segment.argv[1:] if word.text not in ("-P", "-L", "--")]
        known.uses = [Use(word, mention=True) for word in words if word.literal and word.text != "-"]
        inner = bool(words) and all(word.literal for word in words) and segment.name in ("cd", "chdir")
        targets = [f"{base}/{word.text}" if not word.text.startswith("/") else word.text
                   for word in words for base in segment.dirs or ()]  # fmt: skip
        real = [os.path.realpath(each) for each in targets]
        free = inner and bool(real) and all(inside(each, self.roots) for each in (*map(plain, targets), *real))
        known.does = "reads" if free else ""

    def run(self, segment: Segment, known: Known, problems: list[Problem], unsafe: Sequence[object]) -> Access:
        """The RUN access of a segment: what allow rules must name, and every other spelling of it."""
        words = segment.spoken or segment.argv
        target = _written(words)
        if unsafe:
            target = " ".join((*(item.raw for item in segment.assignments if item in unsafe), target)).strip()
        also = [_decoded(segment.argv), segment.source, *known.spelled]
        for layer in segment.outer:
            also += [_written(layer), _decoded(layer)]
        if segment.name in ("rm", "rmdir"):
            also += _removals(segment)
        problem = min(problems, key=lambda item: ("blind", "risk", "doubt").index(item.weight), default=None)
        if problem is not None:
            also.append(self.script.command)
        grade = problem.weight if problem is not None else known.does
        others = tuple(dict.fromkeys(text for text in also if text and text != target))
        why = problem.text if problem is not None else ""
        return replace(Access.run(target), grade=grade, why=why, also=others, head=_head(segment))

    # -- files -------------------------------------------------------------------------------------------------------

    def paths(self, segment: Segment, known: Known, places: Places) -> tuple[list[Access], list[str]]:
        """READ and EDIT accesses of a segment, and what is not known about its files."""
        out: list[Access] = []
        doubts: list[str] = []
        for use in known.uses:
            if use.link and any(_may_be_link(path) for path in self._sources(known, places)):
                self.made += places.of(use.word)[0]
            self.use(use, known, places, out, doubts)
        for redirect in segment.redirects:
            word = redirect.target
            if word is None or (redirect.op in (">&", "<&") and re.fullmatch(r"\d+-?|-", word.text)):
                continue
            if word.text.startswith(("/dev/tcp/", "/dev/udp/")) and word.literal:
                doubts.append(f"{word.text} is a connection")
            self.use(Use(word, edit=redirect.writes), known, places, out, doubts, redirect=True)
        return out, doubts

    def use(
        self, use: Use, known: Known, places: Places, out: list[Access], doubts: list[str], *, redirect: bool = False
    ) -> None:
        word = use.word
        if devices(word, use.edit):
            return
        found, certain = places.of(word)
        if not certain and not use.mention:
            doubts.append(f"which file {word.raw or word.text or 'is read'} is, is not known before the command runs")
        for path in found:
            kind = Access.edit(path) if use.edit else Access.read(path)
            out.append(kind if redirect else replace(kind, grade="mention" if use.mention else "part"))
            if use.edit:
                self.git_made = self.git_made or any(part.lower() in _GIT_PARTS for part in path.split("/")[1:])
            if not use.mention and any(inside(plain(path), (link,)) for link in self.made) and not use.link:
                doubts.append(f"{path} may have become a link")
            if use.tree and self.hidden is not None:
                below = self.hidden(path, known.skips, known.only)
                if below is None:
                    doubts.append(f"there are too many files below {path} to know what is read")
                out += (replace(Access.read(each), grade="part") for each in below or ())

    def _sources(self, known: Known, places: Places) -> list[str]:
        return [path for use in known.uses if not use.link for path in places.of(use.word)[0]] or ["/"]


def _unclear(text: str, problem: Problem) -> Access:
    return replace(Access.run(text), grade=problem.weight, why=problem.text)


def _may_be_link(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return True


def _written(words: Sequence[Word]) -> str:
    return " ".join(word.raw for word in words if word.raw)


def _decoded(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words if word.raw or word.text)


def _head(segment: Segment) -> str | None:
    """The certain beginning of a command that goes on with a word made when it runs; None if all is certain."""
    known = [segment.name]
    for word in segment.argv[1:]:
        if not word.literal:
            return " ".join((*known, word.lead))
        known.append(word.text)
    return None


def _removals(segment: Segment) -> list[str]:
    """The removal with full paths, for every directory it may run in."""
    options = [word.text for word in segment.argv[1:] if word.text.startswith("-")]
    texts = []
    for base in segment.dirs or ():
        targets = [
            word.raw if not word.literal else shlex.quote(word.text if word.text[:1] == "/" else f"{base}/{word.text}")
            for word in segment.argv[1:]
            if not word.text.startswith("-")
        ]
        targets = [f"{base}/{each}" if re.match(r"[\w.*?\[]", each) else each for each in targets]
        texts.append(" ".join((segment.name, *options, *targets)))
    return texts


# -- for tools -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def facts(command: str) -> tuple[bool, bool, bool]:
    """Whether a command starts with ``sleep``, contains git, and was read whole. See `can_be_backgrounded`."""
    script = parse(command, cwd=None, home="/")
    first = next((segment for segment in script.segments if segment.argv), None)
    sleeps = first is not None and first.name == "sleep"
    has_git = any(segment.name == "git" for segment in script.segments) or re.search(r"\bgit\b", command) is not None
    return sleeps, has_git, script.readable


def starts_with_sleep(command: str) -> bool:
    """Whether the first program of a command is ``sleep``."""
    return facts(command)[0]


def contains_git(command: str) -> bool:
    """Whether git stands anywhere in a command."""
    return facts(command)[1]


def can_be_backgrounded(command: str) -> bool:
    """[D] Whether a command may go on in the background at its timeout: not one that only sleeps, one of git, which
    holds locks, or one that could not be read."""
    sleeps, has_git, readable = facts(command)
    return readable and not sleeps and not has_git
