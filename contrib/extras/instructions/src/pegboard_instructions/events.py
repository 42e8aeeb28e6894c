"""What listeners hear of instruction files."""

from __future__ import annotations

from typing import ClassVar

from pegboard.events import Event


class InstructionsLoaded(Event, tag="instructions"):
    """An instruction file was read and told to the model; never stored."""

    hook: ClassVar[str] = "InstructionsLoaded"
    file_path: str
    memory_type: str
    """managed, user, project, local, nested, rule or import"""
    load_reason: str
    """session_start, nested_traversal, path_glob_match or include"""
