"""From a Claude Code settings file to ours, key by key; what has no counterpart is said, never guessed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pegboard.cli.import_plan import Left, Mapped, Plan
from pegboard.errors import UsageError
from pegboard.external import KINDS, Hook, fault_of, parse
from pegboard.places import Places
from pegboard.settings_files import Unparsable, parse_json, read_text, settings_file

FOREIGN_POLICY = Path("/etc/claude-code")

FAMILIES = {
    "Write": "Edit", "NotebookEdit": "Edit", "MultiEdit": "Edit", "NotebookRead": "Read", "LS": "Read",
    "Glob": "Read", "Grep": "Read", "LSP": "Read",
}  # fmt: skip
"""Tools whose path rules are written under another name."""

PLAIN = {
    "model": "model", "disableAllHooks": "hooks.disabled", "fallbackModel": "models.fallback",
    "availableModels": "models.available", "allowManagedHooksOnly": "hooks.managed_only",
    "allowManagedPermissionRulesOnly": "permissions.managed_rules_only",
    "allowManagedMcpServersOnly": "mcp.managed_only", "disableWorkflows": "workflows.disabled",
    "allowedHttpHookUrls": "hooks.allow_urls",
}  # fmt: skip
"""Keys that mean the same under another name."""

LOCKS = {
    "disableBypassPermissionsMode": "permissions.disable_bypass", "disableAutoMode": "permissions.disable_auto",
}  # fmt: skip
"""Keys whose value ``disable`` is a lock here."""

OPEN = {
    "apiKeyHelper": "a program that prints a key; put the key into the environment instead",
    "enabledPlugins": "install each plug-in with peg plugins add, where it exists for this product",
    "extraKnownMarketplaces": "add each one when it is needed",
    "enableAllProjectMcpServers": "every server is approved by itself",
    "enabledMcpjsonServers": "every server is approved by itself",
    "disabledMcpjsonServers": "a server runs only after it was approved",
    "sandbox": "the sandbox is set up by keys of its own; see peg settings list --all",
    "strictKnownMarketplaces": "plugins.allow_sources lists the places that plug-ins may come from",
}
"""Keys that somebody has to think about."""


def plans(places: Places, scope: str) -> Iterator[Plan]:
    """A plan for each settings file of a scope that exists: ``user``, ``project`` or ``managed``."""
    if scope == "managed":
        target = places.managed_dir / "managed.toml"
        names = [FOREIGN_POLICY / "managed-settings.json"]
        names += sorted((FOREIGN_POLICY / "managed-settings.d").glob("*.json"))
        pairs = [(name, target, "managed") for name in names]
    elif scope == "user":
        pairs = [(places.home / ".claude" / "settings.json", settings_file(places, "user"), "user")]
    else:
        folder = places.root / ".claude"
        pairs = [
            (folder / "settings.json", settings_file(places, "project"), "project"),
            (folder / "settings.local.json", settings_file(places, "local"), "local"),
        ]
    for source, target, level in pairs:
        if source.is_file():
            yield mapped(Plan(source, target, level))


def mapped(plan: Plan) -> Plan:
    """Fill a plan from its source. Raises `UsageError` for a file that cannot be read."""
    try:
        text, _ = read_text(str(plan.source))
        found = parse_json(text or "")
    except Unparsable as error:
        place = f"{plan.source}:{error.line}" if error.line else str(plan.source)
        raise UsageError(f"{place}: cannot be read: {error}. Nothing was imported.") from None
    for key, value in found.items():
        if key == "permissions" and isinstance(value, Mapping):
            _permissions(plan, value)
        elif key == "hooks" and isinstance(value, Mapping):
            _hooks(plan, value)
        elif key == "env" and isinstance(value, Mapping):
            _env(plan, value)
        else:
            _single(plan, key, value)
    return plan


def _put(plan: Plan, one: Mapped) -> None:
    """Take a key over, unless it cannot be set in this scope."""
    why = _not_settable(one, plan.scope)
    if why:
        plan.dropped.append(Left(one.origin, why))
    else:
        plan.mapped.append(one)


def _not_settable(one: Mapped, scope: str) -> str:
    from pegboard.settings_entries import any_match
    from pegboard.settings_keys import core_keys

    name = one.key if one.key in core_keys() else one.key.partition(".")[0]
    key = core_keys()[name]
    if scope != "managed" and key.set_by == "managed":
        return f"{name} can be set by managed policy only"
    if scope in ("project", "local") and key.set_by == "user":
        return f"{name} can be set in user settings only"
    if scope in ("project", "local") and key.project_never:
        part = one.key.partition(".")[2] if name == "env" else one.value
        if any_match(str(part), key.project_never):
            return f"a project cannot set {part}"
    if name in ("hooks", "env"):
        return ""
    _, faults = key.clean(one.value)
    return f"{name} {faults[0]}" if faults else ""


def _single(plan: Plan, key: str, value: Any) -> None:
    if key in ("$schema", "permissions", "hooks", "env"):
        if key != "$schema":
            plan.dropped.append(Left(key, "it is no table"))
    elif key in PLAIN:
        wanted = value if PLAIN[key] != "models.fallback" or isinstance(value, list) else [value]
        _put(plan, Mapped(PLAIN[key], wanted, key))
    elif key in LOCKS:
        _lock(plan, key, value)
    elif key == "statusLine" and isinstance(value, Mapping) and value.get("type") == "command":
        command = str(value.get("command", ""))
        _put(plan, Mapped("status_line", command, key, lines=(f"runs: {command}",)))
    elif key in ("allowedMcpServers", "deniedMcpServers") and isinstance(value, list):
        _server_list(plan, key, value)
    elif key in OPEN:
        plan.decide.append(Left(key, OPEN[key]))
    else:
        plan.dropped.append(Left(key, "there is nothing like it here"))


def _lock(plan: Plan, key: str, value: Any) -> None:
    if value == "disable":
        _put(plan, Mapped(LOCKS[key], True, key))
    else:
        plan.dropped.append(Left(key, "it does not lock anything"))


def _server_list(plan: Plan, key: str, value: list[Any]) -> None:
    names = [one["serverName"] for one in value if isinstance(one, Mapping) and isinstance(one.get("serverName"), str)]
    if len(names) != len(value):
        plan.decide.append(Left(key, "some entries name a command or an address; list those servers by hand"))
    _put(plan, Mapped("mcp.allow" if key.startswith("allowed") else "mcp.deny", names, key))


def _permissions(plan: Plan, found: Mapping[str, Any]) -> None:
    for key, value in found.items():
        origin = f"permissions.{key}"
        if key in ("allow", "ask", "deny") and isinstance(value, list):
            if key != "allow" and plan.scope in ("project", "local"):
                plan.dropped.append(Left(origin, "it holds without an import (compat.claude)"))
            else:
                _rules(plan, key, value)
        elif key == "additionalDirectories":
            _put(plan, Mapped("permissions.directories", value, origin))
        elif key == "defaultMode":
            _put(plan, Mapped("permissions.mode", value, origin))
        elif key in LOCKS:
            _lock(plan, key, value)
        else:
            plan.dropped.append(Left(origin, "there is nothing like it here"))


def _rules(plan: Plan, effect: str, texts: list[Any]) -> None:
    kept, notes = [], []
    for text in texts:
        new, why = rule(str(text), effect, plan.scope)
        if new is None:
            plan.dropped.append(Left(f"permissions.{effect}: {text}", why))
            continue
        if new not in kept:
            kept.append(new)
        if new != text:
            notes.append(f"{text} is written {new} ({why})")
    if kept:
        key = f"permissions.{effect}"
        _put(plan, Mapped(key, kept, key, "; ".join(notes), tuple(kept)))


def rule(text: str, effect: str, scope: str) -> tuple[str | None, str]:
    """A rule as we write it and what is different about it, or None and why it is dropped."""
    from pegboard.rules import Problem, lint, parse_rule

    tool, opened, rest = text.strip().partition("(")
    why = ""
    if opened and tool in FAMILIES:
        tool, why = FAMILIES[tool], f"paths of {tool} are judged by {FAMILIES[tool]} rules"
    elif tool == "MultiEdit":
        tool, why = "Edit", "there is one tool for edits"
    if scope == "user" and opened and tool in ("Read", "Edit") and rest[:1] == "/" != rest[1:2]:
        rest, why = f"~/.claude{rest}", "the path counts from the folder of the file it stood in"
    new = f"{tool}({rest}" if opened else tool
    try:
        parsed = parse_rule(new, effect=effect, scope=scope, source="import")
    except UsageError as error:
        return None, str(error).replace(" (import)", "").rstrip(".")
    for problem in lint([parsed], _manifests()):
        known: Problem = problem
        if known.text.startswith("never consulted"):
            return known.fix or None, known.text
        if known.text.startswith("ignored") or ("no tool" in known.text and not _bundled(parsed.tool)):
            return None, known.text
    return new, why


def _manifests() -> list[Any]:
    from pegboard.cli.start import start

    return [found.manifest for found in start().registry.tools().values()]


def _bundled(tool: str) -> bool:
    from pegboard.gate import own_names

    return tool in own_names() or tool == "Agent"


def _hooks(plan: Plan, found: Mapping[str, Any]) -> None:
    for event, groups in found.items():
        problems: list[str] = []
        hooks = list(parse({event: groups}, plan.scope, str(plan.source), problems))
        for problem in problems:
            said = problem.removeprefix(f"{plan.source}: ").removeprefix(f"hooks.{event}: ")
            plan.dropped.append(Left(f"hooks.{event}", said.rstrip(".")))
        sound = [hook for hook in hooks if hook.type in KINDS]
        if sound:
            later = sorted({hook.type for hook in sound if hook.type not in ("command", "http")})
            note = f"hooks of the type {', '.join(later)} do not run here yet" if later else ""
            lines = tuple(_line(hook) for hook in sound)
            _put(plan, Mapped(f"hooks.{event}", _groups(groups), f"hooks.{event}", note, lines))


def _line(hook: Hook) -> str:
    when = f" for {hook.matcher}" if hook.matcher else ""
    only = f" if {hook.rule}" if hook.rule else ""
    headers = f" with the headers {', '.join(name for name, _ in hook.headers)}" if hook.headers else ""
    return f"runs{when}{only}: {' '.join([hook.what, *(hook.args or ())])}{headers}"


def _groups(groups: Any) -> list[dict[str, Any]]:
    """The groups without handlers that cannot be read, and without what TOML has no word for."""
    kept = []
    for group in groups if isinstance(groups, list) else [groups]:
        handlers = group.get("hooks") if isinstance(group, Mapping) else None
        sound = [_plain(one) for one in handlers if not fault_of(one)] if isinstance(handlers, list) else []
        if sound:
            kept.append({**_plain({name: one for name, one in group.items() if name != "hooks"}), "hooks": sound})
    return kept


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items() if one is not None}
    return [_plain(one) for one in value if one is not None] if isinstance(value, list) else value


def _env(plan: Plan, found: Mapping[str, Any]) -> None:
    from pegboard.process import child_environment

    for name, value in found.items():
        origin = f"env.{name}"
        if not name.isidentifier() or not isinstance(value, str | int | float):
            plan.dropped.append(Left(origin, "it is no variable with a text"))
        elif name not in child_environment({name: ""}):
            plan.decide.append(Left(origin, "it looks like a credential; keep it in your environment, not in a file"))
        else:
            _put(plan, Mapped(origin, str(value), origin))
