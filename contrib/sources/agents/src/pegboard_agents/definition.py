"""One definition of an agent: the fields of its file as typed data, and what could not be used of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from pegboard_frontmatter import split, texts

Scope = Literal["managed", "project", "user", "plugin", "builtin"]

WIDER = frozenset({"acceptEdits", "bypassPermissions", "auto"})
"""Permission modes that a project nobody trusts cannot ask for."""
NEVER = frozenset({"bypassPermissions", "auto"})
"""Permission modes that no project's file can ask for."""
MODES = frozenset({"default", "manual", "plan", "dontAsk", *WIDER})
EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What makes an agent: who it is, what it may use, what it is told."""

    name: str
    description: str
    prompt: str
    """The text of the file: the agent's own part of the system prompt."""
    scope: Scope
    path: str
    tools: list[str] | None = None
    """Names and rules of the tools it may use; None = all that its parent has."""
    disallowed: list[str] = []
    """Tools taken away before ``tools`` are looked at."""
    model: str = ""
    """Empty = the parent's."""
    permission_mode: str = ""
    max_turns: int | None = None
    skills: list[str] = []
    servers: list[str | dict[str, Any]] = []
    """Names of configured servers, and servers of its own, each as a table of one name."""
    hooks: dict[str, Any] = {}
    memory: str = ""
    background: bool = False
    effort: str = ""
    isolation: str = ""
    color: str = ""
    initial_prompt: str = ""
    problems: list[str] = []
    """What the file says that cannot be used, or not here."""


class NoDefinition(Exception):
    """A file defines no agent. ``said`` is empty where that is no fault: it may be about something else."""

    def __init__(self, said: str = "") -> None:
        super().__init__(said)
        self.said = said


def parse(text: str, path: str, scope: Scope, *, trusted: bool = True, plugin: str = "") -> Definition:
    """The definition in the text of a file. Raises `NoDefinition`.

    ``trusted`` is about a project's files; ``plugin`` names the plug-in that brings the file.
    """
    document = split(text)
    fields = dict(document.fields)
    problems = list(document.problems)
    name = fields.pop("name", None)
    if name is None:
        raise NoDefinition
    if not isinstance(name, str) or not name.strip():
        raise NoDefinition("its name is no text")
    if ":" in name or name.startswith("-"):
        raise NoDefinition(f"the name {name!r} has a colon or begins with a dash")
    description = fields.pop("description", None)
    if not isinstance(description, str) or not description.strip():
        raise NoDefinition("it has no description")
    found: dict[str, Any] = {}
    for key, value in fields.items():
        if key not in _FIELDS:
            problems.append(f"there is no field {key}")
        elif value is not None:
            target, read = _FIELDS[key]
            try:
                found[target] = read(value)
            except ValueError as error:
                problems.append(f"{key} {error}")
    _narrow(found, problems, scope, trusted)
    full = f"{plugin}:{name.strip()}" if plugin else name.strip()
    found |= {"description": " ".join(description.split()), "prompt": document.body.strip(), "problems": problems}
    return Definition(name=full, scope=scope, path=path, **found)


def _narrow(found: dict[str, Any], problems: list[str], scope: Scope, trusted: bool) -> None:
    """Take away what a file of this scope cannot have."""
    if scope == "plugin":
        lost = [key for key in ("servers", "hooks", "permission_mode") if found.pop(key, None)]
        problems += [f"{_SHOWN[key]} of a plug-in's agent does not count" for key in lost]
    if scope != "project":
        return
    if not trusted:
        servers = found.get("servers", [])
        named = [one for one in servers if isinstance(one, str)]
        lost = ["hooks"] if found.pop("hooks", None) else []
        lost += ["mcpServers"] if len(named) < len(servers) else []
        found["servers"] = named
        problems += [f"{key} does not count before the workspace is trusted; run: peg trust" for key in lost]
    mode = found.get("permission_mode", "")
    if mode in NEVER or (mode in WIDER and not trusted):
        del found["permission_mode"]
        problems.append(f"a project's file cannot choose the permission mode {mode}" + ("" if trusted else " here"))


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("takes a text")
    return value.strip()


def _choice(*allowed: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"takes {', '.join(sorted(allowed))}, not {value!r}")
        return str(value)

    return read


def _names(value: Any) -> list[str]:
    found = texts(value)
    if not found and value not in ("", []):
        raise ValueError("takes names, as a list or with commas between them")
    return found


def _tools(value: Any) -> list[str] | None:
    found = _names(value)
    return None if "*" in found else found


def _model(value: Any) -> str:
    return "" if _text(value) == "inherit" else _text(value)


def _turns(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"takes a whole number above 0, not {value!r}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"takes true or false, not {value!r}")
    return value


def _servers(value: Any) -> list[str | dict[str, Any]]:
    """A list of names and tables, or one table of several servers."""
    if isinstance(value, Mapping):
        return [{name: server} for name, server in value.items()]
    if isinstance(value, str):
        return list(texts(value))
    if not isinstance(value, list) or not all(isinstance(one, str | dict) for one in value):
        raise ValueError("takes names of servers, or tables")
    return value


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("takes a table")
    return value


_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "tools": ("tools", _tools),
    "disallowedTools": ("disallowed", _names),
    "model": ("model", _model),
    "permissionMode": ("permission_mode", _choice(*MODES)),
    "maxTurns": ("max_turns", _turns),
    "skills": ("skills", _names),
    "mcpServers": ("servers", _servers),
    "hooks": ("hooks", _table),
    "memory": ("memory", _choice("user", "project", "local")),
    "background": ("background", _flag),
    "effort": ("effort", _choice(*EFFORTS)),
    "isolation": ("isolation", _choice("worktree", "remote")),
    "color": ("color", _text),
    "initialPrompt": ("initial_prompt", _text),
}
"""Field of a file -> field of the definition, and how it is read; a ValueError says what it takes."""

_SHOWN = {target: key for key, (target, _) in _FIELDS.items()}
