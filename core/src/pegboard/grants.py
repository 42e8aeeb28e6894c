"""Permission updates that come with an answer: rules, mode and directories, for the session or in a settings file.

Hooks and programs at the other end of a control channel speak the same form; who may change what is said by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import anyio.to_thread

from pegboard.errors import PegError, UsageError

if TYPE_CHECKING:
    from pegboard.host import Question
    from pegboard.policy import Rule
    from pegboard.session import Session

SCOPES = {"localSettings": "local", "projectSettings": "project", "userSettings": "user"}
EFFECTS = ("allow", "ask", "deny")


@dataclass(frozen=True)
class Granter:
    """Who asks for an update, and the settings scope that it speaks with."""

    name: str
    scope: str
    session_only: bool
    """It changes nothing that outlives the session."""


def suggestions(question: Question) -> list[dict[str, Any]]:
    """The rules that wider answers would add, as permission updates."""
    found = []
    for rules, destination in ((question.rules, "session"), (question.always, "localSettings")):
        if rules:
            parts = [_parts(rule) for rule in rules]
            found.append({"type": "addRules", "rules": parts, "behavior": "allow", "destination": destination})
    return found


def _parts(rule: str) -> dict[str, str]:
    tool, bracket, rest = rule.partition("(")
    return {"toolName": tool, "ruleContent": rest[:-1]} if bracket else {"toolName": tool}


async def change(session: Session, update: Any, by: Granter) -> str:
    """Make one update; returns why it was not made, or an empty text."""
    if not isinstance(update, Mapping):
        return "it is no object"
    kind, destination = update.get("type"), update.get("destination")
    if destination != "session" and destination not in SCOPES:
        return f"there is no destination {destination}"
    if destination != "session" and by.session_only:
        return f"{by.name} changes the session only, not {destination}"
    try:
        if kind in ("addRules", "replaceRules", "removeRules"):
            texts, effect = _rules(update)
            if destination == "session":
                _session_rules(session, kind, texts, effect, by)
            else:
                await anyio.to_thread.run_sync(_file_rules, session, SCOPES[destination], kind, texts, effect)
        elif kind == "setMode":
            await _mode(session, str(update.get("mode")), destination, by)
        elif kind in ("addDirectories", "removeDirectories"):
            folders = _folders(session, update)
            if destination == "session":
                _session_folders(session, kind, folders)
            else:
                await anyio.to_thread.run_sync(_file_folders, session, SCOPES[destination], kind, folders)
        else:
            return f"there is no update {kind}"
    except PegError as error:
        return str(error)
    return ""


def _rules(update: Mapping[str, Any]) -> tuple[list[str], Literal["allow", "ask", "deny"]]:
    effect, rules = update.get("behavior"), update.get("rules")
    if effect not in EFFECTS or not isinstance(rules, list):
        raise UsageError("it needs a behavior and a list of rules.")
    texts = []
    for rule in rules:
        tool = rule.get("toolName") if isinstance(rule, Mapping) else None
        content = rule.get("ruleContent") if isinstance(rule, Mapping) else None
        if not isinstance(tool, str) or not isinstance(content, str | None):
            raise UsageError("a rule needs a toolName, and takes a ruleContent.")
        texts.append(f"{tool}({content})" if content else tool)
    return texts, cast(Literal["allow", "ask", "deny"], effect)


def _session_rules(
    session: Session, kind: str, texts: list[str], effect: Literal["allow", "ask", "deny"], by: Granter
) -> None:
    from pegboard.policy import parse_rule

    wanted = [parse_rule(text, effect=effect, scope="session", source=by.name, line=0) for text in texts]
    same = [rule for rule in session.session_rules if rule.effect == effect]
    named = {rule.text for rule in wanted}
    drop: list[Rule] = same if kind == "replaceRules" else [rule for rule in same if rule.text in named]
    session.amend(add=() if kind == "removeRules" else wanted, drop=drop)


def _file_rules(session: Session, scope: str, kind: str, texts: list[str], effect: str) -> None:
    from pegboard.policy import parse_rule
    from pegboard.settings import settings_file
    from pegboard.settings_save import edit_list, save_value

    for text in texts:
        parse_rule(text, effect=cast(Any, effect), scope=scope, source="", line=0)
    key, path, personal = f"permissions.{effect}", settings_file(session.places, scope), scope == "user"
    session.settings.check_settable(key, scope, texts)
    if kind == "replaceRules":
        save_value(path, key, texts, personal=personal)
    else:
        added, gone = (texts, []) if kind == "addRules" else ([], texts)
        edit_list(path, key, add=added, remove=gone, personal=personal)


async def _mode(session: Session, name: str, destination: str, by: Granter) -> None:
    from pegboard.policy import Mode, judge_mode_change

    mode = Mode.parse(name)
    if mode is Mode.BYPASS:
        raise UsageError("the mode bypassPermissions is chosen at the start of a session, by its user.")
    if destination == "session":
        decision = judge_mode_change(mode, session.snapshot(), False, scope=by.scope)
        if decision.verdict == "deny":
            raise UsageError(f"{decision.decided_by.reason}.")
        session.set_mode(mode, by.name)
        return
    await anyio.to_thread.run_sync(_file_mode, session, SCOPES[destination], mode.value)


def _file_mode(session: Session, scope: str, mode: str) -> None:
    from pegboard.settings import settings_file
    from pegboard.settings_save import save_value

    session.settings.check_settable("permissions.mode", scope, mode)
    save_value(settings_file(session.places, scope), "permissions.mode", mode, personal=scope == "user")


def _folders(session: Session, update: Mapping[str, Any]) -> list[Path]:
    given = update.get("directories")
    if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
        raise UsageError("it needs a list of directories.")
    return [Path(session.cwd, Path(item).expanduser()) for item in given]


def _session_folders(session: Session, kind: str, folders: list[Path]) -> None:
    left = [folder for folder in session.directories if folder not in folders]
    session.amend(directories=left if kind == "removeDirectories" else [*left, *folders])


def _file_folders(session: Session, scope: str, kind: str, folders: list[Path]) -> None:
    from pegboard.settings import settings_file
    from pegboard.settings_save import edit_list

    names = [str(folder) for folder in folders]
    session.settings.check_settable("permissions.directories", scope, names)
    added, gone = (names, []) if kind == "addDirectories" else ([], names)
    path = settings_file(session.places, scope)
    edit_list(path, "permissions.directories", add=added, remove=gone, personal=scope == "user")
