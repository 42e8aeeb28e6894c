"""pegboard: agent tools as plug-ins, one pipeline that decides, one ledger that tells what changed.

The names below are the public surface; each is imported from its module when it is first used.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "pegboard.call": ("Call", "DecidedBy", "Effect", "EffectKind", "Ledger", "Outcome", "Retry", "Status"),
    "pegboard.errors": ("Code", "PegError", "Refusal", "RunStopped", "Stop", "UsageError"),
    "pegboard.hooks": ("Fragment", "Note", "Verdict", "hook"),
    "pegboard.host": ("Choice", "Host", "Question", "Reply"),
    "pegboard.manifest": ("Manifest",),
    "pegboard.model": ("AbsolutePath", "Input", "Output"),
    "pegboard.session": ("Session",),
    "pegboard.state": ("Owner", "Scope"),
    "pegboard.tool": ("Access", "Context", "Launched", "Tool"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        import importlib

        return getattr(importlib.import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'pegboard' has no attribute {name!r}")
