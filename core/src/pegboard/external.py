"""External hooks as data: what the settings configure, whose file it stands in, and the files behind each command.

They are listed, imported, approved and run from the same records, so that what was shown is what runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from pegboard.manifest import HooksManifest
from pegboard.settings_files import SettingsFile, Table, parse_json

if TYPE_CHECKING:
    from pegboard.loader import Registry
    from pegboard.places import Places
    from pegboard.settings import Settings

EVENTS = {
    "SessionStart": "source", "SessionEnd": "reason", "UserPromptSubmit": "", "PreToolUse": "tool_name",
    "PermissionRequest": "tool_name", "PostToolUse": "tool_name", "PostToolUseFailure": "tool_name",
    "PostToolBatch": "", "Stop": "", "StopFailure": "error", "Notification": "notification_type", "CwdChanged": "",
    "PreCompact": "trigger", "PostCompact": "trigger",
}  # fmt: skip
"""Events that happen, and the input field that a matcher runs on; empty = there is nothing to match."""

LATER = {
    "SubagentStart": "agent_type", "SubagentStop": "agent_type", "TaskCreated": "", "TaskCompleted": "",
    "TeammateIdle": "", "ConfigChange": "source", "WorktreeCreate": "", "WorktreeRemove": "",
    "InstructionsLoaded": "load_reason", "Elicitation": "mcp_server_name", "ElicitationResult": "mcp_server_name",
}  # fmt: skip
"""Events of parts that bring their own: they happen where such a part is installed."""

KINDS = {"command": "command", "http": "url", "prompt": "prompt", "agent": "prompt", "mcp_tool": "tool"}
"""Handler types, and the field that each cannot do without."""

BROKEN = "broken"
"""Type of a managed guard that cannot be read: it blocks, because nobody knows what it would have let pass."""

_FIELDS: dict[str, tuple[type, ...]] = {
    "type": (str,), "command": (str,), "args": (list,), "url": (str,), "prompt": (str,), "tool": (str,),
    "headers": (Mapping,), "allowedEnvVars": (list,), "if": (str,), "timeout": (int, float), "shell": (str,),
    "statusMessage": (str,), "once": (bool,), "async": (bool,), "asyncRewake": (bool,), "onFailure": (str,),
    "server": (str,), "model": (str,), "input": (Mapping,),
}  # fmt: skip


class Hook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One handler of one event."""

    event: str
    matcher: str = ""
    type: str = "command"
    what: str
    """The command, the URL, the prompt or the tool."""
    args: tuple[str, ...] | None = None
    """Set for a program that is started without a shell."""
    rule: str = ""
    """A permission rule that a call must fit (``if``)."""
    seconds: float | None = None
    once: bool = False
    background: bool = False
    """Nobody waits for it (``async``)."""
    rewake: bool = False
    """Nobody waits for it, but a blocking end of it is told to the model (``asyncRewake``)."""
    shell: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    variables: tuple[str, ...] = ()
    """Environment variables that its headers may name (``allowedEnvVars``)."""
    blocks: bool = False
    """A failure of it counts as a refusal (``onFailure = "block"``)."""
    scope: str = ""
    source: str = ""
    """The file."""
    why_not: str = ""
    """Empty, or why the settings do not let it run."""

    @property
    def shown(self) -> str:
        """What runs, on one line."""
        line = " ".join([self.what, *(self.args or ())])
        text = " ".join(line.split())
        return {"command": text, "http": f"POST {text}", BROKEN: text}.get(self.type, f"{self.type}: {text}")

    @property
    def name(self) -> str:
        """What an approval is filed under: what runs, and when."""
        return f"{self.event}({self.matcher}): {self.shown}" if self.matcher else f"{self.event}: {self.shown}"

    @property
    def own(self) -> bool:
        """Whether it comes with the workspace rather than from its user or the operator."""
        return self.scope in ("project", "local")


def parse(table: Mapping[str, Any], scope: str, source: str, problems: list[str]) -> Iterator[Hook]:
    """The handlers in a ``hooks`` table: event, groups with a matcher, handlers. What is wrong goes to ``problems``."""
    for event, groups in table.items():
        if event not in EVENTS and event not in LATER:
            problems.append(f"{source}: the hook event {event} never happens here.")
            continue
        for group in groups if isinstance(groups, list) else [groups]:
            matcher = group.get("matcher", "") if isinstance(group, Mapping) else ""
            for handler in _handlers(group):
                fault = fault_of(handler)
                if not fault:
                    yield _hook(event, matcher, handler, scope, source)
                    continue
                problems.append(f"{source}: hooks.{event}: {fault}.")
                if scope == "managed" and event == "PreToolUse":
                    known = matcher if isinstance(matcher, str) else ""
                    why = f"the managed hook in {source} cannot be read: {fault}"
                    yield Hook(
                        event=event, matcher=known, type=BROKEN, what=why, scope=scope, source=source, blocks=True
                    )


def _guard(event: str, matcher: str, why: str, source: str) -> Hook:
    return Hook(event=event, matcher=matcher, type=BROKEN, what=why, scope="managed", source=source, blocks=True)


def _handlers(group: Any) -> list[Any]:
    """The handlers of a group; of something that is no group, one that cannot be read."""
    if not isinstance(group, Mapping) or not isinstance(group.get("matcher", ""), str):
        return [None]
    handlers = group.get("hooks")
    return handlers if isinstance(handlers, list) else [None]


def fault_of(handler: Any) -> str:
    """What is wrong with the table of one hook, or an empty text."""
    if not isinstance(handler, Mapping):
        return "it takes groups, each with a matcher and a list of hooks"
    kind = handler.get("type")
    if kind not in KINDS:
        return f"there is no hook type {kind}; there is {', '.join(KINDS)}"
    for name, value in handler.items():
        types = _FIELDS.get(name)
        if types and (not isinstance(value, types) or (isinstance(value, bool) and bool not in types)):
            return f"{name} has a value of the wrong type"
    for name in ("args", "allowedEnvVars"):
        if not all(isinstance(item, str) for item in handler.get(name, ())):
            return f"{name} takes a list of texts"
    if not all(isinstance(item, str) for item in handler.get("headers", {}).values()):
        return "headers takes texts by name"
    if not str(handler.get(KINDS[kind], "")).strip():
        return f"a hook of the type {kind} needs {KINDS[kind]}"
    if not handler.get("timeout", 1) > 0:
        return "timeout takes a number of seconds above 0"
    if handler.get("onFailure", "continue") not in ("continue", "block"):
        return "onFailure is continue or block"
    return ""


def _hook(event: str, matcher: str, handler: Mapping[str, Any], scope: str, source: str) -> Hook:
    guard = scope == "managed" and event == "PreToolUse"
    args = handler.get("args")
    return Hook(
        event=event,
        matcher=matcher,
        type=handler["type"],
        what=handler[KINDS[handler["type"]]],
        args=tuple(args) if args is not None else None,
        rule=handler.get("if", ""),
        seconds=handler.get("timeout"),
        once=handler.get("once", False),
        background=handler.get("async", False) or handler.get("asyncRewake", False),
        rewake=handler.get("asyncRewake", False),
        shell=handler.get("shell", ""),
        headers=tuple(handler.get("headers", {}).items()),
        variables=tuple(handler.get("allowedEnvVars", ())),
        blocks=handler.get("onFailure", "block" if guard else "continue") == "block",
        scope=scope,
        source=source,
    )


def demand(registry: Registry) -> None:
    """Refuse a start in which managed hooks would not run. Raises `PolicyError` saying why they cannot."""
    from pegboard.candidate import Kind
    from pegboard.errors import PolicyError

    for one in registry.candidates:
        manifest = one.manifest
        if one.kind is Kind.HOOKS and isinstance(manifest, HooksManifest) and "hooks" in manifest.needs_settings:
            if registry.manager.has_plugin(one.name):
                return
            why = registry.standing(one)
            raise PolicyError(f"Managed policy has hooks, but {one.name} cannot run them: {why.reason or why.state}.")
    raise PolicyError("Managed policy has hooks, but pegboard-json-hooks, which runs them, is not installed.")


class Configured:
    """The hooks of all scopes, highest first; read again when a file has changed."""

    def __init__(self, settings: Settings, places: Places) -> None:
        self._settings = settings
        self._foreign = [
            SettingsFile("project", places.root / ".claude" / name, _foreign_hooks)
            for name in ("settings.json", "settings.local.json")
        ]
        self._generation = -1
        self._hooks: list[Hook] = []
        self.problems: list[str] = []
        """What is wrong with the configuration, one sentence each."""

    def all(self) -> list[Hook]:
        """Every hook, also those that do not run here; ``why_not`` says why."""
        compat = self._settings.value("compat.hooks") and self._settings.value("compat.claude")
        changed = [file.read() for file in self._foreign if file.changed()] if compat else []
        if self._generation != self._settings.generation or any(changed):
            self._generation = self._settings.generation
            self.problems = [str(file.problem) for file in self._foreign if compat and file.problem]
            self._hooks = list(self._read(compat))
        return self._hooks

    def _read(self, compat: bool) -> Iterator[Hook]:
        off, managed_only = self._settings.value("hooks.disabled"), self._settings.value("hooks.managed_only")
        found = [(entry.value, entry.scope, entry.source, entry.why_not) for entry in self._settings.entries("hooks")]
        if compat:
            held = "" if self._settings.trusted else "the workspace is not trusted"
            found += [(file.layer.data, file.scope, file.path, held) for file in self._foreign]
        for table, scope, source, why in found:
            if scope != "managed":
                why = why or (managed_only and "managed policy admits only managed hooks") or (off and "hooks are off")
            for hook in parse(table or {}, scope, source, self.problems):
                yield msgspec.structs.replace(hook, why_not=why or "")


def _foreign_hooks(text: str) -> Table:
    hooks = parse_json(text).get("hooks")
    return hooks if isinstance(hooks, dict) else {}
