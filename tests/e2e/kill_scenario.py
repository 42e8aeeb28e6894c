"""A run with every kind of local effect, a model that looks before it repeats, and what must hold after a kill.

Played by the tests of this folder (a hundred kills) and by the bench (a thousand and more).
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from pegboard.cli.audit import check
from pegboard.lines import FILE_NAME, begun, read
from pegboard.testing.faults import Ended, Fault, Stage
from pegboard.testing.messages import MessagesService

START = {"config.toml": "rate = 91\n", "README.md": "A till.\n"}
END = {
    "config.toml": "rate = 19\n",
    "README.md": "A till.\n",
    "notes.md": "The rate was turned round.\n",
    "log.txt": "built\n",
}
OPTIONS = ("--permission-mode", "acceptEdits", "--allow", "Bash", "--max-turns", "24")
TEMPORARY = re.compile(r"\.peg-\d+-[0-9a-f]{16}\.tmp")
"""What a kill in the middle of a write may leave beside a file."""


class Model:
    """Decides from the conversation alone, so it goes on after any resume. What ended badly is looked at first."""

    def __init__(self, work: Path) -> None:
        self._work = work

    def __call__(self, body: dict[str, Any]) -> Any:
        seen = list(_results(body["messages"]))
        if not any(name == "Glob" and not failed for name, _, failed, _ in seen):
            return _use(("Glob", {"pattern": "*"}), ("Grep", {"pattern": "rate"}))
        edit = {"old_string": "rate = 91", "new_string": "rate = 19"}
        wanted = (
            ("config.toml", "rate = 19", "Edit", edit),
            ("notes.md", "turned round", "Write", {"content": END["notes.md"]}),
            ("log.txt", "built", "Bash", {"command": "printf 'built\\n' >> log.txt"}),
        )
        for name, sign, tool, given in wanted:
            if call := self._next(seen, name, sign, tool, given):
                return _use(call)
        return "all done"

    def _next(self, seen: list[Any], name: str, sign: str, tool: str, given: dict[str, Any]) -> Any:
        path = str(self._work / name)
        about = [item for item in seen if item[1].get("file_path") == path or name in item[1].get("command", "")]
        look = ("Read", {"file_path": path})
        act = (tool, given if tool == "Bash" else {"file_path": path, **given})
        if not about or (about[-1][2] and about[-1][0] != "Read"):
            return look
        last, _, failed, _ = about[-1]
        texts = [text for kind, _, bad, text in about if kind == "Read" and not bad and "\t" in text]
        done = not failed and (last != "Read" or sign in "".join(texts[-1:]))
        return None if done else act


def _use(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"content": [{"type": "tool_use", "name": name, "input": given} for name, given in calls]}


def _results(messages: list[dict[str, Any]]) -> Any:
    """(tool, input, failed, text) of every result, in order."""
    calls: dict[str, Any] = {}
    for message in messages:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                calls[block["id"]] = (block["name"], block["input"])
            elif block["type"] == "tool_result":
                name, given = calls[block["tool_use_id"]]
                yield name, given, bool(block.get("is_error")), str(block.get("content"))


@contextmanager
def scene(room: Path) -> Iterator[Scene]:
    """A scene in this folder, for the length of a block."""
    room.mkdir(exist_ok=True)
    with Stage(room) as stage, MessagesService(Model(stage.work)) as service:
        yield Scene(stage, service)


class Scene:
    """A stage and a service, set up anew for every run."""

    def __init__(self, stage: Stage, service: MessagesService) -> None:
        self.stage, self.service, self.work = stage, service, stage.work
        self.home = stage.room / "home"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "PEG_MANAGED_DIR": str(stage.room / "managed"),
            "ANTHROPIC_BASE_URL": service.url,
            "ANTHROPIC_API_KEY": "sk-test",
        }
        self.objections: list[str] = []

    def begin(self) -> None:
        """Empty folders, the files of the start, no requests yet."""
        for folder in (self.work, self.home):
            for path in folder.iterdir() if folder.exists() else ():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            folder.mkdir(exist_ok=True)
        for name, text in START.items():
            (self.work / name).write_text(text)
        self.service.requests.clear()
        self.objections = []

    def play(self, fault: Fault | None = None, *, seconds: float | None = None) -> Ended:
        """The first run, which may die."""
        self.begin()
        return self.stage.run(["-p", "go", *OPTIONS], self.env, fault, seconds=seconds)

    def peg(self, *args: str) -> Ended:
        """A further command."""
        return self.stage.run(list(args), self.env)

    def resume(self) -> Ended:
        """Go on as a person would: with the latest session, or anew where there is none."""
        goes_on = ["-c"] if any(map(begun, self.transcripts)) else []
        return self.peg("-p", "go on", *goes_on, *OPTIONS)

    @property
    def transcripts(self) -> list[Path]:
        return sorted(self.home.glob(f".peg/projects/*/*/{FILE_NAME}"))

    def files(self) -> dict[str, str]:
        """What is in the working folder, without what a kill may leave."""
        found = (path for path in sorted(self.work.iterdir()) if not TEMPORARY.fullmatch(path.name))
        return {path.name: path.read_text() for path in found}

    def object(self, holds: bool, text: str) -> None:
        """Note what does not hold."""
        if not holds:
            self.objections.append(text)

    def survives(self, died: Ended, *, whole_lines: bool = True, cut: bool = False) -> list[str]:
        """Resume after a death; everything that does not hold then.

        ``cut``: a file lost bytes that no crash takes, so the record of a command may be gone, and its effect double.
        """
        before = {path: path.read_bytes() for path in self.transcripts}
        if whole_lines and before:
            self._lines_are_all_there(died, *before.values())
        done = self.resume()
        self.object(done.code == 0 and done.out == "all done\n", f"resume: {done.code} {done.out!r} {done.err!r}")
        ends = [END, {**END, "log.txt": "built\nbuilt\n"}] if cut else [END]
        self.object(self.files() in ends, f"files: {self.files()}")
        left = [path.name for path in self.work.iterdir() if TEMPORARY.fullmatch(path.name)]
        self.object(cut or not left, f"left behind: {left}")
        refused = [problem for entry in self.service.requests for problem in entry.problems]
        self.object(not refused, f"refused requests: {refused}")
        for path, old in before.items():
            self.object(not old.endswith(b"\n") or path.read_bytes().startswith(old), "the session file was rewritten")
            bad: list[int] = []
            kinds = [type(record).__name__ for record in read(path, bad)]
            self.object(len(bad) <= 1, f"unreadable lines: {bad}")
            self.object(kinds[:1] == ["Started"] or not kinds, f"first record: {kinds[:1]}")
        if not cut:
            broken = check(self.home / ".peg" / "audit").broken
            self.object(not broken, f"decision log: {broken}")
        return self.objections

    def _lines_are_all_there(self, died: Ended, raw: bytes) -> None:
        """Every line whose write returned is in the file, and at most one is there in part."""
        halves = sum(name == f"half {FILE_NAME}" for name in died.trail)
        cut = died.code == -9 and died.trail[-1:] == [f"half {FILE_NAME}"]
        whole = raw.count(b"\n")
        self.object(whole == halves - cut, f"{whole} lines are there, {halves - cut} were written")
        for line in raw.split(b"\n")[:-1]:
            msgspec.json.decode(line)

    def rewinds(self) -> list[str]:
        """Take everything back: each file is as it was, or is named."""
        points = msgspec.json.decode(self.peg("sessions", "rewind", "--json").out)
        done = self.peg("sessions", "rewind", "--to", str(points[0]["prompt"]), "--json")
        self.object(done.code == 0, f"rewind: {done.code} {done.err!r}")
        if done.code:
            return self.objections
        report = msgspec.json.decode(done.out)
        named = " ".join(item["target"] for item in [*report["kept"], *report["stays"]])
        for name, text in {**self.files(), **START}.items():
            now = self.files().get(name)
            self.object(now == START.get(name) or name in named, f"rewind left {name}: {now!r} instead of {text!r}")
        return self.objections

    def damage(self, chance: random.Random) -> str:
        """Cut one of the files that the product wrote at a random byte; says which and where."""
        written = [path for path in sorted(self.home.rglob("*")) if path.is_file() and path.stat().st_size]
        path = chance.choice(written)
        at = chance.randrange(path.stat().st_size)
        with path.open("r+b") as file:
            file.truncate(at)
        return f"{path.name} cut at {at}"
