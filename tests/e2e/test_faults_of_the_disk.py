"""A disk that is full, broken or read-only, for every file that the product writes.

Each command is run with every one of its own steps on the disk failing, by the fault kit and by limits of the kernel.
Afterwards each file has its old content or its new one, nothing is left beside it, and what happened was said.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pegboard.cli.audit import check
from pegboard.errors import Code, Refusal
from pegboard.lines import FILE_NAME
from pegboard.model import Input, Output
from pegboard.testing import tool_of
from pegboard.testing.faults import Ended, Fault, Stage
from pegboard.testing.messages import MessagesService
from pegboard.tool import Context, Tool

TIME = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.+]+Z?")
APPENDED = (FILE_NAME, "decisions.jsonl", "index.jsonl")
"""Files that only grow: a failed write may leave a part of a line, never less than there was."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "settings of the user": ("settings", "set", "model", "claude-haiku-5-5"),
    "settings of the project": ("settings", "set", "model", "claude-haiku-5-5", "--scope", "project"),
    "local settings": ("settings", "set", "model", "claude-haiku-5-5", "--scope", "local"),
    "a rule": ("policy", "add", "deny", "Bash(rm *)"),
    "rules to start with": ("policy", "starter", "--write", "user"),
    "trust": ("trust", "--yes"),
    "trust that is taken back": ("trust", "--revoke"),
    "a new file": ("call", "Write", '{"file_path": "deep/er/new.md", "content": "new\\n"}', *("--allow", "Write")),
    "a rewind": ("sessions", "rewind", "--to", "1"),
    "a copy of a session": ("-p", "go on", "-c", "--fork"),
    "a session": ("-p", "go on", "--permission-mode", "acceptEdits"),
    "the index of plug-ins": ("tools", "list"),
}
NEEDS_NO_WRITE = ("the index of plug-ins", "a new file", "a copy of a session", "a session", "a rewind")
"""Here some of what is written may fail without the end being another: an index, a log."""


class Disk:
    """A home and a project in which there is something to lose, as they were before, and the command in them."""

    def __init__(self, stage: Stage, service: MessagesService) -> None:
        self.stage, self.service = stage, service
        self.work, self.home, self.old = stage.work, stage.room / "home", stage.room / "old"
        self.env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "PEG_MANAGED_DIR": str(stage.room / "managed"),
            "ANTHROPIC_API_KEY": "sk-test",
            "ANTHROPIC_BASE_URL": service.url,
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def furnish(self) -> None:
        """Make the state that every run begins with."""
        (self.home / ".peg").mkdir(parents=True)
        (self.home / ".peg/settings.toml").write_text("# mine\n[limits]\nturns = 30 # enough\n")
        (self.work / ".peg").mkdir()
        (self.work / ".peg/settings.toml").write_text('# ours\nmodel = "claude-opus-5-5"\n')
        (self.work / "config.toml").write_text("rate = 91\n")
        for _ in range(2):
            assert self.run("-p", "go", "--permission-mode", "acceptEdits").code == 0
        assert self.run("trust", "--yes").code == 0
        for folder in (self.work, self.home):
            shutil.copytree(folder, self.old / folder.name)

    def reset(self, name: str) -> None:
        """Everything as it was, for this command."""
        for folder in (self.work, self.home):
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            shutil.copytree(self.old / folder.name, folder, dirs_exist_ok=True)
        if name == "trust":
            assert self.run("trust", "--revoke").code == 0
        if name == "the index of plug-ins":
            for path in (self.home / ".peg/cache").iterdir():
                path.unlink()

    def run(self, *args: str, fault: Fault | None = None) -> Ended:
        return self.stage.run(list(args), self.env, fault)

    def limited(self, size: int, *args: str) -> Ended:
        """A run in which no file can become larger than that."""
        peg = Path(sys.executable).with_name("peg")
        done = subprocess.run(
            [peg, *args],
            cwd=self.work,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def files(self) -> dict[str, bytes]:
        """Every file but the sessions that a run began, by its path."""
        found: dict[str, bytes] = {}
        for folder in (self.work, self.home):
            for path in sorted(folder.rglob("*")):
                if path.is_file() and not path.is_symlink():
                    found[str(path.relative_to(self.stage.room))] = TIME.sub(b"", path.read_bytes())
        return found


def play(body: dict[str, Any]) -> Any:
    """A model that changes a file, makes one, and is done; each prompt once more."""
    asked = [block for block in body["messages"][-1]["content"] if block["type"] == "tool_result"]
    if asked:
        return "done"
    work: Path = play.work  # type: ignore[attr-defined]
    path = next(path for number in range(9) if not (path := work / f"note-{number}.md").exists())
    given = {"file_path": str(path), "content": "a note\n"}
    return {"content": [{"type": "tool_use", "name": "Write", "input": given}]}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    with Stage(tmp_path_factory.mktemp("disk")) as stage, MessagesService(play) as service:
        play.work = stage.work  # type: ignore[attr-defined]
        made = Disk(stage, service)
        made.furnish()
        yield made


def judged(disk: Disk, before: dict[str, bytes], after: dict[str, bytes], ended: Ended, name: str) -> list[str]:
    """What does not hold after a run of this command on a disk that failed."""
    now, wrong = disk.files(), []
    for path in sorted({*before, *after, *now}):
        content, base = now.get(path), os.path.basename(path)
        if content in (before.get(path), after.get(path)):
            continue
        if base in APPENDED and (content or b"").startswith(before.get(path) or b""):
            continue
        if base == ".swept" or (path not in before and path not in after and _own(path, before, content)):
            continue
        wrong.append(f"{path}: {content!r}"[:300])
    if ended.code not in (0, 1, 2) or "Traceback" in ended.err + ended.out:
        wrong.append(f"ended with {ended.code}: {ended.err[-600:]}")
    changed = {path for path in after if before.get(path) != after[path] and os.path.basename(path) not in APPENDED}
    if ended.code == 0 and name not in NEEDS_NO_WRITE and any(now.get(path) != after[path] for path in changed):
        wrong.append("ended well without having done it")
    if ended.code and not ended.err.strip() and not ended.out.strip():
        wrong.append("ended without a word")
    return wrong


def done(disk: Disk, before: dict[str, bytes], after: dict[str, bytes]) -> bool:
    """Whether the command's own change of the project is there, so that it cannot be made once more."""
    now = disk.files()
    return any(now.get(path) == after[path] != before.get(path) for path in after if path.startswith("work"))


def _own(path: str, before: dict[str, bytes], content: bytes | None) -> bool:
    """Whether this belongs to a session that this run made: its folder carries another name in each run."""
    parts = Path(path).parts
    if ".peg" not in parts or "projects" not in parts or content is None:
        return False
    session = "/".join(parts[: parts.index("projects") + 3])
    return not any(known.startswith(session) for known in before) and not _temporary(parts[-1])


def _temporary(name: str) -> bool:
    return name.endswith((".tmp", ".part", ".lock")) or name.startswith(".")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_step_on_the_disk_may_fail(disk: Disk, name: str) -> None:
    """From each step on the disk is full, or can be written but not be forced to keep it."""
    disk.reset(name)
    before = disk.files()
    whole = disk.run(*COMMANDS[name])
    assert whole.code == 0, whole
    after = disk.files()
    lost: dict[Any, Any] = {}
    steps = range(1, whole.points + 1)
    steps = steps[:: max(1, len(steps) // 25)]
    for kind, at in [("full", at) for at in steps] + [("sync", at) for at in steps if "sync" in whole.trail[at - 1]]:
        disk.reset(name)
        ended = disk.run(*COMMANDS[name], fault=Fault(kind, at))
        if wrong := judged(disk, before, after, ended, name):
            lost[kind, at, whole.trail[at - 1]] = wrong
        elif ended.code and (again := disk.run(*COMMANDS[name])).code and not done(disk, before, after):
            lost[kind, at, whole.trail[at - 1]] = again, ended
    assert not lost


@pytest.mark.parametrize("name", COMMANDS)
def test_a_limit_of_the_kernel_cuts_what_is_written(disk: Disk, name: str) -> None:
    disk.reset(name)
    before = disk.files()
    assert disk.run(*COMMANDS[name]).code == 0
    after = disk.files()
    lost: dict[Any, Any] = {}
    for size in (0, 20):
        disk.reset(name)
        ended = disk.limited(size, *COMMANDS[name])
        if wrong := judged(disk, before, after, ended, name):
            lost[size] = wrong
        elif ended.code and (again := disk.run(*COMMANDS[name])).code:
            lost[size] = again
        if broken := check(disk.home / ".peg/audit").broken:
            lost[size, "log"] = broken
    assert not lost


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
@pytest.mark.parametrize("where", ["home", "work"])
def test_a_really_full_disk(disk: Disk, where: str) -> None:
    """The same commands where not one more byte has room: what is there stays, and the end says why."""
    lost: dict[str, Any] = {}
    for name in COMMANDS:
        disk.reset(name)
        before = disk.files()
        assert disk.run(*COMMANDS[name]).code == 0
        after = disk.files()
        folder = disk.stage.room / where
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=False)
        if mounted.returncode:
            pytest.skip("mounting is not allowed here")
        try:
            disk.reset(name)
            fill(folder / "ballast")
            ended = disk.limited(1 << 30, *COMMANDS[name])
            (folder / "ballast").unlink()
            if wrong := judged(disk, before, after, ended, name):
                lost[name] = wrong
            elif ended.code and (again := disk.run(*COMMANDS[name])).code:
                lost[name] = again
        finally:
            subprocess.run(["umount", "-l", folder], check=True)
    assert not lost


def fill(path: Path) -> None:
    """Write until there is no room for one more byte."""
    with path.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 512, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size):
                    pass


@contextlib.contextmanager
def no_larger(size: int) -> Iterator[None]:
    """In this process no file can become larger than that; the interpreter keeps no cut copies of modules."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    wrote, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = wrote


@pytest.mark.anyio
@pytest.mark.parametrize("end", ["true", "false"])
async def test_output_that_cannot_be_kept_changes_no_outcome(peg_session: Any, end: str) -> None:
    async with peg_session(allow=["Bash"]) as bench:
        await bench.call("Bash", {"command": "true"})
        with no_larger(1_000):
            outcome = await bench.call("Bash", {"command": f"seq 20000; touch done; {end}"})
        assert (bench.folder / "done").exists()
        assert outcome.status == ("ok" if end == "true" else "partial")
        assert "[Only a part of" in outcome.text and "File too large]" in outcome.text
        assert "\n20000\n" in outcome.text and "whole" not in outcome.text


class Wordy(Tool[Input, Output]):
    """Has more to say than its budget allows."""

    Input, Output = Input, Output

    async def run(self, input: Input, ctx: Context) -> Output:
        return Output()

    def render(self, output: Output, ctx: Context) -> str:
        return "word\n" * 1_000


class Wordless(Wordy):
    """Fails with as many words."""

    async def run(self, input: Input, ctx: Context) -> Output:
        with ctx.effect("file", "a"):
            pass
        raise Refusal(Code.NOT_FOUND, "word\n" * 1_000)


@pytest.mark.anyio
async def test_a_text_that_cannot_be_kept_is_lost_and_leaves_no_part(peg_session: Any) -> None:
    tools = [tool_of(one, concurrency="read", ask=False, budget=500) for one in (Wordy, Wordless)]
    async with peg_session(tools=tools) as bench:
        with no_larger(700):
            lost, failed = [await bench.call(name, {}) for name in ("Wordy", "Wordless")]
        assert (lost.status, lost.code) == ("unmapped", "mapping_failed")
        assert lost.text.startswith("The action happened, but its result was lost. It changed nothing.")
        assert (failed.status, failed.code) == ("partial", "not_found")
        assert failed.text.startswith("This happened: file a.\nword\n") and len(failed.text) < 700
        assert "File too large" in lost.text and "File too large" in failed.text
        assert not list((bench.session.directory / "tool-output").iterdir())
