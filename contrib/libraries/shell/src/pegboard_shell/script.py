"""What a shell command is made of once it is read: words, redirects, segments, and what is not known about them.

Everything that could not be read or is decided only when the command runs is a Problem; nothing here guesses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

LITERAL: Literal["literal"] = "literal"
GLOB: Literal["glob"] = "glob"
UNKNOWN: Literal["unknown"] = "unknown"

Kind = Literal["literal", "glob", "unknown"]
Weight = Literal["doubt", "risk", "blind"]


class Word(NamedTuple):
    """One argument, as far as it is known before the command runs."""

    raw: str
    """As written, with its quotes."""
    text: str
    """What the program gets if the word is literal; a file name pattern; else the word with its unknown parts."""
    kind: Kind = LITERAL
    many: bool = False
    """It may become any number of arguments."""
    lead: str = ""
    """The beginning of every argument that this word can become."""

    @property
    def literal(self) -> bool:
        """The program gets exactly `text`."""
        return self.kind == LITERAL

    @property
    def may_be_option(self) -> bool:
        """It may become an argument that begins with a dash."""
        return (self.text if self.kind == LITERAL else self.lead or "-").startswith("-")


class Redirect(NamedTuple):
    """One redirection. ``op`` as written; ``target`` is None for a here-document and a closed descriptor."""

    op: str
    target: Word | None
    fd: str = ""

    @property
    def writes(self) -> bool:
        """The target is opened for writing."""
        return ">" in self.op


class Assignment(NamedTuple):
    """``NAME=value`` in front of a command or on its own; ``value`` is None for an array or an element."""

    name: str
    value: Word | None
    raw: str


class Problem(NamedTuple):
    """Something that is not known, or that is never done unasked.

    ``doubt``: a part is decided only when the command runs. ``risk``: it is known, and dangerous whatever the rules.
    ``blind``: the command cannot be read, so that parts of it may not even have been seen.
    """

    weight: Weight
    text: str


Dirs = tuple[str, ...] | None
"""Directories that a command may start in, absolute; None: any."""


After = tuple[Dirs, Dirs]
"""Directories after success, and after failure."""


def join(*each: Dirs) -> Dirs:
    """Any of these directories; None if one of them is unknown."""
    out: dict[str, None] = {}
    for dirs in each:
        if dirs is None:
            return None
        out.update(dict.fromkeys(dirs))
    return tuple(out)


@dataclass(slots=True)
class Segment:
    """One simple command of a script, without its wrappers."""

    argv: tuple[Word, ...]
    """Empty: only assignments or redirects."""
    source: str
    """As written, wrappers and assignments included."""
    dirs: Dirs
    redirects: tuple[Redirect, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    wrappers: tuple[str, ...] = ()
    """Names of the programs it was wrapped in, outermost first."""
    outer: tuple[tuple[Word, ...], ...] = ()
    """The whole words at each layer that was taken off, outermost first."""
    spoken: tuple[Word, ...] | None = None
    """What allow rules must name where the wrapper does not count as transparent; None: `argv`."""
    background: bool = False
    piped: bool = False
    """Its input is the output of another command, or a here-document."""
    problems: list[Problem] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Base name of the program; empty where it is not known or there is none."""
        if not self.argv or not self.argv[0].literal:
            return ""
        return self.argv[0].text.rpartition("/")[2]

    def problem(self, weight: Weight, text: str) -> None:
        """Note what is not known, or dangerous."""
        self.problems.append(Problem(weight, text))


@dataclass(slots=True)
class Script:
    """A command line, read."""

    command: str
    segments: list[Segment]
    problems: list[Problem]
    """About the script as a whole; those of its segments stand there."""
    functions: frozenset[str] = frozenset()

    @property
    def readable(self) -> bool:
        """Every part of the command was seen."""
        return not any(problem.weight == "blind" for problem in self.problems)

    @property
    def certain(self) -> bool:
        """Nothing in it is unknown or dangerous by itself."""
        return not self.problems and not any(segment.problems for segment in self.segments)
