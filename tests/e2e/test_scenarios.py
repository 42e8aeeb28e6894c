"""Whole stories: faults on the way, a run that may only look, a kill at each step of the tour's repair."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from pegboard.cli import tour
from pegboard.lines import FILE_NAME
from pegboard.model import Input, Output
from pegboard.testing import tool_of
from pegboard.testing.faults import Fault, Stage
from pegboard.testing.messages import MessagesService
from pegboard.testing.sessions import Bench
from pegboard.tool import Access, Tool

sys.path.insert(0, str(Path(__file__).parent))
from ride_scenario import Ride, asks


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# -- E2E-2, FM-3 ------------------------------------------------------------------------------------------------


class Press:
    """A host of pages: it keeps what it gets, and may hang up before it answers, or before it keeps."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        self.hangs_up = ""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                with self._listener.accept()[0] as line, line.makefile("rw") as file:
                    asked = file.readline().split(" ", 1)
                    if asked[0].strip() == "list":
                        file.write(json.dumps(self.pages) + "\n")
                        continue
                    if self.hangs_up != "before":
                        self.pages.append(asked[1].strip())
                    if not self.hangs_up:
                        file.write("kept\n")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def press() -> Iterator[Press]:
    made = Press()
    yield made
    made.close()


class Page(Input):
    text: str


class Said(Output):
    said: str


def publish(press: Press, *, looks: bool = True) -> Tool[Any, Any]:
    """A tool that puts a page on the press; ``looks``: it knows how to look whether a page is there."""

    class Publish(Tool[Page, Said]):
        Input, Output = Page, Said

        def accesses(self, input: Page, ctx: Any) -> list[Access]:
            return [Access.use(f"page {input.text}")]

        async def run(self, input: Page, ctx: Any) -> Said:
            with ctx.effect("remote", f"page {input.text}"):
                answer = await self._ask(f"put {input.text}")
                if not answer:
                    raise OSError("the press hung up without an answer")
            return Said(said=answer)

        async def _ask(self, line: str) -> str:
            async with await anyio.connect_tcp("127.0.0.1", press.port) as stream:
                await stream.send(line.encode() + b"\n")
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    return (await stream.receive()).decode().strip()
            return ""

        def render(self, output: Said, ctx: Any) -> str:
            return output.said

    async def settle(self: Any, target: str, ctx: Any) -> bool | None:
        try:
            return target.removeprefix("page ") in json.loads(await self._ask("list"))
        except (OSError, ValueError):
            return None

    if looks:
        Publish.settle = settle  # type: ignore[attr-defined]
    return tool_of(Publish, effects=["remote"], ask=False)


@pytest.mark.anyio
async def test_e2e_2_faults_on_the_way_double_nothing(peg_session: Callable[..., Bench], press: Press) -> None:
    """A stale edit, a service that cuts a stream and fails, an answer that is lost: each ends in its own class."""
    press.hangs_up = "after"
    tools = [publish(press, looks=False)]
    bench = peg_session(tools=tools, mode="acceptEdits", allow=["Bash"], settings={"anthropic.max_retries": 2})
    config, naps = bench.folder / "config.toml", []
    config.write_text("rate = 91\n")
    given = {"file_path": str(config), "old_string": "rate = 91", "new_string": "rate = 19"}
    look = asks(("Glob", {"pattern": "*"}), ("Read", {"file_path": str(config)}), ("Grep", {"pattern": "rate"}))
    test = asks(("Bash", {"command": "echo run >> tests.txt; grep 'rate = 19' config.toml || exit 7"}))
    page = asks(("Publish", {"text": "result"}))

    def somebody_else_first(body: dict[str, Any]) -> Any:
        config.write_text("# reviewed\nrate = 91\n")
        return asks(("Edit", given))

    async def sleep(seconds: float) -> None:
        naps.append(seconds)

    overloaded = {"http_status": 529}
    script = [look, somebody_else_first, {**test, "cut_after_events": 5}, overloaded, test]
    script += [asks(("Read", {"file_path": str(config)})), asks(("Edit", given)), overloaded, overloaded, overloaded]
    script += [asks(("Edit", given)), {**test, "cut_after_events": 7}, test, page, page, "It may be published."]
    with MessagesService(script) as service:
        async with bench, Ride(bench, service, sleep=sleep) as ride:
            assert (await ride.agent.run("go")).errors  # the service is down for longer than it is waited for
            run = await ride.agent.run("go on")
            assert (run.text, run.is_error) == ("It may be published.", False)
            results = ride.whole()
    ends = [(result.tool, result.outcome, result.code) for result in results[3:]]
    assert ends == [
        ("Edit", "not_started", "stale"),
        ("Bash", "partial", "command_failed"),
        ("Read", "ok", None),
        ("Edit", "ok", None),
        ("Edit", "not_started", "not_found"),
        ("Bash", "ok", None),
        ("Publish", "unknown", "unknown_outcome"),
        ("Publish", "not_started", "unknown_outcome"),
    ]
    assert config.read_text() == "# reviewed\nrate = 19\n"
    assert (bench.folder / "tests.txt").read_text() == "run\nrun\n"
    assert press.pages == ["result"] and len(naps) == 5


@pytest.mark.anyio
@pytest.mark.parametrize(("hangs_up", "happened"), [("after", True), ("before", False)])
async def test_fm_3_an_unknown_end_is_looked_up(
    peg_session: Callable[..., Bench], press: Press, hangs_up: str, happened: bool
) -> None:
    press.hangs_up = hangs_up
    tools = [publish(press)]
    page = asks(("Publish", {"text": "result"}))
    with MessagesService([page, "unclear", page, "done"]) as service:
        async with peg_session(tools=tools) as bench, Ride(bench, service) as ride:
            await ride.agent.run("go")
        async with peg_session(tools=tools) as again, Ride(again, service, ride.path) as resumed:
            assert again.session.unsettled == {} and resumed.agent.transcript.unsettled
            again.session.unsettled.update(resumed.agent.transcript.unsettled)
            press.hangs_up = ""
            await resumed.agent.run("go on")
            results = resumed.whole()
    last = ("not_started", "conflict") if happened else ("ok", None)
    assert [(result.outcome, result.code) for result in results] == [("unknown", "unknown_outcome"), last]
    assert press.pages == ["result"]
    settled = [json.loads(line) for line in ride.path.read_text().splitlines() if '"settled"' in line[:20]]
    assert [(line["target"], line["happened"]) for line in settled] == [("page result", happened)]


# -- E2E-3 ------------------------------------------------------------------------------------------------------


def test_e2e_3_a_run_that_may_only_look(world: Any) -> None:
    """Everything but the three tools is denied, in a mode that never asks; that is no failure of the run."""
    file = world.write("project/a.txt", "one\n")
    world.write("home/.peg/settings.toml", '[permissions]\nallow = ["Bash(echo *)"]\n')
    denied = [
        ("Edit", {"file_path": str(file), "old_string": "one", "new_string": "two"}),
        ("Write", {"file_path": str(world.project / "b.txt"), "content": "b"}),
        ("Bash", {"command": "touch c.txt"}),
        ("Bash", {"command": "echo x > d.txt"}),
        ("Bash", {"command": "echo x; rm a.txt"}),
        ("Bash", {"command": "python3 -c 1", "run_in_background": True}),
        ("Read", {"file_path": "/etc/hostname"}),
        ("Grep", {"pattern": "root", "path": "/etc"}),
        ("Glob", {"pattern": "*", "path": str(world.root / "home")}),
    ]
    allowed = [("Read", {"file_path": str(file)}), ("Grep", {"pattern": "one"}), ("Glob", {"pattern": "*.txt"})]
    options = [
        "--permission-mode",
        "dontAsk",
        "--allow",
        "Read(./**)",
        "--allow",
        "Grep(./**)",
        "--allow",
        "Glob(./**)",
    ]
    with MessagesService([asks(*allowed, *denied), "I looked."]) as service:
        env = {"ANTHROPIC_BASE_URL": service.url, "ANTHROPIC_API_KEY": "sk-test"}
        done = world.peg("-p", "go", *options, "--output-format", "stream-json", "--verbose", env=env)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    result = lines[-1]
    assert (result["subtype"], result["is_error"], result["result"]) == ("success", False, "I looked.")
    named = [(one["tool_name"], one["tool_input"]) for one in result["permission_denials"]]
    assert named == denied
    assert all(
        one["decision"]["by"] in ("mode", "rule") or one["code"] == "no_user" for one in result["permission_denials"]
    )
    assert [line["tool_name"] for line in lines if line.get("subtype") == "permission_denied"] == [n for n, _ in named]
    blocks = [line["message"]["content"][0] for line in lines if line["type"] == "user" and "tool_use_result" in line]
    assert [block.get("is_error", False) for block in blocks] == [False] * 3 + [True] * len(denied)
    assert [path.name for path in world.project.iterdir()] == ["a.txt"] and file.read_text() == "one\n"
    with MessagesService([asks(*allowed, *denied), "I tried."]) as service:
        env = {"ANTHROPIC_BASE_URL": service.url, "ANTHROPIC_API_KEY": "sk-test"}
        done = world.peg("-p", "go", *options, env=env)
    assert (done.returncode, done.stdout) == (0, "I tried.\n")
    assert [line.split()[1] for line in done.stderr.splitlines() if "was not permitted" in line] == [
        n for n, _ in denied
    ]


# -- E2E-7 ------------------------------------------------------------------------------------------------------


def repairing(project: Path) -> Callable[[dict[str, Any]], Any]:
    """The model of the tour, which decides from the conversation: what did not end well is looked at, then done."""
    steps = [
        (block["name"], block["input"])
        for turn in tour.script(project)
        for block in turn["content"]
        if block["type"] == "tool_use"
    ]
    edit, test = steps[-2:]
    look = ("Read", {"file_path": str(project / "config.toml")})
    plan = [step for step in steps if step not in (look, edit, test)]

    def play(body: dict[str, Any]) -> Any:
        calls: dict[str, Any] = {}
        ends: list[tuple[tuple[str, Any], bool, str]] = []
        for message in body["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else ():
                if block["type"] == "tool_use":
                    calls[block["id"]] = (block["name"], block["input"])
                elif block["type"] == "tool_result":
                    failed, text = bool(block.get("is_error")), str(block.get("content"))
                    ends.append((calls[block["tool_use_id"]], failed, text))
        well = [call for call, failed, _ in ends if not failed]
        for step in plan:
            if step not in well:
                return asks(step)
        changes = [end for end in ends if end[0] in (edit, look)]
        last = changes[-1] if changes else None
        if last is None or (last[0] == edit and last[1]):
            return asks(look) if last is not None else asks(edit)  # unread at first, as in the tour
        if last[0] == look and (last[1] or "rate_percent = 19" not in last[2]):
            return asks(look if last[1] else edit)
        return asks(test) if test not in well else "repaired"

    return play


def test_e2e_7_killed_at_each_step_of_the_tour(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage, MessagesService(repairing(stage.work)) as service:
        home = stage.room / "home"
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        env = {"PATH": path, "HOME": str(home), "PEG_MANAGED_DIR": str(stage.room / "managed")}
        env |= {"ANTHROPIC_BASE_URL": service.url, "ANTHROPIC_API_KEY": "sk-test"}
        options = ["--permission-mode", "acceptEdits", "--allow", f"Bash({tour.TEST})", "--max-turns", "20"]

        def begin() -> None:
            for folder in (stage.work, home):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
            shutil.copytree(tour.SAMPLE, stage.work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))

        def end() -> dict[str, bytes]:
            files = (path for path in stage.work.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
            return {str(path.relative_to(stage.work)): path.read_bytes() for path in files}

        begin()
        whole = stage.run(["-p", tour.PROMPT, *options], env)
        assert (whole.code, whole.out) == (0, "repaired\n"), whole.err
        repaired, lost = end(), {}
        assert b"rate_percent = 19" in repaired["config.toml"]
        steps = [at for at, name in enumerate(whole.trail, 1) if name.startswith(("step ", "effect "))]
        acting = [at for at in steps if whole.trail[at - 1].split()[-1] in ("Edit", "Bash", "begun", "left")]
        for at in [*[at for at in steps if at not in acting][::6], *acting[::2]]:
            begin()
            died = stage.run(["-p", tour.PROMPT, *options], env, Fault("kill", at))
            assert died.code == -9
            again = ["-c"] if list(home.glob(f".peg/projects/*/*/{FILE_NAME}")) else []
            done = stage.run(["-p", "Go on.", *again, *options], env)
            if (done.code, done.out) != (0, "repaired\n") or end() != repaired:
                lost[at, whole.trail[at - 1]] = done
        assert not lost
        assert not [problem for entry in service.requests for problem in entry.problems]
