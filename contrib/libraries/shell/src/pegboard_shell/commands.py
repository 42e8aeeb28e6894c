"""Simple commands and redirections: from their nodes to the words, assignments and targets of a segment."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tree_sitter import Node

from pegboard_shell import guard
from pegboard_shell.script import After, Assignment, Dirs, Redirect, Segment, Word, join

if TYPE_CHECKING:
    from pegboard_shell.read import Walk

WORDS = frozenset((
    "word", "number", "string", "raw_string", "ansi_c_string", "concatenation", "simple_expansion", "expansion",
    "command_substitution", "process_substitution", "arithmetic_expansion", "brace_expression", "test_operator",
    "extglob_pattern", "regex", "variable_name", "special_variable_name", "translated_string",
))  # fmt: skip
SIMPLE = frozenset(("command", "declaration_command", "unset_command", "test_command"))
MARKS = frozenset((
    ";", ";;", ";&", ";;&", "\n", "(", ")", "{", "}", "if", "then", "elif", "else", "fi", "do", "done", "while",
    "until", "for", "select", "in", "case", "esac", "$(", "`", "<(", ">(", "|", "|&", "&&", "||", "!", "&", "function",
    "$(<",
))  # fmt: skip

# -- redirections ------------------------------------------------------------------------------------------------


def redirected(
    walk: Walk, body: Node, rest: list[Node], whole: Node, dirs: Dirs, background: bool, piped: bool
) -> After:
    """A statement ``body`` with redirections ``rest`` behind it; behind a list they belong to its last command."""
    if body.type in ("list", "pipeline"):
        return walk.chain(body, dirs, background, piped, rest)
    found: list[Redirect] = []
    later: list[Node] = []
    extra: list[Word] = []
    for child in rest:
        extra += redirects(walk, child, found, dirs, later)
    fed = any(item.op.startswith("<<") for item in found)
    if body.type.endswith("_redirect"):
        after = walk.add(Segment((), walk.words.text(whole), dirs, tuple(found), background=background))
    elif body.type in SIMPLE:
        after = simple(walk, body, whole, dirs, background, piped, found, extra)
    else:
        if extra:
            walk.doubt("there are words behind a redirection")
        walk.add(Segment((), walk.words.text(whole), dirs, tuple(found), background=background))
        after = walk.statement(body, dirs, background=background, piped=piped or fed)
    for child in later:
        places = join(dirs, *after)
        then = walk.statement(child, places, background=background, piped=True)
        after = (join(places, *then), join(places, *then))
    return after


def redirects(walk: Walk, node: Node, found: list[Redirect], dirs: Dirs, later: list[Node] | None = None) -> list[Word]:
    """Read one redirection into ``found``. Gives words that stand behind it and belong to the command."""
    walk.dirs = dirs
    fd, op = "", ""
    words: list[Word] = []
    if node.type == "heredoc_redirect":
        return here(walk, node, found, dirs, later)
    walk.together(node.children)
    for child in node.children:
        if child.type == "file_descriptor":
            fd = walk.words.text(child)
        elif child.type in WORDS:
            words += [walk.words.one(child)] if not words else walk.words.words(child)
        elif not child.is_named:
            op = walk.words.text(child)
        else:
            walk.doubt("a redirection that is not understood")
    if node.type == "herestring_redirect":
        found.append(Redirect("<<<", None, fd))
    else:
        closes = op.endswith("&-")  # it takes no target, whatever the parser thinks
        found.append(Redirect(op, words[0] if words and not closes else None, fd))
        if closes:
            return words
    return words[1:]


def here(walk: Walk, node: Node, found: list[Redirect], dirs: Dirs, later: list[Node] | None) -> list[Word]:
    """A here-document, and what else stands on its first line."""
    words: list[Word] = []
    operator = tag = body = end = None
    walk.together([child for child in node.children if child.type not in ("heredoc_body", "heredoc_end")])
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
            words += redirects(walk, child, found, dirs, later)
        elif kind in WORDS:
            words += walk.words.words(child)
        elif kind == "comment":
            walk.comment(child)
        elif child.is_named and later is not None:
            later.append(child)
        elif child.is_named:
            walk.doubt("a here-document that is not understood")
            walk.statement(child, dirs, piped=True)
        elif kind not in MARKS:
            walk.doubt("a here-document that is not understood")
    found.append(Redirect("<<", None))
    place = None
    if operator is not None and tag is not None:
        written = walk.src[tag.start_byte : tag.end_byte]
        place = guard.heredoc(walk.src, operator.start_byte, tag.end_byte, written, operator.type == "<<-")
    if place is None or end is None or end.end_byte != place[2]:
        walk.blind("it cannot be said where a here-document ends")
    elif place[3]:
        walk.words.literals.append((place[0], place[2]))
        return words
    elif b"\\\n" in walk.src[place[0] : place[1]]:
        walk.blind("a line continuation stands in a here-document")
    for child in body.children if body is not None else ():
        if child.type in WORDS:
            walk.words.one(child)
    return words


# -- simple commands ---------------------------------------------------------------------------------------------


def simple(
    walk: Walk,
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
    first = len(walk.problems)
    walk.together(node.children)
    if node.type == "test_command" and walk.words.text(node).startswith("(("):
        walk.doubt("arithmetic evaluates what its variables hold")
        walk.words.inside(node)
    elif node.type == "test_command":
        test(walk, node, words)
    elif node.type == "variable_assignment":
        assignments.append(assignment(walk, node))
    else:
        if node.type in ("declaration_command", "unset_command"):
            keyword = walk.words.text(node.children[0])
            words.append(Word(keyword, keyword, lead=keyword))
        parts(walk, node, words, assignments, found, behind, dirs)
    words += behind
    segment = Segment(
        tuple(words), walk.words.text(whole), dirs, tuple(found), tuple(assignments),
        background=background, piped=piped or any(item.op.startswith("<") for item in found),
    )  # fmt: skip
    kept = [problem for problem in walk.problems[first:] if problem.weight == "doubt"]
    segment.problems += kept
    walk.problems[first:] = [problem for problem in walk.problems[first:] if problem.weight != "doubt"]
    return walk.add(segment)


def parts(
    walk: Walk,
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
            words += walk.words.words(child.children[0])
        elif kind == "variable_assignment":
            made = assignment(walk, child)
            if words:
                words.append(_argument(made))
            else:
                assignments.append(made)
        elif kind in WORDS:
            words += walk.words.words(child)
        elif kind.endswith("_redirect"):
            behind += redirects(walk, child, found, dirs)
        elif kind == "comment":
            walk.comment(child)
        elif kind == "$" and walk.words.text(child) != "$":
            walk.blind(f"{walk.words.text(child)[:40]!r} is no word")
        elif kind == "$":
            follower = child.next_sibling
            if not walk.bash:
                walk.doubt("another shell may read a dollar sign before a quote as it stands")
            if follower is None or follower.start_byte != child.end_byte:
                words.append(Word("$", "$", lead="$"))
            dollar = child.end_byte
        elif kind == "subshell":
            walk.doubt("a parenthesis stands where a word is expected")
            walk.sequence(child, dirs)
        else:
            walk.doubt(f"{walk.words.text(child)[:40]!r} is not understood")
            walk.words.inside(child)
    if dollar >= 0 and not words:
        walk.doubt("there is no command that is understood")


def assignment(walk: Walk, node: Node) -> Assignment:
    raw = walk.words.text(node)
    name, value, sub = node.child_by_field_name("name"), None, False
    for child in node.children:
        if child == name or not child.is_named:
            if child == name and child.type == "subscript":
                sub = True
                if not re.fullmatch(r"\w+\[\d+\]", walk.words.text(child)):
                    walk.doubt("the index of an array is evaluated")
                    walk.words.inside(child)
        elif child.type in WORDS:
            value = walk.words.one(child)
        elif child.type == "array":
            for item in child.children:
                if item.type in WORDS:
                    walk.words.words(item)
                elif item.is_named:
                    walk.doubt("an array that is not understood")
                    walk.words.inside(item)
        else:
            walk.doubt("an assignment that is not understood")
            walk.words.inside(child)
    label = re.match(r"\w*", raw)
    return Assignment(label[0] if label else "", None if sub else value, raw)


def test(walk: Walk, node: Node, words: list[Word]) -> None:
    """The words of ``[ ... ]`` and ``[[ ... ]]`` in their order; both are left to the judge."""
    walk.together(node.children)
    for child in node.children:
        if child.type in WORDS:
            words += [walk.words.one(child)]
        elif child.is_named:
            test(walk, child, words)
        else:
            raw = walk.words.text(child)
            words.append(Word(raw, raw, lead=raw))


def _argument(made: Assignment) -> Word:
    literal = made.value is not None and made.value.literal
    text = f"{made.name}={made.value.text}" if literal and made.value is not None else made.raw
    kind = "literal" if literal and made.raw.startswith(f"{made.name}=") else "unknown"
    return Word(made.raw, text, kind, False, text if kind == "literal" else f"{made.name}")  # type: ignore[arg-type]
