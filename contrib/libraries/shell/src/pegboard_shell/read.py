"""From a command line to its segments: walks the syntax tree in every context in which commands can stand.

The walk keeps the directories that each command may start in, and says what it does not understand.
"""

from __future__ import annotations

import re
from functools import cache

from tree_sitter import Language, Node, Parser

from pegboard_shell import guard
from pegboard_shell.script import Assignment, Dirs, Problem, Redirect, Script, Segment, Word
from pegboard_shell.tables import builtins
from pegboard_shell.unwrap import emit
from pegboard_shell.words import Words

After = tuple[Dirs, Dirs]
"""Directories after success, and after failure."""

DEPTH = 6
"""[C] Shells inside shells that are read; and a bound for the nesting of anything."""

WORDS = frozenset((
    "word", "number", "string", "raw_string", "ansi_c_string", "concatenation", "simple_expansion", "expansion",
    "command_substitution", "process_substitution", "arithmetic_expansion", "brace_expression", "test_operator",
    "extglob_pattern", "regex", "variable_name", "special_variable_name", "translated_string",
))  # fmt: skip
MARKS = frozenset((
    ";", ";;", ";&", ";;&", "\n", "(", ")", "{", "}", "if", "then", "elif", "else", "fi", "do", "done", "while",
    "until", "for", "select", "in", "case", "esac", "$(", "`", "<(", ">(", "|", "|&", "&&", "||", "!", "&", "function",
    "$(<",
))  # fmt: skip
_MOVES = re.compile(rb"\b(?:cd|chdir|pushd|popd)\b")
_COUNT = re.compile(rb"\(\(\s*\w+\s*=\s*\d+\s*;\s*\w+\s*[<>]=?\s*\d+\s*;\s*\w+\s*(?:\+\+|--)\s*\)\)")
_SETS = re.compile(rb"(?<![${\w])(HOME|PWD)\b(?!/)")


@cache
def parser() -> Parser:
    """The parser; loading the grammar takes some milliseconds, once."""
    import tree_sitter_bash

    return Parser(Language(tree_sitter_bash.language()))


def join(*each: Dirs) -> Dirs:
    """Any of these directories; None if one of them is unknown."""
    out: dict[str, None] = {}
    for dirs in each:
        if dirs is None:
            return None
        out.update(dict.fromkeys(dirs))
    return tuple(out)


class Walk:
    """One pass over one text. Nested shells get a walk of their own that adds to the same lists."""

    def __init__(self, home: str, *, depth: int = 0) -> None:
        self.home, self.depth = home, depth
        self.segments: list[Segment] = []
        self.problems: list[Problem] = []
        self.functions: set[str] = set()
        self.src = b""
        self.dirs: Dirs = None
        """Where a substitution that is met now would start."""

    def read(self, command: str, dirs: Dirs) -> Dirs:
        """Read a text; gives the directories that the shell may be in afterwards."""
        if reason := guard.refuse(command):
            self.blind(reason)
            if len(command) > guard.MOST or not command.strip():
                return None
        self.src = command.encode(errors="replace")
        variables = {} if _SETS.search(self.src) else {"HOME": self.home}
        if variables and dirs is not None and len(dirs) == 1 and not _MOVES.search(self.src):
            variables["PWD"] = dirs[0]
        self.words = Words(self.src, variables, self.substitution, self.doubt)
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

    def doubt(self, text: str) -> None:
        self.problems.append(Problem("doubt", text))

    # -- statements --------------------------------------------------------------------------------------------------

    def statement(self, node: Node, dirs: Dirs, *, background: bool = False, piped: bool = False) -> After:
        """Walk one statement."""
        self.dirs = dirs
        kind = node.type
        if kind in ("command", "declaration_command", "unset_command", "test_command"):
            return self.simple(node, node, dirs, background, piped)
        if kind in ("variable_assignment", "variable_assignments"):
            return self.simple(node, node, dirs, background, piped)
        if kind == "redirected_statement":
            return self.redirected(node, dirs, background, piped)
        if kind == "list":
            return self.chain(node, dirs, background, piped)
        if kind == "pipeline":
            for index, child in enumerate(child for child in node.children if child.is_named):
                self.statement(child, dirs, background=background, piped=piped or index > 0)
            return dirs, dirs
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

    def chain(self, node: Node, dirs: Dirs, background: bool, piped: bool) -> After:
        """``a && b``, ``a || b``: the second starts where the first one left, if it did."""
        ok = failed = dirs
        operator = ""
        for child in node.children:
            if not child.is_named:
                operator = child.type
            elif child.type == "comment":
                self.comment(child)
            elif not operator:
                ok, failed = self.statement(child, dirs, background=background, piped=piped)
            else:
                begin = ok if operator == "&&" else failed
                then, not_then = self.statement(child, begin, background=background, piped=piped)
                ok, failed = (then, join(failed, not_then)) if operator == "&&" else (join(ok, then), not_then)
        return ok, failed

    def function(self, node: Node, dirs: Dirs) -> After:
        name = node.child_by_field_name("name")
        if name is not None:
            self.functions.add(self.words.text(name))
        for child in node.children:
            if child.type == "file_redirect":
                self.redirects(child, [], None)
            elif child.is_named and child != name:
                self.statement(child, None)
        return dirs, dirs

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

    # -- redirections ------------------------------------------------------------------------------------------------

    def redirected(self, node: Node, dirs: Dirs, background: bool, piped: bool) -> After:
        body = node.children[0]
        found: list[Redirect] = []
        later: list[Node] = []
        extra: list[Word] = []
        for child in node.children if body.type.endswith("_redirect") else node.children[1:]:
            extra += self.redirects(child, found, dirs, later)
        fed = any(item.op.startswith("<<") for item in found)
        if body.type.endswith("_redirect"):
            after = self.add(Segment((), self.words.text(node), dirs, tuple(found), background=background))
        elif body.type in ("command", "declaration_command", "test_command", "unset_command"):
            after = self.simple(body, node, dirs, background, piped or fed, found, extra)
        else:
            if extra:
                self.doubt("there are words behind a redirection")
            first = len(self.segments)
            after = self.statement(body, dirs, background=background, piped=piped or fed)
            inner = [segment.dirs for segment in self.segments[first:]]
            places = dirs if body.type in ("compound_statement", "subshell") else join(dirs, *after, *inner)
            self.add(Segment((), self.words.text(node), places, tuple(found), background=background))
        for child in later:
            places = join(dirs, *after)
            self.statement(child, places, background=background, piped=True)
            after = (join(places, *after), join(places, *after))
        return after

    def redirects(self, node: Node, found: list[Redirect], dirs: Dirs, later: list[Node] | None = None) -> list[Word]:
        """Read one redirection into ``found``. Gives words that stand behind it and belong to the command."""
        self.dirs = dirs
        fd, op = "", ""
        words: list[Word] = []
        if node.type == "heredoc_redirect":
            return self.here(node, found, dirs, later)
        for child in node.children:
            if child.type == "file_descriptor":
                fd = self.words.text(child)
            elif child.type in WORDS:
                words += [self.words.one(child)] if not words else self.words.words(child)
            elif not child.is_named:
                op = self.words.text(child)
            else:
                self.doubt("a redirection that is not understood")
        if node.type == "herestring_redirect":
            found.append(Redirect("<<<", None, fd))
        else:
            found.append(Redirect(op, words[0] if words else None, fd))
        return words[1:]

    def here(self, node: Node, found: list[Redirect], dirs: Dirs, later: list[Node] | None) -> list[Word]:
        """A here-document, and what else stands on its first line."""
        words: list[Word] = []
        operator = tag = body = end = None
        for child in node.children:
            kind = child.type
            if kind in ("<<", "<<-"):
                operator = child
            elif kind == "heredoc_start":
                tag = child
            elif kind == "heredoc_body":
                body = child
            elif kind == "heredoc_end":
                end = child
            elif kind.endswith("_redirect"):
                words += self.redirects(child, found, dirs, later)
            elif kind in WORDS:
                words += self.words.words(child)
            elif kind == "comment":
                self.comment(child)
            elif child.is_named and later is not None:
                later.append(child)
            elif child.is_named:
                self.doubt("a here-document that is not understood")
                self.statement(child, dirs, piped=True)
            elif kind not in MARKS:
                self.doubt("a here-document that is not understood")
        found.append(Redirect("<<", None))
        place = None
        if operator is not None and tag is not None:
            written = self.src[tag.start_byte : tag.end_byte]
            place = guard.heredoc(self.src, operator.start_byte, tag.end_byte, written, operator.type == "<<-")
        if place is None or end is None or end.end_byte != place[2]:
            self.blind("it cannot be said where a here-document ends")
        elif place[3]:
            self.words.literals.append((place[0], place[2]))
            return words
        elif b"\\\n" in self.src[place[0] : place[1]]:
            self.blind("a line continuation stands in a here-document")
        for child in body.children if body is not None else ():
            if child.type in WORDS:
                self.words.one(child)
        return words

    # -- simple commands ---------------------------------------------------------------------------------------------

    def simple(
        self,
        node: Node,
        whole: Node,
        dirs: Dirs,
        background: bool,
        piped: bool,
        found: list[Redirect] | None = None,
        extra: list[Word] | None = None,
    ) -> After:
        """Read one simple command and add its segments."""
        found = found if found is not None else []
        words: list[Word] = []
        assignments: list[Assignment] = []
        behind: list[Word] = list(extra or ())
        first = len(self.problems)
        if node.type == "test_command" and self.words.text(node).startswith("(("):
            self.doubt("arithmetic evaluates what its variables hold")
            self.words.inside(node)
        elif node.type == "test_command":
            self.test(node, words)
        elif node.type == "variable_assignment":
            assignments.append(self.assignment(node))
        else:
            if node.type in ("declaration_command", "unset_command"):
                keyword = self.words.text(node.children[0])
                words.append(Word(keyword, keyword, lead=keyword))
            self.parts(node, words, assignments, found, behind, dirs)
        words += behind
        segment = Segment(
            tuple(words), self.words.text(whole), dirs, tuple(found), tuple(assignments),
            background=background, piped=piped or any(item.op.startswith("<") for item in found),
        )  # fmt: skip
        kept = [problem for problem in self.problems[first:] if problem.weight == "doubt"]
        segment.problems += kept
        self.problems[first:] = [problem for problem in self.problems[first:] if problem.weight != "doubt"]
        return self.add(segment)

    def parts(
        self,
        node: Node,
        words: list[Word],
        assignments: list[Assignment],
        found: list[Redirect],
        behind: list[Word],
        dirs: Dirs,
    ) -> None:
        dollar = -1
        for child in node.children[1:] if node.type in ("declaration_command", "unset_command") else node.children:
            kind = child.type
            if kind == "command_name":
                words += self.words.words(child.children[0])
            elif kind == "variable_assignment":
                made = self.assignment(child)
                if words:
                    words.append(_argument(made))
                else:
                    assignments.append(made)
            elif kind in WORDS:
                words += self.words.words(child)
            elif kind.endswith("_redirect"):
                behind += self.redirects(child, found, dirs)
            elif kind == "comment":
                self.comment(child)
            elif kind == "$":
                follower = child.next_sibling
                if follower is None or follower.start_byte != child.end_byte:
                    words.append(Word("$", "$", lead="$"))
                dollar = child.end_byte
            elif kind == "subshell":
                self.doubt("a parenthesis stands where a word is expected")
                self.sequence(child, dirs)
            else:
                self.doubt(f"{self.words.text(child)[:40]!r} is not understood")
                self.words.inside(child)
        if dollar >= 0 and not words:
            self.doubt("there is no command that is understood")

    def assignment(self, node: Node) -> Assignment:
        raw = self.words.text(node)
        name, value, sub = node.child_by_field_name("name"), None, False
        for child in node.children:
            if child == name or not child.is_named:
                if child == name and child.type == "subscript":
                    sub = True
                    if not re.fullmatch(r"\w+\[\d+\]", self.words.text(child)):
                        self.doubt("the index of an array is evaluated")
                        self.words.inside(child)
            elif child.type in WORDS:
                value = self.words.one(child)
            elif child.type == "array":
                for item in child.children:
                    if item.type in WORDS:
                        self.words.words(item)
                    elif item.is_named:
                        self.doubt("an array that is not understood")
                        self.words.inside(item)
            else:
                self.doubt("an assignment that is not understood")
                self.words.inside(child)
        label = re.match(r"\w*", raw)
        return Assignment(label[0] if label else "", None if sub else value, raw)

    def test(self, node: Node, words: list[Word]) -> None:
        """The words of ``[ ... ]`` and ``[[ ... ]]`` in their order; both are left to the judge."""
        for child in node.children:
            if child.type in WORDS:
                words += [self.words.one(child)]
            elif child.is_named:
                self.test(child, words)
            else:
                raw = self.words.text(child)
                words.append(Word(raw, raw, lead=raw))

    def add(self, segment: Segment) -> After:
        """Take the wrappers off a segment, add what remains, and follow a change of directory."""
        here = emit(self, segment)
        if here is None or here.name not in builtins().moving:
            return segment.dirs, segment.dirs
        return None if b"CDPATH" in self.src else moved(here, self.home), segment.dirs


def _argument(made: Assignment) -> Word:
    literal = made.value is not None and made.value.literal
    text = f"{made.name}={made.value.text}" if literal and made.value is not None else made.raw
    kind = "literal" if literal and made.raw.startswith(f"{made.name}=") else "unknown"
    return Word(made.raw, text, kind, False, text if kind == "literal" else f"{made.name}")  # type: ignore[arg-type]


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
