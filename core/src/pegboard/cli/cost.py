"""`peg cost`: what sessions have used, by model, by tool and by agent.

Read from the transcripts, so that it also holds for sessions that were killed; prices are those of today.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from pegboard import events
    from pegboard.cli.start import Start
    from pegboard.provider import Usage

Prices = Callable[[str], dict[str, float] | None]


class Row(msgspec.Struct, kw_only=True):
    """The tokens and the cost of one model, one agent, or one kind of request beside the conversation."""

    name: str
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    cost_usd: float | None = 0.0
    """None = a price is not known."""

    def add(self, usage: Usage, cost: float | None) -> None:
        """Count one request."""
        self.requests += 1
        for name in usage.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(usage, name))
        self.cost_usd = None if cost is None or self.cost_usd is None else self.cost_usd + cost


class ToolRow(msgspec.Struct, kw_only=True):
    """What one tool did: its calls, and what they put into the context."""

    name: str
    calls: int = 0
    failed: int = 0
    seconds: float = 0.0
    characters: int = 0
    """Of all results, as the model read them first."""


class Bill(msgspec.Struct, kw_only=True):
    """All sums of the sessions that were asked about."""

    sessions: list[str]
    total_cost_usd: float | None = 0.0
    models: list[Row] = []
    agents: list[Row] = []
    beside: list[Row] = []
    """Requests beside the conversation, by what they were for; also part of the sums above."""
    tools: list[ToolRow] = []


@click.command("cost")
@click.argument("session", required=False)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def command(session: str | None, json_: bool) -> None:
    """Show what SESSION has used, or all sessions of this project together.

    SESSION may be the beginning of an id, or a name. The costs are computed with the prices that hold now.
    """
    from pegboard import sessions
    from pegboard.cli.start import start

    begun = start()
    if session is not None:
        folders = [sessions.find(begun.places, session)]
    else:
        folders = [begun.places.sessions_dir / item.id for item in sessions.listing(begun.places)]
    bill = bill_of(folders, prices(begun))
    text = msgspec.json.encode(bill).decode() if json_ else shown(bill)
    sys.stdout.write(text.encode("utf-8", "replace").decode() + "\n")


def bill_of(folders: Iterable[Path], price: Prices) -> Bill:
    """Sum up these sessions. What a fork has copied is counted once."""
    from pegboard import events
    from pegboard.spending import cost_of

    folders = list(folders)
    tables: tuple[dict[str, Row], ...] = ({}, {}, {})
    tools: dict[str, ToolRow] = {}
    seen: set[tuple[str, float]] = set()
    for agent, record in _records(folders):
        key = (getattr(record, "id", "") or type(record).__name__, record.time)
        if not isinstance(record, events.Assistant | events.Spent | events.Result) or key in seen:
            continue
        seen.add(key)
        if isinstance(record, events.Result):
            _count(tools.setdefault(record.tool, ToolRow(name=record.tool)), record)
            continue
        cost = cost_of(record.usage, price(record.model))
        names = (record.model, agent, record.what if isinstance(record, events.Spent) else "")
        for table, name in zip(tables, names, strict=True):
            if name:
                table.setdefault(name, Row(name=name)).add(record.usage, cost)
    models, agents, beside = (sorted(table.values(), key=lambda row: -(row.cost_usd or 0.0)) for table in tables)
    costs = [row.cost_usd for row in models]
    return Bill(
        sessions=[folder.name for folder in folders],
        total_cost_usd=None if None in costs else sum(filter(None, costs)),
        models=models,
        agents=agents,
        beside=beside,
        tools=sorted(tools.values(), key=lambda row: -row.characters),
    )


def prices(begun: Start) -> Prices:
    """Today's price of each model: the setting ``prices``, else what its provider says, else None."""
    from pegboard.errors import PegError
    from pegboard.provider import ModelRef
    from pegboard.spending import price_of

    @cache
    def price(model: str) -> dict[str, float] | None:
        known = None
        for name in ("", *begun.registry.providers()):
            try:
                provider = begun.registry.provider(ModelRef(model, name), begun.settings, os.environ)
            except PegError:
                continue
            known = known or provider.abilities(model).price
        return price_of(model, known, begun.settings.value("prices"))

    return price


def shown(bill: Bill) -> str:
    """The bill for people."""
    count = "1 session" if len(bill.sessions) == 1 else f"{len(bill.sessions)} sessions"
    parts = [f"{count}, cost in USD: {_usd(bill.total_cost_usd)}"]
    for title, rows in (("model", bill.models), ("agent", bill.agents), ("beside the conversation", bill.beside)):
        if rows:
            head = (title, "requests", "input", "cached", "written", "output", "USD")
            parts.append(_table(head, [_row(row) for row in rows]))
    if bill.tools:
        lines = [(t.name, t.calls, t.failed, f"{t.seconds:.1f}", f"{t.characters:,}") for t in bill.tools]
        parts.append(_table(("tool", "calls", "failed", "seconds", "characters"), lines))
    return "\n\n".join(parts)


def _records(folders: Iterable[Path]) -> Iterator[tuple[str, events.Event]]:
    """Every record with the agent that it belongs to: those of the main file, then those of its subagents."""
    from pegboard.lines import FILE_NAME, read

    for folder in folders:
        yield from (("main", record) for record in read(folder / FILE_NAME))
        for path in sorted((folder / "subagents").rglob("*.jsonl")):
            agent = path.parent.name if path.name == FILE_NAME else path.stem
            yield from ((agent, record) for record in read(path))


def _count(row: ToolRow, record: events.Result) -> None:
    row.calls += 1
    row.failed += record.is_error
    row.seconds += record.seconds
    texts = [record.text] if isinstance(record.text, str) else [block.get("text", "") for block in record.text]
    row.characters += sum(map(len, texts))


def _row(row: Row) -> tuple[object, ...]:
    numbers = (row.input_tokens, row.cache_read_input_tokens, row.cache_creation_input_tokens, row.output_tokens)
    return (row.name, row.requests, *(f"{number:,}" for number in numbers), _usd(row.cost_usd))


def _usd(cost: float | None) -> str:
    return "unknown" if cost is None else f"{cost:.4f}" if cost < 1 else f"{cost:,.2f}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, *[tuple(map(_clean, row)) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(zipped))
        for zipped in (list(zip(line, widths, strict=True)) for line in lines)
    )


def _clean(cell: object) -> str:
    return "".join(char if char.isprintable() else "?" for char in str(cell))
