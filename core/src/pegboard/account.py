"""The account of a session: what was changed, who holds it now, what a rewind brings back, what is not known.

Read from the transcript's results alone; nothing is guessed from the state of the world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from pegboard import events
from pegboard.call import EffectKind, EffectState, Status

Known = Literal["changed", "perhaps", "unknown"]
"""What is known of a target: it was changed, it may have been, or a remote side may have acted."""

HOLDERS = {
    EffectKind.FILE: "the file on disk",
    EffectKind.PROCESS: "whatever the program left behind",
    EffectKind.NETWORK: "the host that was contacted",
    EffectKind.REMOTE: "the remote service",
    EffectKind.REGISTRY: "a registry of this session",
    EffectKind.MODE: "the session",
}
"""Who holds a changed state where no owner of the tool does."""


class Holder(msgspec.Struct, frozen=True):
    """An owner that holds what a tool changed, and whether it can go back."""

    name: str
    rewinds: bool


class Line(msgspec.Struct, kw_only=True):
    """What one tool did to one target."""

    tool: str
    kind: EffectKind
    target: str
    known: Known
    times: int
    calls: list[str]
    details: list[str]
    holder: str
    rewind: bool
    """Whether a rewind can bring back what was there before."""
    taken_back: list[str] = []
    """Calls whose change a rewind took back; they are not in ``calls``."""


class Account(msgspec.Struct, kw_only=True):
    """All of it, in the order in which the targets were first touched."""

    session: str
    lines: list[Line] = []
    interrupted: list[str] = []
    """Tools whose call was cut off by a crash; what they did is not on record."""
    settled: dict[str, bool] = {}
    """Remote targets that were unknown for a while -> whether the effect had happened."""
    contacts: list[str] = []
    calls: int = 0


def since_prompt(records: Iterable[events.Record], prompt: int) -> Iterator[events.Record]:
    """The records from a prompt on; all of them for 0."""
    begun = prompt == 0
    for record in records:
        begun = begun or (isinstance(record, events.UserText) and record.prompt >= prompt)
        if begun:
            yield record


def since_time(records: Iterable[events.Record], time: float) -> Iterator[events.Record]:
    """The records from a time on, in seconds since the epoch."""
    return (record for record in records if record.time >= time)


def account(session: str, records: Iterable[events.Event], holder: Callable[[str], Holder | None]) -> Account:
    """Sum up the records of a session. ``holder`` tells who holds what a tool changes."""
    found = Account(session=session, lines=[], interrupted=[], settled={}, contacts=[])
    lines: dict[tuple[str, str, str], Line] = {}
    begun: dict[str, str] = {}
    prompts: dict[str, int] = {}
    prompt = 0
    for record in records:
        if isinstance(record, events.Began):
            begun[record.id] = record.tool
        elif isinstance(record, events.UserText):
            prompt = record.prompt or prompt
        elif isinstance(record, events.Rewound):
            _take_back(record, lines.values(), prompts)
        elif isinstance(record, events.Settled):
            _settle(record, found, lines)
        elif isinstance(record, events.Result):
            found.calls += 1
            prompts[record.id] = prompt
            cut_off = begun.pop(record.id, None)
            if cut_off and not record.effects and record.outcome in (Status.PARTIAL, Status.UNKNOWN):
                found.interrupted.append(cut_off)
            found.contacts += [host for host in record.contacts if host not in found.contacts]
            for effect in record.effects:
                key = (record.tool, effect.kind.value, effect.target)
                if key not in lines:
                    lines[key] = _line(record, effect.kind, effect.target, holder(record.tool))
                _count(lines[key], record, effect.state, effect.detail)
    found.interrupted += begun.values()
    found.lines = list(lines.values())
    return found


def _line(record: events.Result, kind: EffectKind, target: str, holder: Holder | None) -> Line:
    local = kind in (EffectKind.FILE, EffectKind.REGISTRY, EffectKind.MODE)
    return Line(
        tool=record.tool,
        kind=kind,
        target=target,
        known="changed",
        times=0,
        calls=[],
        details=[],
        holder=holder.name if holder is not None and local else HOLDERS[kind],
        rewind=holder is not None and holder.rewinds and local,
    )


def _count(line: Line, record: events.Result, state: EffectState, detail: str) -> None:
    if state is EffectState.UNDONE:
        return
    line.times += 1
    line.calls.append(record.id)
    if detail and detail not in line.details:
        line.details.append(detail)
    if state is EffectState.OPEN:
        line.known = "unknown" if line.kind is EffectKind.REMOTE else "perhaps"
    elif line.known == "perhaps":
        line.known = "changed"


def _take_back(record: events.Rewound, lines: Iterable[Line], prompts: dict[str, int]) -> None:
    """What a rewind restored does not stand any more; when the rewind itself is taken back, it stands again."""
    restored = set(record.restored)
    for line in lines:
        if line.target in restored and line.kind is EffectKind.FILE:
            moved = line.taken_back if record.undo else [call for call in line.calls if prompts[call] >= record.prompt]
            line.taken_back = [] if record.undo else [*line.taken_back, *moved]
            line.calls = [*line.calls, *moved] if record.undo else [call for call in line.calls if call not in moved]
            line.times += len(moved) if record.undo else -len(moved)


def _settle(record: events.Settled, found: Account, lines: dict[tuple[str, str, str], Line]) -> None:
    found.settled[record.target] = record.happened
    for line in lines.values():
        if line.target == record.target and line.known == "unknown":
            line.known = "changed"
            if not record.happened:
                line.times -= 1


def text_of(found: Account) -> str:
    """The account for people: tool by tool, then what a rewind can do, then what is not known."""
    parts = [f"Session {found.session}: {found.calls} call{'' if found.calls == 1 else 's'}"]
    lines = [line for line in found.lines if line.times]
    for tool in dict.fromkeys(line.tool for line in lines):
        parts.append(f"\n{tool}")
        parts += [_shown(line) for line in lines if line.tool == tool]
    if not lines:
        parts.append("\nNothing was changed.")
    known = [line for line in lines if line.known != "unknown"]
    back = [line.target for line in known if line.rewind]
    kept = [f"{line.target} ({line.tool})" for line in known if not line.rewind]
    unknown = [f"{line.target} ({line.tool})" for line in lines if line.known == "unknown"]
    unknown += [f"what {tool} did before it was cut off" for tool in found.interrupted]
    gone = [line.target for line in found.lines if line.taken_back and not line.times]
    if gone:
        parts.append("\nTaken back by a rewind: " + _listed(gone))
    parts.append("\nRewind restores: " + _listed(back))
    parts.append("Rewind cannot restore: " + _listed(kept))
    parts.append("UNKNOWN: " + _listed(unknown))
    if found.contacts:
        parts.append("Contacted: " + _listed(found.contacts))
    return "\n".join(parts)


def _shown(line: Line) -> str:
    said = {"changed": "changed", "perhaps": "MAY HAVE CHANGED", "unknown": "UNKNOWN"}[line.known]
    times = f" {line.times} times" if line.times > 1 else ""
    detail = f" ({'; '.join(line.details[:3])})" if line.details else ""
    return f"  {line.kind} {line.target}: {said}{times}{detail}; held by {line.holder}"


def _listed(items: list[str]) -> str:
    return "nothing" if not items else "".join(f"\n  {item}" for item in dict.fromkeys(items))
