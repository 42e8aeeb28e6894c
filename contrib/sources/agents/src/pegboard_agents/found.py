"""All definitions that hold in a place, by scope: nearest to the person who decides first.

Nothing is deleted from the list: the loser of a name stays in it, with the one that hides it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pegboard_frontmatter.files import Unread, text_of

from pegboard_agents.definition import Definition, NoDefinition, Scope, parse

if TYPE_CHECKING:
    from pegboard.places import Places

LARGEST = 1024 * 1024
"""[C] Bytes of one definition."""
MOST = 1_000
"""[C] Files of one folder that are looked at."""
ALIASES = {"Explore": "explore", "Plan": "plan"}
"""[D] Other names of the built-in agents."""


class Folder(NamedTuple):
    """A folder of definitions. ``plugin`` names the plug-in that brings it."""

    path: str
    scope: Scope
    plugin: str = ""


class Found(NamedTuple):
    """What was found in one look."""

    agents: dict[str, Definition]
    """The definition that counts, by name."""
    hidden: list[tuple[Definition, Definition]]
    """Definitions that do not count, each with the one of the same name that does."""
    problems: list[str]
    """Files that define nothing although they should, and what is wrong in those that do; a sentence each."""

    def get(self, name: str) -> Definition | None:
        """The definition of this name, or of the built-in agent with this other name."""
        return self.agents.get(name) or self.agents.get(ALIASES.get(name, ""))


def find(places: Places, *, compat: bool, trusted: bool, plugins: Mapping[str, str] | None = None) -> Found:
    """The definitions for a start directory.

    ``compat``: read the ``.claude`` folders too. ``plugins``: name of a plug-in -> its folder of definitions.
    """
    every: list[Definition] = []
    problems: list[str] = []
    for folder in [*folders(places, compat), *(Folder(path, "plugin", name) for name, path in (plugins or {}).items())]:
        every += _read(folder, places, trusted, problems)
    every += built_in()
    agents: dict[str, Definition] = {}
    hidden: list[tuple[Definition, Definition]] = []
    for one in every:
        if agents.setdefault(one.name, one) is not one:
            hidden.append((one, agents[one.name]))
        problems += [f"{one.path}: {problem}." for problem in one.problems]
    return Found(agents, hidden, problems)


def folders(places: Places, compat: bool) -> Iterator[Folder]:
    """Where definitions may lie, the one that counts first before the others."""
    kinds = (".peg/agents", ".claude/agents") if compat else (".peg/agents",)
    yield Folder(f"{places.managed_dir}/agents", "managed")
    own = {os.path.realpath(places.user_dir / "agents"), os.path.realpath(places.home / ".claude" / "agents")}
    for place in (places.cwd, *places.cwd.parents):
        for kind in kinds:
            if os.path.realpath(place / kind) not in own:
                yield Folder(f"{place}/{kind}", "project")
        if place == places.root:
            break
    yield Folder(f"{places.user_dir}/agents", "user")
    if compat:
        yield Folder(f"{places.home}/.claude/agents", "user")


@cache
def built_in() -> tuple[Definition, ...]:
    """The definitions that come with the product."""
    paths = sorted((Path(__file__).parent / "builtin").glob("*.md"))
    return tuple(parse(path.read_text("utf-8"), str(path), "builtin") for path in paths)


def _read(folder: Folder, places: Places, trusted: bool, problems: list[str]) -> Iterator[Definition]:
    root = os.path.realpath(places.root)
    for path in _files(folder.path):
        try:
            real = os.path.realpath(path)
            if folder.scope == "project" and not real.startswith(root.rstrip("/") + "/"):
                raise NoDefinition("it is a link that leads out of the project")
            text = text_of(real, LARGEST)
            yield parse(text, path, folder.scope, trusted=trusted, plugin=folder.plugin)
        except Unread as why:
            problems.append(f"{path} {why}.")
        except NoDefinition as why:
            if why.said:
                problems.append(f"{path} defines no agent: {why.said}.")


def _files(folder: str) -> Iterable[str]:
    """The Markdown files of a folder and the folders below it, by name; links to folders are not followed."""
    found: list[str] = []
    for place, inner, names in os.walk(folder):
        inner.sort()
        found += [os.path.join(place, name) for name in sorted(names) if name.endswith(".md")]
        if len(found) > MOST:
            break
    return found[:MOST]
