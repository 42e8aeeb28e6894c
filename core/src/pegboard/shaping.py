"""Shapes of a call's ends: raw input to model, output to data, text to its budget, ledger to words.

Pure functions of the pipeline, kept apart so that each can be tested alone.
"""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any

from pegboard.call import EffectState, Ledger, Status, Text
from pegboard.errors import Code, Refusal

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pegboard.manifest import Manifest
    from pegboard.tool import Context

SHOWN_INPUT = 120
"""Characters of a wrong value that an error message quotes."""


def parse_input(
    model: type[BaseModel], raw: dict[str, Any], manifest: Manifest, places: dict[str, str]
) -> tuple[BaseModel, list[str]]:
    """Validate raw input; returns the model and the names of fields that were coerced.

    An optional null counts as absent, a deprecated field of the manifest is dropped, JSON text is accepted where a
    list or an object is wanted. Raises `Refusal` (invalid_input) that names every problem and its field.
    """
    from pydantic import ValidationError

    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    given = {
        key: value
        for key, value in raw.items()
        if key not in manifest.ignored and not (value is None and key in fields and not fields[key].is_required())
    }
    coerced = [key for key in manifest.ignored if key in raw]
    try:
        return model.model_validate(given, context=places), coerced
    except ValidationError as error:
        repaired = _parse_embedded(given, error)
        if repaired is not None:
            try:
                return model.model_validate(repaired, context=places), [*coerced, "json"]
            except ValidationError as again:
                error = again
        problems = "; ".join(_problem(item) for item in error.errors(include_url=False))
        known = ", ".join(fields)
        raise Refusal(
            Code.INVALID_INPUT,
            f"The input does not fit {manifest.name}: {problems}.",
            hint=f"Fields of {manifest.name}: {known}." if known else f"{manifest.name} takes no fields.",
        ) from None


def _parse_embedded(given: dict[str, Any], error: Any) -> dict[str, Any] | None:
    """The same input with JSON text parsed where a container was wanted; None when there is nothing to parse."""
    changed = dict(given)
    for item in error.errors(include_url=False):
        key = item["loc"][0] if item["loc"] else None
        if len(item["loc"]) == 1 and item["type"] in ("list_type", "dict_type", "model_type") and key in changed:
            value = changed[key]
            if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
                try:
                    changed[key] = json.loads(value)
                except ValueError:
                    continue
    return changed if changed != given else None


def _problem(item: Any) -> str:
    place = ".".join(str(part) for part in item["loc"]) or "input"
    kind = item["type"]
    if kind == "missing":
        return f"{place} is required"
    if kind == "extra_forbidden":
        return f"{place} is not a field of this tool"
    said: str = item["msg"].removeprefix("Value error, ")
    shown = repr(item.get("input"))
    if len(shown) > SHOWN_INPUT:
        shown = shown[:SHOWN_INPUT] + "…"
    return f"{place}: {said[:1].lower() + said[1:]} (got {shown.encode('ascii', 'backslashreplace').decode()})"


def dump_output(output: BaseModel) -> dict[str, Any]:
    """An output model as JSON-ready data; fields whose default is null are left out while they are null."""
    data: dict[str, Any] = output.model_dump(mode="json", by_alias=True)
    for name, field in type(output).model_fields.items():
        key = field.serialization_alias or field.alias or name
        if data.get(key) is None and not field.is_required() and field.default is None:
            data.pop(key, None)
    return data


def fit(text: Text, budget: int, ctx: Context) -> Text:
    """Cut text that is over ``budget`` characters; the whole is kept in a file that the cut text names."""
    if isinstance(text, str):
        return _fit_text(text, budget, ctx)
    room = budget
    blocks = []
    for block in text:
        if block.get("type") == "text":
            block = {**block, "text": _fit_text(block["text"], room, ctx)}
            room = max(0, room - len(block["text"]))
        blocks.append(block)
    return blocks


def _fit_text(text: str, budget: int, ctx: Context) -> str:
    if len(text) <= budget:
        return text
    path = ctx.attach("output.txt", text)
    notice = "[Cut here: {:,} of {:,} characters are shown. The whole is in {}; read it there, or narrow the call.]"
    kept = cut(text, max(0, budget - len(notice) - len(str(path)) - 16))
    return f"{kept}\n{notice.format(len(kept), len(text), path)}"


def cut(text: str, limit: int) -> str:
    """The longest head of ``text`` within ``limit`` characters that ends on a line boundary.

    One line that is longer than the limit is cut between graphemes and outside escape sequences.
    """
    if len(text) <= limit:
        return text
    end = text.rfind("\n", 0, limit + 1)
    if end > 0:
        return text[:end]
    end = limit
    while end > 0 and _joins(text, end):
        end -= 1
    escape = text.rfind("\x1b", max(0, end - 32), end)
    if escape >= 0 and not any(char.isalpha() for char in text[escape + 1 : end]):
        end = escape
    return text[:end]


def _joins(text: str, index: int) -> bool:
    """Whether the characters on both sides of ``index`` belong to one grapheme (close enough to Unicode's rules)."""
    here, before = text[index], text[index - 1]
    return (
        unicodedata.combining(here) != 0
        or unicodedata.category(here) in ("Mn", "Me", "Mc")
        or here in "\u200d\ufe0e\ufe0f"
        or before == "\u200d"
        or "\U0001f3fb" <= here <= "\U0001f3ff"
        or ("\U0001f1e6" <= here <= "\U0001f1ff" and "\U0001f1e6" <= before <= "\U0001f1ff")
        or (before == "\r" and here == "\n")
    )


def add_notes(text: Text, notes: list[str]) -> Text:
    """Put notices below the text, one in brackets on each line."""
    if not notes:
        return text
    tail = "\n".join(f"[{note}]" for note in notes)
    if isinstance(text, str):
        return f"{text}\n\n{tail}" if text else tail
    return [*text, {"type": "text", "text": tail}]


def known_effects(ledger: Ledger, status: Status) -> str:
    """The first line of a result that did not end well: what is known to have happened."""
    standing = ledger.standing()
    done = [f"{entry.kind} {entry.target}" for entry in standing if entry.state is EffectState.DONE]
    maybe = [f"{entry.kind} {entry.target}" for entry in standing if entry.state is EffectState.OPEN]
    if status is Status.UNMAPPED:
        what = f"It changed {_listed(done + maybe)}" if standing else "It changed nothing"
        return f"The action happened, but its result was lost. {what}."
    said = []
    if done:
        said.append(f"This happened: {_listed(done)}.")
    if maybe:
        said.append(f"This may have happened: {_listed(maybe)}.")
    return " ".join(said)


def _listed(items: list[str], most: int = 5) -> str:
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def one_line(error: Exception, most: int = 300) -> str:
    """An exception's text on one line, cut."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else text[:most] + "…"
