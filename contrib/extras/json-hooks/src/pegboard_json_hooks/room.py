"""What the hooks of one session share: which are configured, which may run, and what has happened so far."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import anyio
import msgspec
from pegboard import events
from pegboard.call import json_safe
from pegboard.errors import PegError, TranscriptError
from pegboard.external import BROKEN, EVENTS, LATER, Configured, Hook
from pegboard.external_trust import Approvals
from pegboard.framing import escape_framing
from pegboard.state import Mark, Owner, Place, Scope

from pegboard_json_hooks.matching import matches
from pegboard_json_hooks.ran import Ran, limit, program_of, run, whole_limit
from pegboard_json_hooks.said import Said, understand

if TYPE_CHECKING:
    from pegboard.session import Session

LONGEST = 10_000
"""[D] Characters of a text of a hook; a longer one goes to a file."""

PREVIEW = 2_000
"""[D] Characters of such a text that are shown all the same."""

RUNNABLE = ("command", "http", BROKEN)

PATIENCE = 5.0
"""[C] Seconds that the end of a session waits for hooks that run beside it."""


class Room(Owner):
    """The state of the hooks of one session."""

    scope: ClassVar[Scope] = Scope.SESSION

    def __init__(self, session: Session) -> None:
        self.session = session
        self.configured = Configured(session.settings, session.places)
        self.begun = False
        """Whether the start of the session was heard; only then is its end."""
        self.stopping = 0
        """The prompt at whose end a hook has kept the run from ending."""
        self.runs: dict[str, Any] = {}
        """Background work that still runs, by id."""
        self.woken: list[str] = []
        """What hooks that nobody waits for want the model to hear at once."""
        self._approvals = Approvals(session.places, session.trusted)
        self._spent: set[Hook] = set()
        self._told: set[str] = set()
        self._aside = 0
        self._calm = anyio.Event()

    @classmethod
    async def open(cls, place: Place) -> Self:
        """The room of a session."""
        return cls(place.session)

    async def mark(self) -> Mark | None:
        """Nothing in here is anything that a rewind would have to bring back."""
        return Mark(None)

    # -- what runs ---------------------------------------------------------------------------------------------

    async def ready(self, event: str, names: Iterable[str], fits: Callable[[str], bool] | None = None) -> list[Hook]:
        """The hooks that an event is for and that may run, highest scope first; equal ones count once."""
        found: dict[tuple[object, ...], Hook] = {}
        for hook in self.configured.all():
            if hook.event == event and not hook.why_not and hook not in self._spent:
                same = (hook.type, hook.what, hook.args, hook.shell, hook.headers)
                if same not in found and await self._meant(hook, names, fits):
                    permitted = await self._permitted(hook)
                    if permitted is not None:
                        found[same] = permitted
        for problem in self.configured.problems:
            await self.tell(problem)
        return list(found.values())

    async def _meant(self, hook: Hook, names: Iterable[str], fits: Callable[[str], bool] | None) -> bool:
        try:
            nameless = not (EVENTS.get(hook.event) or LATER.get(hook.event))
            if not nameless and not matches(hook.matcher, names):
                return False
            return not hook.rule or (fits is not None and fits(hook.rule))
        except (re.error, PegError, ValueError) as error:
            await self.tell(f"The hook {program_of(hook)} ({hook.source}) cannot be matched: {error}")
            return hook.blocks  # nobody knows what a guard was meant for, so it guards everything

    async def _permitted(self, hook: Hook) -> Hook | None:
        """The hook if it may run, or what stands for a guard that cannot: one that refuses."""
        why = self._approvals.why_not(hook, self.session.cwd)
        where = f"{program_of(hook)} ({hook.source})"
        if why:
            await self.tell(f"The hook {where} does not run: {why}. See: peg trust")
            # Else changing a guard's script would be a way to be rid of the guard.
            return _closed(hook, f"is held: {why}") if hook.blocks and self._approvals.known(hook) else None
        if hook.type not in RUNNABLE:
            await self.tell(f"Hooks of the type {hook.type} are not available here: {where}")
            return _closed(hook, "is of a type that cannot run here") if hook.blocks else None
        return hook

    async def fire(
        self,
        event: str,
        fields: Mapping[str, Any],
        *,
        names: Iterable[str] = ("",),
        fits: Callable[[str], bool] | None = None,
    ) -> list[Said]:
        """Run all hooks of an event together; their replies, in the order of their scopes."""
        hooks = await self.ready(event, names, fits)
        if not hooks:
            return []
        told = {**self._common(event), **fields}
        try:
            payload = msgspec.json.encode(told, enc_hook=str)
        except UnicodeEncodeError:
            payload = msgspec.json.encode(json_safe(told), enc_hook=str)
        subject = next(iter(names), "")
        replies: list[Said | None] = [None] * len(hooks)

        async def one(index: int, hook: Hook) -> None:
            replies[index] = await self._one(hook, payload, subject)

        with anyio.move_on_after(whole_limit(event, hooks)):
            async with anyio.create_task_group() as tasks:
                for index, hook in enumerate(hooks):
                    if hook.once:
                        self._spent.add(hook)
                    if hook.background and self.session.entered:
                        self._aside += 1
                        self.session.background(self._beside, hook, payload, subject)
                    else:
                        tasks.start_soon(one, index, hook)
        said = [reply for reply in replies if reply is not None]
        for reply in said:
            await self._common_fields(reply)
        return said

    async def _one(self, hook: Hook, payload: bytes, subject: str) -> Said:
        ran = Ran()
        if hook.type != BROKEN:
            ran = await run(hook, payload, self.session, limit(hook))
        said = understand(hook, ran)
        await self._record(said, ran, subject)
        return said

    async def _beside(self, hook: Hook, payload: bytes, subject: str) -> None:
        """Run a hook that nobody waits for; what it adds is told to the model at the next turn."""
        try:
            said = await self._one(hook, payload, subject)
            if said.trouble:
                await self.tell(f"The hook {program_of(hook)} {said.trouble}")
            if message := said.fields.get("systemMessage"):
                await self.session.host.notify(self.fitted(message), "hook")
            if hook.rewake and said.blocked:
                self.woken.append(self.fitted(said.why))
            elif said.context:
                text = self.fitted(said.context)
                block = {"type": "text", "text": text}
                self.session.post(events.UserText(content=[block], author=f"hook {hook.event}", origin="hook"))
        finally:
            self._aside -= 1
            if not self._aside:
                self._calm.set()
                self._calm = anyio.Event()

    async def settle(self) -> None:
        """Wait a moment for hooks that run beside the session."""
        if self._aside and self.session.aborted is None:
            with anyio.move_on_after(PATIENCE):
                await self._calm.wait()

    # -- what they are told, and what they tell ----------------------------------------------------------------

    def _common(self, event: str) -> dict[str, Any]:
        session = self.session
        common = {
            "session_id": session.id,
            "transcript_path": str(session.transcript.path) if session.transcript is not None else "",
            "cwd": str(session.cwd),
            "permission_mode": session.mode.value,
            "hook_event_name": event,
        }
        if self.prompt:
            common["prompt_id"] = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{session.id} {self.prompt}"))
        return common

    @property
    def prompt(self) -> int:
        """Number of the prompt that is worked on; 0 before the first."""
        from pegboard_json_hooks.plugin import PROMPTS

        return PROMPTS.get(self.session.id, 0)

    async def _common_fields(self, said: Said) -> None:
        if said.trouble:
            await self.tell(f"The hook {program_of(said.hook)} {said.trouble}")
        if message := said.fields.get("systemMessage"):
            await self.session.host.notify(self.fitted(message), "hook")
        if said.ends:
            reason = said.fields.get("stopReason") or f"The hook {program_of(said.hook)} ends the run."
            if said.hook.event not in ("Stop", "SessionEnd"):
                self.session.halted = self.session.halted or self.fitted(reason)

    async def tell(self, text: str) -> None:
        """Tell the person something, once."""
        if text not in self._told:
            self._told.add(text)
            await self.session.host.notify(text, "hook")

    def fitted(self, text: str) -> str:
        """A text of a hook as it may be shown: without our framing, and with the rest of a long one in a file."""
        if len(text) > LONGEST:
            path = self.session.store_output(f"hook-{uuid.uuid4().hex[:12]}.txt", text)
            text = f"{text[:PREVIEW]}\n... {len(text)} characters in all, kept in {path}"
        return escape_framing(text)

    async def _record(self, said: Said, ran: Ran, subject: str) -> None:
        hook = said.hook
        outcome: Literal["success", "blocked", "error", "cancelled"]
        outcome = "blocked" if said.refuses else "cancelled" if ran.late else "error" if said.trouble else "success"
        told = said.trouble or (said.why if said.refuses else "")
        event = events.HookRan(
            id=uuid.uuid4().hex[:12],
            event=hook.event,
            name=f"{hook.event}:{subject}" if subject else hook.event,
            command=hook.shown[:PREVIEW],
            source=hook.source,
            outcome=outcome,
            exit_code=ran.code,
            seconds=ran.seconds,
            said=told[:PREVIEW],
        )
        if self.session.transcript is not None:
            try:
                self.session.transcript.append(event)
            except TranscriptError as error:
                await self.tell(str(error))
        await self.session.host.show(event)


def _closed(hook: Hook, why: str) -> Hook:
    """A guard that refuses whatever it is asked about."""
    what = f"the hook {program_of(hook)} {why}"
    return msgspec.structs.replace(hook, type=BROKEN, what=what, args=None, background=False)
