"""Standard tests of whole calls: results, repeats, crashes, budgets, batches, rules and questions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pegboard.call import Call, Outcome, Status, json_safe
from pegboard.errors import Code
from pegboard.host import Host
from pegboard.testing.effects import changed, tree
from pegboard.testing.exam import ENVELOPE, LEGAL, Exam
from pegboard.testing.sessions import Listener, Willing
from pegboard.tool import AccessKind

if TYPE_CHECKING:
    from pegboard.testing.suite import Case

FAULTS = (Code.TOOL_CRASHED, Code.MAPPING_FAILED)
"""Codes that speak of a fault of the plug-in."""

RULES = {AccessKind.READ: "Read(/{})", AccessKind.EDIT: "Edit(/{})", AccessKind.FETCH: "WebFetch(domain:{})"}
"""Access kind -> the rule that covers its target."""


class CallTests(Exam):
    """Every call ends in one honest outcome."""

    def test_good_cases_work(self, good_case: Case) -> None:
        """A good case ends well, says what it should and leaves the files it should."""
        bench = self.bench(good_case)

        async def work() -> Outcome:
            async with bench:
                return await self.attempt(bench, good_case)

        outcome = self.run(work)
        assert not outcome.is_error, f"{good_case}: {outcome.code}: {outcome.plain()}"
        for text in good_case.says:
            assert text in outcome.plain(), f"{good_case} does not say {text!r}: {outcome.plain()}"
        for name, content in good_case.leaves.items():
            path = bench.folder / name
            wanted = content.encode("utf-8") if isinstance(content, str) else content
            assert (path.read_bytes() if path.exists() else None) == wanted, f"{good_case} left another {name}"

    def test_outcomes_are_legal(self, any_case: Case) -> None:
        """Class, code and retry belong together; effects are of the kinds that the manifest lists."""
        outcome = self.outcome(any_case)
        assert outcome.retry.value in LEGAL[outcome.status]
        assert (outcome.code is None) == (not outcome.is_error)
        assert {effect.kind.value for effect in outcome.effects} <= set(self.manifest.effects)

    def test_envelopes_are_whole_and_json(self, any_case: Case) -> None:
        """`peg call` prints these keys, and the result can be written as UTF-8 JSON as it stands."""
        outcome = self.outcome(any_case)
        envelope = outcome.envelope(Call(id="one", tool=self.tool, input={}))
        assert envelope.keys() == ENVELOPE
        json.dumps(json_safe(envelope), ensure_ascii=False, allow_nan=False).encode("utf-8")
        assert json_safe(outcome.text) == outcome.text, "the text holds half a character"

    def test_output_fits_its_schema(self, good_case: Case) -> None:
        """The structured output is what the published schema says."""
        jsonschema = pytest.importorskip("jsonschema")
        outcome = self.outcome(good_case)
        schema = json.loads((self.folder / "schema.json").read_text("utf-8"))["output"]
        jsonschema.validate(outcome.data, schema)

    def test_a_repeat_is_legal(self, good_case: Case) -> None:
        """The same call again in the same session works or is refused with a code; it never breaks the tool."""
        bench = self.bench(good_case)

        async def work() -> Outcome:
            async with bench:
                await self.attempt(bench, good_case)
                return await bench.call(self.tool, good_case.given(bench.folder))

        outcome = self.run(work)
        assert outcome.code not in FAULTS, outcome.plain()
        assert outcome.retry.value in LEGAL[outcome.status]

    def test_every_call_gets_one_result(self) -> None:
        """A batch with a good, a bad and an unknown call gives three results, in order, each told once."""
        good, bad = self.good[0], self.bad[0]
        host = Willing()
        bench = self.bench(good, host=host)
        bad.prepare(bench.folder)

        async def work() -> list[Outcome]:
            async with bench:
                await self.before(bench, good)
                host.results.clear()
                inputs = [(self.tool, good), (self.tool, bad), ("NoSuchTool", good)]
                return await bench.calls([(name, item.given(bench.folder)) for name, item in inputs])

        outcomes = self.run(work)
        assert len(outcomes) == 3
        assert outcomes[2].code == Code.UNKNOWN_TOOL
        assert sorted(host.results) == ["call-1", "call-2", "call-3"]

    def test_calls_of_its_class_do_not_overlap(self) -> None:
        """Calls that are not of the classes ``read`` and ``spawn`` run one after the other, in order."""
        if self.manifest.concurrency in ("read", "spawn"):
            return
        good = self.good[0]
        running, most, order = 0, 0, []
        original = self.tool_class().run

        async def run(tool: Any, input: Any, ctx: Any) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            order.append(ctx.call_id)
            try:
                return await original(tool, input, ctx)
            finally:
                running -= 1

        bench = self.bench(good)

        async def work() -> None:
            async with bench:
                bench.swap(self.tool, self.variant(run=run))
                await self.before(bench, good)
                await bench.calls([(self.tool, good.given(bench.folder))] * 3)

        self.run(work)
        assert most <= 1, "two calls of the tool ran at once"
        assert order == sorted(order), "the calls of one message ran out of order"

    def test_a_crash_names_the_plugin(self) -> None:
        """A programming error becomes ``tool_crashed`` with the plug-in's name; the session goes on."""

        async def run(tool: Any, input: Any, ctx: Any) -> Any:
            raise ZeroDivisionError("a fault on purpose")

        good = self.good[0]
        bench = self.bench(good)

        async def work() -> tuple[Outcome, Outcome]:
            async with bench:
                await self.before(bench, good)
                bench.swap(self.tool, self.variant(run=run))
                crashed = await bench.call(self.tool, good.given(bench.folder))
                bench.swap(self.tool, self.tool_class()())
                return crashed, await bench.call(self.tool, good.given(bench.folder))

        crashed, after = self.run(work)
        assert (crashed.status, crashed.code) == (Status.NOT_STARTED, Code.TOOL_CRASHED)
        assert self.entry().dist is not None and self.entry().dist.name in crashed.plain(), crashed.plain()  # type: ignore[union-attr]
        assert "Traceback" not in crashed.plain()
        assert not after.is_error, after.plain()

    def test_a_lost_result_is_unmapped(self) -> None:
        """When the result cannot be put in words, the text says that the action happened."""

        def render(tool: Any, output: Any, ctx: Any) -> str:
            raise ValueError("no words")

        good = self.good[0]
        bench = self.bench(good)

        async def work() -> Outcome:
            async with bench:
                await self.before(bench, good)
                bench.swap(self.tool, self.variant(render=render))
                return await bench.call(self.tool, good.given(bench.folder))

        outcome = self.run(work)
        assert (outcome.status, outcome.code) == (Status.UNMAPPED, Code.MAPPING_FAILED)
        assert "happened" in outcome.plain()

    def test_long_output_is_cut(self) -> None:
        """Text over the budget is cut with a notice that says how much there was and where the rest is."""

        def render(tool: Any, output: Any, ctx: Any) -> str:
            return "a line of text\n" * (self.manifest.budget // 10)

        good = self.good[0]
        bench = self.bench(good)

        async def work() -> Outcome:
            async with bench:
                await self.before(bench, good)
                bench.swap(self.tool, self.variant(render=render))
                return await bench.call(self.tool, good.given(bench.folder))

        outcome = self.run(work)
        assert not outcome.is_error
        assert len(outcome.plain()) <= self.manifest.budget + 1_000, "the text is far over the budget"
        assert "[Cut here" in outcome.plain()
        assert outcome.attachments, "the whole output was not kept"

    def test_without_any_other_tool(self, good_case: Case) -> None:
        """The tool works, or refuses with a code, where no other tool is there."""
        bench = self.bench(good_case, only=[self.tool])
        outcome = self.run(lambda: bench.once(self.tool, good_case.given(bench.folder)))
        assert outcome.code not in FAULTS, outcome.plain()
        assert outcome.code != Code.UNKNOWN_TOOL, outcome.plain()
        if not good_case.before:
            assert not outcome.is_error, outcome.plain()

    def test_deny_rules_stop_it(self, good_case: Case) -> None:
        """A deny rule on anything the call would touch stops it before ``run``, and the tree stays as it was."""
        probe = self.bench(good_case)
        rules = [self.tool]
        for access in self.accesses(probe, good_case):
            if access.kind in RULES:
                rules.append(RULES[access.kind].format(access.target))
        for rule in rules:
            self._stopped_by(rule, good_case, str(probe.folder))

    def _stopped_by(self, rule: str, item: Case, place: str) -> None:
        bench = self.bench(item)
        started = []

        async def run(tool: Any, input: Any, ctx: Any) -> Any:
            started.append(ctx.call_id)
            raise AssertionError("a denied call was run")

        async def work() -> Outcome:
            async with bench:
                await self.before(bench, item)
                bench.deny(rule.replace(place, str(bench.folder)))
                bench.swap(self.tool, self.variant(run=run))
                return await bench.call(self.tool, item.given(bench.folder))

        outcome = self.run(work)
        assert not started, f"{rule} did not stop the call"
        assert outcome.status is Status.NOT_STARTED
        assert outcome.code in (Code.DENIED_BY_RULE, Code.UNKNOWN_TOOL), f"{rule}: {outcome.code}: {outcome.plain()}"

    def test_hooks_can_refuse(self) -> None:
        """A hook that says deny stops the call before ``run``, and its reason is the text."""
        good = self.good[0]
        bench = self.bench(good)

        async def work() -> Outcome:
            async with bench:
                await self.before(bench, good)
                bench.hook(Listener(decision="deny", reason="not on a Sunday"))
                return await bench.call(self.tool, good.given(bench.folder))

        outcome = self.run(work)
        assert (outcome.status, outcome.code) == (Status.NOT_STARTED, Code.DENIED_BY_HOOK)
        assert "not on a Sunday" in outcome.plain()

    def test_nobody_there_means_no(self) -> None:
        """In default mode with nobody to ask, a call that needs permission is refused and changes nothing."""
        if not self.needs_permission():
            return
        good = self.good[0]
        bench = self.bench(good)

        async def work() -> Outcome:
            async with bench:
                await self.before(bench, good)
                bench.session.host = Host()
                before = tree(bench.folder)
                outcome = await bench.call(self.tool, good.given(bench.folder))
                assert not changed(before, tree(bench.folder))
                return outcome

        outcome = self.run(work)
        assert outcome.status is Status.NOT_STARTED
        assert outcome.code in (Code.NO_USER, Code.DENIED_BY_RULE, Code.DENIED_BY_MODE), outcome.plain()
