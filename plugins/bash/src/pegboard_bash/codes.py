"""What an exit code means: which failing ones are answers, and which tell of a signal."""

from __future__ import annotations

import signal

ANSWERS = {
    "grep": "No matches found",
    "egrep": "No matches found",
    "fgrep": "No matches found",
    "rg": "No matches found",
    "git grep": "No matches found",
    "diff": "The files differ",
    "git diff": "There are differences",
    "find": "Some folders could not be read",
    "test": "The condition is false",
    "[": "The condition is false",
}
"""[D] Program -> what its exit code 1 says."""


def answer(code: int, program: str) -> str | None:
    """What a failing code of the last program of a command says, where it is an answer and no failure."""
    return ANSWERS.get(program) if code == 1 else None


def killed_by(code: int) -> str:
    """The signal behind an exit code, in words; empty where there is none."""
    if not 128 < code < 128 + 65:
        return ""
    try:
        return f"It was ended by signal {code - 128} ({signal.Signals(code - 128).name})."
    except ValueError:
        return f"It was ended by signal {code - 128}."
