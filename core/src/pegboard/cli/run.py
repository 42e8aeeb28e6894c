"""`peg -p`: one headless run, from the prompt to the exit code.

What the first request does not need is imported after it was sent: tools warm up while the model thinks.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pegboard.errors import PegError, Stop, UsageError

if TYPE_CHECKING:
    from pegboard.agent import Agent
    from pegboard.cli.structured import Structured
    from pegboard.events import UserText
    from pegboard.headless import Headless, Out
    from pegboard.provider import Provider
    from pegboard.session import Session

    Work = Callable[[Iterable[UserText]], Awaitable[bool]]
    """From the texts of the start to whether the run failed."""

WARM_AFTER = 0.05
"""[C] Seconds after the start of the run at which the tools are imported, so that the first request goes out first."""

EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143

STDIO = "stdio"
"""The ``--permission-prompt-tool`` that is no tool: the program at the other end of stdin and stdout."""


@dataclass(kw_only=True)
class Wanted:
    """What a run was started for."""

    text: str
    """The prompt; empty where prompts come on stdin, or a call that was put off needs none."""
    driven: bool
    """Prompts come on stdin, one object a line."""
    answers: str
    """Who answers permission questions: `STDIO`, the name of a tool, or nobody."""
    structured: Structured | None
    model: str | None
    limits: dict[str, Any]
    shown: dict[str, Any]
    chosen: dict[str, Any]
    policy: dict[str, Any]


@dataclass
class Ending:
    """Why a run comes to its end from outside. ``ended``: a signal came, or nobody reads any more."""

    signal: Stop | None = None
    ended: bool = False


def run_headless(
    *,
    prompt: str,
    output_format: str = "text",
    input_format: str = "text",
    permission_prompt_tool: str | None = None,
    json_schema: str | None = None,
    model: str | None = None,
    max_turns: int | None = None,
    max_budget_usd: float | None = None,
    resume: str | None = None,
    latest: bool = False,
    fork: bool = False,
    name: str = "",
    partial: bool = False,
    verbose: bool = False,
    **policy: Any,
) -> int:
    """Run a prompt to its end, or those that come on stdin. Returns 0, 1 (failed), 130 (SIGINT) or 143 (SIGTERM).

    ``policy`` holds the options of `policy_options`. Raises `UsageError` before anything was sent.
    """
    from pegboard.cli.stdin import with_stdin
    from pegboard.headless import Out

    driven = input_format == "stream-json"
    if resume and latest:
        raise UsageError("--resume and --continue exclude each other.")
    if fork and not (resume or latest):
        raise UsageError("--fork copies an earlier session; name it with --resume or --continue.")
    if driven and output_format != "stream-json":
        raise UsageError("--input-format stream-json needs --output-format stream-json.")
    if permission_prompt_tool == STDIO and not driven:
        raise UsageError("--permission-prompt-tool stdio needs --input-format stream-json: answers come on stdin.")
    if driven and prompt.strip():
        sys.stderr.write("peg: the prompt of -p is left out: with --input-format stream-json prompts come on stdin.\n")
    text = "" if driven else with_stdin(prompt)
    if not driven and not text.strip() and not (resume or latest):
        raise UsageError(EMPTY)
    wanted = Wanted(
        text=text,
        driven=driven,
        answers=permission_prompt_tool or "",
        structured=_structured(json_schema),
        model=model,
        limits={"max_turns": max_turns, "max_budget_usd": max_budget_usd},
        shown={"form": output_format, "partial": partial, "verbose": verbose},
        chosen={"resume": resume, "latest": latest, "fork": fork, "name": name or ""},
        policy=policy,
    )
    out = Out.claim()
    import anyio

    return anyio.run(_run, wanted, out)


EMPTY = "The prompt is empty; write it behind -p, or pipe it in."


def _structured(given: str | None) -> Structured | None:
    if given is None:
        return None
    from pegboard.cli.structured import Structured

    return Structured.read(given)


async def _run(wanted: Wanted, out: Out) -> int:
    import anyio

    from pegboard.agent import Agent, AgentSpec

    host = _host(wanted, out)
    session = _open(wanted.policy, host, **wanted.chosen)
    assert session.transcript is not None
    ending = Ending()
    try:
        name, provider = choose_provider(session, wanted.model)
        agent = Agent(session, provider, AgentSpec(model=name, **wanted.limits), session.transcript)
        work = _work(wanted, agent, host, ending)
    except BaseException:
        session.transcript.close()
        raise
    failed, problem = True, None
    out.left = lambda: _leave(session, ending)
    async with session:
        async with anyio.create_task_group() as tasks:
            await tasks.start(_watch, session, out, ending, tasks.cancel_scope)
            tasks.start_soon(_warm, session)
            try:
                await host.begin(session, name)
                failed = await work(await _opening(session, _kind(wanted.chosen)))
                with session.abortable():
                    await session.owners.linger()
            except PegError as error:
                problem = error
            tasks.cancel_scope.cancel()
        await provider.close()
    if problem is not None:
        raise problem
    if ending.signal is not None:
        return EXIT_TERMINATED if ending.signal is Stop.TERMINATED else EXIT_INTERRUPTED
    return int(failed)


def _leave(session: Session, ending: Ending) -> None:
    ending.ended = True
    session.abort()


def _host(wanted: Wanted, out: Out) -> Headless:
    if wanted.driven or wanted.answers:
        from pegboard.cli.answering import Answered

        return Answered(out=out, **wanted.shown)
    from pegboard.headless import Headless

    return Headless(out=out, **wanted.shown)


def _work(wanted: Wanted, agent: Agent, host: Headless, ending: Ending) -> Work:
    """What this run does: one prompt, or those of a stream. Raises `UsageError` for what cannot work."""
    session = agent.session
    if wanted.structured is not None:
        from pegboard.hooks import register

        register(session.manager, wanted.structured, "json-schema")
    if wanted.driven or wanted.answers:
        from pegboard.cli import answering

        assert isinstance(host, answering.Answered)
        host.session = session
        if wanted.answers not in ("", STDIO):
            answering.by_tool(host, session, wanted.answers)
        if wanted.driven:
            from pegboard.cli.conversing import Conversation

            return Conversation(agent, host, ending, wanted.structured, asks=wanted.answers == STDIO).run
    if not wanted.text.strip() and not agent.history.deferred:
        raise UsageError(f"{EMPTY} No call of this session waits for an answer.")

    async def once(opening: Iterable[UserText]) -> bool:
        run = await agent.run(wanted.text, opening=opening)
        fields = wanted.structured.fields(run) if wanted.structured is not None else None
        return await host.finish(run, agent.spending, fields)

    return once


def _kind(chosen: dict[str, Any]) -> str:
    return "fork" if chosen["fork"] else "resume" if chosen["resume"] or chosen["latest"] else "startup"


def _open(policy: dict[str, Any], host: Any, resume: str | None, latest: bool, fork: bool, name: str) -> Session:
    """The session of this run: a new one, or an earlier one (or a copy of it) with what its owners remember."""
    from pegboard import sessions
    from pegboard.cli.start import open_session
    from pegboard.places import find_places

    places = find_places()
    folder = sessions.find(places, resume) if resume else sessions.latest(places) if latest else None
    return open_session(policy, session_id=folder.name if folder else None, host=host, fork=fork, name=name)


def choose_provider(session: Session, model: str | None) -> tuple[str, Provider]:
    """The model's own name and who speaks for it: the option, the last run's, the setting, or a provider's default.

    Raises `UsageError` when no model is named anywhere, or policy does not list it.
    """
    from pegboard.events import Using
    from pegboard.provider import ModelRef, refuse_unlisted

    settings, registry = session.settings, session.registry
    wanted = model or _last_model(session) or settings.value("model")
    if not wanted:
        defaults = [f"{name}/{one.default_model}" for name, one in registry.providers().items() if one.default_model]
        if not defaults:
            raise UsageError("No model is set; use --model, or: peg settings set model NAME")
        wanted = defaults[0]
    ref = ModelRef.parse(wanted)
    refuse_unlisted(ref, settings.value("models.available"))
    provider = registry.provider(ref, settings, os.environ)
    transcript = session.transcript
    if transcript is not None and (transcript.using is None or transcript.using.model != wanted):
        transcript.using = Using(model=wanted)
        transcript.append(transcript.using)
    return ref.model, provider


def _last_model(session: Session) -> str:
    """The model of a resumed session's last run, unless this start names another one or policy took it away."""
    from pegboard.provider import ModelRef, listed

    using = session.transcript.using if session.transcript is not None else None
    settings = session.settings
    if using is None or any(entry.scope == "flag" for entry in settings.entries("model")):
        return ""
    if not listed(ModelRef.parse(using.model), settings.value("models.available")):
        sys.stderr.write(f"peg: policy does not list {using.model} any more; the session goes on with another model.\n")
        return ""
    return using.model


async def _opening(session: Session, kind: str) -> list[UserText]:
    """What plug-ins say at the start of a session; owners of a resumed one look after what was left open."""
    from pegboard.context import openings

    if kind != "startup":
        await _wake(session)
    return await openings(session, kind)


async def _wake(session: Session) -> None:
    """Open the owners of the session that an earlier process had open; only those that tools name are ever imported."""
    from pegboard.cli.owners import load

    named = {name for found in session.tools().values() for name in found.manifest.owners}
    for name in session.owners.waiting:
        owner = load(name) if name in named else None
        if owner is not None:
            await session.owners.get(owner, session.place("main"))


async def _watch(session: Session, out: Out, ending: Ending, scope: Any, *, task_status: Any) -> None:
    """Turn signals into an abort; a second one gives up waiting."""
    import anyio

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            if ending.signal is not None:
                scope.cancel()
            out.hurry = ending.ended = True
            ending.signal = Stop.TERMINATED if number == signal.SIGTERM else Stop.INTERRUPTED
            session.abort(ending.signal)


async def _warm(session: Session) -> None:
    """Import the tools of the first request in a thread, once that request is on its way; delete old sessions."""
    import threading

    import anyio

    await anyio.sleep(WARM_AFTER)

    def load() -> None:
        for found in session.tools().values():
            if found.manifest.load == "core":
                try:
                    session.toolbox.load(found)
                except PegError:
                    continue  # the first call says it, with its reason
        from pegboard.cli.keeping import sweep

        sweep(session.places, session.settings.value("sessions.keep_days"))

    threading.Thread(target=load, name="warm", daemon=True).start()
