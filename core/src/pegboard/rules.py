"""Permission rules as data: their text, what it means, and what is wrong with it.

Rules are contributed, listed, explained and tested; nothing here decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal, get_args

import msgspec

from pegboard.errors import UsageError
from pegboard.manifest import Manifest
from pegboard.paths import parse_path

EffectWord = Literal["deny", "ask", "allow"]
EFFECTS: tuple[str, ...] = get_args(EffectWord)
"""Strongest first."""

SCOPES = ("managed", "flag", "local", "project", "user", "recommended", "session", "plugin", "builtin")
"""Where a rule can come from; of several that say the same, the first scope is named as the one that decided."""

KINDS = {"Read": "path", "Edit": "path", "Bash": "command"}
"""Tools whose specifier is no plain name. Tools of a family are spoken about under these names."""

PRIMARY = {
    "Bash": "command", "Read": "file_path", "Edit": "file_path", "Write": "file_path", "NotebookEdit": "notebook_path",
    "Glob": "path", "Grep": "path", "LSP": "file_path", "WebFetch": "url", "Skill": "skill", "Task": "subagent_type",
    "Agent": "subagent_type", "Workflow": "name",
}  # fmt: skip
"""Input fields that `Tool(param:value)` cannot match: the tool's own specifier speaks about them."""

_TOOL = re.compile(r"[\w*][\w.:*-]*")
_PARAM = re.compile(r"([A-Za-z_]\w*):(.*)", re.DOTALL)
_OPEN_ALLOW = re.compile(r"mcp__[^*]+?__[^*]*\*.*")
_ROOTS = frozenset(
    ("bin", "dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "tmp", "usr", "var", "Users")
)
WILDCARDS = 32
"""[C] Most wildcards in one specifier."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One permission rule. Made by `parse_rule`."""

    effect: EffectWord
    tool: str
    """Tool name as written; may hold ``*``."""
    specifier: str | None = None
    """None: the whole tool."""
    scope: str
    """One of `SCOPES`."""
    source: str = ""
    """The file, or what else to call it."""
    at: int | Callable[[], int | None] | None = None
    """Line in the source, or how to find it; see `line`."""
    root: str = ""
    """Folder that ``/path`` specifiers start from; empty = the project root."""

    @property
    def line(self) -> int | None:
        """Line in the source; looked for only when asked."""
        return self.at() if callable(self.at) else self.at

    @property
    def text(self) -> str:
        """The rule as it is written in a settings file."""
        if self.specifier is None:
            return self.tool
        escaped = re.sub(r"([()])", r"\\\1", self.specifier)
        return f"{self.tool}({escaped})"

    @property
    def id(self) -> str:
        """A name that stays the same when lines move: ``scope:effect:text``."""
        return f"{self.scope}:{self.effect}:{self.text}"

    @property
    def where(self) -> str:
        """Scope, file and line, as people read it."""
        line = self.line
        place = f"{self.source}:{line}" if self.source and line else self.source
        return f"{self.scope} ({place})" if place else self.scope

    def shown(self) -> dict[str, object]:
        """The rule for a listing or an explanation, JSON-ready."""
        return {
            "id": self.id,
            "rule": self.text,
            "effect": self.effect,
            "scope": self.scope,
            "file": self.source,
            "line": self.line,
        }


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule that does nothing, or not what it seems to say. ``fix`` is the rule to write instead, if there is one."""

    rule: Rule
    text: str
    fix: str = ""

    def __str__(self) -> str:
        advice = f"; write {self.fix}" if self.fix else ""
        return f"{self.rule.where}: {self.rule.effect} {self.rule.text}: {self.text}{advice}"


def parse_rule(
    text: str,
    *,
    effect: str,
    scope: str,
    source: str = "",
    line: int | Callable[[], int | None] | None = None,
    root: str = "",
) -> Rule:
    """Parse ``Tool`` or ``Tool(specifier)``; a parenthesis in the specifier may be escaped by a backslash.

    ``root`` is the folder for ``/path`` specifiers; without it a user's file counts from its own folder and a project's
    from the project. Raises `UsageError` saying what is wrong and where.
    """
    place = f" ({source})" if source else ""
    if effect not in EFFECTS or scope not in SCOPES:
        raise UsageError(f"A rule is allow, ask or deny, of one of the scopes {', '.join(SCOPES)}{place}.")
    tool, opened, rest = text.strip().partition("(")
    if not _TOOL.fullmatch(tool):
        raise UsageError(f"{text!r} is no rule: write Tool or Tool(specifier){place}.")
    specifier = None
    if opened:
        end = len(rest) - len(rest.rstrip(")"))
        if end == 0 or (len(rest[:-1]) - len(rest[:-1].rstrip("\\"))) % 2:
            raise UsageError(f"{text!r} has no closing parenthesis at its end{place}.")
        specifier = re.sub(r"\\(.)", lambda m: m[1] if m[1] in "()" else m[0], rest[:-1].strip(), flags=re.DOTALL)
        if not specifier:
            raise UsageError(f"{text!r} has an empty specifier: write {tool} for the whole tool{place}.")
    if specifier == "*":
        specifier = None
    if specifier is not None and specifier.count("*") + specifier.count("?") > WILDCARDS:
        raise UsageError(f"{text!r} has more than {WILDCARDS} wildcards{place}.")
    if specifier is not None and "*" in tool and not (effect != "allow" and _PARAM.fullmatch(specifier)):
        raise UsageError(f"{text!r}: a tool pattern takes no specifier; write one rule for each tool{place}.")
    if not root and scope == "user" and "/" in source:
        root = source.rpartition("/")[0]
    rule = Rule(
        effect=effect,  # type: ignore[arg-type]
        tool=tool,
        specifier=specifier,
        scope=scope,
        source=source,
        at=line,
        root=root,
    )
    try:
        if specifier is not None and kind_of(rule) == "path":
            parse_path(specifier, effect == "allow")
        elif specifier is not None and kind_of(rule) == "command" and command_pattern(specifier).stem == ("",):
            raise UsageError(f"{specifier}: there is no command before the wildcard.")
    except UsageError as error:
        raise UsageError(f"{text!r}: {error}{place}") from None
    return rule


def kind_of(rule: Rule) -> str:
    """What the specifier speaks about: ``path``, ``command``, ``host`` or ``name``."""
    kind = KINDS.get(rule.tool)
    if kind is None:
        kind = "host" if rule.specifier is not None and rule.specifier.startswith("domain:") else "name"
    return kind


def parameter(rule: Rule) -> tuple[str, str] | None:
    """Field and value of a ``Tool(param:value)`` rule, which only deny and ask rules can be; else None."""
    if rule.effect == "allow" or rule.specifier is None or kind_of(rule) == "host":
        return None
    found = _PARAM.fullmatch(rule.specifier)
    if found is None or PRIMARY.get(rule.tool) == found[1]:
        return None
    return found[1], found[2]


def open_allow(rule: Rule) -> bool:
    """Whether an allow rule is a tool pattern that may count: ``*`` only after a literal ``mcp__server__``."""
    return _OPEN_ALLOW.fullmatch(rule.tool) is not None


# -- text patterns ---------------------------------------------------------------------------------------------------

Pieces = tuple[str, ...]


@lru_cache(maxsize=4096)
def pieces(pattern: str) -> Pieces:
    """The literal texts between the wildcards of a pattern; ``\\*`` is a star, ``\\\\`` a backslash."""
    found = [""]
    for token in re.findall(r"\\[\\*]|\*+|[^\\*]+|\\", pattern):
        if token[0] == "*":
            found.append("")
        else:
            found[-1] += token[1:] if len(token) == 2 and token[0] == "\\" else token
    return tuple(found)


def glob(pattern: Pieces, text: str) -> bool:
    """Whether a text matches: ``*`` stands for anything, also nothing. Linear."""
    if len(pattern) == 1:
        return text == pattern[0]
    at, end = len(pattern[0]), len(text) - len(pattern[-1])
    if at > end or not text.startswith(pattern[0]) or not text.endswith(pattern[-1]):
        return False
    for piece in pattern[1:-1]:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


class Command(msgspec.Struct, frozen=True):
    """A command pattern: its pieces, and whether anything may follow after a word boundary."""

    stem: Pieces
    open: bool


@lru_cache(maxsize=4096)
def command_pattern(specifier: str) -> Command:
    """Read a Bash specifier. ``git push *`` and ``git push:*`` take the bare command too, but not ``git pushx``."""
    for tail in (" *", ":*"):
        if specifier.endswith(tail):
            return Command(pieces(specifier[: -len(tail)].rstrip()), True)
    return Command(pieces(specifier), False)


def matches_command(pattern: Command, segment: str) -> bool:
    """Whether the text of one simple command matches. Pure; wrappers, quotes and separators are the parser's work."""
    if glob(pattern.stem, segment):
        return True
    return pattern.open and glob((*pattern.stem[:-1], pattern.stem[-1] + " ", ""), segment)


def host_of(target: str) -> str:
    """A host as rules compare it: lower case, punycode, no port, no final dot; empty if it is no plain host."""
    host = target.strip().lower()
    if re.fullmatch(r"[^:]+:\d+|\[[^\]]*\]:\d+", host):
        host = host.rpartition(":")[0]
    host = host.strip("[]").removesuffix(".")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            return ""
    return host if re.fullmatch(r"[\w.:%-]+", host) else ""


def matches_host(pattern: str, host: str) -> bool:
    """Whether a host matches a ``domain:`` pattern; both as `host_of` gives them, ``*`` kept.

    ``*.host`` means any depth below host but not host itself; another ``*`` stays within its label; ``*`` is any host.
    """
    if not host or pattern == "*":
        return bool(host)
    if pattern.startswith("*."):
        rest = pattern[2:]
        labels = rest.count(".") + 1
        tail = host.rsplit(".", labels)
        return len(tail) == labels + 1 and bool(tail[0]) and _labels(rest.split("."), tail[1:])
    return _labels(pattern.split("."), host.split("."))


def _labels(pattern: list[str], host: list[str]) -> bool:
    return len(pattern) == len(host) and all(
        glob(pieces(want), label) and (bool(label) or "*" not in want)
        for want, label in zip(pattern, host, strict=True)
    )


def host_pattern(specifier: str) -> str:
    """The pattern of a ``domain:`` specifier, in the form that `matches_host` compares."""
    body = specifier.removeprefix("domain:").strip()
    return body.lower().removesuffix(".") if "*" in body else host_of(body) or body.lower()


def escape_text(text: str) -> str:
    """A text as a pattern that matches it alone."""
    return re.sub(r"([\\*])", r"\\\1", text)


# -- what is wrong with rules ----------------------------------------------------------------------------------------


def lint(rules: Iterable[Rule], known_tools: Iterable[Manifest]) -> list[Problem]:
    """Find rules that can match nothing here, or not what they seem to say. Pure."""
    tools = {name: tool for tool in known_tools for name in (tool.name, *tool.aliases)}
    found = []
    for rule in rules:
        text, fix = _wrong(rule, tools)
        if text:
            found.append(Problem(rule=rule, text=text, fix=fix))
    return found


def _wrong(rule: Rule, tools: dict[str, Manifest]) -> tuple[str, str]:
    given = rule.specifier
    if "*" in rule.tool:
        if rule.effect == "allow" and not open_allow(rule):
            return "ignored: an allow rule takes * only after a literal mcp__server__", ""
        return "", ""
    if rule.tool not in tools and not rule.tool.startswith("mcp__") and rule.tool not in KINDS:
        import difflib

        near = difflib.get_close_matches(rule.tool, [*tools, *KINDS], 1)
        return "there is no tool of this name", rule.text.replace(rule.tool, near[0], 1) if near else ""
    if given is None:
        return "", ""
    family = tools[rule.tool].family if rule.tool in tools else ""
    if family and family != rule.tool:
        same_family = msgspec.structs.replace(rule, tool=family)
        return f"never consulted: paths of {rule.tool} are judged by {family} rules", same_family.text
    if rule.tool.startswith("mcp__") and parameter(rule) is None:
        return "never consulted: a rule for a server's tool takes no specifier", rule.tool
    if rule.tool == "WebFetch" and kind_of(rule) != "host" and ("://" in given or parameter(rule) is None):
        host = re.sub(r"^\w+://", "", given).partition("/")[0]
        return "never consulted: the specifier is a domain", f"WebFetch(domain:{host})" if host else ""
    return _wrong_field_or_path(rule, given)


def _wrong_field_or_path(rule: Rule, given: str) -> tuple[str, str]:
    field = _PARAM.fullmatch(given)
    if field and rule.effect != "allow" and PRIMARY.get(rule.tool) == field[1]:
        return f"never consulted: {field[1]} is what the specifier itself speaks about", f"{rule.tool}({field[2]})"
    if kind_of(rule) == "path" and given[:1] == "/" != given[1:2] and rule.root != "/":
        first = given[1:].partition("/")[0]
        if first in _ROOTS:
            return f"/{first} counts from the settings file's root, not from /", f"{rule.tool}(/{given})"
    return "", ""
