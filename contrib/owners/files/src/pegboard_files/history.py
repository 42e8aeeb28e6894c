"""FileHistory: every change that a session's tools make to files, and the way back.

It is the only door through which tools write: it keeps the content before, writes byte-true, brings the read table up
to date and tells whoever listens. A checkpoint helps recovery; it is no transaction and covers no other program.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from pegboard.errors import Refusal
from pegboard.state import Kept, Mark, Owner, Place, Restored, Scope

from pegboard_files import disk, inplace, leftovers, wayback, writer
from pegboard_files.checkpoints import SPANS, Checkpoints, Touch
from pegboard_files.disk import Content, digest_of
from pegboard_files.hooks import FileChange, add_specs
from pegboard_files.text import Text
from pegboard_files.views import FileViews

if TYPE_CHECKING:
    from pegboard.tool import Context


@dataclass(frozen=True)
class Change:
    """A finished change of one file."""

    real: str
    kind: str
    """create or update"""
    before: bytes | None
    content: Content
    """The content that is on disk now."""


class FileHistory(Owner):
    """The file history of one session, shared by all its agents."""

    scope = Scope.SESSION

    def __init__(self, folder: Path, session: Any = None) -> None:
        self._store = Checkpoints(folder)
        self._session = session
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self.undo: Mark | None = None
        """Where to rewind to in order to take the last rewind back."""

    @classmethod
    async def open(cls, place: Place) -> Self:
        manager = getattr(place.session, "manager", None)
        if manager is not None:
            add_specs(manager)
        history = cls(place.session_dir / "checkpoints", place.session)
        if history._store.spans:
            await anyio.to_thread.run_sync(leftovers.sweep, list(history._store.current.touched))
        return history

    @asynccontextmanager
    async def lock(self, real: str) -> AsyncIterator[None]:
        """Hold the lock of a real path; all agents of the session wait for each other here."""
        lock = self._locks.get(real)
        if lock is None:
            lock = self._locks[real] = anyio.Lock()
        async with lock:
            yield

    async def replace(
        self, ctx: Context, path: str, data: bytes, *, expected: Content, text: Text | None, known: bool
    ) -> Change:
        """Give an existing file a new content.

        ``expected`` is the content that the change was made from, ``text`` describes the new one. ``known``: the
        agent knows the whole new content. Opens the effect itself, right before the rename. Raises `Refusal` (stale,
        io_error) with the file unchanged; only a file with several names, which is written in place, can be damaged.
        """
        real, shown = disk.aim(ctx, path), ctx.shown(path)
        names = expected.stat.st_nlink
        kept = self._keep(ctx, path, real, expected, digest_of(data), names)
        if names > 1:
            status = await inplace.overwrite(real, expected.raw, data, shown, _effects(ctx), kept)
        else:
            status = await writer.replace(real, data, expected.digest, shown, _effects(ctx))
        return await self._changed(ctx, Change(real, "update", expected.raw, _content(data, status)), text, known)

    async def create(self, ctx: Context, path: str, data: bytes, *, text: Text | None) -> Change:
        """Make a new file and the folders that it lacks; each is an effect.

        Raises `Refusal`: stale when the file appeared meanwhile, io_error or precondition_failed when it cannot be
        made; nothing is left behind then.
        """
        real = disk.aim(ctx, path)
        self._keep(ctx, path, real, None, digest_of(data), 1)
        status = await writer.create(real, data, ctx.shown(path), _effects(ctx))
        return await self._changed(ctx, Change(real, "create", None, _content(data, status)), text, True)

    def _keep(self, ctx: Context, path: str, real: str, before: Content | None, after: str | None, names: int) -> str:
        """Keep the content before a change; a store that cannot be written stops nothing. Returns where it is."""
        touch = Touch(
            span=0,
            path=real,
            before=before.digest if before else None,
            after=after,
            mode=stat.S_IMODE(before.stat.st_mode) if before else 0o644,
            agent=ctx.agent,
            link=os.path.islink(path),
            names=names,
        )
        try:
            self._store.keep(touch, before.raw if before else None)
        except OSError as error:
            ctx.note(
                f"checkpoint_skipped: the content before this change could not be kept ({error.strerror or error}); "
                "a rewind will not restore this file."
            )
            return ""
        return str(self._store.path_of(before.digest)) if before else ""

    async def _changed(self, ctx: Context, change: Change, text: Text | None, known: bool) -> Change:
        views = await ctx.own(FileViews)
        views.wrote(change.real, change.content, text, known=known)
        told = FileChange(change.real, change.kind, change.content.raw, change.content.digest)
        for answer in await self._tell(told, ctx):
            ctx.note(answer)
        return change

    async def _tell(self, change: FileChange, ctx: Context | None) -> list[str]:
        """Tell whoever implements `peg_file_changed`; what they answer, or that they failed."""
        bus = getattr(self._session, "bus", None)
        if bus is None or not bus.has("peg_file_changed"):
            return []
        answers = []
        for heard in await bus.ask("peg_file_changed", change=change, ctx=ctx):
            if heard.error is not None:
                answers.append(f"The hook {heard.plugin} failed to take note of the change: {heard.error}")
            elif heard.value:
                answers.append(heard.value)
        return answers

    def kept(self, digest: str) -> bytes | None:
        """A content from before a change, by its digest, if it is kept."""
        return self._store.content(digest)

    async def mark(self) -> Mark | None:
        """Begin a span of work. Called before each user prompt; the 100 newest spans are kept."""
        return Mark(self._store.begin().id)

    async def foresee(self, mark: Mark, *, force: bool = False) -> tuple[list[Restored], list[Kept]]:
        """What `rewind` would do to each file, with the lines that change."""
        restored, kept = [], self._lost(mark)
        for path, touches in self._since(mark).items():
            way = await anyio.to_thread.run_sync(wayback.find, self._store, touches, force)
            if isinstance(way, wayback.Way):
                restored.append(await anyio.to_thread.run_sync(way.shown))
            elif way:
                kept.append(Kept(path, way))
        return restored, kept

    async def rewind(self, mark: Mark, *, force: bool = False) -> list[Kept]:
        """Give every file that was changed since the mark the content it had then.

        Left alone and returned: files reached through a symbolic link, files with several names, files that
        somebody else changed since (unless ``force`` is set), files of subagents. The rewind can be taken back
        through `undo`.
        """
        since, kept = self._since(mark), self._lost(mark)
        self.undo = Mark(self._store.begin().id)
        for path, touches in since.items():
            async with self.lock(path):
                way = await anyio.to_thread.run_sync(wayback.find, self._store, touches, force)
                reason = await self._go(way) if isinstance(way, wayback.Way) else way
            if reason:
                kept.append(Kept(path, reason))
        return kept

    def _since(self, mark: Mark) -> dict[str, list[Touch]]:
        """What was done to each file since a mark, oldest first; nothing for a mark whose contents are gone."""
        found: dict[str, list[Touch]] = {}
        for span in self._store.spans if not self._lost(mark) else ():
            if span.id >= int(mark.value):
                for path, touch in span.touched.items():
                    found.setdefault(path, []).append(touch)
        return dict(sorted(found.items()))

    def _lost(self, mark: Mark) -> list[Kept]:
        """Why nothing can be restored, when the mark is older than what is kept."""
        if int(mark.value) >= self._store.floor:
            return []
        return [Kept("files", f"only the {SPANS} newest checkpoints are kept, and this one is older")]

    async def _go(self, way: wayback.Way) -> str:
        """Restore one file; the reason why not, or nothing."""
        path, now = way.first.path, way.now
        digest = now.digest if now else None
        touch = Touch(span=0, path=path, before=digest, after=way.first.before, mode=way.mode)
        try:
            self._store.keep(touch, now.raw if now else None)
            await way.go()
        except Refusal as refusal:
            return refusal.text
        except OSError as error:
            return f"the state to come back to could not be kept: {error.strerror or error}"
        await self._tell(FileChange(path, way.change, way.before, way.first.before), None)
        return ""


def _effects(ctx: Context) -> writer.Effects:
    return lambda real: ctx.effect("file", real)


def _content(data: bytes, status: os.stat_result) -> Content:
    return Content(data, status, digest_of(data))
