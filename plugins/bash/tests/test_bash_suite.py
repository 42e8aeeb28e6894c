"""Bash takes the exam that every tool takes."""

from __future__ import annotations

from pegboard.testing.suite import ToolSuite, case


class TestBash(ToolSuite):
    tool = "Bash"
    good = [
        case({"command": "cat a.txt | tr a-z A-Z > b.txt"}, files={"a.txt": "hello\n"}, leaves={"b.txt": "HELLO\n"}),
        case({"command": "mkdir -p x && cd x && pwd", "description": "Make a folder"}, says="/x"),
        case({"command": "grep nothing a.txt"}, files={"a.txt": "x\n"}, says="No matches found"),
        case({"command": "sleep 60", "run_in_background": True}, says="background as task"),
        case({"command": "rm a.txt"}, files={"a.txt": "x\n"}, leaves={"a.txt": None}),
        case({"command": "echo one; echo two >&2"}, says="one\ntwo"),
    ]
    bad = [
        case({"command": "   "}, code="invalid_input", says="blank"),
        case({"command": "touch made; exit 3"}, code="command_failed", says="Exit code 3", leaves={"made": ""}),
        case({"command": "sleep 60", "timeout": 200}, code="timeout", says="Exit code 143"),
        case({"command": "echo a\0b"}, code="invalid_input", says="null byte"),
        case({"command": "x" * 130_000}, code="invalid_input", says="130,000 bytes"),
    ]
