"""One session: its owners, mode, directory, policy snapshot, transcript and running calls.

Tools see a small Context, hooks and hosts see this. It holds what belongs together for as long as a conversation,
an MCP connection or a `peg call` pipe lives, and nothing that a tool owns.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import msgspec

from pegboard import batch, events, marks, pipeline, shaping, unsettled
from pegboard.call import Call, EffectKind, EffectState, Outcome, Status
from pegboard.errors import Code, Refusal, Stop, TranscriptError
from pegboard.feed import Feed
from pegboard.hooks import Bus
from pegboard.host import Choice, Host, Question, Reply
from pegboard.state import Owner, Owners, Place
from pegboard.tool import Access, Concurrency, Context
from pegboard.toolbox import Toolbox

if TYPE_CHECKING:
    import pluggy

    from pegboard.audit import DecisionLog
    from pegboard.loader import Found, Registry
    from pegboard.pipeline import CallState
    from pegboard.places import Places
    from pegboard.policy import Decision, Mode, Rule, Snapshot
    from pegboard.provider import ToolSpec
    from pegboard.sandbox import Boxes, Sandbox
    from pegboard.settings import Settings
    from pegboard.tool import Tool
    from pegboard.transcript import Transcript


@dataclass
class Session:
    """State of one conversation. Made by `Session.create`; used as an async context manager."""

    places: Places
    settings: Settings
    registry: Registry
    host: Host
    mode: Mode
    id: str
    cwd: Path
    trusted: bool
    transcript: Transcript | None = None
    directories: tuple[Path, ...] = ()
    """Working directories beside the project root."""
    owners: Owners = field(default_factory=Owners)
    locks: batch.Locks = field(default_factory=batch.Locks)
    loaded: dict[str, Mapping[str, bool]] = field(default_factory=dict)
    """Agent -> the deferred tools that tool search has loaded for it."""
    unsettled: dict[str, str] = field(default_factory=dict)
    """Target of every remote effect whose end is not known -> the tool that began it."""
    aborted: Stop | None = None
    halted: str = ""
    """Why a hook wants the run to end; empty = it goes on. The loop ends the run, and takes the reason with it."""
    sole: str = ""
    """The call that a hook may put off: the one call of an answer to the first agent."""
    deferred: events.Deferred | None = None
    """The call that was put off, so that the run ends without it."""
    calls_run: int = 0
    log: DecisionLog | None = None
    """The decision log, once something was decided."""
    posts: dict[str, list[events.UserText]] = field(default_factory=dict)
    """Texts that wait for an agent's next user message, by agent."""
    _rules: list[Rule] = field(default_factory=list)
    _rules_version: int = 0
    _snapshot: tuple[tuple[Any, ...], Snapshot] | None = None
    _scopes: set[anyio.CancelScope] = field(default_factory=set)
    _env: dict[str, str] | None = None
    _boxes: Boxes | None = None
    _tasks: anyio.abc.TaskGroup | None = None
    _feed: Feed = field(init=False)
    toolbox: Toolbox = field(init=False)

    def __post_init__(self) -> None:
        self._feed = Feed(self)
        self.owners.opened = self._opened
        self.toolbox = Toolbox(self)

    @classmethod
    def create(
        cls,
        places: Places,
        settings: Settings,
        registry: Registry,
        *,
        host: Host | None = None,
        mode: Mode | None = None,
        trusted: bool = False,
        transcript: Transcript | None = None,
        session_id: str | None = None,
        cwd: Path | None = None,
    ) -> Session:
        """Make a session; nothing is opened, started or written yet."""
        from pegboard.policy import Mode

        session = cls(
            places=places,
            settings=settings,
            registry=registry,
            host=host or Host(),
            mode=mode or Mode.parse(_resumed_mode(transcript, settings) or str(settings.value("permissions.mode"))),
            id=session_id or (transcript.session if transcript is not None else str(uuid.uuid4())),
            cwd=cwd or _resumed_cwd(transcript, places) or places.cwd,
            trusted=trusted,
            transcript=transcript,
            directories=tuple(Path(item) for item in settings.value("permissions.directories")),
        )
        if transcript is not None:
            for pieces in transcript.states:
                session.owners.restore(pieces)
            session.unsettled.update(transcript.unsettled)
            session._keep_rules(transcript.approved, "your answer in an earlier run")
        return session

    # -- what the core is made of ------------------------------------------------------------------------------

    @property
    def manager(self) -> pluggy.PluginManager:
        """The plug-in manager: what passed the gate is registered here."""
        return self.registry.manager

    @property
    def bus(self) -> Bus:
        """Awaits the async hooks."""
        return Bus(self.manager)

    @property
    def directory(self) -> Path:
        """Where this session keeps its data; made when something is first written."""
        return self.transcript.path.parent if self.transcript is not None else self.places.sessions_dir / self.id

    def place(self, agent: str) -> Place:
        """The place that owners of this agent are opened in."""
        return Place(self, agent, self.directory, self.places.project_dir, self.places.user_dir)

    def child_env(self) -> dict[str, str]:
        """Environment of child processes: no provider keys, nothing named like a credential."""
        if self._env is None:
            from pegboard.process import child_environment

            self._env = child_environment(os.environ)
        return dict(self._env)

    def store_output(self, name: str, data: str | bytes) -> Path:
        """Keep output under ``tool-output/`` of the session, readable by its owner only."""
        from pegboard import atomic

        folder = self.directory / "tool-output"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / "".join(char if char.isalnum() or char in "._-" else "_" for char in name)[-120:]
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        atomic.write(path, raw)
        return path

    # -- tools -------------------------------------------------------------------------------------------------

    def tools(self) -> dict[str, Found]:
        """Every tool that may be called here, by name."""
        return self.toolbox.all()

    def find_tool(self, name: str) -> Found | None:
        """The tool of this name or alias, or None."""
        return self.toolbox.find(name)

    def tool_specs(self) -> list[ToolSpec]:
        """Every tool that may be called, as a request could carry it: sorted by name, without denied ones."""
        return self.toolbox.specs()

    # -- policy ------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The policy of this moment, frozen. Settings files that changed on disk are read again first."""
        from pegboard import policy

        self.settings.refresh()
        key = (self.settings.generation, self._rules_version, self.mode, self.cwd, self.trusted)
        if self._snapshot is None or self._snapshot[0] != key:
            self._snapshot = (key, policy.snapshot_of(self))
        return self._snapshot[1]

    @property
    def session_rules(self) -> list[Rule]:
        """Rules given by answers of this session."""
        return self._rules

    @property
    def roots(self) -> tuple[Path, ...]:
        """The working directories: the start directory, the project root when it holds it, and added ones."""
        return (self.places.cwd, *self.directories)

    def set_mode(self, mode: Mode, by: str) -> None:
        """Change the permission mode; written to the transcript with who did it."""
        self.mode = mode
        self._append(events.Mode(mode=mode.value, by=by))

    async def move(self, path: Path, by: str) -> None:
        """Change the session's directory; relative paths of later calls start there."""
        if path != self.cwd:
            moved = events.Moved(cwd=str(path), before=str(self.cwd), by=by)
            self.cwd = path
            self._append(moved)
            await self.tell(moved)

    def question(
        self, call_id: str, found: Found, raw: dict[str, Any], accesses: Sequence[Access], decision: Decision
    ) -> Question:
        """The question to put for a call, with the rules that a wider answer would add."""
        from pegboard import policy

        touched = [item for item in accesses if item.grade != "mention"]
        lines = [policy.visible(f"{item.kind} {item.target}") for item in touched] or [found.manifest.name]
        rules, always = policy.suggest(found.manifest, accesses, decision, self.snapshot())
        return Question(call_id, found.manifest.name, raw, decision, lines, rules, always)

    def approve(self, question: Question, reply: Reply) -> None:
        """Keep a "for this session" or "always" answer as rules."""
        self._keep_rules(question.rules, f"your answer to {question.digest[:12]}")
        self._append(events.Approved(rules=list(question.rules)))
        if reply.choice is Choice.ALWAYS and question.always:
            from pegboard.settings import add_rules

            add_rules(self.places, "allow", question.always)

    def amend(
        self, *, add: Sequence[Rule] = (), drop: Sequence[Rule] = (), directories: Sequence[Path] | None = None
    ) -> None:
        """Change the rules of this session, or its further directories; holds for the next call."""
        self._rules = [rule for rule in self._rules if rule not in drop] + list(add)
        if directories is not None:
            self.directories = tuple(directories)
        self._rules_version += 1

    def _keep_rules(self, rules: Sequence[str], source: str) -> None:
        from pegboard.policy import parse_rule

        for text in rules:
            self._rules.append(parse_rule(text, effect="allow", scope="session", source=source, line=0))
        self._rules_version += 1

    async def box(self) -> Sandbox | None:
        """A box for the processes of a call. Raises `Refusal` (sandbox_refused) when a required one is missing."""
        if self._boxes is None:
            from pegboard.sandbox import Boxes

            self._boxes = Boxes()
        return await self._boxes.open(self)

    # -- calls -------------------------------------------------------------------------------------------------

    async def run_calls(self, calls: Sequence[Call], agent: str = "main") -> list[Outcome]:
        """Run the calls of one message; one outcome for each, in call order. Never raises for a failing call."""
        outcomes: dict[int, Outcome] = {}
        limit = anyio.CapacityLimiter(batch.TOGETHER)

        async def one(index: int, call: Call) -> None:
            async with limit:
                outcomes[index] = await pipeline.run_call(call, self, agent)

        for group in batch.plan(list(enumerate(calls)), lambda item: self._concurrency(item[1])):
            if len(group) == 1:
                await one(*group[0])
                continue
            async with anyio.create_task_group() as tasks:
                for index, call in group:
                    tasks.start_soon(one, index, call)
        return [outcomes[index] for index in range(len(calls))]

    def _concurrency(self, call: Call) -> Concurrency:
        found = self.find_tool(call.tool)
        return Concurrency(found.manifest.concurrency) if found else Concurrency.READ

    @contextmanager
    def abortable(self) -> Iterator[anyio.CancelScope]:
        """A cancel scope that `abort` cancels; cancelled from the start in an aborted session."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self.aborted is not None:
                scope.cancel()
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    def abort(self, reason: Stop = Stop.INTERRUPTED) -> None:
        """Stop all running calls and refuse new ones; each still gets its outcome."""
        self.aborted = self.aborted or reason
        for scope in list(self._scopes):
            scope.cancel()

    def resume(self) -> None:
        """Accept calls again after an abort, for the next prompt of the same session."""
        self.aborted = None

    def post(self, text: events.UserText, agent: str = "main") -> None:
        """Put a text behind the results of the batch that an agent is in."""
        self.posts.setdefault(agent, []).append(text)

    def take_posts(self, agent: str = "main") -> list[events.UserText]:
        """The texts that wait for this agent; they wait no longer."""
        return self.posts.pop(agent, [])

    async def refuse_unsettled(
        self, found: Found, accesses: Sequence[Access], tool: Tool[Any, Any], ctx: Context
    ) -> None:
        """Refuse to act on a target whose last remote effect may have happened; ask the tool's ``settle`` first."""
        known = await unsettled.settle(self.unsettled, found, accesses, tool, ctx)
        for target, happened in known:
            self._append(events.Settled(target=target, happened=happened))
        unsettled.refuse_repeat(known, found.manifest.name)

    def put_off(self, call: Call, agent: str, by: str, reason: str) -> bool:
        """Put a call off until the session goes on, as a hook wants it; False where that cannot be."""
        if agent != "main" or call.id != self.sole:
            return False
        event = events.Deferred(id=call.id, tool=call.tool, input=call.input or {}, by=by, reason=reason)
        self._append(event)
        self.deferred = event
        return True

    def note_began(self, call_id: str, tool: str, kinds: Sequence[str] = ()) -> None:
        """Write that a call is about to act, so that a crash from here on is known to have possible effects.

        Raises `Refusal` (io_error) when that cannot be written: what cannot be recorded does not run.
        """
        try:
            self._append(events.Began(id=call_id, tool=tool, kinds=list(kinds)))
        except TranscriptError as error:
            raise Refusal(
                Code.IO_ERROR, f"{tool} was not run, because the session cannot be recorded: {error}"
            ) from None

    async def record(self, state: CallState, outcome: Outcome) -> None:
        """Write the result of a call and what the owners want to remember; tell the host and the event hooks.

        A result that cannot be written still reaches the caller, with a notice.
        """
        self.calls_run += 1
        for effect in state.ledger.effects:
            open_remote = effect.kind is EffectKind.REMOTE and effect.state is EffectState.OPEN
            if outcome.status is Status.UNKNOWN and open_remote:
                self.unsettled[effect.target] = state.name
        asked_so = state.call.origin == "model" and state.raw == state.call.input
        event = events.Result.of(
            state.call.id,
            state.name,
            outcome,
            contacts=state.ledger.contacts,
            agent=state.agent,
            input=None if asked_so else state.raw or None,
            seconds=time.monotonic() - state.started,
        )
        try:
            self._append(event)
            self.save_state()
        except TranscriptError as error:
            outcome.text = shaping.add_notes(outcome.text, [f"This result could not be recorded: {error}"])
        await self.tell(msgspec.structs.replace(event, data=outcome.data, input=state.raw or None))

    def save_state(self) -> None:
        """Append what the owners want to remember, if it changed since the last time."""
        if self.transcript is None:
            return
        changed = self.owners.changes()
        if changed:
            self._append(events.State(owners=changed))

    async def begin_span(self) -> int:
        """Let every open owner mark where it stands, and number the prompt that follows; 0 without a transcript."""
        return await marks.begin(self.transcript, self.owners.named()) if self.transcript is not None else 0

    async def _opened(self, name: str, owner: Owner) -> None:
        if self.transcript is not None:
            await marks.opened(self.transcript, name, owner)

    async def tell(self, event: events.Event) -> None:
        """Show an event to the host, and queue it for the plug-ins that listen."""
        await self.host.show(event)
        if self.bus.has("peg_event"):
            await self._feed.put(event)

    async def progress(self, call_id: str, tool: str, text: str) -> None:
        """Progress of a running call, for the host alone."""
        await self.host.progress(call_id, tool, text)

    def trace(self, kind: str, call_id: str, detail: Any) -> None:
        """Keep a detail that only `peg sessions show` needs."""
        self._append(events.Notice(text=f"{call_id}: {detail}", kind=kind))

    def _append(self, event: events.Event) -> None:
        if self.transcript is not None:
            self.transcript.append(event)

    # -- life --------------------------------------------------------------------------------------------------

    async def close(self, reason: str = "end") -> None:
        """End the session: hooks hear it, state is written, owners are closed, the transcript is released."""
        with anyio.CancelScope(shield=True):
            if self.bus.has("peg_session_end"):
                await self.bus.ask("peg_session_end", session=self, reason=reason)
            try:
                self.save_state()
                self._anchor()
                await self.owners.close()
                if self._boxes is not None:
                    await self._boxes.close()
                for text in self.take_posts():
                    self._append(text)  # nobody read it; a resumed session will
                await self._feed.close()
            finally:
                if self._tasks is not None:
                    self._tasks.cancel_scope.cancel()
                if self.transcript is not None:
                    self.transcript.close()

    def _anchor(self) -> None:
        """Write where the decision log stands, so that it cannot be shortened unseen."""
        log, self.log = self.log, None
        if log is not None:
            from pegboard.audit import anchor

            text = anchor(log, self.id, str(self.settings.value("audit.anchor_file")))
            with suppress(TranscriptError):  # a full disk must not keep the owners open
                self._append(events.Notice(text=text, kind="audit"))

    @property
    def entered(self) -> bool:
        """Whether background work can run: inside ``async with session``."""
        return self._tasks is not None

    def background(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Run work beside the conversation, in the session's own task group; it is cancelled when the session ends.

        Only inside ``async with session``.
        """
        if self._tasks is None:
            raise RuntimeError("background work needs an entered session")
        self._tasks.start_soon(work, *args)

    async def __aenter__(self) -> Session:
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        tasks = self._tasks
        try:
            await self.close()
        finally:
            self._tasks = None
            if tasks is not None:
                # Not told about an error of the body, which would come out wrapped in a group.
                await tasks.__aexit__(None, None, None)


def _resumed_cwd(transcript: Transcript | None, places: Places) -> Path | None:
    """The directory that a resumed session was in, if it is still there and below this start's own directory."""
    if transcript is None or not transcript.cwd:
        return None
    path = Path(transcript.cwd)
    return path if path.is_relative_to(places.cwd) and path.is_dir() else None


def _resumed_mode(transcript: Transcript | None, settings: Settings) -> str | None:
    """The mode that a resumed session goes on in; never plan or bypassPermissions, and a mode of this start wins."""
    mode = transcript.mode if transcript is not None else None
    if mode is None or mode in ("plan", "bypassPermissions"):
        return None
    if mode == "auto" and settings.value("permissions.disable_auto"):
        return None
    return None if any(entry.scope == "flag" for entry in settings.entries("permissions.mode")) else mode
