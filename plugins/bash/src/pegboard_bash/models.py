"""What Bash takes and gives back."""

from __future__ import annotations

from pegboard.model import Input, Output
from pydantic import Field


class BashInput(Input):
    """A command, and how to run it."""

    command: str = Field(description="The command")
    timeout: float | None = Field(default=None, gt=0, description="Milliseconds it may take; default 120000")
    description: str | None = Field(default=None, description="What it does, in five to ten words, for the user")
    run_in_background: bool = Field(default=False, description="Return at once with a task id")
    dangerouslyDisableSandbox: bool = Field(default=False, description="Run outside the sandbox; asks the user")


class BashOutput(Output):
    """How a command ended, or where it goes on."""

    stdout: str
    """Both streams, interleaved."""
    stderr: str
    """Notices of the tool itself, one a line."""
    exitCode: int | None = None
    """None while it runs."""
    interrupted: bool = False
    backgroundTaskId: str | None = None
    timedOutAfterMs: int | None = None
    backgroundCwdHint: str | None = None
    returnCodeInterpretation: str | None = None
    persistedOutputPath: str | None = None
    persistedOutputSize: int | None = None
    """Bytes that the command wrote."""
    staleReadFileStateHint: str | None = None
    sandboxViolations: list[str] | None = None
    gitOperation: str | None = None
