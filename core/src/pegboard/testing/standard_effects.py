"""Standard tests of effects: what the ledger says, what the declared accesses say, and what really happened."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import anyio

from pegboard.call import Outcome, Status
from pegboard.errors import Code, Refusal
from pegboard.testing.effects import Watch, changed, is_below, tree, undeclared, untrue
from pegboard.testing.exam import LEGAL, Exam
from pegboard.testing.steps import interrupted

if TYPE_CHECKING:
    from pegboard.testing.sessions import Bench
    from pegboard.testing.suite import Case

ABORT_SECONDS = 10.0
"""[C] An aborted call answers within a second; the limit leaves room for a busy machine, not for a hang."""

MOST_STOPS = 40
"""[C] Places at which a call is aborted; of more suspensions than this, evenly spread ones are taken."""


class EffectTests(Exam):
    """Effects are true. Reads write nothing, writes write only what they say, aborts leave no half truth."""

    def test_check_changes_nothing(self, any_case: Case) -> None:
        """``check`` may refuse; it must not write, start or open anything that changes the tree."""
        bench = self.bench(any_case)
        tool = self.tool_class()()

        async def work() -> None:
            async with bench:
                await self._before_gently(bench, any_case)
                before = tree(bench.folder, bench.places.home)
                ctx = self.context(bench)
                with Watch() as watch, contextlib.suppress(Refusal):
                    await tool.check(self.parsed(bench, any_case.given(bench.folder)), ctx)
                written = [f"{item.event} {item.path}" for item in watch.below(bench.folder)]
                assert not written, f"check wrote: {written}"
                assert not changed(before, tree(bench.folder, bench.places.home))
                assert not ctx._ledger.effects, "check opened an effect"

        self.run(work)

    async def _before_gently(self, bench: Bench, item: Case) -> None:
        from pegboard.testing.suite import fill

        for tool, given in item.before:
            await bench.call(tool, fill(given, bench.folder))

    def test_effects_are_true(self, any_case: Case) -> None:
        """Every path that changed is named by a file effect that was open while it changed, and nothing else did."""
        bench = self.bench(any_case)

        async def work() -> tuple[Outcome, Watch, list[str]]:
            async with bench:
                await self._before_gently(bench, any_case)
                bench.found(self.tool)  # the gate may look at engines the first time it is asked
                before = tree(bench.folder)
                with Watch() as watch:
                    outcome = await bench.call(self.tool, any_case.given(bench.folder))
                after = tree(bench.folder)
                return outcome, watch, untrue(before, after, watch, outcome.effects)

        outcome, watch, problems = self.run(work)
        assert not problems, "\n".join(problems)
        if "file" not in self.manifest.effects and "process" not in self.manifest.effects:
            written = [f"{item.event} {item.path}" for item in watch.below(bench.folder)]
            assert not written, f"the manifest lists no file effect, and the call wrote: {written}"
        if "process" not in self.manifest.effects and not self.manifest.needs:
            assert not watch.processes, f"the manifest lists no process effect, and the call started {watch.processes}"
        if not {"network", "remote"} & set(self.manifest.effects) and not self._may_contact():
            assert not watch.hosts, f"the call talked to {watch.hosts}"
        relative = [
            effect.target for effect in outcome.effects if effect.kind == "file" and not os.path.isabs(effect.target)
        ]
        assert not relative, f"file effects name absolute paths: {relative}"

    def _may_contact(self) -> bool:
        return any("web" in owner for owner in self.manifest.owners) or self.tool.startswith("Web")

    def test_nothing_is_written_outside(self, any_case: Case) -> None:
        """The home folder stays as it was, the managed folder too, and no temporary file is left."""
        bench = self.bench(any_case)
        rooms = (bench.outside, bench.places.managed_dir, bench.temporary)

        async def work() -> None:
            async with bench:
                await self._before_gently(bench, any_case)
                before = tree(*rooms)
                await bench.call(self.tool, any_case.given(bench.folder))
                left = [
                    path for path in changed(before, tree(*rooms)) if not is_below(path, str(bench.places.user_dir))
                ]
                assert not left, f"outside the working folder this changed: {left}"

        self.run(work)

    def test_accesses_cover_every_change(self, good_case: Case) -> None:
        """What changed was declared: rules, locks and questions speak about the declared accesses only."""
        bench = self.bench(good_case)

        async def work() -> list[str]:
            async with bench:
                await self.before(bench, good_case)
                edits = self.edits(bench, good_case)
                before = tree(bench.folder)
                outcome = await bench.call(self.tool, good_case.given(bench.folder))
                if any(effect.kind == "process" for effect in outcome.effects):
                    return []
                return undeclared(before, tree(bench.folder), edits)

        missed = self.run(work)
        assert not missed, f"no declared edit access covers: {missed}"

    def test_accesses_are_absolute_paths(self, good_case: Case) -> None:
        """Rules match on whole paths; a relative one would mean another file in another folder."""
        bench = self.bench(good_case)
        for access in self.accesses(bench, good_case):
            if access.kind in ("read", "edit"):
                assert os.path.isabs(access.target), f"{access.kind} {access.target}"

    def test_writers_declare_what_they_touch(self, good_case: Case) -> None:
        """A call that is not of the class ``read`` and touches files says which; "not declared" is not "safe"."""
        if "file" in self.manifest.effects:
            assert self.accesses(self.bench(good_case), good_case), "the tool changes files and declares no access"

    def test_abort_before_the_start(self) -> None:
        """A call in an aborted session is ``not_started``/``cancelled`` and changes nothing."""
        good = self.good[0]
        bench = self.bench(good)

        async def work() -> Outcome:
            async with bench:
                await self.before(bench, good)
                before = tree(bench.folder)
                bench.session.abort()
                outcome = await bench.call(self.tool, good.given(bench.folder))
                assert not changed(before, tree(bench.folder))
                return outcome

        outcome = self.run(work)
        assert (outcome.status, outcome.code) == (Status.NOT_STARTED, Code.CANCELLED)

    def test_abort_at_every_await(self, good_case: Case) -> None:
        """Aborted at any await, the call answers soon, with a class that the tree bears out."""
        total, _, _ = self._aborted(good_case, None)
        stops = range(total) if total <= MOST_STOPS else [total * n // MOST_STOPS for n in range(MOST_STOPS)]
        for stop in stops:
            _, outcome, problems = self._aborted(good_case, stop)
            where = f"aborted at await {stop} of {total}"
            assert outcome.retry.value in LEGAL[outcome.status], where
            assert outcome.code in (None, Code.CANCELLED, Code.UNKNOWN_OUTCOME), f"{where}: {outcome.plain()}"
            assert not problems, f"{where} ({outcome.status}): " + "; ".join(problems)

    def _aborted(self, item: Case, at: int | None) -> tuple[int, Outcome, list[str]]:
        bench = self.bench(item)
        before: dict[str, object] = {}

        async def work() -> tuple[Outcome, int]:
            async with bench:
                await self.before(bench, item)
                before.update(tree(bench.folder))
                started = time.monotonic()
                with anyio.fail_after(ABORT_SECONDS):
                    result = await interrupted(
                        lambda: bench.call(self.tool, item.given(bench.folder)), at, bench.session.abort
                    )
                assert time.monotonic() - started < ABORT_SECONDS
                return result

        outcome, count = self.run(work)
        after = tree(bench.folder)
        problems = untrue(before, after, Watch(), outcome.effects)  # type: ignore[arg-type]
        if outcome.status is Status.NOT_STARTED and changed(before, after):  # type: ignore[arg-type]
            problems.append(f"not_started, but {changed(before, after)} changed")  # type: ignore[arg-type]
        problems += [f"{path} was left in the temporary folder" for path in tree(bench.temporary)]
        return count, outcome, problems
