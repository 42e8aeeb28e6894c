"""What a request carries beside the conversation: system text, tools, and the changing facts in its tail.

The head of a request (tools, system) stays the same byte for byte, so that services can cache it; whatever changes
is said once, as a text behind the newest message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pegboard.events import UserText
from pegboard.history import said as said
from pegboard.hooks import Fragment
from pegboard.toolbox import SEARCH

if TYPE_CHECKING:
    from pegboard.call import Block
    from pegboard.history import History
    from pegboard.provider import Abilities, ToolSpec
    from pegboard.session import Session

CHARACTERS = 3.6
"""[C] Characters of a token where nothing was measured: four, less the tenth that an estimate keeps in reserve."""


@cache
def prompt(name: str) -> str:
    """A text of the product for the model, from its data file."""
    return (Path(__file__).parent / "prompts" / f"{name}.md").read_text("utf-8").strip()


def system_blocks(extra: str = "") -> list[Block]:
    """The system blocks: the product's text, then the text of an agent definition."""
    return [{"type": "text", "text": text} for text in (prompt("system"), extra.strip()) if text]


class Offer:
    """The tools of one agent's requests. What it decides once stays, so that the head of the requests does too.

    ``allowed`` narrows them to an agent's own; None = all.
    """

    def __init__(self, session: Session, abilities: Abilities, allowed: frozenset[str] | None) -> None:
        self._session = session
        self._abilities = abilities
        self._allowed = allowed
        self._decided: bool | None = None

    @property
    def defers(self) -> bool:
        """Whether deferred tools wait to be found."""
        if self._decided is None and self._session.toolbox.deferred():
            self._decided = self._decide()
        return bool(self._decided)

    def specs(self, history: History) -> list[ToolSpec]:
        """The tools of the next request. References to tools that it does not carry are put in words first."""
        specs = self._session.toolbox.specs(history.found if self.defers else None)
        if self._allowed is not None:
            specs = [spec for spec in specs if spec.name in self._allowed]
        live = {name for name, live in history.found.items() if live}
        if live and not live <= {spec.name for spec in specs if spec.defer}:
            history.dissolve()
            return self.specs(history)
        return specs

    def fragments(self) -> Iterator[Fragment]:
        """What the tail says of tools: the names of those that wait, one a line."""
        if self.defers:
            names = [name for name in self._session.toolbox.deferred() if self._sees(name)]
            yield Fragment("tools", "\n".join([prompt("deferred"), *names]))

    def _decide(self) -> bool:
        toolbox, mode = self._session.toolbox, self._session.settings.value("tools.search")
        if mode == "off" or not toolbox.offers(SEARCH) or not self._sees(SEARCH):
            return False
        schemas = [toolbox.schema(found) for found in toolbox.deferred().values()]
        size = sum(len(schema.description) + len(msgspec.json.encode(schema.input)) for schema in schemas)
        return mode == "always" or size / CHARACTERS > self._abilities.window / 10

    def _sees(self, name: str) -> bool:
        return self._allowed is None or name in self._allowed


def git_branch(folder: Path) -> str:
    """The branch that is checked out here, a short commit id when none is, or an empty text outside of git."""
    for place in (folder, *folder.parents):
        marker = place / ".git"
        try:
            if marker.is_file():
                marker = place / marker.read_text("utf-8").removeprefix("gitdir:").strip()
            head = (marker / "HEAD").read_text("utf-8").strip()
        except (OSError, ValueError):
            continue
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:12]
    return ""


def environment(session: Session) -> str:
    """What the model should know of where it works."""
    import time

    lines = [
        f"Working directory: {session.cwd}",
        f"Date: {time.strftime('%Y-%m-%d')}",
        f"Platform: {sys.platform}",
        f"Shell: {os.path.basename(os.environ.get('SHELL', '')) or 'unknown'}",
    ]
    branch = git_branch(session.cwd)
    if branch:
        lines.append(f"Git branch: {branch}")
    return "\n".join(lines)


async def openings(session: Session, kind: str) -> list[UserText]:
    """What plug-ins say when a session starts, goes on, or begins again after a summary."""
    if not session.bus.has("peg_session_start"):
        return []
    replies = await session.bus.ask("peg_session_start", session=session, kind=kind)
    for reply in replies:
        if reply.error is not None:
            await session.host.notify(f"The hook {reply.plugin} failed at the start of the session: {reply.error}")
    fragments = [fragment for reply in replies for fragment in reply.value or ()]
    return [said(fragment.text, author=fragment.author, origin="hook") for fragment in fragments]


class Tail:
    """Facts that may change. Each author's text is said when it is new and again only when it has changed.

    ``told``: what a resumed conversation was told already, by author.
    """

    def __init__(self, offer: Offer, told: Mapping[str, str]) -> None:
        self._offer = offer
        self._last = dict(told)

    def news(self, session: Session) -> list[UserText]:
        """The texts that changed since the last request: the environment, tools that wait, `peg_context` fragments."""
        fragments = [Fragment("environment", environment(session)), *self._offer.fragments()]
        for given in session.manager.hook.peg_context(session=session):
            fragments += given
        return self.changed(fragments)

    def again(self, session: Session) -> list[UserText]:
        """All of it once more, because what was said left the context."""
        self._last.clear()
        return self.news(session)

    def changed(self, fragments: Iterable[Fragment]) -> list[UserText]:
        """The fragments whose author has not said the same before."""
        texts: dict[str, list[str]] = {}
        for fragment in fragments:
            if fragment.text.strip():
                texts.setdefault(fragment.author, []).append(fragment.text.strip())
        news = []
        for author, parts in texts.items():
            text = "\n\n".join(parts)
            if self._last.get(author) != text:
                self._last[author] = text
                news.append(said(text, author=author))
        return news
