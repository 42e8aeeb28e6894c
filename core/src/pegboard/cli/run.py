"""`peg -p`: one headless run, from the prompt to the exit code.

What the first request does not need is imported after it was sent: tools warm up while the model thinks.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
from typing import TYPE_CHECKING, Any

from pegboard.errors import PegError, Stop, UsageError

if TYPE_CHECKING:
    from pegboard.agent import RunResult
    from pegboard.events import UserText
    from pegboard.headless import Out
    from pegboard.provider import Provider
    from pegboard.session import Session

STDIN_BYTES = 10 * 1024 * 1024
"""[D] Most of stdin that is appended to a prompt."""

STDIN_PATIENCE = 3.0
"""[C] Seconds to wait for the first byte of a piped stdin that nobody may be writing to."""

WARM_AFTER = 0.05
"""[C] Seconds after the start of the run at which the tools are imported, so that the first request goes out first."""

EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143


def run_headless(
    *,
    prompt: str,
    output_format: str = "text",
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
    """Run a prompt to its end. Returns 0, 1 (the run failed), 130 (SIGINT) or 143 (SIGTERM).

    ``policy`` holds the options of `policy_options`. Raises `UsageError` before anything was sent.
    """
    from pegboard.headless import Out

    if resume and latest:
        raise UsageError("--resume and --continue exclude each other.")
    if fork and not (resume or latest):
        raise UsageError("--fork copies an earlier session; name it with --resume or --continue.")
    text = _with_stdin(prompt)
    out = Out.claim()
    import anyio

    limits = {"max_turns": max_turns, "max_budget_usd": max_budget_usd}
    shown = {"form": output_format, "partial": partial, "verbose": verbose}
    chosen = {"resume": resume, "latest": latest, "fork": fork, "name": name or ""}
    return anyio.run(_run, text, out, model, limits, shown, chosen, policy)


async def _run(
    text: str,
    out: Out,
    model: str | None,
    limits: dict[str, Any],
    shown: dict[str, Any],
    chosen: dict[str, Any],
    policy: dict[str, Any],
) -> int:
    import anyio

    from pegboard.agent import Agent, AgentSpec
    from pegboard.headless import Headless

    form = shown.pop("form")
    host = Headless(form, out, **shown)
    session = _open(policy, host, **chosen)
    assert session.transcript is not None
    try:
        name, provider = choose_provider(session, model)
        agent = Agent(session, provider, AgentSpec(model=name, **limits), session.transcript)
    except BaseException:
        session.transcript.close()
        raise
    failed: PegError | None = None
    run: RunResult | None = None
    out.left = session.abort
    async with session:
        async with anyio.create_task_group() as tasks:
            await tasks.start(_watch, session, out, tasks.cancel_scope)
            tasks.start_soon(_warm, session)
            try:
                await host.begin(session, name)
                run = await agent.run(text, opening=await _opening(session, _kind(chosen)))
                await host.finish(run, agent.spending)
                with session.abortable():
                    await session.owners.linger()
            except PegError as error:
                failed = error
            tasks.cancel_scope.cancel()
        await provider.close()
    if failed is not None:
        raise failed
    return _exit_code(run, out, session)


def _exit_code(run: RunResult | None, out: Out, session: Session) -> int:
    if session.aborted is Stop.TERMINATED:
        return EXIT_TERMINATED
    if session.aborted is not None and not out.gone:
        return EXIT_INTERRUPTED
    return 1 if run is None or run.is_error else 0


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


async def _watch(session: Session, out: Out, scope: Any, *, task_status: Any) -> None:
    """Turn signals into an abort; a second one gives up waiting."""
    import anyio

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            if session.aborted is not None:
                scope.cancel()
            out.hurry = True
            session.abort(Stop.TERMINATED if number == signal.SIGTERM else Stop.INTERRUPTED)


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


def _with_stdin(prompt: str) -> str:
    """The prompt with piped input behind it. Raises `UsageError` above 10 MB and for an empty prompt."""
    given = _stdin().decode("utf-8", "replace")
    text = f"{prompt}\n\n{given}" if prompt.strip() and given.strip() else prompt if prompt.strip() else given
    if not text.strip():
        raise UsageError("The prompt is empty; write it behind -p, or pipe it in.")
    return text


def _stdin() -> bytes:
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return b""
    if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        return b""
    if not stat.S_ISREG(kind) and not select.select([0], [], [], STDIN_PATIENCE)[0]:
        sys.stderr.write("peg: nothing came from stdin; the run goes on without it. Use </dev/null to say so.\n")
        return b""
    parts, total = [], 0
    while part := os.read(0, 1 << 20):
        parts.append(part)
        total += len(part)
        if total > STDIN_BYTES:
            raise UsageError("stdin holds more than 10 MB; put it in a file and name the file in the prompt.")
    return b"".join(parts)
