"""Running one hook: a program with the event on its stdin, or a request with the event as its body."""

from __future__ import annotations

import math
import shutil
import time
from typing import TYPE_CHECKING

import anyio
import msgspec
from pegboard.errors import Refusal
from pegboard.process import Process

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream
    from pegboard.external import Hook
    from pegboard.sandbox import Sandbox
    from pegboard.session import Session

LARGEST = 4 * 1024 * 1024
"""[C] Bytes of each output stream that are kept."""

LEFT_OPEN = 0.5
"""[C] Seconds in which an output must end after its program did; a child that stayed may hold it open."""


class Ran(msgspec.Struct, kw_only=True):
    """How one hook ended."""

    code: int | None = None
    """Exit code; None where there was none."""
    out: str = ""
    err: str = ""
    trouble: str = ""
    """Why it came to no end of its own."""
    late: bool = False
    seconds: float = 0.0


async def run(hook: Hook, payload: bytes, session: Session, seconds: float) -> Ran:
    """Run a hook to its end, or to the end of its time. Never raises for a failing hook."""
    begin = time.monotonic()
    ran = Ran(trouble=f"took longer than {seconds:g} s", late=True)
    with anyio.move_on_after(seconds):
        try:
            if hook.type == "http":
                from pegboard_json_hooks.http import post

                ran = await post(hook, payload, session)
            else:
                ran = await _program(hook, payload, session)
        except Refusal as refusal:
            ran = Ran(trouble=refusal.text.rstrip("."))
    ran.seconds = time.monotonic() - begin
    return ran


async def _program(hook: Hook, payload: bytes, session: Session) -> Ran:
    argv, env = _command(hook, session), environment(session)
    if not (session.settings.value("sandbox.required") or session.settings.value("hooks.sandbox")):
        return await _started(argv, env, payload, session, None)
    box = await session.box()
    if box is None:
        return Ran(trouble="belongs into the sandbox (hooks.sandbox), and there is none here (sandbox.enabled)")
    try:
        return await _started(*box.wrap(argv, env), payload, session, box)
    finally:
        with anyio.CancelScope(shield=True):
            await box.close()


async def _started(argv: list[str], env: dict[str, str], payload: bytes, session: Session, box: Sandbox | None) -> Ran:
    out, err = bytearray(), bytearray()
    process = await Process.start(argv, cwd=session.cwd, env=env, stdin=payload, box=box)
    async with process, anyio.create_task_group() as readers:
        readers.start_soon(_read, process.stdout, out)
        readers.start_soon(_read, process.stderr, err)
        code = await process.wait()
        readers.cancel_scope.deadline = anyio.current_time() + LEFT_OPEN
    return Ran(code=code, out=out.decode("utf-8", "replace"), err=err.decode("utf-8", "replace"))


def _command(hook: Hook, session: Session) -> list[str]:
    if hook.args is not None:
        return [_filled(part, session) for part in (hook.what, *hook.args)]
    if hook.shell == "powershell":
        return ["pwsh", "-NoProfile", "-NonInteractive", "-Command", hook.what]
    return [shutil.which("bash") or "sh", "-c", hook.what]


def _filled(text: str, session: Session) -> str:
    for name in ("CLAUDE_PROJECT_DIR", "PEG_PROJECT_DIR"):
        text = text.replace(f"${{{name}}}", str(session.places.root))
    return text


def environment(session: Session) -> dict[str, str]:
    """What a hook's program finds in its environment: that of every child, without credentials, and the project."""
    env = session.child_env()
    env["CLAUDE_PROJECT_DIR"] = env["PEG_PROJECT_DIR"] = str(session.places.root)
    return env


async def _read(pipe: ByteReceiveStream, into: bytearray) -> None:
    """Read to the end; what is beyond the limit is read too, so that the program never waits, but not kept."""
    try:
        while True:
            piece = await pipe.receive()
            into += piece[: LARGEST - len(into)]
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return


def limit(hook: Hook) -> float:
    """[D] The time limit of a hook in seconds."""
    if hook.seconds is not None:
        return hook.seconds
    if hook.type in ("prompt", "agent"):
        return 30.0 if hook.type == "prompt" else 60.0
    return {"UserPromptSubmit": 30.0, "SessionEnd": 1.5}.get(hook.event, 600.0)


def whole_limit(event: str, hooks: list[Hook]) -> float:
    """The time limit of all hooks of an event together: the end of a session does not wait for long."""
    if event != "SessionEnd":
        return math.inf
    return min(60.0, max((limit(hook) for hook in hooks), default=1.5))


def program_of(hook: Hook) -> str:
    """The name by which messages call a hook: its command, or the beginning and the end of a long one."""
    return hook.shown if len(hook.shown) <= 80 else f"{hook.shown[:29]}…{hook.shown[-50:]}"
