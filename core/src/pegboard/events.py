"""Everything that happens in a session, as typed records: one line each in the transcript and in the stream.

Tagged msgspec structs; readers ignore tags they do not know.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from pegboard.call import Block, DecidedBy, Effect, Outcome
from pegboard.provider import Usage

Origin = Literal[
    "human", "peer", "coordinator", "task-notification", "scheduled", "auto-continuation", "skill", "hook",
    "artifact-comment", "unclassified",
]  # fmt: skip
"""Who wrote a user-role message. Only ``human`` can answer a permission question or approve a plan."""


class Event(msgspec.Struct, kw_only=True, tag_field="type"):
    """Base of all records."""

    hook: ClassVar[str] = ""
    """The name under which external hooks hear of it; empty = not by itself. Its fields are their input."""

    time: float = 0.0
    """Seconds since the epoch; set when the record is appended."""

    def line(self) -> dict[str, Any]:
        """What a stream of JSON lines says of it, ``subtype`` first; empty = nothing. For events of plug-ins."""
        return {}


class Started(Event, tag="session"):
    """First line of a transcript."""

    format: int
    session: str
    cwd: str
    version: str
    parent: str = ""
    """Session this one was forked from."""
    name: str = ""


class UserText(Event, tag="user"):
    """Text that enters the conversation in the user role."""

    content: list[Block]
    origin: Origin = "human"
    author: str = ""
    prompt: int = 0
    """Number of the prompt in its session, from 1; 0 = a text that begins no run of a person's."""


class Marked(Event, tag="marked"):
    """Points that owners can go back to: before a prompt, or when an owner is opened after it."""

    prompt: int
    """The prompt that follows or is under way; 0 before the first one."""
    owners: dict[str, Any] = {}
    """Owner name -> the value of its `Mark`."""
    fixed: list[str] = []
    """Owners that cannot go back."""


class Rewound(Event, tag="rewound"):
    """The session went back to before a prompt. The file keeps what came since; the conversation leaves it out."""

    prompt: int
    code: bool
    """Owners were asked to bring back what they hold."""
    conversation: bool
    restored: list[str] = []
    kept: dict[str, str] = {}
    """What could not be brought back -> why."""
    forgotten: list[str] = []
    """Owners whose state belongs to the conversation; what they remembered since counts no more."""
    marks: dict[str, Any] = {}
    """Where the owners were before: the way to take it back."""
    undo: bool = False
    """The last rewind is taken back."""


class Approved(Event, tag="approved"):
    """Rules that a person's answer added for the rest of the session."""

    rules: list[str]


class Using(Event, tag="using"):
    """The model and the agent that the session goes on with."""

    model: str
    agent: str = ""


class Assistant(Event, tag="assistant"):
    """One complete answer of the model, byte-true."""

    content: list[Block]
    stop_reason: str
    model: str
    usage: Usage
    id: str = ""
    broken: dict[int, str] = {}
    """Index of each ``tool_use`` block whose input could not be parsed, with its text."""
    cut: bool = False


class Began(Event, tag="began"):
    """A call's ``run`` is about to start: after a crash, such a call may have acted."""

    id: str
    tool: str
    kinds: list[str] = []
    """Kinds of effects that the tool may have, from its manifest."""


class Deferred(Event, tag="deferred"):
    """A hook put a call off: the run ends without it, and the session's next run begins with it."""

    id: str
    tool: str
    input: dict[str, Any]
    by: str
    reason: str = ""


class Result(Event, tag="result"):
    """How one call ended."""

    id: str
    tool: str
    outcome: str
    text: str | list[Block]
    is_error: bool = False
    code: str | None = None
    retry: str = "safe"
    decision: DecidedBy | None = None
    effects: list[Effect] = []
    contacts: list[str] = []
    attachments: list[str] = []
    data: Any = None
    agent: str = "main"
    input: Any = None
    """The input as it was run, after hooks; None when the call never got that far."""
    seconds: float = 0.0

    @classmethod
    def of(cls, call_id: str, tool: str, outcome: Outcome, **further: Any) -> Result:
        """The record of an outcome; ``further`` fields are those that the outcome does not know."""
        return cls(
            id=call_id,
            tool=tool,
            outcome=outcome.status.value,
            text=outcome.text,
            is_error=outcome.is_error,
            code=outcome.code.value if outcome.code else None,
            retry=outcome.retry.value,
            decision=outcome.decision,
            effects=outcome.effects,
            attachments=outcome.attachments,
            **further,
        )


class Closed(Event, tag="closed"):
    """All calls of the last answer have a result; written when the turn's user message is made."""


class Removed(Event, tag="removed"):
    """A block that the model service refuses is left out from now on; the record that holds it stays."""

    digest: str
    note: str
    """What the model reads in its place."""


class Cleared(Event, tag="cleared"):
    """The bodies of old results left the context; the records that hold them stay."""

    calls: list[str]


class Compacting(Event, tag="compacting"):
    """The conversation is about to be replaced by a summary; asked about before, never stored."""

    hook: ClassVar[str] = "PreCompact"

    trigger: Literal["manual", "auto"]
    custom_instructions: str = ""
    agent: str = "main"


class Compacted(Event, tag="compacted"):
    """The conversation begins again: with a summary of what was, and what must stand as it was said."""

    hook: ClassVar[str] = "PostCompact"

    summary: str
    kept: list[Block]
    """The blocks of the last thing that a person said."""
    trigger: Literal["manual", "auto"]
    before: int
    """Estimated tokens of the conversation that it replaces."""
    agent: str = "main"


class Spent(Event, tag="spent"):
    """A model request beside the conversation."""

    model: str
    usage: Usage
    what: str
    """What it was for: the name of a tool, or ``compaction``."""


class Mode(Event, tag="mode"):
    """The permission mode changed."""

    mode: str
    by: str


class Moved(Event, tag="cwd"):
    """The session's directory changed."""

    cwd: str
    before: str
    by: str
    """The tool that moved it."""


class State(Event, tag="state"):
    """What the owners want to remember, by owner name."""

    owners: dict[str, Any]


class Retry(Event, tag="retry"):
    """The model request is repeated."""

    attempt: int
    max_attempts: int
    delay: float
    status: int | None
    error: str


class Settled(Event, tag="settled"):
    """A target whose outcome was unknown is known again."""

    target: str
    happened: bool


class Notice(Event, tag="notice"):
    """Something the person should know; never part of the conversation."""

    text: str
    kind: str = "info"


class HookRan(Event, tag="hook"):
    """An external hook ran, and what came of it."""

    id: str
    event: str
    name: str
    """Event and what its matcher ran on, as in ``PreToolUse:Bash``."""
    command: str
    source: str
    """The file that configures it."""
    outcome: Literal["success", "blocked", "error", "cancelled"]
    exit_code: int | None = None
    seconds: float = 0.0
    said: str = ""
    """Its reason or its error, shortened."""


class Ended(Event, tag="ended"):
    """The run is over; asked about before, it is about to be over."""

    reason: str
    turns: int
    text: str = ""
    """The last answer; only where hooks are asked whether the run may end."""
    error: str = ""
    """What went wrong, in words."""
    kind: str = ""
    """The kind of error that the model service named."""
    agent: str = "main"


Record = (
    Started
    | UserText
    | Marked
    | Rewound
    | Approved
    | Using
    | Assistant
    | Began
    | Deferred
    | Result
    | Closed
    | Removed
    | Cleared
    | Compacted
    | Spent
    | Mode
    | Moved
    | State
    | Retry
    | Settled
    | Notice
    | HookRan
    | Ended
)


class Batch(Event, tag="batch"):
    """All calls of one answer have their result; asked about before the next request, never stored."""

    results: list[Result]
    agent: str = "main"


class Delta(Event, tag="delta"):
    """Text as it streams in; shown, never stored."""

    text: str
    kind: Literal["text", "thinking"] = "text"
    index: int = 0
    """Which content block of the answer it belongs to."""
