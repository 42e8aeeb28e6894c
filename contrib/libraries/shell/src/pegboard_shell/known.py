"""What is known about one command: whether it only reads or only edits, which files it names, what is wrong with it.

Knowledge is the grammar of a program. What does not fit its grammar is an unknown command, whatever its name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pegboard_shell.script import LITERAL, Segment, Word
from pegboard_shell.tables import Grammar, Scan, builtins, programs, risks, scan

Does = Literal["", "reads", "edits"]

SYSTEM = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")
"""Folders whose programs are the ones that their names promise."""


class Use(NamedTuple):
    """A path that a command names."""

    word: Word
    edit: bool = False
    tree: bool = False
    """Everything below is read."""
    mention: bool = False
    """Only named: deny and ask rules may object, but it is no reason to ask."""
    link: bool = False
    """A link may come to be there, so that later paths lead somewhere else."""


@dataclass(slots=True)
class Known:
    """What is known about a command."""

    does: Does = ""
    uses: list[Use] = field(default_factory=list)
    skips: list[str] = field(default_factory=list)
    """Patterns of files that a recursive reading leaves out."""
    only: list[str] = field(default_factory=list)
    """Patterns of the only files that a recursive reading looks at, if there are any."""
    doubts: list[str] = field(default_factory=list)
    risks: list[str] = field(default_factory=list)
    spelled: list[str] = field(default_factory=list)
    """Further texts that deny and ask rules match."""


def text_word(text: str) -> Word:
    """A word that says what it says."""
    return Word(text, text, LITERAL, False, text)


def know(segment: Segment) -> Known:
    """Find out what is known about a segment. Pure."""
    from pegboard_shell import special

    if not segment.argv:
        return Known("reads")
    head = segment.argv[0]
    known = Known()
    if not head.literal:
        return known
    name = segment.name
    trusted = "/" not in head.text or head.text.rpartition("/")[0] in SYSTEM
    table = builtins()
    if not trusted:
        mention(known, segment)
        return known
    if name in table.opaque and "/" not in head.text:
        return special.builtin(segment)
    if name in table.free:
        return Known("reads")
    own = special.PROGRAMS.get(name)
    if own is not None:
        own(segment, known)
    else:
        grammar = programs().get(name)
        if name == "command" and len(segment.argv) > 1 and segment.argv[1].text[:1] == "-":
            grammar = programs()["command -v"]
        if grammar is None:
            mention(known, segment)
        else:
            by_grammar(segment, grammar, known)
    dangers(segment, known)
    return known


_RG_SEES_ALL = frozenset(("hidden", "u", "unrestricted", "."))

# -- by grammar ------------------------------------------------------------------------------------------------------


def by_grammar(segment: Segment, grammar: Grammar, known: Known) -> None:
    """Judge a command by the grammar of its program."""
    words = segment.argv[1:]
    if grammar.free_form:
        known.does = "reads"
        return
    found = scan(words, grammar)
    if found is None and grammar.stops:
        known.doubts.append(f"{segment.name} may set a variable, whose index is evaluated")
    if found is None or (grammar.needs and not found.options):
        if grammar.does and not grammar.needs and grammar.operands in ("read", "edit", "move", "copy", "link", "mode"):
            known.doubts.append(f"{segment.name} has an option that is not known")
        mention(known, segment)
        return
    if found.unsure:
        known.doubts.append(f"{segment.name} may get an option that is made when the command runs")
    if _fits(found, grammar):
        known.does = grammar.does  # type: ignore[assignment]
    elif grammar.stops:
        known.doubts.append(f"{segment.name} may set a variable, whose index is evaluated")
    known.skips = [word.text for word in found.values(grammar.skips) if word.literal]
    known.only = ["*" if "/" in word.text else word.text for word in found.values(grammar.only)]
    if segment.name == "rg":
        known.only = [text for text in known.skips if text[:1] != "!" and "/" not in text]
        known.skips = [text[1:] for text in known.skips if text[:1] == "!"]
        known.skips += [] if found.has(_RG_SEES_ALL) else [".*"]
    tree = grammar.tree or found.has(grammar.tree_if)
    known.uses += [Use(word) for word in found.values(grammar.paths)]
    known.uses += _operands(found, grammar, tree)


def _fits(found: Scan, grammar: Grammar) -> bool:
    operands = found.operands
    if grammar.operands == "none" and operands:
        return False
    if not grammar.min <= len(operands) + (1 if found.values(grammar.into) else 0) or len(operands) > grammar.max:
        return False
    if grammar.form and not all(word.literal and re.fullmatch(grammar.form, word.text) for word in operands):
        return False
    if grammar.first_form and operands:
        first = operands[0]
        return first.literal and re.fullmatch(grammar.first_form, first.text) is not None
    return True


def _operands(found: Scan, grammar: Grammar, tree: bool) -> list[Use]:
    operands, kind = found.operands, grammar.operands
    if kind in ("text", "none"):
        return []
    if kind == "pattern" and not found.has(grammar.pattern_in):
        operands = operands[1:]
    if kind == "mode":
        operands = operands[1:]
    if kind == "keyed":
        return [
            Use(text_word(value), edit=key in grammar.writes)
            for key, _, value in (word.text.partition("=") for word in operands if word.literal)
            if key in grammar.writes or key in grammar.reads
        ]
    if kind in ("move", "copy", "link"):
        return _destination(found, grammar, tree)
    uses = [Use(word, edit=kind in ("edit", "mode"), tree=tree) for word in operands]
    wanted = not grammar.default_if or "*" in grammar.default_if or found.has(grammar.default_if)
    if wanted and grammar.default and not operands and not found.has(grammar.quiet_if):
        uses.append(Use(text_word(grammar.default), tree=tree))
    return uses


def _destination(found: Scan, grammar: Grammar, tree: bool) -> list[Use]:
    kind, into = grammar.operands, found.values(grammar.into)
    sources, targets = (found.operands, into) if into else (found.operands[:-1], found.operands[-1:])
    if kind == "link" and len(found.operands) == 1 and not into:
        name = found.operands[0].text.rstrip("/").rpartition("/")[2] or "."
        sources, targets = found.operands, [text_word(name)]
    links = kind == "link" or kind == "move" or found.has(grammar.links_if)
    uses = [Use(word, edit=kind == "move", tree=tree) for word in sources]
    return uses + [Use(word, edit=True, link=links) for word in targets]


# -- unknown commands ------------------------------------------------------------------------------------------------

_PATHLIKE = re.compile(r"(?:--?[\w-]+=|@)?((?:\.{0,2}/|~/|\.[\w-]|[\w.-]+/)[^\n]*)")


def mention(known: Known, segment: Segment) -> None:
    """Note the words of an unknown command that look like paths: Read deny rules speak about them."""
    for word in segment.argv[1:]:
        if not word.literal or len(word.text) > 1024 or "://" in word.text:
            continue
        if match := _PATHLIKE.fullmatch(word.text):
            known.uses.append(Use(text_word(match[1]), mention=True))


def dangers(segment: Segment, known: Known) -> None:
    """Options that make an ordinary program run or write something else."""
    table, name, words = risks(), segment.name, segment.argv[1:]
    wanted = table.options.get(name, ())
    plain, leading = name in table.plain["programs"], name in table.leading["programs"]
    for word in words if wanted else ():
        if leading and not word.text.startswith("-"):
            break
        if not word.literal:
            attached = not word.many and re.match(r"-[^-]", word.lead)
            if word.kind == "unknown" and word.may_be_option and not attached:
                known.doubts.append(f"{name} may get an option that is made when the command runs")
                break
            continue
        if word.text == "--" and not plain:
            break
        if any(stands_for(word.text, option, plain) for option in wanted):
            known.risks.append(f"{word.text.partition('=')[0]} lets {name} run or change something else")
            break
    for index, word in enumerate(words):
        for option in table.writes.get(name, ()) if word.literal else ():
            value = _value(word.text, option)
            if value is None:
                continue
            if value:
                known.uses.append(Use(text_word(value), edit=True))
            elif index + 1 < len(words):
                known.uses.append(Use(words[index + 1], edit=True))
            known.does = ""


def stands_for(text: str, option: str, plain: bool = False) -> bool:
    """Whether a word may be this option: abbreviated, in a cluster, or with its value attached."""
    if text[:1] != option[:1] or len(text) < 2:
        return False
    if plain:
        return text == option or text.startswith(option + "=")
    if option.startswith("--"):
        name = text.partition("=")[0]
        return len(name) > 2 and text.startswith("--") and option.startswith(name)
    if len(option) == 2 and option.startswith("-"):
        return not text.startswith("--") and option[1] in text[1:]
    return text == option or text.startswith(option)


def _value(text: str, option: str) -> str | None:
    """The value attached to an option, empty if it is the next word, None if the word is not this option."""
    if option.startswith("--"):
        name, given, value = text.partition("=")
        if len(name) > 3 and option.startswith(name) and text.startswith("--"):
            return value if given else ""
        return None
    if len(option) > 2 or text.startswith("--") or not text.startswith("-"):
        return "" if text == option else None
    at = text.find(option[1], 1)
    return text[at + 1 :] if at > 0 else None
