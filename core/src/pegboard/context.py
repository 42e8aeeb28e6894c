"""What a request carries beside the conversation: system text, tools, and the changing facts in its tail.

The head of a request (tools, system) stays the same byte for byte, so that services can cache it; whatever changes
is said once, as a text behind the newest message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.events import Origin, UserText
from pegboard.hooks import Fragment

if TYPE_CHECKING:
    from pegboard.call import Block
    from pegboard.provider import ToolSpec
    from pegboard.session import Session


@cache
def system_text() -> str:
    """The system prompt of the product, from its data file."""
    return (Path(__file__).parent / "prompts" / "system.md").read_text("utf-8").strip()


def system_blocks(extra: str = "") -> list[Block]:
    """The system blocks: the product's text, then the text of an agent definition."""
    return [{"type": "text", "text": text} for text in (system_text(), extra.strip()) if text]


def tools_for(session: Session, allowed: frozenset[str] | None) -> list[ToolSpec]:
    """The tools of a request, sorted by name; ``allowed`` narrows them to an agent's own."""
    specs = session.tool_specs()
    return specs if allowed is None else [spec for spec in specs if spec.name in allowed]


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


def said(text: str, *, author: str, origin: Origin = "unclassified") -> UserText:
    """A text of the program or a plug-in for the conversation."""
    return UserText(content=[{"type": "text", "text": text}], author=author, origin=origin)


class Tail:
    """Facts that may change. Each author's text is said when it is new and again only when it has changed."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def news(self, session: Session) -> list[UserText]:
        """The texts that changed since the last request: the environment and every `peg_context` fragment."""
        fragments = [Fragment("environment", environment(session))]
        for given in session.manager.hook.peg_context(session=session):
            fragments += given
        return self.changed(fragments)

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
