"""One command from its start to its end or to the background, and what it did to what the session knows.

The command is judged before; here it runs. Whatever ends it, its tree is gone or belongs to a background task.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from pegboard.errors import Code, Refusal
from pegboard_files.around import kept_around
from pegboard_files.history import FileHistory
from pegboard_files.views import FileViews
from pegboard_tasks.runs import End, Run, Runs

from pegboard_bash import codes, text

if TYPE_CHECKING:
    from pegboard.call import Effect
    from pegboard.sandbox import Sandbox
    from pegboard.tool import Context
    from pegboard_tasks.shell import Shell
    from pegboard_tasks.sink import Sink

    from pegboard_bash.models import BashInput
    from pegboard_bash.reading import Reading

NAMED_FILES = 20
"""[C] Changed files that a result names."""

BRIEF = 4_000
"""[C] Characters of output that are shown of a command that goes on in the background."""


@dataclass
class Job:
    """A command that is about to run."""

    input: BashInput
    reading: Reading
    ctx: Context
    runs: Runs
    notices: list[str] = field(default_factory=list)
    """What the tool itself has to say, one line each."""
    stale: str = ""
    violations: list[str] = field(default_factory=list)
    """What the box refused."""
    box: Sandbox | None = None

    def __post_init__(self) -> None:
        self.box = self.ctx.box

    @property
    def title(self) -> str:
        """The command in the words of a list."""
        return self.input.description or self.input.command

    def sink(self, name: str) -> Sink:
        """Where its output goes."""
        setting = self.ctx.setting
        return self.runs.sink(name, cap=setting("bash.output_bytes"), most=setting("bash.max_output_bytes"))

    async def stand(self) -> Path:
        """The directory to run in; where that is gone, the session goes back to where it began."""
        cwd = self.ctx.cwd
        if cwd.is_dir():
            return cwd
        place = next(path for path in (self.ctx.roots[0], *self.ctx.roots[0].parents) if path.is_dir())
        if self.ctx.agent == "main":
            await self.ctx.move(place)
        self.notices.append(f"Shell cwd was reset to {place}, because {cwd} does not exist any more")
        return place

    def start(self, sink: Sink, cwd: Path, effect: Effect) -> Shell:
        """Start it, under the effect that was opened for it. Raises `Refusal` when it cannot be started."""
        if self._outside():
            self.box = None
        try:
            return self.runs.shell(self.input.command, sink, cwd=cwd, box=self.box)
        except Refusal:
            effect.undone()
            raise

    def _outside(self) -> bool:
        if not self.input.dangerouslyDisableSandbox or self.box is None:
            return False
        if self.ctx.setting("sandbox.required"):
            self.notices.append("dangerouslyDisableSandbox was ignored: a sandbox is required here")
            return False
        return True

    @asynccontextmanager
    async def witnessed(self) -> AsyncIterator[None]:
        """Keep files that the command aims at, and find afterwards which of the files that were read it changed."""
        if self.reading.read_only:
            yield
            return
        history, views = await self.ctx.own(FileHistory), await self.ctx.own(FileViews)
        async with kept_around(history, self.ctx, self.reading.edits):
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await self._compare(views)

    async def _compare(self, views: FileViews) -> None:
        drifted = await self.ctx.thread(views.drifted) if views else []
        if drifted:
            names = [self.ctx.shown(real) + (" (removed)" if what == "removed" else "") for real, what in drifted]
            more = f" and {len(names) - NAMED_FILES} more" if len(names) > NAMED_FILES else ""
            self.stale = (
                f"Changed since you read them: {', '.join(names[:NAMED_FILES])}{more}. "
                "Read them again before you edit them."
            )

    async def inspect(self, shell: Shell) -> None:
        """Ask the box what it refused, and what was left behind that runs by itself."""
        if self.box is not None:
            self.violations = self.box.violations(text.shown(shell.sink, BRIEF)[0])
            self.notices += [f"Sandbox: {line}" for line in self.violations]
            self.notices += [f"Runs by itself: {found}" for found in await self.box.planted()]

    # -- the directory -------------------------------------------------------------------------------------------------

    async def settle(self, shell: Shell) -> None:
        """After the end: let the session follow the shell, and see to what it left running."""
        await self._follow(shell.directory)
        await self._adopt(shell)

    async def _follow(self, told: str) -> None:
        place = _place(told, self.ctx)
        if place is None:
            return
        if self.ctx.agent == "main":
            await self.ctx.move(place)
            if str(place) == told:
                return
        self.notices.append(f"Shell cwd was reset to {place}")

    async def _adopt(self, shell: Shell) -> None:
        """What the shell left running becomes a background task, so that it can be seen and stopped."""
        left = shell.left()
        if not left:
            await shell.end(0)
            if self.box is not None and self.reading.leaves:
                self.notices.append(
                    "In the sandbox, what a command leaves running ends with it; run_in_background lets it go on"
                )
            return
        named = ", ".join(f"pid {one.pid} ({one.name})" for one in left[:5])
        if not self.runs.possible:
            await shell.end(self.runs.grace)
            self.notices.append(f"Ended what the command had left running: {named}")
            return
        shell.sink.open()

        async def work(run: Run) -> End:
            try:
                await shell.rest()
            finally:
                await shell.end(self.runs.grace)
            return End(status="completed", reason=_limits(shell))

        run = self._launch(f"left running by: {self.title}", work, shell)
        self.notices.append(
            f"Still running in the background as task {run.id}: {named}. Output: {run.output}. Stop it with TaskStop"
        )

    # -- the background ------------------------------------------------------------------------------------------------

    def into_background(self, shell: Shell) -> Run:
        """Hand the running command over to the registry."""
        shell.sink.open()

        async def work(run: Run) -> End:
            try:
                code = await shell.run()
                await shell.rest()
            finally:
                await shell.end(self.runs.grace)
            fine = not shell.killed_for_size and (code == 0 or codes.answer(code, self.reading.last) is not None)
            reason = _limits(shell) or codes.killed_by(code).rstrip(".")
            return End(status="completed" if fine else "failed", exit_code=code, reason=reason)

        return self._launch(self.title, work, shell)

    def _launch(self, title: str, work: object, shell: Shell) -> Run:
        return self.runs.launch(
            "shell",
            title,
            work,  # type: ignore[arg-type]
            agent=self.ctx.agent,
            call=self.ctx.call_id,
            output=shell.sink.path,
            mark=shell.tree.mark,
        )

    # -- failures ------------------------------------------------------------------------------------------------------

    def failed(self, code: Code, shell: Shell, why: str = "") -> Refusal:
        """The refusal for a command that ran and did not end well: its exit code, why, its output, the notices."""
        limit = self.ctx.setting("bash.failure_chars")
        output, cut = text.shown(shell.sink, limit)
        lines = [line for line in (why, codes.killed_by(shell.code or 0), output or "(no output)") if line]
        if cut and (where := self.keep(shell.sink)):
            lines.append(f"[{where}]")
        lines += [f"[{notice}]" for notice in (*self.notices, *([self.stale] if self.stale else []))]
        return Refusal(code, "\n".join(lines), known=f"Exit code {shell.code}")

    def keep(self, sink: Sink) -> str:
        """Keep output whose middle is not shown; says where it is."""
        sink.open()
        sink.close()
        if not sink.filed:
            return f"The rest could not be kept: {sink.fault}"
        self.ctx.attachments.append(str(sink.path))
        if sink.fault:
            return f"Only a part of {sink.total:,} bytes is in {sink.path}: {sink.fault}"
        what = f"The beginning and the end of {sink.total:,} bytes are" if sink.capped else "The whole output is"
        return f"{what} in {sink.path}"


def _place(told: str, ctx: Context) -> Path | None:
    """Where the session goes when a shell ended in the directory ``told``; None: it stays.

    Only the main agent's session follows, and only inside the working directories; else it is put back.
    """
    if not told or told == os.path.realpath(ctx.cwd):
        return None
    if ctx.agent != "main":
        return ctx.cwd
    roots = [os.path.realpath(root) for root in ctx.roots]
    inside = any(told == root or told.startswith(root.rstrip("/") + "/") for root in roots)
    return Path(told) if inside and os.path.isdir(told) else ctx.roots[0]


def _limits(shell: Shell) -> str:
    if shell.killed_for_size:
        return "it wrote more than a command may write, and was ended"
    if shell.sink.capped:
        return f"output limit reached: not all of its {shell.sink.total:,} bytes were kept"
    return f"its output could not be kept: {shell.sink.fault}" if shell.sink.fault else ""
