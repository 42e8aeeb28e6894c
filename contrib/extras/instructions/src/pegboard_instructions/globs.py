"""``paths`` of a rule: globs over the path of a file relative to the rule's folder."""

from __future__ import annotations

import re
from functools import cache

MOST = 256
"""[C] Patterns that the braces of one pattern may stand for."""


@cache
def pattern(glob: str) -> re.Pattern[str]:
    """The expression for a glob: ``**`` crosses folders, ``*`` and ``?`` do not, ``{a,b}`` is a choice."""
    return re.compile("|".join(_translated(one.removeprefix("./").lstrip("/")) for one in _choices(glob)))


def matches(globs: list[str], path: str) -> bool:
    """Whether one of the globs covers a relative path."""
    return any(pattern(glob).fullmatch(path) for glob in globs)


def _choices(glob: str) -> list[str]:
    done: list[str] = []
    todo = [glob]
    while todo and len(done) + len(todo) <= MOST:
        one = todo.pop()
        found = re.search(r"\{([^{}]*)\}", one)
        if found is None or "," not in found[1]:
            done.append(one)
            continue
        todo += [one[: found.start()] + part + one[found.end() :] for part in found[1].split(",")]
    return done or [glob]


def _translated(glob: str) -> str:
    if glob.endswith("/"):
        glob += "**"
    made, at = "", 0
    while at < len(glob):
        if glob.startswith("**/", at):
            made, at = made + r"(?:[^/]+/)*", at + 3
        elif glob.startswith("**", at):
            made, at = made + ".*", at + 2
        elif glob[at] == "*":
            made, at = made + "[^/]*", at + 1
        elif glob[at] == "?":
            made, at = made + "[^/]", at + 1
        elif glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
            made, at = made + _set(glob[at + 1 : end]), end + 1
        else:
            made, at = made + re.escape(glob[at]), at + 1
    return made


def _set(inner: str) -> str:
    """One character out of a set such as ``a-z`` or ``!ab``; never the slash."""
    wanted = inner[1:] if inner[0] in "!^" else inner
    parts, at = "", 0
    while at < len(wanted):
        low, high = wanted[at], wanted[at + 2 : at + 3]
        if wanted[at + 1 : at + 2] == "-" and low <= high:
            parts, at = parts + f"{re.escape(low)}-{re.escape(high)}", at + 3
        else:
            parts, at = parts + re.escape(low), at + 1
    return f"(?!/)[{'' if wanted is inner else '^'}{parts or re.escape(inner)}]"
