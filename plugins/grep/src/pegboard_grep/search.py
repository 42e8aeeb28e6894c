"""One search from query to output: run, judge how it ended, filter, page, and say what is missing.

The engine matches and the runner limits; everything a reader is told is decided here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pegboard.errors import Code, Refusal
from pegboard.tool import Context
from pegboard_ripgrep.engine import Engine
from pegboard_ripgrep.order import newest
from pegboard_ripgrep.preview import MOST, previews
from pegboard_ripgrep.rows import Counts, Lines, Row
from pegboard_ripgrep.runner import End, Limits, Run, run
from pegboard_ripgrep.view import Denies, blocks, plain, shown_name, trouble

from pegboard_grep.page import Page, cut_page
from pegboard_grep.query import Query

if TYPE_CHECKING:
    from pegboard_grep.tool import GrepInput

T = TypeVar("T")

SUMMARY = 200
"""Characters kept free for the line with the totals."""

MEMORY = Limits().memory


@dataclass
class Search:
    """One search of a call."""

    ctx: Context
    engine: Engine
    query: Query
    denies: Denies
    input: GrepInput
    prefix: str
    """What stands before names when they are shown."""
    whole: bool = True
    """False when the engine was ended, or died, before it was through."""
    notes: list[str] = field(default_factory=list)

    async def files(self) -> tuple[Page, int]:
        """``files_with_matches``: the page, and how many files match."""
        names: list[bytes] = []
        ended = await self._run(
            self.query.files(), lambda records: names.extend(map(plain, filter(None, records))), b"\0"
        )
        if self.denies:
            names = [name for name in names if not self._hidden(name)]
        await self._judge(ended, bool(names))
        offset, limit = self.input.offset, self.input.head_limit
        first, total = await self.ctx.thread(newest, self.query.root, names, offset + limit + 1 if limit else None)
        page = self._page(Row(name, 0, shown_name(name)) for name in first[offset:])
        self._summary(page, total, "file", "")
        return page, total

    async def counts(self) -> tuple[Page, Counts]:
        """``count``: the page, and the counts of all files."""
        found = Counts()
        ended = await self._run(self.query.counts(), found.take, b"\n")
        found.files = self._visible(found.files)
        await self._judge(ended, bool(found.files))
        page = self._page(list(found.rows())[self.input.offset :])
        total = sum(found.files.values())
        least = "" if self.whole else "at least "
        self._summary(page, len(found.files), "file", f" Total: {least}{_many(total, 'matching line')}.")
        return page, found

    async def lines(self) -> tuple[Page, Lines]:
        """``content``: the page, and the rows of all files."""
        found = Lines(numbers=self.input.line_numbers is not False, context=self.query.context)
        flags = self.query.content(self.ctx.setting("grep.max_columns"))
        ended = await self._run(flags, found.take, b"\n")
        found.files = self._visible(found.files)
        await self._judge(ended, bool(found.files))
        reserve = self.ctx.setting("grep.result_chars") // 13
        page = self._page(found.rows(self.input.offset), reserve)
        omitted = [row for row in page.rows if row.omitted and row.line]
        if omitted:
            await self._preview(omitted, reserve)
        inside = f" ({_many(found.matches(), 'matching line')} in {_many(len(found.files), 'file')})"
        self._summary(page, found.total(), "row", "", inside if page.more else "")
        return page, found

    async def _run(self, flags: list[str], take: Callable[[list[bytes]], bool | None], separator: bytes) -> Run:
        buffer = self.ctx.setting("grep.buffer_bytes")
        limits = Limits(deadline=self.ctx.setting("grep.deadline_s"), stdout=buffer, stderr=buffer)
        ended = await run(
            self.ctx,
            self.engine,
            flags,
            [self.query.target],
            root=self.query.root,
            take=take,
            separator=separator,
            limits=limits,
        )
        self.whole = ended.end is End.DONE and not ended.crashed
        return ended

    async def _judge(self, ended: Run, found: bool) -> None:
        """Refuse what is no answer; note what makes the answer incomplete."""
        problems = trouble(ended)
        if not found:
            self._refuse_empty(ended, problems.other, bool(problems.unreadable))
        if ended.end is End.DEADLINE:
            seconds = self.ctx.setting("grep.deadline_s")
            self.notes.append(f"The search was stopped after {seconds} s; rows are missing. Narrow it to see all.")
        elif ended.end is End.FULL:
            size = self.ctx.setting("grep.buffer_bytes")
            self.notes.append(f"The search was stopped at {size:,} bytes of results; rows are missing. Narrow it.")
        elif ended.crashed:
            self.notes.append("The search engine died before it was through; rows are missing.")
        elif problems.other and ended.exit == 2:
            self.notes.append(f"The search engine also said: {blocks(problems.other, 300)}")
        self.notes.append(problems.note(self.prefix))
        if self.denies:
            self.notes.append(await self.denies.note(self.engine, []))
        self.notes = list(filter(None, self.notes))

    def _refuse_empty(self, ended: Run, diagnostic: str, unreadable: bool) -> None:
        if ended.end is End.DEADLINE:
            raise Refusal(
                Code.TIMEOUT,
                f"The search did not end within {self.ctx.setting('grep.deadline_s')} s and had found nothing by then.",
                hint="Narrow it: a smaller path, a glob, a type, or a simpler pattern.",
            )
        if ended.end is End.FULL:
            raise Refusal(Code.TOO_LARGE, "The first row of the result is larger than the buffer.", hint="Narrow it.")
        if ended.crashed:
            raise Refusal(
                Code.TOO_LARGE,
                f"The search engine died of signal {-(ended.exit or 0)}; it may use {MEMORY // 1024**2} MiB of memory.",
                hint="Use a simpler pattern, or search fewer or smaller files.",
            )
        if ended.exit != 2:
            return
        if diagnostic:
            raise Refusal(
                Code.INVALID_INPUT,
                f"The search engine rejected the input: {blocks(diagnostic)}",
                hint="Correct the pattern, glob or type and search again.",
            )
        if self.query.target != "./" and not unreadable:
            raise Refusal(Code.NOT_FOUND, f"{self.query.root / self.query.target} is gone.")
        if self.query.target != "./" and (self.query.root / self.query.target).is_file():
            raise Refusal(Code.IO_ERROR, f"{self.query.root / self.query.target} cannot be read.")

    def _hidden(self, name: bytes) -> bool:
        return self.denies.hides(os.fsdecode(name))

    def _visible(self, files: dict[bytes, T]) -> dict[bytes, T]:
        return {name: rows for name, rows in files.items() if not self._hidden(name)} if self.denies else files

    def _page(self, rows: Iterable[Row | None], reserve: int = 0) -> Page:
        room = self.ctx.setting("grep.result_chars") - SUMMARY - reserve - sum(len(note) + 3 for note in self.notes)
        return cut_page(rows, self.input.head_limit, max(room, 200), self.prefix)

    async def _preview(self, omitted: list[Row], room: int) -> None:
        buffer = self.ctx.setting("grep.buffer_bytes")
        query = self.query
        lines = await previews(
            self.ctx, self.engine, query.search(), omitted, root=query.root, prefix=self.prefix, buffer=buffer
        )
        places = len({(row.name, row.line) for row in omitted})
        for line in lines:
            room -= len(line) + 3
            if room < 0:
                break
            self.notes.append(line)
        if places > MOST:
            self.notes.append(f"{places:,} lines are too long to show; -o with a narrow pattern shows the matches.")

    def _summary(self, page: Page, total: int, noun: str, tail: str, inside: str = "") -> None:
        """The line with the totals, and how to go on. Left out where it would only repeat a complete result."""
        offset, shown = self.input.offset, page.shown
        least = "" if self.whole else "at least "
        if total and offset >= total:
            self.notes.append(f"{least}{_many(total, noun)} in all; offset {offset:,} is past the end.{tail}")
        elif page.more:
            why = " More did not fit." if page.full else ""
            span = f"{noun.capitalize()}s {offset + 1:,}-{offset + shown:,} of {least}{total:,}{inside}."
            self.notes.append(f"{span}{why} Next offset: {offset + shown}.{tail}")
        elif total and (noun == "file" or offset or "head_limit" in self.input.model_fields_set):
            ending = "complete" if self.whole else "but the search was stopped"
            self.notes.append(f"{shown:,} of {least}{_many(total, noun)}, {ending}.{tail}")
        for note in self.notes:
            self.ctx.note(note)


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
