"""The index of permission rules: which rules speak about a call, in a time that does not grow with their number.

Rules are filed by tool, then by a literal piece that a target must have. Everything is built when first asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pegboard.manifest import Manifest
from pegboard.paths import Bound, PathTable, parse_path, plain, same
from pegboard.rules import (
    Rule,
    command_pattern,
    glob,
    host_of,
    host_pattern,
    kind_of,
    matches_command,
    matches_host,
    open_allow,
    parameter,
    pieces,
)

Params = dict[str, list[tuple[str, Rule]]]
"""Input field -> wanted values and their rules."""


@dataclass(frozen=True)
class Anchors:
    """The folders that path specifiers start from; absolute and free of symlinks."""

    cwd: str
    home: str
    project: str
    roots: tuple[str, ...]
    fold: bool = False
    """The file system has no case: deny and ask rules must not have one either."""


class TextTable:
    """Rules filed by the literal text their target must begin with."""

    def __init__(self) -> None:
        self._by_prefix: dict[str, list[tuple[Rule, Callable[[str], bool]]]] = {}
        self._sizes: list[int] = []
        self._sorted: list[str] = []

    def add(self, prefix: str, rule: Rule, test: Callable[[str], bool]) -> None:
        """File a rule; ``test`` is asked only for texts that begin with ``prefix``."""
        if prefix not in self._by_prefix:
            self._by_prefix[prefix] = []
            self._sizes = sorted({*self._sizes, len(prefix)})
        self._by_prefix[prefix].append((rule, test))

    def find(self, text: str, subject: str | None = None) -> Iterator[Rule]:
        """Rules whose test says yes to ``subject``; ``text`` is what prefixes are compared with."""
        size = len(text)
        for length in self._sizes:
            if length > size:
                return
            for rule, test in self._by_prefix.get(text[:length], ()):
                if test(text if subject is None else subject):
                    yield rule

    def within(self, beginning: str) -> Iterator[Rule]:
        """Rules that some text with this beginning could match."""
        if len(self._sorted) != len(self._by_prefix):
            self._sorted = sorted(self._by_prefix)
        for prefix in self._sorted[bisect_left(self._sorted, beginning) :]:
            if not prefix.startswith(beginning):
                break
            yield from (rule for rule, _ in self._by_prefix[prefix])
        for length in self._sizes:
            if length < len(beginning):
                for rule, _ in self._by_prefix.get(beginning[:length], ()):
                    if len(command_pattern(rule.specifier or "").stem) > 1:
                        yield rule


class RuleIndex:
    """All rules of a snapshot that count. Immutable once made; what it remembers only saves time."""

    def __init__(self, rules: Iterable[Rule], anchors: Anchors, heads: Mapping[str, str]) -> None:
        self.anchors = anchors
        self._heads = heads
        self._whole: dict[str, list[Rule]] = {}
        self._patterns: list[Rule] = []
        self._params: dict[str, list[Rule]] = {}
        self._named: dict[str, list[Rule]] = {}
        self._texts: dict[tuple[str, str, bool], TextTable] = {}
        self._paths: dict[tuple[str, bool], PathTable[Rule]] = {}
        self._tools: dict[tuple[str, ...], tuple[list[Rule], Params]] = {}
        for rule in rules:
            if "*" in rule.tool:
                if rule.effect != "allow" or open_allow(rule):
                    self._patterns.append(rule)
            elif rule.specifier is None:
                self._whole.setdefault(rule.tool, []).append(rule)
            else:
                self._named.setdefault(rule.tool, []).append(rule)
                if parameter(rule) is not None:
                    self._params.setdefault(rule.tool, []).append(rule)

    def of_tool(self, names: tuple[str, ...]) -> tuple[list[Rule], Params]:
        """Rules about a whole tool of these names, and its ``param:value`` rules."""
        found = self._tools.get(names)
        if found is None:
            whole = [rule for name in names for rule in self._of_name(name)]
            params = [rule for name in names for rule in self._params.get(name, ())]
            params += [rule for rule in whole if rule.specifier is not None]
            whole = [rule for rule in whole if rule.specifier is None]
            by_field: Params = {}
            for rule in params:
                if given := parameter(rule):
                    by_field.setdefault(given[0], []).append((given[1], rule))
            found = self._tools[names] = (whole, by_field)
        return found

    def _of_name(self, name: str) -> Iterator[Rule]:
        yield from self._whole.get(name, ())
        yield from (rule for rule in self._patterns if glob(pieces(rule.tool), name) and _plain_server(rule, name))
        if name.startswith("mcp__"):
            server, _, tool = name[5:].partition("__")
            while tool:
                for rule in self._whole.get(f"mcp__{server}", ()):
                    if rule.effect != "allow" or "__" not in server + tool:
                        yield rule
                more, _, tool = tool.partition("__")
                server += "__" + more

    def commands(self, command: str, strict: bool) -> Iterator[Rule]:
        """Rules about one simple command. ``strict``: deny and ask rules, which also see through its spelling."""
        table = self._text("Bash", "command", strict)
        text = command.strip()
        yield from table.find(text)
        if not strict:
            return
        spaced = " ".join(text.split())
        program, _, rest = spaced.partition(" ")
        named = program.rpartition("/")[2]
        bare = f"{named} {rest}" if rest else named
        for other in dict.fromkeys((spaced, bare, same(bare, self.anchors.fold))):
            if other != text:
                yield from table.find(other)

    def reachable(self, beginning: str) -> Rule | None:
        """A deny or ask rule that a command with this beginning could meet."""
        table = self._text("Bash", "command", True)
        return next(table.within(same(beginning, self.anchors.fold)), None)

    @property
    def restricts(self) -> bool:
        """There are deny or ask rules about single commands or paths."""
        named = (rule for tool in ("Bash", "Read", "Edit") for rule in self._named.get(tool, ()))
        return any(rule.effect != "allow" for rule in named)

    def hosts(self, tools: Iterable[str], host: str, strict: bool) -> Iterator[Rule]:
        """``domain:`` rules of these tools about a host as `host_of` gives it.

        What is no plain host (empty) falls under every deny and ask rule: two programs may read it differently.
        """
        if not host and strict:
            for tool in tools:
                named = self._named.get(tool, ())
                yield from (rule for rule in named if rule.effect != "allow" and kind_of(rule) == "host")
            return
        turned = _turned(host)
        for tool in tools:
            yield from self._text(tool, "host", strict).find(turned, host)

    def names(self, tools: Iterable[str], name: str, strict: bool) -> Iterator[Rule]:
        """Rules of these tools about something used by name."""
        for tool in tools:
            yield from self._text(tool, "name", strict).find(name)

    def paths(self, family: str, name: str, folder: bool, strict: bool) -> Iterator[Rule]:
        """Read or Edit rules about one spelling of a path."""
        table = self.path_table(family, strict)
        if table.all:
            yield from table.find(same(name, self.anchors.fold) if strict else name, folder)

    def path_table(self, family: str, strict: bool) -> PathTable[Rule]:
        """The path rules of a family: deny and ask rules, or allow rules."""
        table = self._paths.get((family, strict))
        if table is None:
            table = self._paths[family, strict] = PathTable()
            for rule in self._named.get(family, ()):
                if (rule.effect != "allow") is strict:
                    for bound in bind(rule, self.anchors):
                        table.add(bound)
                        moved = self._heads.get(bound.head()) if strict else None
                        if moved is not None:
                            table.add(bound.moved(same(moved, self.anchors.fold)))
        return table

    def _text(self, tool: str, kind: str, strict: bool) -> TextTable:
        table = self._texts.get((tool, kind, strict))
        if table is None:
            table = self._texts[tool, kind, strict] = TextTable()
            for rule in self._named.get(tool, ()):
                if (rule.effect != "allow") is strict and kind_of(rule) == kind:
                    table.add(*_entry(rule, kind, strict and self.anchors.fold))
        return table


def _plain_server(rule: Rule, name: str) -> bool:
    """An allow pattern must not reach a server whose name only begins like the one it names."""
    return rule.effect != "allow" or "__" not in name[len(rule.tool.partition("*")[0].rpartition("__")[0]) + 2 :]


def _turned(host: str) -> str:
    return ".".join(reversed(host.split("."))) + "."


def _entry(rule: Rule, kind: str, fold: bool) -> tuple[str, Rule, Callable[[str], bool]]:
    given = rule.specifier or ""
    if kind == "command":
        pattern = command_pattern(given)
        return pattern.stem[0], rule, lambda text: matches_command(pattern, text)
    if kind == "host":
        wanted = host_pattern(given)
        prefix = _turned(wanted).partition("*")[0] if "*" in wanted else _turned(wanted)
        return prefix, rule, lambda host: matches_host(wanted, host)
    parts = pieces(given)
    return parts[0], rule, lambda name: glob(parts, name)


def bind(rule: Rule, anchors: Anchors) -> list[Bound[Rule]]:
    """The patterns of a path rule with the folders it starts from.

    A relative deny or ask rule also counts from every working directory, so that changing the directory is no way out.
    """
    strict = rule.effect != "allow"
    given = rule.specifier or ""
    pattern = parse_path(same(given, anchors.fold) if strict else given, not strict)
    if pattern.anchor == "absolute":
        bases: tuple[str, ...] = ("/",)
    elif pattern.anchor == "home":
        bases = (anchors.home,)
    elif pattern.anchor == "settings":
        bases = (rule.root or anchors.project,)
    else:
        bases = (anchors.cwd, *anchors.roots) if strict else (anchors.cwd,)
    if strict:
        bases = tuple(same(base, anchors.fold) for base in bases)
    return [Bound(pattern, plain(base), rule) for base in dict.fromkeys(bases)]


def heads(rules: Iterable[Rule], anchors: Anchors) -> dict[str, str]:
    """Where the literal beginnings of deny and ask path rules really lie, for those that go through a symlink.

    Does I/O, once for each distinct beginning: a rule about a link is also a rule about what it points to.
    """
    import os

    found: dict[str, str] = {}
    seen: set[str] = {"/", anchors.cwd, anchors.home, *anchors.roots}
    for rule in rules:
        if rule.effect != "allow" and rule.specifier is not None and kind_of(rule) == "path" and "*" not in rule.tool:
            for bound in bind(rule, anchors):
                head = bound.head()
                if head not in seen:
                    seen.add(head)
                    real = os.path.realpath(head)
                    if real != head:
                        found[head] = real
    return found


def names_of(manifest: Manifest) -> tuple[str, ...]:
    """The names under which rules may speak about a tool: its own, its aliases, its family."""
    return tuple(dict.fromkeys((manifest.name, *manifest.aliases, *([manifest.family] if manifest.family else ()))))


__all__ = ["Anchors", "RuleIndex", "bind", "heads", "host_of", "names_of"]
