"""The exam that every tool takes: a few cases of its own, and about thirty standard tests that follow from them.

    class TestRead(ToolSuite):
        tool = "Read"
        good = [case({"file_path": "{tmp}/a.txt"}, files={"a.txt": "x\\n"}, says="1\\tx")]
        bad = [case({"file_path": "{tmp}/none"}, code="not_found")]

Which tests apply follows from the manifest. None can be taken out; what a tool cannot pass is marked
``@pytest.mark.xfail(reason=...)`` on an override, so that the exemption and its reason stand in the open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pegboard.testing.standard_calls import CallTests
from pegboard.testing.standard_data import DataTests
from pegboard.testing.standard_effects import EffectTests
from pegboard.testing.standard_inputs import InputTests

PLACE = "{tmp}"
"""Stands for the working folder, anywhere in the texts of a case."""


@dataclass(frozen=True)
class Case:
    """One call of the tool under test, the files it finds, and what must come of it. Made by `case`."""

    input: Mapping[str, Any]
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    code: str | None = None
    before: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    leaves: Mapping[str, str | bytes | None] = field(default_factory=dict)
    make: Callable[[Path], None] | None = None

    def prepare(self, folder: Path) -> None:
        """Put the files of the case into the working folder."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        if self.make is not None:
            self.make(folder)

    def given(self, folder: Path) -> dict[str, Any]:
        """The input, with the working folder filled in."""
        filled: dict[str, Any] = fill(self.input, folder)
        return filled

    def __str__(self) -> str:
        text = ", ".join(f"{key}={value!r}" for key, value in self.input.items())
        return text if len(text) <= 60 else text[:59] + "…"


def case(
    input: Mapping[str, Any],
    *,
    files: Mapping[str, str | bytes] | None = None,
    says: str | Sequence[str] = (),
    code: str | None = None,
    before: Sequence[tuple[str, Mapping[str, Any]]] = (),
    settings: Mapping[str, Any] | None = None,
    leaves: Mapping[str, str | bytes | None] | None = None,
    make: Callable[[Path], None] | None = None,
) -> Case:
    """One case of a suite.

    ``files``: what lies in the working folder, by relative name. ``make(folder)``: builds what a text cannot, such
    as links. ``before``: calls of other tools that come first, as (tool, input). ``says``: texts that the result
    must contain. ``code``: the error code it must end with. ``leaves``: content of files afterwards; None = absent.
    ``{tmp}`` stands for the working folder, in every text.
    """
    return Case(
        input=input,
        files=files or {},
        says=(says,) if isinstance(says, str) else tuple(says),
        code=code,
        before=tuple(before),
        settings=settings or {},
        leaves=leaves or {},
        make=make,
    )


def fill(value: Any, folder: Path) -> Any:
    """``value`` with the working folder in place of ``{tmp}``, at any depth."""
    if isinstance(value, str):
        return value.replace(PLACE, str(folder))
    if isinstance(value, Mapping):
        return {key: fill(item, folder) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill(item, folder) for item in value]
    return value


class ToolSuite(DataTests, InputTests, CallTests, EffectTests):
    """Subclass it, name the tool, give it good and bad cases. Everything else is inherited."""

    tool: ClassVar[str] = ""
    """The tool's name. The distribution that brings it must be installed (an editable install will do)."""
    good: ClassVar[Sequence[Case]] = ()
    """Calls that must work."""
    bad: ClassVar[Sequence[Case]] = ()
    """Calls that must fail with a code."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.tool or not cls.good or not cls.bad:
            raise TypeError(f"{cls.__name__} must name its tool and give at least one good and one bad case.")
        careless = [str(item) for item in cls.bad if item.code is None]
        if careless:
            raise TypeError(f"{cls.__name__}: these bad cases name no code: {'; '.join(careless)}")
        for name in standard_tests():
            own = cls.__dict__.get(name, ToolSuite)
            if own is not ToolSuite and not _excused(own):
                raise TypeError(
                    f"{cls.__name__} takes out the standard test {name}. Pass it, or keep it and mark the override "
                    'with @pytest.mark.xfail(reason="...").'
                )

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give each test that takes a case one run for each case."""
        for name, cases in (("good_case", self.good), ("bad_case", self.bad), ("any_case", (*self.good, *self.bad))):
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, cases, ids=[f"{index}" for index in range(len(cases))])


def standard_tests() -> list[str]:
    """Names of the standard tests, in order of definition."""
    return [name for part in reversed(ToolSuite.__mro__) for name in vars(part) if name.startswith("test_")]


def _excused(function: Any) -> bool:
    marks = getattr(function, "pytestmark", ())
    return callable(function) and any(mark.name == "xfail" and mark.kwargs.get("reason") for mark in marks)
