"""TaskStop: stop a background task by its id. A service tool of the registry, not one of the twenty-nine."""

from __future__ import annotations

from collections.abc import Iterable

from pegboard.errors import Code, Refusal
from pegboard.model import Input, Output
from pegboard.tool import Access, Context, Tool
from pydantic import Field

from pegboard_tasks.runs import Run, Runs, said


class TaskStopInput(Input):
    """Which task to stop."""

    task_id: str = Field(min_length=1, description="Id of the task, or of the call that began it")


class TaskStopOutput(Output):
    """What became of the task."""

    task_id: str
    task_type: str
    status: str
    """completed, failed or stopped"""
    stopped: bool
    """Whether this call stopped it; false when it had ended before."""
    description: str
    exitCode: int | None = None
    reason: str | None = None
    outputPath: str | None = None
    message: str


class TaskStop(Tool[TaskStopInput, TaskStopOutput]):
    """Stop a background task."""

    Input = TaskStopInput
    Output = TaskStopOutput

    async def check(self, input: TaskStopInput, ctx: Context) -> None:
        await _find(input.task_id, ctx)

    def accesses(self, input: TaskStopInput, ctx: Context) -> Iterable[Access]:
        return (Access.use(input.task_id),)

    async def run(self, input: TaskStopInput, ctx: Context) -> TaskStopOutput:
        runs, run = await _find(input.task_id, ctx)
        if not run.running:
            return _output(run, stopped=False)
        with ctx.effect("registry", run.id, f"stop {run.kind}"):
            await runs.stop(run.id, "it was stopped by TaskStop")
        return _output(run, stopped=run.status == "stopped")

    def render(self, output: TaskStopOutput, ctx: Context) -> str:
        return output.message


async def _find(id: str, ctx: Context) -> tuple[Runs, Run]:
    runs = await ctx.own(Runs)
    run = runs.get(id)
    if run is None or (ctx.agent not in ("main", run.agent)):
        running = [one for one in runs.list(running=True) if ctx.agent in ("main", one.agent)]
        known = "; ".join(f"{one.id} ({' '.join(one.description.split())[:60]})" for one in running[:20])
        raise Refusal(
            Code.NOT_FOUND,
            f"There is no background task {id!r} here. Nothing was stopped.",
            hint=f"Running: {known}." if known else "No background task is running.",
        )
    return runs, run


def _output(run: Run, *, stopped: bool) -> TaskStopOutput:
    first = "" if stopped else "It had ended before; nothing was stopped.\n"
    return TaskStopOutput(
        task_id=run.id,
        task_type=run.kind,
        status=run.status,
        stopped=stopped,
        description=run.description,
        exitCode=run.exit_code,
        reason=run.reason or None,
        outputPath=run.output or None,
        message=first + said(run),
    )
