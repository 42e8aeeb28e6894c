"""`peg sessions rewind`: a finished session is opened for as long as its owners need to go back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import anyio

from pegboard.cli.rewinding import Point, Report, Story, go_back, take_back
from pegboard.cli.start import start
from pegboard.errors import UsageError
from pegboard.session import Session
from pegboard.transcript import Transcript

NOTHING_ASKED = "Nothing was asked in this session yet; --to 0 takes back what single calls changed."


def points(folder: Path) -> list[Point]:
    """The prompts that a session can go back to before."""
    return Story(folder).points


def run(folder: Path, *, prompt: int | None, last: bool, undo: bool, what: str, force: bool, dry_run: bool) -> Report:
    """Take a session back and say what was done. Raises `Locked` while another process runs it, `UsageError`."""
    if (prompt is not None) + last + undo > 1:
        raise UsageError("--to, --last and --undo exclude each other.")
    if last:
        known = points(folder)
        if not known:
            raise UsageError(NOTHING_ASKED)
        prompt = known[-1].prompt
    transcript = Transcript.resume(folder, mend=not dry_run)
    try:
        return anyio.run(_go, transcript, None if undo else prompt, what, force, dry_run)
    finally:
        transcript.close()


async def _go(transcript: Transcript, prompt: int | None, what: str, force: bool, dry_run: bool) -> Report:
    begun = start()
    session = Session.create(
        begun.places, begun.settings, begun.registry, trusted=begun.trusted, session_id=transcript.path.parent.name
    )
    for pieces in transcript.states:
        session.owners.restore(pieces)
    try:
        if prompt is None:
            return await take_back(session, transcript, force=force, dry_run=dry_run)
        code, conversation = what != "conversation", what != "code"
        return await go_back(
            session, transcript, prompt, code=code, conversation=conversation, force=force, dry_run=dry_run
        )
    finally:
        await session.owners.close()


def listed(found: list[Point]) -> Iterator[str]:
    """The prompts for people, oldest first."""
    for point in found:
        yield f"{point.prompt:>4}  {time.strftime('%Y-%m-%d %H:%M', time.localtime(point.time))}  {point.text}"
    yield "Go back to before one of them with: --to N" if found else NOTHING_ASKED


def told(report: Report) -> Iterator[str]:
    """What happened, or would happen, for people."""
    would = "would be " if report.dry_run else ""
    if report.undo:
        what = f"the last rewind {would or 'is '}taken back"
    else:
        before = f"prompt {report.prompt}: {report.text}" if report.prompt else "the first prompt"
        what = f"{'would go' if report.dry_run else 'is'} back to before {before}"
    yield f"Session {report.session}: {what}"
    if report.code:
        yield from _files(report, would)
    if report.stays or report.fixed:
        yield "Not brought back:"
        for item in report.stays:
            may = {"perhaps": " (may have happened)", "unknown": " (NOT KNOWN whether it happened)"}.get(item.known, "")
            yield f"  {item.tool}: {f'{item.kind} {item.target}'.strip()}{may}; held by {item.holder}"
        if report.fixed:
            yield f"  what these hold, which cannot go back: {', '.join(report.fixed)}"
    if report.conversation and not report.undo:
        answers = "1 answer" if report.left_out == 1 else f"{report.left_out} answers"
        yield f"Conversation: {answers} of the model {would or 'are '}left out; the session file keeps them."
    if not report.dry_run and not report.undo:
        yield f"Take it back with: peg sessions rewind {report.session} --undo"


def _files(report: Report, would: str) -> Iterator[str]:
    words = {"create": "made again", "update": "restored", "delete": "removed"}
    for item in report.restored:
        yield f"  {would}{words.get(item.change, item.change)}: {item.target}"
        if report.dry_run:
            yield from (f"    {line}" for line in item.diff.splitlines())
    if not report.restored:
        yield "  Nothing to restore." if not report.kept else "  Nothing can be restored."
    if report.kept:
        count = "1 is" if len(report.kept) == 1 else f"{len(report.kept)} are"
        yield f"Left alone: {count} skipped"
        yield from (f"  {item.target}: {item.reason}" for item in report.kept)
