"""Going back: what a session would bring back to before a prompt, what stays, and doing it.

Every owner that was open since is asked. What none of them can bring back is taken from the session's record of
effects and named, so that nobody believes that all is undone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pegboard import events
from pegboard.account import account, since_prompt
from pegboard.cli.owners import classes, holder_of
from pegboard.errors import UsageError
from pegboard.lines import FILE_NAME, numbered, outline, read
from pegboard.state import Kept, Mark, Owner, Restored

if TYPE_CHECKING:
    from pegboard.session import Session
    from pegboard.transcript import Transcript


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that the session can go back to the time before of. ``time`` is in seconds since the epoch."""

    prompt: int
    time: float
    text: str


class Stay(msgspec.Struct, frozen=True, kw_only=True):
    """A change that no owner brings back."""

    tool: str
    kind: str
    target: str
    holder: str
    """Who holds the changed state."""
    known: str


class Report(msgspec.Struct, kw_only=True):
    """What a rewind did, or would do."""

    session: str
    prompt: int
    """The session is as it was before this prompt; 0 = as it was before the first one."""
    text: str
    code: bool
    conversation: bool
    undo: bool
    """A rewind was taken back."""
    dry_run: bool
    restored: list[Restored] = []
    kept: list[Kept] = []
    """What an owner left alone, and why."""
    stays: list[Stay] = []
    fixed: list[str] = []
    """Owners that were open and cannot go back."""
    left_out: int = 0
    """Answers of the model that are no part of the conversation any more."""


class Story:
    """What a session file tells about going back."""

    def __init__(self, path: Path) -> None:
        self.path = path / FILE_NAME if path.is_dir() else path
        self.points: list[Point] = []
        """Prompts that are part of the conversation, oldest first."""
        self.last: events.Rewound | None = None
        """The rewind that can still be taken back: nothing was said since."""
        self._marks: list[events.Marked] = []
        self._states: list[tuple[int, set[str]]] = []
        self._answers: list[int] = []
        gone = outline(self.path).gone
        now = 0
        for number, record in numbered(self.path):
            inside = any(span.first <= number <= span.last for span in gone)
            if isinstance(record, events.UserText) and record.prompt:
                now, self.last = record.prompt, None
                if not inside:
                    self.points.append(Point(prompt=now, time=record.time, text=_line(record)))
            elif isinstance(record, events.Marked):
                self._marks.append(record)
            elif isinstance(record, events.State):
                self._states.append((now, set(record.owners)))
            elif isinstance(record, events.Assistant):
                self.last = None
                if not inside:
                    self._answers.append(now)
            elif isinstance(record, events.Rewound):
                self.last = None if record.undo else record

    def point(self, prompt: int) -> Point:
        """The point before a prompt; 0 stands for the beginning. Raises `UsageError` when there is none."""
        if prompt == 0:
            return Point(prompt=0, time=0.0, text="the beginning")
        for point in self.points:
            if point.prompt == prompt:
                return point
        known = ", ".join(str(point.prompt) for point in self.points[-20:]) or "none"
        raise UsageError(f"There is no prompt {prompt} to go back to in this session. Prompts: {known}.")

    def marks(self, prompt: int) -> tuple[dict[str, Any], list[str]]:
        """Where each owner stood before a prompt, and the owners that cannot go back."""
        marks: dict[str, Any] = {}
        fixed: dict[str, None] = {}
        for record in self._marks:
            if record.prompt >= prompt:
                marks = {**record.owners, **marks}
                fixed |= dict.fromkeys(record.fixed)
        return marks, list(fixed)

    def remembered(self, prompt: int) -> set[str]:
        """Owners that wrote down state since a prompt began."""
        return set().union(*(names for at, names in self._states if at >= prompt))

    def answers(self, prompt: int) -> int:
        """Answers of the model since a prompt, as far as they are part of the conversation."""
        return sum(at >= prompt for at in self._answers)


async def go_back(
    session: Session,
    transcript: Transcript,
    prompt: int,
    *,
    code: bool,
    conversation: bool,
    force: bool = False,
    dry_run: bool = False,
) -> Report:
    """Take a session back to before a prompt; with ``dry_run`` only say what that would do.

    ``session`` may be the running one, between two runs, or one made for this purpose. Raises `UsageError`.
    """
    story = Story(transcript.path)
    point = story.point(prompt)
    marks, fixed = story.marks(prompt)
    known = classes(session.tools())
    report = Report(
        session=transcript.session,
        prompt=prompt,
        text=point.text,
        code=code,
        conversation=conversation and prompt > 0,
        undo=False,
        dry_run=dry_run,
        fixed=fixed,
    )
    record = events.Rewound(prompt=prompt, code=code, conversation=report.conversation)
    if code:
        record.marks = await _ask(session, marks, known, report, force)
    report.stays = _stays(session, story, prompt, report)
    if report.conversation:
        names = story.remembered(prompt)
        record.forgotten = sorted(name for name in names if _follows(known, name))
        report.left_out = story.answers(prompt)
    if not dry_run:
        await _write(session, transcript, record, report)
    return report


async def take_back(session: Session, transcript: Transcript, *, force: bool = False, dry_run: bool = False) -> Report:
    """Take the last rewind back, as long as nothing was said since. Raises `UsageError`."""
    last = Story(transcript.path).last
    if last is None:
        raise UsageError("There is no rewind to take back: none was made, or the session went on after it.")
    report = Report(
        session=transcript.session,
        prompt=last.prompt,
        text="the last rewind is taken back",
        code=last.code,
        conversation=last.conversation,
        undo=True,
        dry_run=dry_run,
    )
    record = events.Rewound(
        prompt=last.prompt, code=last.code, conversation=last.conversation, forgotten=last.forgotten, undo=True
    )
    if last.code:
        await _ask(session, last.marks, classes(session.tools()), report, force)
    if not dry_run:
        await _write(session, transcript, record, report)
    return report


async def _ask(
    session: Session, marks: dict[str, Any], known: dict[str, type[Owner]], report: Report, force: bool
) -> dict[str, Any]:
    """Ask every owner to go back, or what that would do. Returns where they were before."""
    before: dict[str, Any] = {}
    for name, value in marks.items():
        key, _, agent = name.partition("@")
        if key not in known:
            report.kept.append(Kept(name, "its plug-in is not here, so nothing that it holds was brought back"))
            continue
        try:
            owner = await session.owners.get(known[key], session.place(agent or "main"))
            restored, kept = await owner.foresee(Mark(value), force=force)
            if not report.dry_run:
                mark = await owner.mark()
                before |= {name: mark.value} if mark is not None else {}
                kept = await owner.rewind(Mark(value), force=force)
        except Exception as error:
            report.kept.append(Kept(name, f"it failed to go back: {type(error).__name__}: {error}"))
            continue
        left = {item.target for item in kept}
        report.restored += [item for item in restored if item.target not in left]
        report.kept += kept
    return before


def _stays(session: Session, story: Story, prompt: int, report: Report) -> list[Stay]:
    """What was changed since and is not brought back, from the record of effects."""
    found = account(report.session, since_prompt(read(story.path), prompt), holder_of(session.tools()))
    named = {item.target for item in report.restored} | {item.target for item in report.kept}
    stays = [
        Stay(tool=line.tool, kind=line.kind.value, target=line.target, holder=line.holder, known=line.known)
        for line in found.lines
        if line.times and line.target not in named
    ]
    cut_off = "what it did before it was cut off"
    return stays + [
        Stay(tool=tool, kind="", target=cut_off, holder="not on record", known="perhaps") for tool in found.interrupted
    ]


async def _write(session: Session, transcript: Transcript, record: events.Rewound, report: Report) -> None:
    record.restored = [item.target for item in report.restored]
    record.kept = {item.target: item.reason for item in report.kept}
    transcript.rewind(record)
    if text := for_the_model(report):
        transcript.say(text)
    if record.conversation:
        await session.owners.reopen(record.forgotten, transcript.states)


def for_the_model(report: Report) -> events.UserText | None:
    """What the model must know: files that are not as it left them, and effects of a part that it no longer sees."""
    lines = []
    if report.restored and not report.conversation:
        how = "took the last rewind back; these files are as they were before it" if report.undo else "rewound files"
        lines.append(f"The user {how}. They are not as your last calls left them; read them again before a change:")
        lines += [f"- {item.target} ({item.change}d)" for item in report.restored]
    if report.conversation and not report.undo and (report.stays or report.kept):
        lines.append("The user went back to this point of the conversation. Effects of what was left out remain:")
        lines += [f"- {item.target}: {item.reason}" for item in report.kept]
        lines += [f"- {item.kind} {item.target} ({item.tool})" for item in report.stays]
    if not lines:
        return None
    return events.UserText(content=[{"type": "text", "text": "\n".join(lines)}], author="rewind", origin="unclassified")


def _follows(known: dict[str, type[Owner]], name: str) -> bool:
    owner = known.get(name.partition("@")[0])
    return owner is not None and owner.follows


def _line(text: events.UserText, most: int = 100) -> str:
    words = " ".join(block.get("text", "") for block in text.content).split()
    line = " ".join(words)
    return line if len(line) <= most else line[: most - 1] + "…"
