"""The part of a result that is shown: rows up to the limit of the call and the room of the text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pegboard_ripgrep.rows import Row

GAP = "--"
CUT = " [cut]"


@dataclass
class Page:
    """Rows that are shown, as data and as text."""

    rows: list[Row] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """The rows as text, with gaps between groups."""
    more: bool = False
    """There are rows behind the page."""
    full: bool = False
    """The page ended because the text was full, not because of the limit."""

    @property
    def shown(self) -> int:
        return len(self.rows)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def names(self) -> list[bytes]:
        """Files of the page, in order."""
        return list(dict.fromkeys(row.name for row in self.rows))


def cut_page(rows: Iterable[Row | None], limit: int, room: int, prefix: str) -> Page:
    """The first rows: at most ``limit`` (0 = any number), at most ``room`` characters; None is a gap.

    A first row that is larger than the room is cut, so that paging always goes on.
    """
    page = Page()
    gap = False
    for row in rows:
        if row is None:
            gap = bool(page.rows)
            continue
        line = prefix + row.text
        if limit and len(page.rows) >= limit:
            page.more = True
            break
        size = len(line) + 1 + (len(GAP) + 1 if gap else 0)
        if size > room:
            if page.rows:
                page.more = page.full = True
                break
            line = line[: room - len(CUT) - 1] + CUT
        if gap:
            page.lines.append(GAP)
            gap = False
        room -= size
        page.rows.append(row)
        page.lines.append(line)
    return page
