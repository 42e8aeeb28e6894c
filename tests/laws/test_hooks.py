"""Sixteen hooks, exactly: nine that contribute, seven that speak."""

from __future__ import annotations

import inspect

from pegboard.hooks import Specs

CONTRIBUTE = {
    "peg_sources", "peg_tools", "peg_rules", "peg_context", "peg_commands", "peg_provider", "peg_host",
    "peg_sandbox", "peg_runner",
}  # fmt: skip
SPEAK = {
    "peg_before_call", "peg_answer", "peg_after_call", "peg_before_event", "peg_event", "peg_session_start",
    "peg_session_end",
}  # fmt: skip


def test_there_are_sixteen_hooks():
    hooks = {name: value for name, value in vars(Specs).items() if name.startswith("peg_")}
    assert hooks.keys() == CONTRIBUTE | SPEAK
    assert len(hooks) == 16
    for name, function in hooks.items():
        assert inspect.iscoroutinefunction(function) == (name in SPEAK), name
        assert inspect.getdoc(function), f"{name} has no sentence"


def test_nothing_else_is_a_hook():
    assert not [name for name in vars(Specs) if not name.startswith(("peg_", "__"))]
