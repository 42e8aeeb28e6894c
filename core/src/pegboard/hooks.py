"""The sixteen hook specs, the fold rules, and the Bus that awaits the async ones.

Nine hooks contribute data: sync, collected by pluggy. Seven speak about a call or an event: async, every
implementation is heard by the Bus, the core folds the replies.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import pluggy

from pegboard.errors import Broken

if TYPE_CHECKING:
    import click

    from pegboard.call import Call, Outcome
    from pegboard.events import Event
    from pegboard.host import Host, Question, Reply
    from pegboard.loader import Registry, Source
    from pegboard.policy import Rule
    from pegboard.provider import ModelRef, Provider
    from pegboard.runs import JobRef, Runner
    from pegboard.sandbox import Need, Sandbox
    from pegboard.session import Session
    from pegboard.tool import Context, Tool

spec = pluggy.HookspecMarker("pegboard")
hook = pluggy.HookimplMarker("pegboard")
"""Marks an implementation in a plug-in: ``@hook``."""

HOOK_SECONDS = 60.0
"""[C] Time limit of one in-process implementation of an async hook.

A plug-in with time limits of its own says so with a ``HOOK_SECONDS`` in its module or class.
"""


@dataclass(frozen=True)
class Fragment:
    """Text for the changing tail of the next request, with its author."""

    author: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """What a before-hook says. ``decision`` is allow, ask, deny, defer or None; ``input`` replaces the whole input."""

    decision: str | None = None
    reason: str = ""
    input: dict[str, Any] | None = None
    note: str = ""
    source: str = ""
    """Who decided, where the plug-in speaks for others; empty = the plug-in itself."""


@dataclass(frozen=True)
class Note:
    """What an after-hook adds. ``output`` replaces the shown output and must fit the tool's output schema."""

    text: str = ""
    output: dict[str, Any] | None = None
    block: str = ""
    """A reason to object; shown to the model. The tool has run all the same."""


class Specs:
    """The manual: one method for each hook."""

    @spec
    def peg_sources(self, registry: Registry) -> Iterable[Source]:
        """Places to look for plug-ins, skills and servers."""

    @spec
    def peg_tools(self, session: Session) -> Iterable[Tool[Any, Any]]:
        """Tools that exist only for this session, such as those of an MCP server."""

    @spec
    def peg_rules(self, registry: Registry) -> Iterable[Rule]:
        """Permission rules. Data, not verdicts, so that they can be listed, tested and explained."""

    @spec
    def peg_context(self, session: Session) -> Iterable[Fragment]:
        """Text for the changing tail of the next request, each piece with its author."""

    @spec
    def peg_commands(self, cli: click.Group) -> None:
        """Sub-commands of peg. Import inside the command, not at the top."""

    @spec(firstresult=True)
    def peg_provider(self, model: ModelRef) -> Provider | None:
        """The provider that speaks for this model."""

    @spec(firstresult=True)
    def peg_host(self, name: str) -> Host | None:
        """The host for --host NAME."""

    @spec(firstresult=True)
    def peg_sandbox(self, need: Need) -> Sandbox | None:
        """A box for a process, or None. None where one is required means the call does not start."""

    @spec(firstresult=True)
    def peg_runner(self, job: JobRef) -> Runner | None:
        """Who carries a background run: this process (default) or an engine that outlives it."""

    @spec
    async def peg_before_call(self, call: Call, ctx: Context) -> Verdict | None:
        """Before the call is judged. Verdict.allow/ask/deny/defer, changed input, a note."""

    @spec
    async def peg_answer(self, question: Question, ctx: Context) -> Reply | None:
        """Answer a question instead of the user (classifier, remote approver)."""

    @spec
    async def peg_after_call(self, call: Call, outcome: Outcome, ctx: Context) -> Note | None:
        """After the call. May add a note, replace the shown output, or object. Cannot change what happened."""

    @spec
    async def peg_before_event(self, event: Event, session: Session) -> Verdict | None:
        """Anything else that may be refused: prompt, stop, compact, setting, task, worktree, elicitation."""

    @spec
    async def peg_event(self, event: Event, session: Session) -> None:
        """Hear what happened. Never waited for longer than the queue allows."""

    @spec
    async def peg_session_start(self, session: Session, kind: str) -> Iterable[Fragment] | None:
        """A session starts: startup, resume, clear, compact or fork. May add text to the context."""

    @spec
    async def peg_session_end(self, session: Session, reason: str) -> None:
        """A session ends. Close what was opened."""


R = TypeVar("R")


@dataclass(frozen=True)
class Heard(Generic[R]):
    """The reply of one implementation: its plug-in's name, and a value or an error."""

    plugin: str
    value: R | None = None
    error: Exception | None = None


def make_manager() -> pluggy.PluginManager:
    """A plug-in manager that knows the sixteen specs."""
    manager = pluggy.PluginManager("pegboard")
    manager.add_hookspecs(Specs)
    return manager


def register(manager: pluggy.PluginManager, plugin: object, name: str) -> None:
    """Register a plug-in and refuse what would fail silently later.

    Raises `Broken`: a coroutine for a sync hook or the reverse, a wrapper on an async hook, an argument or a
    ``peg_*`` name that no spec has.
    """
    try:
        manager.register(plugin, name)
        _inspect(manager, plugin, name)
    except pluggy.PluginValidationError as error:
        if manager.has_plugin(name):
            manager.unregister(name=name)
        raise Broken(name, str(error)) from None
    except Broken:
        manager.unregister(name=name)
        raise


def _inspect(manager: pluggy.PluginManager, plugin: object, name: str) -> None:
    for caller in manager.get_hookcallers(plugin) or ():
        if caller.spec is None:
            for impl in caller.get_hookimpls():
                if impl.plugin is plugin and not impl.optionalhook:
                    raise Broken(name, f"there is no hook {caller.name}")
            continue
        wants_async = inspect.iscoroutinefunction(caller.spec.function)
        for impl in caller.get_hookimpls():
            if impl.plugin is not plugin:
                continue
            if inspect.iscoroutinefunction(impl.function) != wants_async:
                wanted = "async def" if wants_async else "a plain def"
                raise Broken(name, f"{caller.name} must be {wanted}")
            if wants_async and (impl.wrapper or impl.hookwrapper):
                raise Broken(name, f"{caller.name} is async and cannot be wrapped")


class Bus:
    """Awaits the implementations of an async hook, all together; a failure is a reply, never an exception."""

    def __init__(self, manager: pluggy.PluginManager, *, seconds: float = HOOK_SECONDS) -> None:
        self._manager = manager
        self._seconds = seconds

    def has(self, name: str) -> bool:
        """Whether any plug-in implements the hook; lets hot paths skip the machinery."""
        return bool(getattr(self._manager.hook, name).get_hookimpls())

    async def ask(self, name: str, **arguments: Any) -> list[Heard[Any]]:
        """Call every implementation of the hook ``name``; replies in pluggy's order, each with its plug-in's name."""
        caller = getattr(self._manager.hook, name)
        impls = list(reversed(caller.get_hookimpls()))
        replies: list[Heard[Any] | None] = [None] * len(impls)

        async def one(index: int, impl: Any) -> None:
            given = {key: arguments[key] for key in impl.argnames}
            seconds = getattr(impl.plugin, "HOOK_SECONDS", self._seconds)
            try:
                with anyio.fail_after(seconds):
                    replies[index] = Heard(impl.plugin_name, await impl.function(**given))
            except TimeoutError:
                late = TimeoutError(f"{name} of {impl.plugin_name} took longer than {seconds:g} s")
                replies[index] = Heard(impl.plugin_name, error=late)
            except Exception as error:
                replies[index] = Heard(impl.plugin_name, error=error)

        if len(impls) == 1:
            await one(0, impls[0])
        elif impls:
            async with anyio.create_task_group() as group:
                for index, impl in enumerate(impls):
                    group.start_soon(one, index, impl)
        return [reply for reply in replies if reply is not None]


PRECEDENCE = ("deny", "defer", "ask", "allow")
"""Fold rule of before_call and before_event: the first of these that anyone said wins."""


def fold(replies: Iterable[Heard[Verdict]]) -> tuple[Verdict, str]:
    """Fold verdicts into one, with the name of the plug-in that decided.

    deny > defer > ask > allow; the first changed input wins; notes add up; an error or a time-out of an in-process
    plug-in is a deny.
    """
    decided: Verdict | None = None
    by = ""
    changed: dict[str, Any] | None = None
    notes: list[str] = []
    for reply in replies:
        verdict = reply.value
        if reply.error is not None:
            verdict = Verdict("deny", f"The hook of {reply.plugin} failed: {reply.error}")
        if verdict is None:
            continue
        if verdict.note:
            notes.append(verdict.note)
        if changed is None and verdict.input is not None:
            changed = verdict.input
        if verdict.decision is not None and (
            decided is None or PRECEDENCE.index(verdict.decision) < PRECEDENCE.index(decided.decision or "allow")
        ):
            decided, by = verdict, verdict.source or reply.plugin
    base = decided or Verdict()
    return Verdict(base.decision, base.reason, changed, "\n".join(notes)), by
