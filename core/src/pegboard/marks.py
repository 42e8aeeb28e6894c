"""Points that a session can go back to: each prompt begins a span, and every open owner marks where it stands then.

An owner that is opened later marks where it stands at its opening: nobody used it before, so this is the same point.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pegboard.errors import Code, Refusal, TranscriptError
from pegboard.events import Marked

if TYPE_CHECKING:
    from pegboard.state import Owner
    from pegboard.transcript import Transcript


async def begin(transcript: Transcript, owners: Mapping[str, Owner]) -> int:
    """Begin the span of the next prompt and return the prompt's number. Raises `TranscriptError`."""
    transcript.prompts += 1
    transcript.append(await marked(transcript.prompts, owners))
    return transcript.prompts


async def opened(transcript: Transcript, name: str, owner: Owner) -> None:
    """Mark an owner that was just opened. Raises `Refusal` (io_error): what has no way back is not used."""
    try:
        record = await marked(transcript.prompts, {name: owner})
        if record.owners or record.fixed:
            transcript.append(record)
    except TranscriptError as error:
        raise Refusal(Code.IO_ERROR, f"The session cannot be recorded: {error}") from None


async def marked(prompt: int, owners: Mapping[str, Owner]) -> Marked:
    """Where these owners stand. One that fails to say cannot go back; those that follow the conversation need not."""
    marks: dict[str, Any] = {}
    fixed: list[str] = []
    for name, owner in owners.items():
        if owner.follows:
            continue
        try:
            mark = await owner.mark()
        except Exception:
            mark = None
        if mark is None:
            fixed.append(name)
        else:
            marks[name] = mark.value
    return Marked(prompt=prompt, owners=marks, fixed=fixed)
