"""One listing: run the engine, leave out what must not appear, keep the newest.

Apart from the tool, so that the steps of a walk can be read in one place.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pegboard.errors import Code, Refusal
from pegboard.tool import Context
from pegboard_ripgrep.engine import Engine
from pegboard_ripgrep.globs import Plan
from pegboard_ripgrep.ignored import IgnoredFolders
from pegboard_ripgrep.order import newest
from pegboard_ripgrep.runner import End, Limits, Run, run
from pegboard_ripgrep.view import Denies, blocks, plain, skip_folders, trouble


@dataclass
class Listing:
    """What a walk found."""

    newest: list[bytes] = field(default_factory=list)
    """Names relative to the root, newest first, equal times by name."""
    total: int = 0
    complete: bool = True
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Walk:
    """One walk below ``root`` for a plan."""

    ctx: Context
    engine: Engine
    root: Path
    plan: Plan
    prefix: str
    """What stands before names when they are shown."""

    async def listing(self) -> Listing:
        """Run the walk. Raises `Refusal` (invalid_input) with the engine's words, or (timeout) with nothing found."""
        denies = Denies.below(self.ctx, self.root)
        found: list[bytes] = []
        ended = await self._engine(["--no-ignore", *self._globs(), *denies.flags()], found)
        result = Listing(complete=ended.end is End.DONE)
        self._judge(ended, found, result)
        found += self._exact_links()
        if self.ctx.setting("glob.respect_gitignore"):
            found = await self._visible(found, result)
        elif self.ctx.setting("glob.skip_ignored_folders"):
            found = self._outside_ignored(found, result)
        if denies:
            found = [name for name in found if not denies.hides(os.fsdecode(name))]
            result.notes.append(await denies.note(self.engine, ["--no-ignore"]))
        keep = self.ctx.setting("glob.max_paths")
        result.newest, result.total = await self.ctx.thread(newest, self.root, found, keep)
        return result

    def _globs(self) -> list[str]:
        return [*(f"--glob={glob}" for glob in self.plan.globs), *skip_folders(self.plan.named)]

    async def _engine(self, flags: list[str], found: list[bytes]) -> Run:
        return await run(
            self.ctx,
            self.engine,
            ["--files", "--hidden", "--null", *flags],
            [f"./{self.plan.start}"],
            root=self.root,
            take=lambda records: found.extend(map(plain, filter(None, records))),
            separator=b"\0",
            limits=Limits(deadline=self.ctx.setting("glob.deadline_s"), stdout=200_000_000),
        )

    def _judge(self, ended: Run, found: list[bytes], result: Listing) -> None:
        problems = trouble(ended)
        if ended.end is End.DEADLINE:
            seconds = self.ctx.setting("glob.deadline_s")
            if not found:
                raise Refusal(
                    Code.TIMEOUT,
                    f"The listing did not end within {seconds} s and had found nothing by then.",
                    hint="Narrow the pattern or name a smaller folder in `path`.",
                )
            result.notes.append(f"The listing was stopped after {seconds} s; there may be more matches.")
        elif ended.crashed:
            raise Refusal(Code.IO_ERROR, f"The search engine died of signal {-(ended.exit or 0)}.")
        elif ended.exit == 2 and problems.other and not found:
            raise Refusal(
                Code.INVALID_INPUT,
                f"The pattern is not a valid glob: {blocks(problems.other)}",
                hint="Correct it; a backslash makes a special character literal.",
            )
        result.complete = result.complete and not problems.unreadable
        result.notes.append(problems.note(self.prefix))

    def _exact_links(self) -> list[bytes]:
        """Links to files that the pattern spells out; the engine lists no links at all."""
        names = []
        for part in self.plan.exact:
            path = os.path.join(self.root, part)
            folder = os.path.dirname(path)
            if os.path.islink(path) and os.path.isfile(path) and not _through_link(folder, str(self.root)):
                names.append(os.fsencode(part))
        return names

    async def _visible(self, found: list[bytes], result: Listing) -> list[bytes]:
        """What git would not ignore. Needs a walk of its own: a glob on the command line beats ignore files."""
        seen: list[bytes] = []
        flags = [] if IgnoredFolders.around(str(self.root)) else ["--no-require-git", "--no-ignore-parent"]
        ended = await self._engine(["--no-ignore-dot", *flags, *skip_folders(self.plan.named)], seen)
        kept = list(set(found).intersection(seen))
        if ended.end is not End.DONE:
            result.complete = False
            result.notes.append("The ignore rules could not be applied to the whole folder in time.")
        self._note_ignored(len(found) - len(kept), "", result)
        return kept

    def _outside_ignored(self, found: list[bytes], result: Listing) -> list[bytes]:
        judge = IgnoredFolders.around(str(self.root))
        if judge is None:
            return found
        folders: dict[bytes, str | None] = {}
        hidden: Counter[str] = Counter()
        kept: list[bytes] = []
        for name in found:
            folder = name.rpartition(b"/")[0]
            if folder not in folders:
                folders[folder] = judge.first_ignored(os.fsdecode(folder), self.plan.named)
            ignored = folders[folder]
            if ignored is None:
                kept.append(name)
            else:
                hidden[ignored] += 1
        where = ", ".join(f"{self.prefix}{folder}/" for folder, _ in hidden.most_common(3))
        more = f" and {len(hidden) - 3} more folders" if len(hidden) > 3 else ""
        self._note_ignored(hidden.total(), f" in folders ignored by git ({where}{more})", result)
        return kept

    def _note_ignored(self, count: int, where: str, result: Listing) -> None:
        if count:
            many = "1 match" if count == 1 else f"{count:,} matches"
            reason = where or " ignored by git"
            how = "; name the folder in the pattern or `path` to list them" if where else ""
            result.notes.append(f"{many}{reason} left out{how}.")


def _through_link(folder: str, root: str) -> bool:
    """Whether a link lies between the root and a folder below it."""
    straight = os.path.normpath(os.path.join(os.path.realpath(root), os.path.relpath(folder, root)))
    return os.path.realpath(folder) != straight
