"""A person at the terminal who can be asked: once, for this session, always, or no.

What they say yes to is what they were shown: every line whole, invisible characters spelt out, each rule that would be
kept in full, and nothing that was typed before the question counts as an answer.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import anyio
import anyio.to_thread

from pegboard.decision import visible
from pegboard.host import Choice, Host, Question, Reply

TRIES = 3
"""[C] Answers that nobody understands before the question counts as unanswered."""


class AtTerminal(Host):
    """Asks permission questions on stderr and reads the answers from stdin. Both must be a terminal."""

    name = "terminal"

    def __init__(self) -> None:
        self._one = anyio.Lock()

    @classmethod
    def if_any(cls) -> AtTerminal | None:
        """The person at the terminal, or None where stdin or stderr is no terminal."""
        return cls() if sys.stdin.isatty() and sys.stderr.isatty() else None

    async def notify(self, text: str, kind: str = "info") -> None:
        _say([f"peg: {visible(text)}"])

    async def ask(self, question: Question) -> Reply | None:
        """Show the question and wait for an answer; None at the end of input or after `TRIES` that say nothing."""
        async with self._one:
            digest = question.digest
            _say(shown(question))
            for _ in range(TRIES):
                _forget_typed()
                _say([f"{_offers(question)}? "], end="")
                line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
                if not line:
                    return None
                reply = answer(line, question)
                if question.digest != digest:
                    return Reply(Choice.NO, "the call was changed while the question stood")
                if reply is not None:
                    return reply
            return None


def shown(question: Question) -> list[str]:
    """The question for people, line by line, with everything that a yes would mean."""
    lines = [f"{visible(question.tool)} wants to:"]
    lines += [f"  {visible(line)}" for line in question.lines]
    by = question.decision.decided_by
    source = f" ({by.source})" if by.source and by.by != "mode" else ""
    lines.append(visible(f"It asks because {by.reason or by.by}{source}."))
    if question.rules:
        lines.append("A yes for this session also allows, until it ends:")
        lines += [f"  {visible(rule)}" for rule in question.rules]
    if question.always:
        lines.append("A yes for always saves these rules in the local settings of this project:")
        lines += [f"  allow {visible(rule)}" for rule in question.always]
    return lines


def answer(line: str, question: Question) -> Reply | None:
    """What a typed line says; None for what is no answer, or was not offered. Text behind ``no`` is its comment."""
    word, _, rest = line.strip().partition(" ")
    word = word.lower().rstrip(",.:")
    if word in ("n", "no"):
        return Reply(Choice.NO, rest.strip())
    if rest.strip():
        return None
    if word in ("o", "once", "y", "yes"):
        return Reply(Choice.ONCE)
    if word in ("s", "session") and question.rules:
        return Reply(Choice.SESSION)
    if word in ("a", "always") and question.always:
        return Reply(Choice.ALWAYS)
    return None


def _offers(question: Question) -> str:
    return ", ".join(_words(question))


def _words(question: Question) -> Iterator[str]:
    yield "[o]nce"
    if question.rules:
        yield "[s]ession"
    if question.always:
        yield "[a]lways"
    yield "or [n]o with a comment"


def _forget_typed() -> None:
    """Drop what was typed before the question was there to be read."""
    import termios

    with contextlib.suppress(OSError, termios.error, ValueError):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _say(lines: list[str], *, end: str = "\n") -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write("\n".join(lines) + end)
        sys.stderr.flush()
