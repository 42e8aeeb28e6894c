"""The data of this package as typed records: wrappers, builtins, programs, risks. Read once, when first asked for.

What is known about programs is data, so that it can be listed, reviewed and extended without touching code.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pegboard_shell.script import LITERAL, Word


class Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a program and what its operands are. The keys are explained in the TOML files."""

    short: str = ""
    short_value: str = ""
    short_maybe: str = ""
    refuse: str = ""
    long: frozenset[str] = frozenset()
    long_value: frozenset[str] = frozenset()
    long_maybe: frozenset[str] = frozenset()
    digits: bool = False
    any: bool = False
    stops: bool = False
    needs: bool = False
    free_form: bool = False
    does: str = ""
    operands: str = "read"
    min: int = 0
    max: int = 1 << 20
    default: str = ""
    default_if: frozenset[str] = frozenset()
    quiet_if: frozenset[str] = frozenset()
    tree: bool = False
    tree_if: frozenset[str] = frozenset()
    links_if: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    pattern_in: frozenset[str] = frozenset()
    into: frozenset[str] = frozenset()
    skips: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    form: str = ""
    first_form: str = ""
    first: frozenset[str] = frozenset()
    free_with: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


class Wrapper(msgspec.Struct, frozen=True, kw_only=True):
    """A program that runs another one."""

    kind: str
    grammar: Grammar
    operands: int = 0
    assigns: bool = False
    appends: bool = False
    replaces: frozenset[str] = frozenset()
    shell: bool = False
    script: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    foreign: bool = False
    settings: frozenset[str] = frozenset()


class Builtins(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell does itself, and variables."""

    opaque: frozenset[str]
    free: frozenset[str]
    moving: frozenset[str]
    reserved: frozenset[str]
    strict: frozenset[str]
    strict_names: frozenset[str]
    safe_variables: frozenset[str]
    safe_values: dict[str, str]
    not_local: frozenset[str]


class GitRisks(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a command of git run or write something else."""

    settings: tuple[str, ...]
    quiet: frozenset[str]
    valued: frozenset[str]
    options: tuple[str, ...]
    short: dict[str, str]
    subcommands: frozenset[str]
    pairs: frozenset[str]
    writes: tuple[str, ...]
    takes: frozenset[str]


class Risks(msgspec.Struct, frozen=True, kw_only=True):
    """Options that make a program run or write something else."""

    options: dict[str, tuple[str, ...]]
    plain: dict[str, frozenset[str]]
    leading: dict[str, frozenset[str]]
    writes: dict[str, tuple[str, ...]]
    git: GitRisks


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text("utf-8"))


@cache
def builtins() -> Builtins:
    """The table of builtins and variables."""
    return msgspec.convert(_load("builtins.toml"), Builtins)


@cache
def wrappers() -> dict[str, tuple[Wrapper, ...]]:
    """Wrappers by name; several entries of one name are tried in their order."""
    found: dict[str, tuple[Wrapper, ...]] = {}
    for name, given in _load("wrappers.toml").items():
        own = {"kind", "operands", "assigns", "appends", "replaces", "shell", "words", "foreign", "settings"}
        rest = {key: value for key, value in given.items() if key not in own}
        script = [rest.pop(key) for key in ("script", "script_long") if key in rest]
        target = rest.pop("of", name)
        short, long = [each for each in script if len(each) == 1], [each for each in script if len(each) > 1]
        rest["short_value"] = rest.get("short_value", "") + "".join(short)
        rest["long_value"] = [*rest.get("long_value", []), *long]
        entry = {**{key: given[key] for key in own & given.keys()}, "script": script}
        wrapper = msgspec.convert({**entry, "grammar": msgspec.convert(rest, Grammar)}, Wrapper)
        found[target] = (*found.get(target, ()), wrapper)
    return found


@cache
def programs() -> dict[str, Grammar]:
    """Grammars by the name of the program."""
    return _grammars("programs.toml")


@cache
def git() -> dict[str, Grammar]:
    """Grammars of the reading subcommands of git."""
    return _grammars("git.toml")


@cache
def risks() -> Risks:
    """The table of risks."""
    return msgspec.convert(_load("risks.toml"), Risks)


def _grammars(name: str) -> dict[str, Grammar]:
    raw = _load(name)
    found = {}
    for program in raw:
        chain, given = [raw[program]], raw[program]
        while given.get("like"):
            given = raw[given["like"]]
            chain.append(given)
        merged: dict[str, Any] = {}
        for each in reversed(chain):
            for key, value in each.items():
                old = merged.get(key)
                merged[key] = old + value if key in ("short", "long") and old is not None else value
        merged.pop("like", None)
        found[program] = msgspec.convert(merged, Grammar)
    return found


# -- options ---------------------------------------------------------------------------------------------------------


class Scan(NamedTuple):
    """The words of a command by its grammar."""

    options: list[tuple[str, Word | None]]
    operands: list[Word]
    end: int
    """Index of the first operand, where reading stopped there."""
    unsure: bool
    """A word that is made when the command runs may be an option."""

    def has(self, names: frozenset[str]) -> bool:
        """One of these options is given."""
        return any(name in names for name, _ in self.options)

    def values(self, names: frozenset[str]) -> list[Word]:
        """The values of these options."""
        return [value for name, value in self.options if name in names and value is not None]


def scan(words: tuple[Word, ...], grammar: Grammar, *, stop: bool = False) -> Scan | None:
    """Sort words into options and operands; None if there is an option that the grammar does not have.

    ``stop``: reading ends at the first operand, as in wrappers. Abbreviated option names are not options.
    """
    options: list[tuple[str, Word | None]] = []
    operands: list[Word] = []
    unsure, at = False, 0
    while at < len(words):
        word = words[at]
        text = word.text
        if not word.literal:
            name = _named(word, grammar)
            if name:
                options.append((name, Word(word.raw, text.partition("=")[2], word.kind, lead="")))
                at += 1
                continue
            unsure = unsure or (word.may_be_option and not grammar.any)
            operands.append(word)
            if stop:
                return Scan(options, operands, at, unsure or word.many)
            at += 1
            continue
        at += 1
        if text == "--":
            if stop:
                return Scan(options, operands, at, unsure)
            operands += words[at:]
            break
        if text == "-" or not text.startswith("-"):
            operands.append(word)
            if stop:
                return Scan(options, operands, at - 1, unsure)
            if grammar.stops:
                operands += words[at:]
                break
            continue
        taken = _option(text, words, at, grammar, options)
        if taken is None:
            return None
        if taken and words[at].many and not grammar.any:
            unsure = True
        at += taken
    return Scan(options, operands, len(words), unsure)


def _named(word: Word, grammar: Grammar) -> str:
    """The name of ``--name=value`` where only the value is not literal."""
    if not word.lead.startswith("--") or "=" not in word.lead or (word.many and word.kind != "glob"):
        return ""
    name = word.lead[2:].partition("=")[0]
    return name if name in grammar.long_value or name in grammar.long_maybe else ""


def _option(
    text: str, words: tuple[Word, ...], at: int, grammar: Grammar, options: list[tuple[str, Word | None]]
) -> int | None:
    """Read one option word; gives how many further words it takes, None if it is not known."""
    if text.startswith("--"):
        name, given, value = text[2:].partition("=")
        if name in grammar.long_maybe or (name in grammar.long and not given):
            options.append((name, _word(value) if given else None))
            return 0
        if name not in grammar.long_value:
            return None
        if given:
            options.append((name, _word(value)))
            return 0
        if at >= len(words):
            return None
        options.append((name, words[at]))
        return 1
    if grammar.digits and re.fullmatch(r"-\d+", text):
        return 0
    for index, char in enumerate(text[1:], 2):
        if char in grammar.refuse:
            return None
        if char in grammar.short_value:
            rest = text[index:]
            if rest:
                options.append((char, _word(rest)))
                return 0
            if at >= len(words):
                return None
            options.append((char, words[at]))
            return 1
        if char in grammar.short_maybe:
            options.append((char, _word(text[index:]) if text[index:] else None))
            return 0
        if char not in grammar.short:
            return None
        options.append((char, None))
    return 0


def _word(text: str) -> Word:
    return Word(text, text, LITERAL, False, text)
