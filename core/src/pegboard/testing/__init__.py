"""The kit for plug-in authors: the standard suite, real sessions for tests, a watch on effects, a strict service.

Everything is imported when it is first used; nothing of it is on the product's own way.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pegboard.testing.cases import Pipe, play, problems
    from pegboard.testing.chat import ChatService
    from pegboard.testing.effects import Watch, changed, tree, untrue
    from pegboard.testing.messages import MessagesService
    from pegboard.testing.providers import ProviderSuite
    from pegboard.testing.sessions import Bench, Listener, Willing, tool_of
    from pegboard.testing.steps import interrupted
    from pegboard.testing.suite import Case, ToolSuite, case

__all__ = [
    "Bench", "Case", "ChatService", "Listener", "MessagesService", "Pipe", "ProviderSuite", "ToolSuite", "Watch",
    "Willing", "case", "changed", "interrupted", "play", "problems", "tool_of", "tree", "untrue",
]  # fmt: skip

_PARTS = {
    "cases": ("Pipe", "play", "problems"),
    "chat": ("ChatService",),
    "effects": ("Watch", "changed", "tree", "untrue"),
    "messages": ("MessagesService",),
    "providers": ("ProviderSuite",),
    "sessions": ("Bench", "Listener", "Willing", "tool_of"),
    "steps": ("interrupted",),
    "suite": ("Case", "ToolSuite", "case"),
}


def __getattr__(name: str) -> Any:
    for module, names in _PARTS.items():
        if name in names:
            return getattr(importlib.import_module(f"pegboard.testing.{module}"), name)
    raise AttributeError(f"pegboard.testing has no {name}")
