"""From a command line to its segments: walks the syntax tree in every context in which commands can stand.

The walk keeps the directories that each command may start in, and says what it does not understand.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

from tree_sitter import Language, Node, Parser

from pegboard_shell import commands, guard
from pegboard_shell.commands import MARKS, WORDS
from pegboard_shell.script import After, Dirs, Problem, Script, Segment, Word, join
from pegboard_shell.tables import builtins
from pegboard_shell.unwrap import emit
from pegboard_shell.words import Words

DEPTH = 6
"""[C] Shells inside shells that are read; and a bound for the nesting of anything."""

ROUNDS = 16
"""[C] Values of a loop that are followed one by one."""

_MOVES = re.compile(rb"\b(?:cd|chdir|pushd|popd)\b")
_BLANK = re.compile(rb"(?:[ \t]|\\\n)*")
_COUNT = re.compile(rb"\(\(\s*\w+\s*=\s*\d+\s*;\s*\w+\s*[<>]=?\s*\d+\s*;\s*\w+\s*(?:\+\+|--)\s*\)\)")
_SETS = re.compile(rb"(?<![${\w])(?:HOME|PWD)\b(?!/)|\b(?:IFS|CDPATH)\b")
"""The meaning of a bare ``cd``, of ``~``, of an unquoted word or of a relative directory may change."""


@cache
def parser() -> Parser:
    """The parser; loading the grammar takes some milliseconds, once."""
    import tree_sitter_bash

    return Parser(Language(tree_sitter_bash.language()))


class Walk:
    """One pass over one text. Nested shells get a walk of their own that adds to the same lists."""

    def __init__(self, home: str, *, depth: int = 0, bash: bool = True, loose: bool = False) -> None:
        self.home, self.depth, self.bash, self.loose = home, depth, bash, loose
        self.segments: list[Segment] = []
        self.problems: list[Problem] = []
        self.functions: set[str] = set()
        self.src = b""
        self.turns = 0
        self.dirs: Dirs = None
        """Where a substitution that is met now would start."""

    def read(self, command: str, dirs: Dirs) -> Dirs:
        """Read a text; gives the directories that the shell may be in afterwards."""
        if reason := guard.refuse(command):
            self.blind(reason)
            if len(command) > guard.MOST or not command.strip():
                return None
        self.src = command.encode(errors="replace")
        self.loose = self.loose or _SETS.search(self.src) is not None
        variables = {} if self.loose else {"HOME": self.home}
        if variables and dirs is not None and len(dirs) == 1 and not _MOVES.search(self.src):
            variables["PWD"] = dirs[0]
        self.words = Words(self.src, variables, self.substitution, self.doubt, self.blind, self.bash)
        root = parser().parse(self.src).root_node
        if root.has_error:
            self.blind("it does not parse")
        try:
            after = self.sequence(root, dirs)
        except RecursionError:
            self.blind("it is nested too deeply")
            return None
        mark = guard.uncovered(self.src, self.words.seen, self.words.literals, self.words.quoted)
        if mark:
            self.blind(f"{mark!r} may start a command that was not found")
        return join(*after)

    def blind(self, text: str) -> None:
        self.problems.append(Problem("blind", text))

    def token(self, node: Node) -> None:
        """A mark of the language must be written as what it is taken for."""
        written = self.src[node.start_byte : node.end_byte]
        if written != node.type.encode() and not written.isspace():
            self.blind(f"{written[:40]!r} is no {node.type}")

    def together(self, children: list[Node]) -> None:
        """Nothing but blanks may stand between the parts of one command: the parser may have lost a line's end."""
        for child in children:
            if not child.is_named and not child.child_count:
                self.token(child)
        for before, after in pairwise(children):
            gap = self.src[before.end_byte : after.start_byte]
            if gap not in (b"", b" ") and not _BLANK.fullmatch(gap):
                self.blind(f"{gap[:40]!r} stands inside a command")
            elif not gap and after.type in WORDS and (before.type in WORDS or before.type == "command_name"):
                self.doubt(f"{self.words.text(before)[:40]} and what follows it are one word")

    def doubt(self, text: str) -> None:
        self.problems.append(Problem("doubt", text))

    # -- statements --------------------------------------------------------------------------------------------------

    def statement(self, node: Node, dirs: Dirs, *, background: bool = False, piped: bool = False) -> After:
        """Walk one statement."""
        self.dirs = dirs
        kind = node.type
        if kind in ("command", "declaration_command", "unset_command", "test_command"):
            return commands.simple(self, node, node, dirs, background, piped)
        if kind in ("variable_assignment", "variable_assignments"):
            return commands.simple(self, node, node, dirs, background, piped)
        if kind == "redirected_statement":
            self.together(node.children)
            body, alone = node.children[0], node.children[0].type.endswith("_redirect")
            rest = node.children if alone else node.children[1:]
            return commands.redirected(self, body, rest, node, dirs, background, piped)
        if kind in ("list", "pipeline"):
            return self.chain(node, dirs, background, piped, [])
        if kind == "negated_command":
            ok, failed = dirs, dirs
            for child in node.children:
                if child.is_named:
                    failed, ok = self.statement(child, dirs, background=background, piped=piped)
            return ok, failed
        if kind == "subshell":
            self.sequence(node, dirs, background, piped)
            return dirs, dirs
        if kind == "function_definition":
            return self.function(node, dirs)
        if kind == "compound_statement" and self.src[node.start_byte : node.start_byte + 2] == b"((":
            self.doubt("arithmetic evaluates what its variables hold")
            self.words.inside(node)
            return dirs, dirs
        if kind == "c_style_for_statement":
            return self.counting(node, dirs, background, piped)
        if kind == "for_statement" and (values := self.rounds(node, dirs)):
            return self.looping(node, values, dirs, background, piped)
        if kind in ("while_statement", "for_statement", "case_statement") and _MOVES.search(
            self.src[node.start_byte : node.end_byte]
        ):
            self.sequence(node, None, background, piped)
            return None, None
        return self.sequence(node, dirs, background, piped)

    def sequence(self, node: Node, dirs: Dirs, background: bool = False, piped: bool = False) -> After:
        """Walk the statements that stand one after the other in a node; words between them hold substitutions."""
        children = node.children
        failed = dirs
        for index, child in enumerate(children):
            kind = child.type
            if kind in MARKS and not child.is_named:
                self.token(child)
                continue
            if kind == "comment":
                self.comment(child)
            elif kind in WORDS:
                self.dirs = dirs
                self.words.one(child)
            elif kind == "ERROR" or child.is_missing:
                self.sequence(child, dirs, background, piped)
            elif kind == "heredoc_body":
                continue
            elif not child.is_named:
                self.doubt(f"{self.words.text(child)[:20]!r} is not understood here")
            else:
                apart = index + 1 < len(children) and children[index + 1].type == "&"
                ok, failed = self.statement(child, dirs, background=background or apart, piped=piped)
                dirs = failed = dirs if apart else join(ok, failed)
        return dirs, failed

    def chain(self, node: Node, dirs: Dirs, background: bool, piped: bool, rest: list[Node]) -> After:
        """``a && b``, ``a || b``: the second starts where the first one left, if it did; ``a | b``: all start here.

        ``rest``: redirections behind the whole, which belong to its last command.
        """
        ok = failed = dirs
        operator = ""
        parts = [child for child in node.children if child.is_named and child.type != "comment"]
        for child in node.children:
            if not child.is_named:
                operator = child.type
                continue
            if child.type == "comment":
                self.comment(child)
                continue
            piping = operator in ("|", "|&")
            begin = {"&&": ok, "||": failed}.get(operator, dirs)
            if rest and child == parts[-1]:
                then, not_then = commands.redirected(self, child, rest, node, begin, background, piped or piping)
            else:
                then, not_then = self.statement(child, begin, background=background, piped=piped or piping)
            if node.type == "pipeline":
                # the parser may put a whole list in front of a pipe that belongs to its last command
                if child.type == "list" or (child.type == "redirected_statement" and child.children[0].type == "list"):
                    dirs = join(dirs, then, not_then)
                ok = failed = dirs
            elif operator == "&&":
                ok, failed = then, join(failed, not_then)
            elif operator == "||":
                ok, failed = join(ok, then), not_then
            else:
                ok, failed = then, not_then
        return ok, failed

    def function(self, node: Node, dirs: Dirs) -> After:
        name = node.child_by_field_name("name")
        if name is not None:
            self.functions.add(self.words.text(name))
        for child in node.children:
            if child.type == "file_redirect":
                commands.redirects(self, child, [], None)
            elif child.is_named and child != name:
                self.statement(child, None)
        return dirs, dirs

    def rounds(self, node: Node, dirs: Dirs) -> list[Word]:
        """The values of a loop's variable, where they are all known and nothing else sets it; else none."""
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if (
            b"IFS" in self.src
            or name is None
            or body is None
            or self.src[node.start_byte : node.start_byte + 3] != b"for"
        ):
            return []
        label = self.src[name.start_byte : name.end_byte]
        uses = len(re.findall(rb"(?<![\w${-])%b(?!\w)" % re.escape(label), self.src))
        if uses != 1 or re.search(rb"\$\{%b:?=" % re.escape(label), self.src) or self.turns > ROUNDS:
            return []
        self.dirs = dirs
        values = [
            word for child in node.children if child.type in WORDS and child != name for word in self.words.words(child)
        ]
        known = all(word.kind != "unknown" for word in values)
        self.turns += len(values)
        return values if known and len(values) <= ROUNDS and self.turns <= 4 * ROUNDS else []

    def looping(self, node: Node, values: list[Word], dirs: Dirs, background: bool, piped: bool) -> After:
        """Walk the body of a loop once for each value."""
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        label = self.words.text(name) if name is not None else ""
        moves = _MOVES.search(self.src[node.start_byte : node.end_byte])
        for value in values:
            self.words.loops[label] = value
            if body is not None:
                self.sequence(body, None if moves else dirs, background, piped)
        del self.words.loops[label]
        return (None, None) if moves else (dirs, dirs)

    def counting(self, node: Node, dirs: Dirs, background: bool, piped: bool) -> After:
        body = node.child_by_field_name("body")
        head = self.src[node.start_byte : body.start_byte if body else node.end_byte]
        match = re.search(rb"\(\(.*\)\)", head, re.DOTALL)
        if match is None or not _COUNT.fullmatch(match[0]):
            self.doubt("arithmetic evaluates what its variables hold")
            for child in node.children:
                if child != body:
                    self.words.inside(child)
        moves = _MOVES.search(self.src[node.start_byte : node.end_byte])
        if body is not None:
            self.sequence(body, None if moves else dirs, background, piped)
        return (None, None) if moves else (dirs, dirs)

    def substitution(self, node: Node) -> None:
        """Commands inside a word: a shell of their own, in the directories of the command around them."""
        dirs, where = self.dirs, self.dirs
        self.sequence(node, dirs, piped=node.type == "process_substitution")
        self.dirs = where

    def comment(self, node: Node) -> None:
        start = node.start_byte
        before = self.src[max(0, start - 2) : start]
        if (
            b"\n" in self.src[start : node.end_byte]
            or (before and before[-1:] not in b" \t\n;&|()")
            or (before[:1] == b"\\" and len(before) == 2)
        ):
            self.blind("a comment that may be none")
        else:
            self.words.literals.append((start, node.end_byte))

    def add(self, segment: Segment) -> After:
        """Take the wrappers off a segment, add what remains, and follow a change of directory."""
        here = emit(self, segment)
        if here is None or here.name not in builtins().moving:
            return segment.dirs, segment.dirs
        return None if self.loose else moved(here, self.home), segment.dirs


def moved(segment: Segment, home: str) -> Dirs:
    """Where ``cd`` leads from the directories of its segment; None if that is not known."""
    words = [word for word in segment.argv[1:] if not (word.literal and word.text in ("-P", "-L", "-e", "--"))]
    if segment.name not in ("cd", "chdir") or len(words) > 1 or segment.assignments:
        return None
    target = words[0].text if words else home
    if words and (not words[0].literal or target.startswith("-") or not target):
        return None
    if target.startswith("/"):
        return (target,)
    if segment.dirs is None:
        return None
    return tuple(dict.fromkeys(f"{base.rstrip('/')}/{target}" for base in segment.dirs))


def parse(command: str, *, cwd: str | None, home: str) -> Script:
    """Read a command line that a shell in the directory ``cwd`` would run; None: in an unknown one.

    Never raises for any text. What could not be read is in the problems of the script and of its segments.
    """
    walk = Walk(home)
    walk.read(command, None if cwd is None else (str(cwd),))
    for segment in walk.segments:
        if segment.name in walk.functions and segment.argv:
            segment.problem("doubt", f"{segment.name} is a function of this command")
    return Script(command, walk.segments, walk.problems, frozenset(walk.functions))
