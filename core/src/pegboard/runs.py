"""Who carries a background run: JobRef and Runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class JobRef:
    """A piece of work that goes on after its call."""

    id: str
    kind: str
    """shell, agent, workflow, mcp"""
    description: str


class Runner(Protocol):
    """Carries background runs: this process by default, or an engine that outlives it."""

    async def start(self, job: JobRef, work: Any) -> None:
        """Begin the work; returns when it is registered."""
        ...

    async def stop(self, job: JobRef) -> None:
        """Stop the work and everything it started."""
        ...
