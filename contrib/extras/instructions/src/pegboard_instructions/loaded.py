"""The instruction files of one session: what was read, what waits for a file to be read, what was left out and why.

Each file is told once. It is known by where it really lies and by what it says, so links and copies count as one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pegboard import events
from pegboard.call import DecidedBy
from pegboard.hooks import Fragment
from pegboard_frontmatter.files import Unread, text_of

from pegboard_instructions import imports, spots
from pegboard_instructions.events import InstructionsLoaded
from pegboard_instructions.files import LARGEST, denied, foreign, inside, real_path, workspace
from pegboard_instructions.spots import Spot

if TYPE_CHECKING:
    from pegboard.session import Session

HOPS = 4
"""[D] Most imports in a row."""
APPROVAL = "instructions"
"""What answers about imports are filed under."""


class Waiting(NamedTuple):
    """A rule for some files, none of which was read yet."""

    spot: Spot
    paths: list[str]
    text: str


class Loaded:
    """What is told in one session. `start`, then `reached` for each file that a tool opened."""

    def __init__(self, session: Session) -> None:
        self.fragments: list[Fragment] = []
        self._session = session
        self._seen: set[str] = set()
        """Where the files that were looked at really lie."""
        self._said: set[str] = set()
        """Texts that were told."""
        self._folders: set[str] = set()
        self._waiting: list[Waiting] = []
        self._answers: dict[str, bool] = {}
        self._notices: list[str] = []

    @property
    def compat(self) -> bool:
        """Whether the files of the other product are read."""
        return bool(self._session.settings.value("compat.claude"))

    async def start(self) -> None:
        """Read everything that holds from the start."""
        places = self._session.places
        self._folders.update(str(folder) for folder in (*places.cwd.parents, places.cwd))
        await self._take_all(spots.at_start(places, self.compat), "session_start")

    async def reached(self, path: str) -> None:
        """A tool opened this file: read the files of the folders above it, and the rules that it matches."""
        folder = os.path.dirname(path)
        roots = [str(root) for root in (*self._session.roots, self._session.cwd)]
        new = []
        while inside(folder, roots) and folder not in self._folders:
            self._folders.add(folder)
            new.append(folder)
            folder = os.path.dirname(folder)
        for one in reversed(new):
            await self._take_all(spots.in_folder(one, self.compat, "nested"), "nested_traversal")
        await self._match(path)

    async def _match(self, path: str) -> None:
        from pegboard_instructions.globs import matches

        for rule in list(self._waiting):
            home = rule.spot.home.rstrip("/") + "/"
            if path.startswith(home) and matches(rule.paths, path.removeprefix(home)):
                self._waiting.remove(rule)
                await self._tell(rule.spot, rule.text, "path_glob_match", 0)
        await self._say_notices()

    async def _take_all(self, found: Iterable[Spot], reason: str) -> None:
        for spot in found:
            await self._take(spot, reason)
        await self._say_notices()

    async def _take(self, spot: Spot, reason: str) -> None:
        real = real_path(spot.path)
        if real in self._seen:
            return
        self._seen.add(real)
        try:
            if not await self._may(spot, real):
                return
            text = text_of(real, LARGEST)
        except Unread as why:
            self._notices.append(f"The instruction file {spot.path} {why}; it was left out.")
            return
        if spot.kind == "rule":
            text, paths = self._rule(spot, text)
            if paths:
                self._waiting.append(Waiting(spot, paths, text))
                return
        await self._tell(spot, text, reason, 0)

    async def _may(self, spot: Spot, real: str) -> bool:
        """Whether a file may be read at all. Raises `Unread` where that has to be said."""
        if spot.kind == "managed":
            return True
        if denied(self._session, real):
            raise Unread("is covered by a deny rule for Read")
        if spot.kind == "user" or inside(real, self._own()):
            return True
        if any(fnmatchcase(spot.path, one) for one in self._session.settings.value("instructions.exclude")):
            return False
        ours = workspace(self._session)
        folder = real_path(spot.home)
        if not inside(folder, ours):
            ours = [folder]
            if foreign(real):
                raise Unread("lies above the project and belongs to another user")
        return inside(real, ours) or await self._asked(real, f"{spot.path} is a link to it")

    def _own(self) -> list[str]:
        """The user's own folders of instructions."""
        places = self._session.places
        return [real_path(places.user_dir), real_path(places.home / ".claude")]

    def _rule(self, spot: Spot, text: str) -> tuple[str, list[str]]:
        """The text of a rule file, and the paths that it is for."""
        from pegboard_frontmatter import split, texts

        document = split(text)
        self._notices += [f"In {spot.path}, {problem}." for problem in document.problems]
        return document.body, texts(document.fields.get("paths"))

    async def _tell(self, spot: Spot, text: str, reason: str, hops: int) -> None:
        """Add the text of a file, then those that it imports."""
        targets = self._targets(spot, text)
        whole = text.strip()
        own = imports.without(whole, {f"@{name}" for name in targets}).strip()
        if own and whole not in self._said:
            self._said.add(whole)
            self.fragments.append(Fragment(f"instructions {spot.path}", f"{heading(spot.kind)}\n\n{whole}"))
            loaded = InstructionsLoaded(file_path=spot.path, memory_type=spot.kind, load_reason=reason)
            await self._session.tell(loaded)
        for target in targets.values():
            await self._import(spot, target, hops + 1)

    def _targets(self, spot: Spot, text: str) -> dict[str, str]:
        """The files that a text names, by name; a name without a file is no import."""
        found = {}
        for name in imports.names(text) if "@" in text else ():
            for spelling in imports.spellings(name):
                path = os.path.join(os.path.dirname(spot.path), self._expanded(spelling)) if spelling else ""
                if path and os.path.isfile(path):
                    found[spelling] = os.path.normpath(path)
                    break
        return found

    def _expanded(self, name: str) -> str:
        return f"{self._session.places.home}/{name[2:]}" if name.startswith("~/") else name

    async def _import(self, by: Spot, path: str, hops: int) -> None:
        real = real_path(path)
        if real in self._seen:
            return
        if hops > HOPS:
            self._notices.append(f"{by.path} imports {path}, but imports go {HOPS} files deep; it was left out.")
            return
        self._seen.add(real)
        try:
            if os.path.basename(real).startswith(".env"):
                raise Unread("may hold secrets")
            if denied(self._session, real):
                raise Unread("is covered by a deny rule for Read")
            own = by.kind in ("managed", "user") or inside(real_path(by.path), self._own())
            near = own or inside(real, workspace(self._session))
            if not near and not await self._asked(real, f"{by.path} names it"):
                return
            text = text_of(real, LARGEST)
        except Unread as why:
            self._notices.append(f"{path}, which {by.path} imports, {why}; it was left out.")
            return
        kind = by.kind if own else "import"
        await self._tell(Spot(path, kind, by.home), text, "include", hops)

    async def _asked(self, real: str, why: str) -> bool:
        """Whether a file outside of the workspace may be read; asked once, remembered for good where wanted so."""
        from pegboard.trust import Trust

        if real in self._answers:
            return self._answers[real]
        session = self._session
        trust, where = Trust.load(session.places), str(session.places.root)
        if trust.approved(APPROVAL, real, where=where) is not None:
            self._answers[real] = True
            return True
        allowed, always = await _question(session, real, why)
        if allowed is None:
            raise Unread("lies outside of the workspace, and nobody is there to ask")
        if always:
            trust.approve(APPROVAL, real, "path", where=where)
        self._answers[real] = allowed
        return allowed

    async def _say_notices(self) -> None:
        notices, self._notices = self._notices, []
        for text in notices:
            await self._session.tell(events.Notice(text=text, kind="instructions"))


async def _question(session: Session, real: str, why: str) -> tuple[bool | None, bool]:
    """The person's answer about a file outside of the workspace, and whether it holds for good; None = nobody there."""
    from pegboard.host import Choice, Question
    from pegboard.policy import Decision

    decision = Decision("ask", DecidedBy(by="trust", reason=f"It lies outside of the workspace; {why}."))
    lines = [f"read {real} as instructions for the model", why]
    reply = await session.host.ask(Question("", "Read", {"file_path": real}, decision, lines))
    if reply is None:
        return None, False
    return reply.choice is not Choice.NO, reply.choice is Choice.ALWAYS


@cache
def _told() -> dict[str, str]:
    lines = (Path(__file__).parent / "told.md").read_text("utf-8").splitlines()
    return {name: said for name, _, said in (line.partition(": ") for line in lines)}


def heading(kind: str) -> str:
    """What stands before the text of a file of this kind."""
    return f"{_told()[kind]} {_told()['all']}"
