"""Answers in the shape of a JSON schema: told to the model, checked at the end of each run, asked for again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pegboard.context import prompt
from pegboard.errors import UsageError
from pegboard.events import Ended, Event, UserText
from pegboard.hooks import Fragment, Verdict, hook

if TYPE_CHECKING:
    from pegboard.agent import RunResult
    from pegboard.session import Session

RETRIES = 5
"""[D] How often a wrong answer is asked for again."""

FAULTS = 10
"""[C] Most faults that the model is told of at once."""

ABSENT = object()


class Structured:
    """A plug-in of one run that keeps its answers to a schema."""

    def __init__(self, schema: Any) -> None:
        """Raises `UsageError` when it is no schema, or the validator is not installed."""
        self._schema = schema
        self._validator = _validator(schema)
        self._value: Any = ABSENT
        self._faults: list[str] = []
        self._tries = 0

    @classmethod
    def read(cls, given: str) -> Structured:
        """From the schema itself or the file that holds it. Raises `UsageError`."""
        text = given
        if not given.lstrip().startswith(("{", "true", "false")):
            try:
                text = Path(given).read_text("utf-8")
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise UsageError(f"--json-schema: {given} cannot be read: {reason}.") from None
        try:
            return cls(json.loads(text))
        except ValueError as error:
            raise UsageError(f"--json-schema: this is not JSON: {error}.") from None

    @hook
    def peg_context(self, session: Session) -> Iterable[Fragment]:
        """What the model must know of it; always the same, so it is said once."""
        return [Fragment("json-schema", f"{prompt('answer_schema')}\n{json.dumps(self._schema, ensure_ascii=False)}")]

    @hook
    async def peg_before_event(self, event: Event, session: Session) -> Verdict | None:
        """Before a run ends: is its answer what was asked for? A new prompt begins to count anew."""
        if isinstance(event, UserText):
            self._value, self._faults, self._tries = ABSENT, [], 0
        if not isinstance(event, Ended) or event.agent != "main":
            return None
        self._value, self._faults = self._check(event.text)
        if not self._faults or self._tries == RETRIES:
            return None
        self._tries += 1
        return Verdict("deny", "\n".join([prompt("answer_invalid"), *self._faults]))

    def fields(self, run: RunResult) -> dict[str, Any]:
        """What the result of a run says of it."""
        if run.stopped is not None or run.is_error:
            return {}
        if not self._faults and self._value is not ABSENT:
            return {"structured_output": self._value}
        return {
            "subtype": "error_max_structured_output_retries",
            "is_error": True,
            "terminal_reason": "max_structured_output_retries",
            "errors": [f"The answer does not fit the JSON schema, after {self._tries} more tries.", *self._faults],
        }

    def _check(self, text: str) -> tuple[Any, list[str]]:
        try:
            value = json.loads(_bare(text), parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            return ABSENT, [f"The answer is not JSON: {error}"]
        try:
            faults = sorted(self._validator.iter_errors(value), key=lambda fault: fault.json_path)
        except Exception as error:  # a reference that leads nowhere shows only when it is followed
            return ABSENT, [f"The schema cannot be applied: {error}"]
        return value, [f"{fault.json_path}: {fault.message[:300]}" for fault in faults[:FAULTS]]


def _bare(text: str) -> str:
    """The JSON of an answer: all of it, or what stands in the one code fence around it."""
    text = text.strip()
    lines = text.splitlines()
    if len(lines) > 2 and lines[0].startswith("```") and lines[-1] == "```":
        return "\n".join(lines[1:-1])
    return text


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _validator(schema: Any) -> Any:
    try:
        import jsonschema  # type: ignore[import-untyped]
        from referencing import Registry
    except ImportError:
        raise UsageError(
            "--json-schema needs the package jsonschema, which is not installed: pip install 'pegboard-core[schema]'"
        ) from None
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise UsageError(f"--json-schema: this is no JSON schema: {error.json_path}: {error.message}.") from None
    return kind(schema, registry=Registry())  # nothing is ever fetched
