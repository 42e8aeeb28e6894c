"""Programs that no table of options describes: git, find, sed, awk, tar, `test`, and the opaque builtins.

Each function fills in what is known; where the language of a program is not understood, it says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from pegboard_shell.known import Known, Use, mention, stands_for, text_word
from pegboard_shell.script import Segment, Word
from pegboard_shell.tables import builtins, programs, risks, scan
from pegboard_shell.tables import git as git_grammars

_LOCAL = re.compile(r"[a-z_][a-z0-9_]*")


def local_name(name: str) -> bool:
    """A variable that no other program reads: lower case, and not one of the few exceptions."""
    return _LOCAL.fullmatch(name) is not None and name not in builtins().not_local


def safe_assignment(name: str, value: Word | None) -> bool:
    """An assignment that cannot turn the command behind it into another one."""
    table = builtins()
    if name in table.safe_variables:
        return True
    return value is not None and value.literal and table.safe_values.get(name) == value.text


# -- builtins --------------------------------------------------------------------------------------------------------


def builtin(segment: Segment) -> Known:
    """Builtins that change the shell: free in their plain forms, else a doubt."""
    name, words = segment.name, segment.argv[1:]
    if name == "export" and words and all(re.match(r"[A-Za-z_]\w*(?:=|$)", word.lead) for word in words):
        safe = all(word.text.partition("=")[0] in builtins().safe_variables for word in words)
        return Known("reads" if safe else "")
    if all(word.literal for word in words) and _plain_form(name, [word.text for word in words]):
        return Known("reads")
    known = Known(doubts=[f"{name} changes what later words mean, or runs what is not a command yet"])
    if name in ("source", ".") and words:
        known.uses.append(Use(words[0]))
    return known


def _plain_form(name: str, words: list[str]) -> bool:
    if name == "set":
        table = builtins()
        return bool(words) and all(word in table.strict or word in table.strict_names for word in words)
    if name == "unset":
        return all(local_name(word) for word in words)
    if name == "read":
        return _reads_names(words, "rs", "pntdui")
    if name in ("mapfile", "readarray"):
        return _reads_names(words, "t", "dn")
    return False


def _reads_names(words: list[str], flags: str, valued: str) -> bool:
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            return local_name(word) and all(local_name(other) for other in rest)
        for index, char in enumerate(word[1:], 2):
            if char in valued:
                if not word[index:]:
                    next(rest, None)
                break
            if char not in flags:
                return False
    return False


# -- test ------------------------------------------------------------------------------------------------------------

_UNARY = frozenset(f"-{char}" for char in "efdrwxsLhbcpSgukOGNtzn")
_BINARY = frozenset(("=", "==", "!=", "<", ">", "-nt", "-ot", "-ef"))
_NUMBERS = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))


def test(segment: Segment, known: Known) -> None:
    """``test``, ``[`` and ``[[``: harmless unless a word may become an operator, or is evaluated."""
    double = segment.name == "[["
    words = list(segment.argv[1:])
    if words and segment.name != "test":
        words.pop()
    if double and any(not word.literal and ("(" in word.raw or "`" in word.raw) for word in words):
        known.doubts.append("a comparison holds a command")
        return
    group: list[Word] = []
    for word in [*words, text_word("&&")]:
        if word.raw in ("&&", "||", "-a", "-o", "(", ")", "!"):
            if group and not _one_test(group, double):
                known.doubts.append(f"{segment.name} may evaluate what a word holds")
                return
            if word.raw in ("-a", "-o") and not all(each.literal for each in words):
                known.doubts.append(f"{segment.name} may read a word as an operator")
                return
            group = []
        else:
            group.append(word)
    if not double and any(word.raw in ("<", ">") for word in words):
        known.doubts.append("a comparison sign writes to a file here")
        return
    known.does = "reads"


def _one_test(group: list[Word], double: bool) -> bool:
    single = double or not any(word.many and word.kind == "unknown" for word in group)
    if len(group) == 1:
        return single
    if len(group) == 2:
        return group[0].text in _UNARY and group[0].literal and single
    if len(group) != 3 or not group[1].literal or not single:
        return False
    if group[1].text in _BINARY:
        return True
    if double and group[1].text == "=~":
        return all(word.kind != "unknown" for word in group[2:])
    if group[1].text not in _NUMBERS:
        return False
    return not double or all(re.fullmatch(r"-?\d+", word.text) for word in (group[0], group[2]))


# -- find, sed, awk, tar ---------------------------------------------------------------------------------------------


def find(segment: Segment, known: Known) -> None:
    """``find``: tests and printing. What it finds is named, not read."""
    grammar, words = programs()["find"], segment.argv[1:]
    at = 0
    while at < len(words) and words[at].literal and words[at].text in ("-H", "-L", "-P"):
        at += 1
    start = at
    while at < len(words) and not words[at].may_be_option and words[at].text not in ("(", "!", ","):
        at += 1
    known.uses += [Use(word) for word in words[start:at] or (text_word("."),)]
    while at < len(words):
        word = words[at]
        if not word.literal:
            known.doubts.append("find may get an action that is made when the command runs")
            return
        if word.text in grammar.long_value:
            value = words[at + 1] if at + 1 < len(words) else None
            if value is None or (value.many and value.may_be_option):
                if value is not None:
                    known.doubts.append("find may get an action that is made when the command runs")
                return
            if word.text.startswith(("-newer", "-anewer", "-cnewer", "-samefile")):
                known.uses.append(Use(value, mention=True))
            at += 2
        elif word.text in grammar.long:
            at += 1
        else:
            return
    known.does = "reads"


_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n]|\\.)*/[IM]*)"
_PART = r"(?:(?!(?P=D))[^\\\n]|\\.)*(?P=D)"
_SED = re.compile(
    rf"[\s;]*(?:{_ADDRESS}(?:\s*,\s*(?:[+~]?\d+|{_ADDRESS}))?\s*!*\s*)?"
    r"(?:[pdDPqQnNgGhHxlz=}{F][ \t]*\d*|"
    rf"s(?P<s>[^\\\n]){_PART.replace('D', 's') * 2}(?P<flags>[A-Za-z0-9]*)|"
    rf"y(?P<y>[^\\\n]){_PART.replace('D', 'y') * 2}|"
    r"[:btT][ \t]*\w*|[aic]\\?[^\n]*|(?P<bad>[eEwWrR]))[ \t]*",
    re.DOTALL,
)
"""One command for sed that is understood, with its addresses."""


def sed_script(text: str) -> str:
    """What a script for sed can do beside printing: ``""``, ``"runs"`` (also writes), or ``"unknown"``."""
    at = 0
    text = text.rstrip("; \t\n")
    while at < len(text):
        match = _SED.match(text, at)
        if match is None or match.end() == at:
            return "unknown"
        if match["bad"] or (match["flags"] and set(match["flags"]) & set("ewW")):
            return "runs"
        if match["flags"] and not re.fullmatch(r"[gpiImM0-9]*", match["flags"]):
            return "unknown"
        at = match.end()
        if at < len(text) and text[at] not in ";\n}" and text[at - 1] not in "{}":
            return "unknown"
    return ""


def sed(segment: Segment, known: Known) -> None:
    """``sed``: reads, or edits with ``-i``, unless its script can run or write something."""
    found = scan(segment.argv[1:], programs()["sed"])
    if found is None or found.unsure:
        known.doubts.append("sed has an option that is not known")
        return
    scripts = found.values(frozenset(("e", "expression")))
    files = found.values(frozenset(("f", "file")))
    operands = found.operands
    if not scripts and not files:
        scripts, operands = operands[:1], operands[1:]
    if not scripts and not files:
        return
    for script in scripts:
        does = sed_script(script.text) if script.literal else "unknown"
        if does == "runs":
            known.risks.append("its script lets sed run, read or write something else")
        elif does:
            known.doubts.append("the script for sed is not understood")
    if files:
        known.doubts.append("the script for sed is in a file")
        known.uses += [Use(word) for word in files]
    edit = found.has(frozenset(("i", "in-place")))
    known.uses += [Use(word, edit=edit) for word in operands]
    if not known.risks and not known.doubts:
        known.does = "edits" if edit else "reads"


_AWK_RUNS = re.compile(r"\bsystem\b|\bgetline\b|(?<!\|)\|(?!\|)|\bprintf?\b[^;}]*>|@|\bextension\b|\bclose\b")
_AWK_READS = re.compile(r"ENVIRON|ARGV|ARGC|PROCINFO|SYMTAB|FUNCTAB|\bprintf?\b[\s\S]*>")
"""Looked for in all of the text: where a string or an expression ends is not certain in this language."""


def awk(segment: Segment, known: Known) -> None:
    """``awk``: free only where its program can neither run, write, nor choose its own files."""
    found = scan(segment.argv[1:], programs()["awk"])
    if found is None or found.unsure or not found.operands:
        known.doubts.append("awk has an option that is not known")
        return
    program, *files = found.operands
    if not program.literal:
        known.doubts.append("the program of awk is made when the command runs")
    elif _AWK_RUNS.search(program.text):
        known.risks.append("its program lets awk run or write something else")
    elif not _AWK_READS.search(program.text):
        known.does = "reads"
    known.uses += [Use(word) for word in files if not re.match(r"[A-Za-z_]\w*=", word.text)]


def tar(segment: Segment, known: Known) -> None:
    """``tar``: listing reads; anything else needs a rule, and its folders are judged."""
    words = segment.argv[1:]
    if words and words[0].literal and words[0].text[:1] not in ("-", ""):
        words = (text_word("-" + words[0].text), *words[1:])
    found = scan(words, programs()["tar"])
    if found is None or found.unsure:
        mention(known, segment)
        known.uses.append(Use(text_word("."), edit=True))
        return
    listing = found.has(frozenset(("t", "list"))) and not found.has(frozenset(("x", "extract")))
    known.uses += [Use(word) for word in found.values(frozenset(("f", "file")))]
    if listing:
        known.does = "reads"
    else:
        folders = found.values(frozenset(("C", "directory"))) or [text_word(".")]
        known.uses += [Use(word, edit=True, link=True) for word in folders]


# -- git -------------------------------------------------------------------------------------------------------------


def git(segment: Segment, known: Known) -> None:
    """``git``: global options first, then what its subcommand can do."""
    table, words = risks().git, segment.argv[1:]
    at = 0
    while at < len(words) and words[at].literal and words[at].text.startswith("-"):
        text = words[at].text
        at += 1
        if text in table.quiet:
            continue
        if text == "-c" and at < len(words) and words[at].literal and _harmless(words[at].text):
            at += 1
        elif text == "-C" and at < len(words):
            known.uses.append(Use(words[at], mention=True))
            if words[at].text not in (".", "./"):
                known.risks.append("git runs in another directory, which may bring its own settings")
            at += 1
        elif text == "--version" and len(words) == 1:
            known.does = "reads"
            return
        elif text in ("--help", "-h", "--html-path", "--man-path", "-p", "--paginate", "--version"):
            known.does = ""
            return
        else:
            known.risks.append(f"{text.partition('=')[0]} lets git run or read something else")
            at += text in table.valued
    if at >= len(words):
        return
    if not words[at].literal:
        known.doubts.append("what git does is chosen when the command runs")
        return
    name, rest = words[at].text, words[at + 1 :]
    known.spelled.append(" ".join(("git", *(word.text for word in words[at:]))))
    _dangers(name, rest, known)
    grammar = git_grammars().get(name)
    if grammar is None or known.risks:
        mention(known, segment)
        return
    found = scan(rest, grammar)
    if found is None or found.unsure:
        if found is not None:
            known.doubts.append("git may get an option that is made when the command runs")
        return
    operands = found.operands
    if grammar.first:
        first = operands[0].text if operands else ""
        if first not in grammar.first or (operands and not operands[0].literal):
            if not (name == "reflog" and operands and operands[0].literal and first not in ("expire", "delete")):
                return
        else:
            operands = operands[1:]
    elif name == "config":
        if len(operands) + len(found.values(frozenset(("get", "get-all")))) != 1:
            return
    elif grammar.operands == "none" and operands and not found.has(grammar.free_with):
        return
    if len(operands) > grammar.max:
        return
    if name == "grep" and not found.has(frozenset("e")):
        operands = operands[1:]
    known.uses += _paths(operands, tree=name == "grep")
    known.does = "reads"


def _harmless(setting: str) -> bool:
    for pattern in risks().git.settings:
        key, given, value = pattern.partition("=")
        name, _, wanted = setting.partition("=")
        fits = name.startswith(key[:-1]) if key.endswith(".*") else name.lower() == key.lower()
        if key == "pager.*":
            fits = name.startswith("pager.")
        if fits and (not given or value == wanted):
            return True
    return False


def _dangers(name: str, words: tuple[Word, ...], known: Known) -> None:
    table = risks().git
    operand = next((word.text for word in words if word.literal and not word.text.startswith("-")), "")
    if name in table.subcommands or f"{name} {operand}" in table.pairs:
        known.risks.append(f"git {name} runs other programs")
    operands = [word for word in words if not word.text.startswith("-")]
    reads = any(word.text.startswith(("--get", "--list", "-l")) for word in words) or len(operands) == 1
    if name == "config" and not reads:
        known.risks.append("settings of git can name programs")
    for before, word in pairwise((text_word(""), *words)):
        if not word.literal:
            valued = (before.literal and before.text in table.takes) or word.lead.startswith("-m")
            if word.kind == "unknown" and word.may_be_option and not (valued and not word.many):
                known.doubts.append("git may get an option that is made when the command runs")
            continue
        if word.text == "--":
            break
        if any(stands_for(word.text, option) for option in table.options):
            known.risks.append(f"{word.text.partition('=')[0]} lets git run or read something else")
        elif re.match(r"-\w", word.text) and set(table.short.get(name, "")) & set(word.text[1:]):
            known.risks.append(f"{word.text} lets git run something else")
        elif re.match(r"[\w+.-]+::", word.text) and name not in ("log", "show", "diff", "grep"):
            known.risks.append("an address with :: runs a program")
        for option in table.writes:
            if stands_for(word.text, option) and "=" in word.text:
                known.uses.append(Use(text_word(word.text.partition("=")[2]), edit=True))
    if name in ("archive", "format-patch", "bundle"):
        for index, word in enumerate(words[:-1]):
            if word.text in ("-o", "--output", "--output-directory"):
                known.uses.append(Use(words[index + 1], edit=True))


def _paths(operands: list[Word], *, tree: bool) -> list[Use]:
    uses = [Use(text_word("."), tree=True)] if tree else []
    for word in operands:
        if not word.literal:
            uses.append(Use(word))
            continue
        text = word.text
        outside = text.startswith(("/", "~")) or ".." in text.split("/")
        uses.append(Use(text_word(text if outside else text.rpartition(":")[2] or text), mention=not outside))
    return uses


PROGRAMS: dict[str, Callable[[Segment, Known], None]] = {
    "git": git, "find": find, "sed": sed, "awk": awk, "gawk": awk, "mawk": awk, "nawk": awk, "tar": tar, "gtar": tar,
    "test": test, "[": test, "[[": test,
}  # fmt: skip
