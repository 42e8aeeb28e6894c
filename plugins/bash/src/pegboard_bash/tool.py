"""Bash: run a shell command.

The most general tool and the most dangerous one, so three things are kept apart: what the command would do (read and
judged before), how it runs (`pegboard_bash.job`), and what of its output a model needs to see.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import anyio
from pegboard.errors import Code, Refusal
from pegboard.tool import Access, Context, Launched, Tool
from pegboard_tasks.runs import Runs
from pegboard_tasks.sink import Sink

from pegboard_bash import codes, text
from pegboard_bash.job import BRIEF, Job
from pegboard_bash.models import BashInput, BashOutput
from pegboard_bash.reading import read

MAX_BYTES = 120_000
"""[C] Longest command; the system takes no longer argument than 131,072 bytes."""

SHOWN_COMMAND = 300
"""[C] Characters of a command in the ledger of effects."""


class Bash(Tool[BashInput, BashOutput]):
    """Run a shell command."""

    Input = BashInput
    Output = BashOutput

    async def check(self, input: BashInput, ctx: Context) -> None:
        command = input.command
        if not command.strip():
            raise Refusal(Code.INVALID_INPUT, "The command is blank. Nothing was run.")
        if "\0" in command:
            raise Refusal(Code.INVALID_INPUT, "The command contains a null byte. Nothing was run.")
        try:
            size = len(os.fsencode(command))
        except UnicodeEncodeError:
            raise Refusal(Code.INVALID_INPUT, "The command holds half a character. Nothing was run.") from None
        if size > MAX_BYTES:
            raise Refusal(
                Code.INVALID_INPUT,
                f"The command is {size:,} bytes long; at most {MAX_BYTES:,} are taken. Nothing was run.",
                hint="Put long texts into a file with Write, and let the command read it.",
            )

    def accesses(self, input: BashInput, ctx: Context) -> Iterable[Access]:
        found = read(input.command, ctx).accesses
        if input.dangerouslyDisableSandbox and ctx.setting("sandbox.enabled"):
            return (*found, Access.use("outside of the sandbox"))
        return found

    async def run(self, input: BashInput, ctx: Context) -> BashOutput | Launched[BashOutput]:
        runs = await ctx.own(Runs)
        job = Job(input, read(input.command, ctx), ctx, runs)
        cwd = await job.stand()
        if input.run_in_background:
            return self._launch(job, job.sink(ctx.call_id), cwd)
        return await self._foreground(job, cwd)

    def _launch(self, job: Job, sink: Sink, cwd: Path) -> Launched[BashOutput]:
        if not job.runs.possible:
            raise Refusal(Code.NOT_AVAILABLE, "Nothing can be run in the background here. Nothing was started.")
        sink.open()
        with job.ctx.effect("process", _short(job.input.command)) as effect:
            run = job.into_background(job.start(sink, cwd, effect))
        return Launched(
            BashOutput(
                stdout="",
                stderr="\n".join(job.notices),
                backgroundTaskId=run.id,
                backgroundCwdHint=_cwd_hint(job),
                persistedOutputPath=run.output,
            )
        )

    async def _foreground(self, job: Job, cwd: Path) -> BashOutput | Launched[BashOutput]:
        ctx = job.ctx
        limit = min(job.input.timeout or ctx.setting("bash.timeout_ms"), ctx.setting("bash.max_timeout_ms"))
        sink = job.sink(ctx.call_id)
        async with job.witnessed():
            with ctx.effect("process", _short(job.input.command)) as effect:
                shell = job.start(sink, cwd, effect)
                owned = True
                try:
                    with anyio.move_on_after(limit / 1000) as waited:
                        await shell.run()
                    effect.done()
                    late = waited.cancelled_caught and shell.code is None
                    if late and not job.reading.stops_late and job.runs.possible:
                        owned = False
                        run = job.into_background(shell)
                        return Launched(_moved(job, sink, run.id, run.output, round(limit)))
                    if late:
                        await shell.end(job.runs.grace)
                    else:
                        await job.settle(shell)
                        owned = False
                finally:
                    if owned:
                        await shell.end(job.runs.grace)
                await job.inspect(shell)
                code = shell.code or 0
                if not late and code == 0 and job.reading.read_only:
                    effect.undone()  # it ran, and there is nothing that remains of it
        if late:
            why = f"The command did not end within {limit / 1000:g} s (timeout) and was stopped."
            raise job.failed(Code.TIMEOUT, shell, why)
        if shell.killed_for_size:
            raise job.failed(
                Code.TOO_LARGE, shell, f"It wrote more than {ctx.setting('bash.max_output_bytes'):,} bytes."
            )
        meaning = codes.answer(code, job.reading.last)
        if code and meaning is None:
            raise job.failed(Code.COMMAND_FAILED, shell)
        return self._ended(job, sink, code, meaning)

    def _ended(self, job: Job, sink: Sink, code: int, meaning: str | None) -> BashOutput:
        output, cut = text.shown(sink, job.ctx.setting("bash.result_chars") - 1_000)
        if cut:
            output, _ = text.shown(sink, BRIEF * 2)
            job.notices.append(job.keep(sink))
        return BashOutput(
            stdout=output,
            stderr="\n".join(job.notices),
            exitCode=code,
            returnCodeInterpretation=meaning,
            persistedOutputPath=str(sink.path) if cut and sink.filed else None,
            persistedOutputSize=sink.total if cut else None,
            staleReadFileStateHint=job.stale or None,
            sandboxViolations=job.violations or None,
            gitOperation=job.reading.git if code == 0 else None,
        )

    def render(self, output: BashOutput, ctx: Context) -> str:
        lines = [output.stdout] if output.stdout else []
        if output.backgroundTaskId is not None:
            lines.insert(0, _goes_on(output))
        elif output.exitCode:
            lines.append(f"[Exit code {output.exitCode}: {output.returnCodeInterpretation}]")
        elif not output.stdout:
            lines.append("(no output)")
        notices = output.stderr.splitlines()
        notices += [hint for hint in (output.backgroundCwdHint, output.staleReadFileStateHint) if hint]
        return "\n".join([*lines, *(f"[{notice}]" for notice in notices)])


def _goes_on(output: BashOutput) -> str:
    if output.timedOutAfterMs is None:
        first = f"Running in the background as task {output.backgroundTaskId}."
    else:
        first = (
            f"The command did not end within {output.timedOutAfterMs / 1000:g} s (timeout); it goes on in the "
            f"background as task {output.backgroundTaskId}."
        )
    return f"{first} Its work is not done; you are told when it ends. Output: {output.persistedOutputPath}"


def _moved(job: Job, sink: Sink, task: str, path: str, limit: int) -> BashOutput:
    so_far, _ = text.shown(sink, BRIEF)
    return BashOutput(
        stdout=so_far,
        stderr="\n".join(job.notices),
        backgroundTaskId=task,
        timedOutAfterMs=limit,
        backgroundCwdHint=_cwd_hint(job),
        persistedOutputPath=path,
    )


def _cwd_hint(job: Job) -> str | None:
    if not job.reading.moves:
        return None
    return f"A cd in a background command does not move the session; it stays in {job.ctx.cwd}"


def _short(command: str) -> str:
    return command if len(command) <= SHOWN_COMMAND else command[: SHOWN_COMMAND - 1] + "…"
