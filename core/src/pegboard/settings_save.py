"""Changing a settings file of a user or a project: comments, order and every other byte stay.

tomlkit makes the change; the result is parsed again and compared with the old values before it replaces anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from pegboard import atomic
from pegboard.errors import UsageError
from pegboard.settings_files import ABSENT, Unparsable, parse_toml, read_text

_BOM = "\ufeff"

Change = Callable[[Any], Any]
"""From the old value of a key, or `ABSENT`, to the new one."""

LINE = 100
"""[C] Characters. A list that grows beyond this on one line gets a line for each item."""

_IGNORED = "# Written by peg: what is personal stays out of the repository.\nsettings.local.toml\n*.bak\n*.lock\n"


def save_value(path: Path, key: str, value: Any, *, personal: bool = False) -> None:
    """Set a dotted key. ``personal``: the file is the user's own, so a link that the user made is followed.

    Raises `UsageError` when the file does not parse, is reached through a project's link, or cannot be written.
    """
    _edit(path, {key: lambda _: value}, personal)


def remove_value(path: Path, key: str, *, personal: bool = False) -> None:
    """Remove a dotted key; nothing happens where it is not set. Raises as `save_value`."""
    _edit(path, {key: lambda _: ABSENT}, personal)


def edit_list(
    path: Path, key: str, *, add: Sequence[str] = (), remove: Sequence[str] = (), personal: bool = False
) -> None:
    """Add texts to a list and remove others; what is there already is not added again. Raises as `save_value`."""
    edit_lists(path, {key: (add, remove)}, personal=personal)


def edit_lists(path: Path, lists: Mapping[str, tuple[Sequence[str], Sequence[str]]], *, personal: bool = False) -> None:
    """Change several lists at once, each by (add, remove): all of it is written, or nothing. Raises as `save_value`."""

    def changing(key: str, add: Sequence[str], remove: Sequence[str]) -> Change:
        def change(old: Any) -> Any:
            items = [] if old is ABSENT else old
            if not isinstance(items, list):
                raise UsageError(f"{path}: {key} is not a list. Repair it by hand; nothing was written.")
            kept = [item for item in items if _name(item) not in remove]
            known = [_name(item) for item in kept]
            new = kept + [item for item in dict.fromkeys(add) if item not in known]
            return new if new != items else old

        return change

    _edit(path, {key: changing(key, *given) for key, given in lists.items()}, personal)


def _edit(path: Path, changes: Mapping[str, Change], personal: bool) -> None:
    target = Path(os.path.realpath(path)) if personal else _unlinked(path)
    try:
        target.parent.mkdir(mode=0o700 if personal else 0o755, parents=True, exist_ok=True)
        with atomic.locked(target):
            old = new = _read(target)
            for key, change in changes.items():
                new = _changed(target, new, key, change)
            if new == old:
                return
            if any(_loses(old, new, key) for key in changes):
                atomic.replace(target.with_name(f"{target.name}.bak"), old.encode(), mode=0o600)
            atomic.replace(target, new.encode(), mode=0o600 if personal else 0o644)
            _keep_out_of_git(target)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror or error}. Nothing was changed.") from None


def _name(item: Any) -> Any:
    """A rule that is written as a table, with examples, goes by its text."""
    return item.get("rule", item) if isinstance(item, Mapping) else item


def _unlinked(path: Path) -> Path:
    """Refuse a link that a project could have brought along: it would lead the change somewhere else."""
    for part in (path.parent, path):
        if part.is_symlink():
            raise UsageError(f"{part} is a symbolic link; settings are not written through it. Nothing was changed.")
    return path


def _read(path: Path) -> str:
    try:
        text, _ = read_text(str(path))
        parse_toml(text or "")
    except Unparsable as error:
        place = f"{path}:{error.line}" if error.line else str(path)
        raise UsageError(f"{place}: cannot be read: {error}. Repair it first; nothing was written.") from None
    return text or ""


def _changed(path: Path, old: str, key: str, change: Change) -> str:
    """The text with one key changed and all else as it was."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    before = parse_toml(old)
    value = change(_get(before, key))
    if value == _get(before, key):
        return old
    try:
        document = tomlkit.parse(old.removeprefix(_BOM))
        _put(document, key, value)
        new = tomlkit.dumps(document)
        if not new.endswith("\n") and (old.endswith("\n") or not old):
            new += "\n"
        if "\r\n" in old and not re.search(r"(?<!\r)\n", old):
            new = re.sub(r"(?<!\r)\n", "\r\n", new)
        after = parse_toml(new)
    except (TOMLKitError, Unparsable, TypeError, ValueError, AttributeError, KeyError) as error:
        raise UsageError(f"{path}: {key} cannot be changed here ({error}). Edit the file by hand.") from None
    if _without(after, key) != _without(before, key) or _get(after, key) != value:
        raise UsageError(f"{path}: {key} cannot be changed without touching other values. Edit the file by hand.")
    return _BOM + new if old.startswith(_BOM) else new


def _put(document: MutableMapping[str, Any], key: str, value: Any) -> None:
    import tomlkit

    *groups, name = key.split(".")
    node = document
    for group in groups:
        if group not in node:
            node[group] = tomlkit.table()
        node = node[group]
        if not isinstance(node, MutableMapping):
            raise TypeError(f"{group} is not a table")
    if value is ABSENT:
        node.pop(name, None)
    elif isinstance(value, list) and isinstance(node.get(name), list):
        _update_array(node[name], value)
    elif name in node:
        node[name] = value
    else:
        _append(node, name, value)


def _append(node: Any, name: str, value: Any) -> None:
    """Add a key behind the last one of a table, not behind the comments that introduce the next table."""
    from tomlkit.items import InlineTable

    body = None if isinstance(node, InlineTable) else getattr(getattr(node, "value", node), "body", None)
    tail = []
    while body and body[-1][0] is None:
        tail.append(body.pop())
    node[name] = value
    if body is not None:
        body.extend(reversed(tail))


def _update_array(array: Any, value: list[Any]) -> None:
    """Change an array in place, so that its layout and comments stay."""
    for index in reversed(range(len(array))):
        if array[index] not in value:
            del array[index]
    for item in value:
        if item not in array:
            array.append(item)
    if list(array) != value:
        array[:] = value
    if "\n" not in array.as_string() and len(array.as_string()) > LINE:
        array.multiline(True)


def _get(data: Mapping[str, Any], key: str) -> Any:
    node: Any = data
    for name in key.split("."):
        if not isinstance(node, Mapping) or name not in node:
            return ABSENT
        node = node[name]
    return node


def _without(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The values beside one key; tables that hold nothing else do not count."""
    name, _, rest = key.partition(".")
    copy = dict(data)
    inner = copy.pop(name, None)
    if rest and isinstance(inner, Mapping):
        left = _without(inner, rest)
        if left:
            copy[name] = left
    return copy


def _loses(old: str, new: str, key: str) -> bool:
    """Whether the change takes away a value, or an item of a list."""
    before, after = _get(parse_toml(old), key), _get(parse_toml(new), key)
    if isinstance(before, list) and isinstance(after, list):
        return any(item not in after for item in before)
    return before is not ABSENT


def _keep_out_of_git(path: Path) -> None:
    """Keep a new local settings file out of commits, where the project does not say anything itself."""
    ignore = path.parent / ".gitignore"
    if path.name == "settings.local.toml" and not os.path.lexists(ignore):
        atomic.replace(ignore, _IGNORED.encode(), mode=0o644)
