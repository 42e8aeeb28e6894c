"""FileViews: what one agent has seen of which file, as it was then.

Edit, Write and NotebookEdit ask it before they change anything, so that no change rests on an old or a partial view.
The table outlives the text that was shown: clearing a result from the context clears no entry.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Literal

import msgspec
from pegboard.errors import Refusal
from pegboard.hooks import Fragment
from pegboard.state import JSON, Owner, Scope

from pegboard_files.text import Text, decode

if TYPE_CHECKING:
    from pegboard_files.disk import Content

Extent = Literal["full", "range", "partial"]

ENTRIES = 1_000
"""[C] Files an agent's table holds; the ones seen longest ago fall out and must be read again."""

KEPT_BYTES = 1024 * 1024
"""[C] Largest content that is kept for telling what changed since it was seen."""

KEPT_TOTAL = 32 * 1024 * 1024
"""[C] All kept contents of one agent together."""

AGAIN = 5
"""[D] Most files that are shown again after a conversation was summed up."""

FAILURES = 50
"""[C] Failed edits that are remembered to recognise a repeat."""

_RANK = {"partial": 0, "range": 1, "full": 2}


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file as one agent saw it last."""

    digest: str
    """SHA-256 of the content in hex; empty when the file was too large to compare."""
    size: int
    mtime_ns: int = 0
    view: Extent
    """``full``: all of it. ``range``: the asked part of it. ``partial``: less than was asked; does not count."""
    why: str = ""
    """Why a view is partial, as half a sentence."""
    ranges: tuple[tuple[int, int], ...] = ()
    """Lines that were shown, first and last, 1-based; empty for a full view."""
    encoding: str = ""
    mark: bool = False
    """Whether the file begins with a byte order mark."""
    ending: str = ""
    shown_by: str = ""
    """Call whose result still shows the whole content in the context; empty when none does."""


class FileViews(Owner):
    """The read table of one agent, by real path."""

    scope = Scope.AGENT
    follows = True

    def __init__(self) -> None:
        self._views: OrderedDict[str, View] = OrderedDict()
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._kept_size = 0
        self._failed: OrderedDict[tuple[str, ...], str] = OrderedDict()
        self._news: set[str] = set()
        self._drifts: dict[str, tuple[int, int]] = {}

    def get(self, real: str) -> View | None:
        """The entry of a real path, if there is one."""
        return self._views.get(real)

    def put(self, real: str, view: View, raw: bytes | None = None) -> None:
        """Set the entry of a real path; ``raw`` is the content, kept for a later comparison if it is small."""
        self._views[real] = view
        self._views.move_to_end(real)
        self._changed(real)
        if raw is not None:
            self._keep(view.digest, raw)
        while len(self._views) > ENTRIES:
            self.forget(next(iter(self._views)))

    def saw(self, real: str, view: View, raw: bytes | None = None, *, lines: int | None = None) -> View:
        """Record a view. Of one and the same content, views add up: a narrow look does not undo a wide one.

        ``lines`` is the number of lines of the file: ranges that cover all of them make a full view.
        """
        old = self._views.get(real)
        if old is not None and old.digest == view.digest and view.digest:
            ranges = _joined([*old.ranges, *view.ranges])
            wider = max(old, view, key=lambda seen: _RANK[seen.view])
            if wider.view != "full" and lines is not None and ranges and ranges[0] == (1, lines):
                view = msgspec.structs.replace(view, view="full", ranges=(), why="")
            else:
                view = msgspec.structs.replace(
                    view,
                    view=wider.view,
                    why=wider.why,
                    ranges=() if wider.view == "full" else ranges,
                    shown_by=view.shown_by or old.shown_by,
                )
        self.put(real, view, raw)
        return view

    def wrote(self, real: str, content: Content, text: Text | None, *, known: bool) -> None:
        """Record the agent's own change, so that the next one needs no new read.

        ``known``: the agent knows the whole new content; else an entry it had stays as wide as it was.
        """
        old = self._views.get(real)
        extent: Extent = "full" if known or (old is not None and old.view == "full") else "range"
        view = View(
            digest=content.digest,
            size=len(content.raw),
            mtime_ns=content.stat.st_mtime_ns,
            view=extent,
            encoding=text.encoding if text else "",
            mark=bool(text and text.mark),
            ending=text.ending if text else "",
        )
        self.put(real, view, content.raw)

    def refresh(self, real: str, content: Content) -> None:
        """Move an entry on to a content whose difference the agent has just been shown whole."""
        old = self._views[real]
        moved = msgspec.structs.replace(
            old,
            digest=content.digest,
            size=len(content.raw),
            mtime_ns=content.stat.st_mtime_ns,
            view="full" if old.view == "full" else "range",
            ranges=(),
            shown_by="",
        )
        self.put(real, moved, content.raw)

    def kept(self, digest: str) -> bytes | None:
        """The content of this digest, if it is still kept."""
        return self._kept.get(digest)

    def __bool__(self) -> bool:
        """Whether anything was seen at all."""
        return bool(self._views)

    def drifted(self) -> list[tuple[str, str]]:
        """The files whose content is not the one that was seen: (real path, ``changed`` or ``removed``).

        Each state of a file is reported once. Blocking: looks at every file of the table, reads those that were
        written to. Their entries stay; the gate before a change finds them stale.
        """
        return [(real, what) for real, view in list(self._views.items()) if (what := self._drift(real, view))]

    def _drift(self, real: str, view: View) -> str:
        from pegboard_files.disk import read_content

        try:
            status = os.stat(real)
            now = (status.st_mtime_ns, status.st_size)
            if now == (view.mtime_ns, view.size) or self._drifts.get(real) == now:
                return ""
            self._drifts[real] = now
            if now[1] == view.size and view.digest:
                return "" if read_content(real, real).digest == view.digest else "changed"
            return "changed"
        except FileNotFoundError:
            gone, self._drifts[real] = self._drifts.get(real) == (0, -1), (0, -1)
            return "" if gone else "removed"
        except (OSError, Refusal):
            return ""

    def forget(self, real: str) -> None:
        """Drop the entry of a file."""
        if self._views.pop(real, None) is not None:
            self._changed(real)

    def forget_shown(self, call_ids: Iterable[str]) -> None:
        """The results of these calls left the context: the files must be shown whole when read again."""
        gone = set(call_ids)
        for real, view in self._views.items():
            if view.shown_by in gone:
                self._views[real] = msgspec.structs.replace(view, shown_by="")
                self._changed(real)

    def cleared(self, calls: Collection[str]) -> None:
        self.forget_shown(calls)

    async def compacted(self, room: int) -> Iterable[Fragment]:
        """The files seen last are shown again, as they were seen; the others must be read anew."""
        shown: dict[str, str] = {}
        for real, view in reversed(self._views.items()):
            text = self._lines(view, room // AGAIN)
            if text and len(shown) < AGAIN:
                shown[real] = f"{real}\n{text}"
        self.keep_only(shown)
        self.forget_shown([view.shown_by for view in self._views.values()])
        return [Fragment("files", f"A file that you read before, as it was then: {text}") for text in shown.values()]

    def _lines(self, view: View, most: int) -> str:
        raw = self._kept.get(view.digest) if view.view == "full" else None
        text = decode(raw) if raw is not None and len(raw) <= most else None
        lines = text.plain.removesuffix("\n").split("\n") if text is not None else []
        numbered = "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, 1))
        return numbered if len(numbered) <= most else ""

    def keep_only(self, reals: Iterable[str]) -> None:
        """After a full compaction: drop every entry except those of files that were attached again."""
        wanted = set(reals)
        for real in [real for real in self._views if real not in wanted]:
            self.forget(real)

    def failed_before(self, call_id: str, *what: str) -> bool:
        """Whether another call failed in exactly this way before; records this one."""
        first = self._failed.setdefault(what, call_id)
        self._failed.move_to_end(what)
        while len(self._failed) > FAILURES:
            self._failed.popitem(last=False)
        return first != call_id

    def remember(self) -> JSON | None:
        news, self._news = self._news, set()
        return {real: msgspec.to_builtins(self._views.get(real)) for real in sorted(news)} or None

    def recall(self, saved: JSON) -> None:
        for real, view in saved.items():
            self._views.pop(real, None)
            if view is not None:
                self._views[real] = msgspec.convert(view, View)

    def _changed(self, real: str) -> None:
        self._news.add(real)
        self.dirty = True

    def _keep(self, digest: str, raw: bytes) -> None:
        if len(raw) > KEPT_BYTES or not digest or digest in self._kept:
            return
        self._kept[digest] = raw
        self._kept_size += len(raw)
        while self._kept_size > KEPT_TOTAL:
            self._kept_size -= len(self._kept.popitem(last=False)[1])


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)
