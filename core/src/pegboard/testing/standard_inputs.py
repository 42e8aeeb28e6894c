"""Standard tests of what a tool takes: unknown, missing, null and almost right fields, and its bad cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pegboard.call import Status
from pegboard.errors import Code, Refusal
from pegboard.testing.exam import Exam
from pegboard.testing.sessions import Listener

if TYPE_CHECKING:
    from pegboard.testing.suite import Case

STRANGER = "no_such_field_here"


class InputTests(Exam):
    """One documented rule for inputs, the same for every tool."""

    def test_unknown_fields_are_refused(self) -> None:
        """A field the tool does not know is named, nothing runs, and no hook hears of the call."""
        item = self.good[0]
        heard = Listener()
        bench = self.bench(item, hooks=[heard])
        given = {**item.given(bench.folder), STRANGER: 1}
        outcome = self.run(lambda: bench.once(self.tool, given))
        assert (outcome.status, outcome.code) == (Status.NOT_STARTED, Code.INVALID_INPUT), outcome.plain()
        assert STRANGER in outcome.plain()
        assert not heard.before, "a hook was asked about an input that does not fit the schema"

    def test_required_fields_are_named(self) -> None:
        """Without a required field the call is refused, and the text says which one is missing."""
        item = self.good[0]
        for name, field in self.tool_class().Input.model_fields.items():
            key = field.alias or name
            if not field.is_required():
                continue
            bench = self.bench(item)
            given = {part: value for part, value in item.given(bench.folder).items() if part != key}
            with pytest.raises(Refusal) as refused:
                self.parsed(bench, given)
            assert refused.value.code == Code.INVALID_INPUT
            assert key in refused.value.text

    def test_null_counts_as_absent(self) -> None:
        """Models send null for what they leave out; an optional null is the same as no field."""
        item = self.good[0]
        bench = self.bench(item)
        given = item.given(bench.folder)
        plain = self.parsed(bench, given)
        for name, field in self.tool_class().Input.model_fields.items():
            key = field.alias or name
            if not field.is_required() and key not in given:
                assert self.parsed(bench, {**given, key: None}) == plain, f"{key}: null is not the same as absent"

    def test_safe_coercions(self) -> None:
        """``"5"`` is taken for 5 and ``"true"`` for true; the meaning of the call is the same."""
        for item in self.good:
            bench = self.bench(item)
            given = item.given(bench.folder)
            plain = self.parsed(bench, given)
            for key, value in given.items():
                if isinstance(value, bool | int):
                    text = str(value).lower()
                    assert self.parsed(bench, {**given, key: text}) == plain, f"{key}: {text!r} is not {value!r}"

    @pytest.mark.parametrize("given", ["{not json", [1], 7], ids=["text", "list", "number"])
    def test_inputs_that_are_no_object(self, given: Any) -> None:
        """An input that is no JSON object is answered, never run."""
        bench = self.bench(self.good[0])
        outcome = self.run(lambda: bench.once(self.tool, given))
        assert (outcome.status, outcome.code) == (Status.NOT_STARTED, Code.INVALID_INPUT)

    def test_bad_cases_end_with_their_code(self, bad_case: Case) -> None:
        """A refusal has a code of the closed list, a text that says what to do, and the class its ledger allows."""
        outcome = self.outcome(bad_case)
        assert outcome.is_error, f"{bad_case} was expected to fail and said: {outcome.plain()}"
        assert outcome.code == bad_case.code, f"{bad_case}: {outcome.code}: {outcome.plain()}"
        for text in bad_case.says:
            assert text in outcome.plain(), f"{bad_case} does not say {text!r}: {outcome.plain()}"
        assert not outcome.plain().lower().startswith("error:")
        assert "Traceback" not in outcome.plain()
