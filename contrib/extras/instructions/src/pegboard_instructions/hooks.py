"""The hooks: instruction files at the start of a session, and those that come with a file that was opened.

Importing it loads nothing; the reading itself is imported once there is a file to read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pegboard.events import Batch, Event, Notice
from pegboard.hooks import Fragment, hook

from pegboard_instructions.spots import at_start

if TYPE_CHECKING:
    from pegboard.session import Session

    from pegboard_instructions.loaded import Loaded

PATHS = {"Read": "file_path", "Edit": "file_path", "Write": "file_path", "NotebookEdit": "notebook_path"}
"""Tools that open one file -> the field that names it."""

_SESSIONS: dict[str, Loaded] = {}


@hook
async def peg_session_start(session: Session, kind: str) -> None:
    """Read the files of the start; the texts go with the next request, each that was not told yet."""
    if kind == "compact" and session.id in _SESSIONS:
        return
    _SESSIONS.pop(session.id, None)
    if not session.settings.value("discovery.enabled"):
        return
    if any(at_start(session.places, bool(session.settings.value("compat.claude")))):
        await _loaded(session)


@hook
def peg_context(session: Session) -> Iterable[Fragment]:
    """All texts of this session; the loop says those that are new."""
    loaded = _SESSIONS.get(session.id)
    return loaded.fragments if loaded is not None else ()


@hook
async def peg_before_event(event: Event, session: Session) -> None:
    """A batch of calls is done: the files that it opened may bring instructions along. Never an objection."""
    if not isinstance(event, Batch) or not session.settings.value("discovery.enabled"):
        return
    for result in event.results:
        field = PATHS.get(result.tool)
        if field is None or result.is_error or not isinstance(result.input, dict):
            continue
        path = result.input.get(field)
        if isinstance(path, str) and path:
            await _reached(session, _absolute(session, path))


@hook
async def peg_session_end(session: Session, reason: str) -> None:
    """Forget what was read."""
    _SESSIONS.pop(session.id, None)


def _absolute(session: Session, path: str) -> str:
    return os.path.normpath(os.path.join(session.cwd, path))


async def _reached(session: Session, path: str) -> None:
    """A failure here is a notice: instructions must not be able to stop a run."""
    try:
        await (await _loaded(session)).reached(path)
    except Exception as error:
        text = f"The instructions for {path} could not be read ({type(error).__name__}: {error})."
        await session.tell(Notice(text=text, kind="instructions"))


async def _loaded(session: Session) -> Loaded:
    found = _SESSIONS.get(session.id)
    if found is None:
        from pegboard_instructions.loaded import Loaded

        found = _SESSIONS[session.id] = Loaded(session)
        await found.start()
    return found
