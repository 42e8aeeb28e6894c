"""Sessions over time: found, copied, listed, exported, swept, rewound from the command line; damaged and huge files."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from pegboard import events, sessions
from pegboard.cli import keeping
from pegboard.cli.sessions import command
from pegboard.cli.start import open_session
from pegboard.errors import Locked, PegError, UsageError
from pegboard.lines import FILE_NAME, encode
from pegboard.places import Places, find_places
from pegboard.provider import Answer, Usage
from pegboard.testing.messages_check import problems
from pegboard.testing.sessions import set_room
from pegboard.transcript import Transcript


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    set_room(tmp_path, monkeypatch.setenv)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return find_places()


def peg(*args: str) -> tuple[int, str, str]:
    """`peg sessions ...` in this process: exit code (2 for usage, 1 for other errors), stdout, stderr."""
    done = CliRunner().invoke(command, list(args))
    if isinstance(done.exception, PegError):
        return (2 if isinstance(done.exception, UsageError) else 1), done.stdout, str(done.exception)
    return done.exit_code, done.stdout, done.stderr


def said(text: str, prompt: int = 0) -> events.UserText:
    return events.UserText(content=[{"type": "text", "text": text}], prompt=prompt)


def answered(transcript: Transcript, text: str) -> None:
    transcript.open(Answer("m", "m", [{"type": "text", "text": text}], "end_turn", Usage())).close()


def make(places: Places, id: str, *prompts: str, name: str = "") -> Path:
    transcript = Transcript.create(places.sessions_dir / id, cwd=places.cwd, version="0", name=name)
    for number, prompt in enumerate(prompts, 1):
        transcript.append(said(prompt, number))
        answered(transcript, f"answer to {prompt}")
        transcript.append(events.Ended(reason="completed", turns=1))
    transcript.close()
    return transcript.path


def plain(transcript: Transcript) -> list[Any]:
    return [msgspec.json.decode(message.encoded()) for message in transcript.messages]


def aged(folder: Path, days: float) -> None:
    then = time.time() - days * 86_400
    for path in (folder / FILE_NAME, folder):
        if path.exists():
            os.utime(path, (then, then))


def test_listing_has_stable_keys_and_finds_by_beginning_and_name(places: Places) -> None:
    assert peg("list", "--json") == (0, "[]\n", "") and "no session" in peg("list")[1]
    make(places, "abc-1", "first", name="mine")
    make(places, "abd-2", "second")
    found = json.loads(peg("list", "--json")[1])
    assert {frozenset(item) for item in found} == {
        frozenset({"id", "name", "parent", "cwd", "started", "updated", "bytes", "prompt", "ended"})
    }
    for wanted in ("abc-1", "abc", "mine"):
        assert "first" in peg("show", wanted)[1]
    assert peg("show", "ab")[0] == 2 and "2 sessions begin with ab" in peg("show", "ab")[2]
    assert peg("show", "../abc-1")[0] == 2 and peg("show", "none")[0] == 2
    aged(places.sessions_dir / "abc-1", 1)
    assert "second" in peg("show")[1] and "## Assistant" in peg("export")[1]
    make(places, "abe-3", "third", name="mine")
    assert "2 sessions are named mine" in peg("show", "mine")[2]


def test_shown_as_json_every_line_is_a_record(places: Places) -> None:
    make(places, "s1", "one", "two\x1b[31m")
    lines = [json.loads(line) for line in peg("show", "s1", "--json")[1].splitlines()]
    assert [line["type"] for line in lines] == ["session", *["user", "assistant", "ended"] * 2]
    assert "\x1b" not in peg("show", "s1")[1] and "[2] user: two\\x1b[31m" in peg("show", "s1")[1]


def test_delete_refuses_a_session_in_use(places: Places) -> None:
    folder = make(places, "s1", "one").parent
    (folder / "tool-output").mkdir()
    (folder / "tool-output" / "x").write_text("x")
    held = Transcript.resume(folder)
    code, _, error = peg("delete", "s1")
    assert code == 1 and "in use" in error and folder.exists()
    held.close()
    assert peg("delete", "s1")[0] == 0 and not folder.exists()


def test_ses_6_a_fork_leaves_the_original_as_it_is(places: Places) -> None:
    path = make(places, "s1", "one", name="mine")
    (path.parent / "checkpoints").mkdir()
    (path.parent / "checkpoints" / "kept").write_text("content")
    held = Transcript.resume(path)
    held.append(events.Approved(rules=["Read"]))
    held.append(events.Mode(mode="acceptEdits", by="user"))
    with path.open("ab") as file:
        file.write(b'{"type":"user","content":[{"type":"te')
    before = path.read_bytes()
    with pytest.raises(Locked, match="add --fork"):
        open_session({}, session_id="s1")
    copy = open_session({}, session_id="s1", fork=True, name="other")
    assert copy.transcript is not None and copy.id != "s1" and copy.mode == "acceptEdits"
    assert copy.session_rules == [], "an answer for one session is none for another"
    assert plain(copy.transcript) == plain(held)
    copy.transcript.append(said("only here"))
    copy.transcript.close()
    assert path.read_bytes() == before
    folder = copy.transcript.path.parent
    assert (folder / "checkpoints" / "kept").read_text() == "content"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / FILE_NAME).stat().st_mode) == 0o600
    item = next(item for item in sessions.listing(places) if item.id == folder.name)
    assert (item.parent, item.name) == ("s1", "other")
    held.close()
    again = open_session({}, session_id="s1")
    assert [rule.text for rule in again.session_rules] == ["Read"], "a resumed session keeps its own answers"
    assert again.transcript is not None
    again.transcript.close()


def test_a_fork_that_fails_leaves_nothing(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    make(places, "s1", "one")

    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(PegError, match="Cannot copy the session"):
        open_session({}, session_id="s1", fork=True)
    assert [path.name for path in places.sessions_dir.iterdir()] == ["s1"]


def test_names_are_checked_and_stay(places: Places) -> None:
    first = open_session({}, name="mine")
    assert first.transcript is not None
    first.transcript.close()
    assert sessions.find(places, "mine").name == first.id
    for name, problem in (("mine", "already"), ("a\nb", "printable"), ("x" * 81, "printable"), (" ", "printable")):
        with pytest.raises(UsageError, match=problem):
            open_session({}, name=name)
    with pytest.raises(UsageError, match="keeps its name"):
        open_session({}, session_id=first.id, name="another")


def test_ses_2_a_session_resumed_in_plan_starts_as_a_new_one_does(places: Places) -> None:
    for mode, after in (("plan", "default"), ("bypassPermissions", "default"), ("acceptEdits", "acceptEdits")):
        path = make(places, f"s-{mode}", "one")
        transcript = Transcript.resume(path)
        transcript.append(events.Mode(mode=mode, by="user"))
        transcript.close()
        again = open_session({}, session_id=f"s-{mode}")
        assert again.transcript is not None and again.mode == after
        again.transcript.close()


def test_old_sessions_are_swept_once_a_day_and_never_in_use(places: Places) -> None:
    for number in range(4):
        make(places, f"s{number}", "one")
    other = places.user_dir / "projects" / "elsewhere-12345678" / "old"
    Transcript.create(other, cwd=places.cwd, version="0").close()
    broken = places.sessions_dir / "0a0a0a0a-1111-2222-3333-444444444444"
    foreign = places.sessions_dir / "notes"
    for folder in (broken, foreign):
        folder.mkdir()
    for folder in (*(places.sessions_dir / f"s{number}" for number in (1, 2)), other, broken, foreign):
        aged(folder, 31)
    held = Transcript.resume(places.sessions_dir / "s2" / FILE_NAME)
    aged(places.sessions_dir / "s2", 31)
    assert sorted(keeping.sweep(places, 30)) == sorted(["s1", "old", broken.name])
    assert {path.name for path in places.sessions_dir.iterdir()} == {"s0", "s2", "s3", "notes"}
    held.close()
    assert keeping.sweep(places, 30) == [], "not twice a day"
    (places.user_dir / "projects" / ".swept").unlink()
    aged(places.sessions_dir / "s2", 31)
    assert keeping.sweep(places, 30) == ["s2"]


def test_a_sweep_is_bounded_and_never_fails(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keeping.sweep(places, 30) == []
    monkeypatch.setattr(keeping, "SWEEP_MOST", 2)
    for number in range(3):
        aged(make(places, f"s{number}", "one").parent, 40)
    assert len(keeping.sweep(places, 30)) == 2
    (places.user_dir / "projects" / ".swept").unlink()
    (places.user_dir / "projects" / ".swept").mkdir()
    assert keeping.sweep(places, 30) == []


def test_the_ledger_of_a_span(places: Places) -> None:
    transcript = Transcript.create(places.sessions_dir / "s1", cwd=places.cwd, version="0")
    for number, at in ((1, time.time() - 7200), (2, time.time())):
        record = said(f"p{number}", number)
        record.time = at
        transcript.append(record)
        effect = events.Effect(kind="file", target=f"/f{number}", state="done")
        transcript.append(events.Result(id=f"c{number}", tool="Edit", outcome="ok", text="", effects=[effect], time=at))
    transcript.close()

    def targets(*args: str) -> list[str]:
        return [line["target"] for line in json.loads(peg("ledger", *args, "--json")[1])["lines"]]

    assert targets() == targets("s1") == ["/f1", "/f2"] and targets("--since", "2") == ["/f2"]
    assert targets("--since", "1h") == ["/f2"] and targets("--since", "3h") == ["/f1", "/f2"]
    moment = time.strftime("%Y-%m-%dT%H:%M", time.localtime(time.time() - 3600))
    assert targets("--since", moment) == ["/f2"] and targets("--since", "9") == []
    assert peg("ledger", "--since", "soon")[0] == 2


def test_rewind_from_the_command_line(places: Places) -> None:
    assert peg("rewind")[0] == 2
    path = make(places, "s1", "one", "two")
    assert [point["prompt"] for point in json.loads(peg("rewind", "--json")[1])] == [1, 2]
    assert re.search(r"2 .* two", peg("rewind")[1])
    before = path.read_bytes()
    for args, problem in (
        (("--to", "1", "--last"), "exclude"),
        (("--to", "7"), "no prompt 7"),
        (("--undo",), "no rew"),
    ):
        code, _, error = peg("rewind", *args)
        assert code == 2 and problem in error
    dry = json.loads(peg("rewind", "--last", "--dry-run", "--json")[1])
    assert dry["prompt"] == 2 and dry["dry_run"] and dry["left_out"] == 1 and path.read_bytes() == before
    out = peg("rewind", "--last", "--conversation")[1]
    assert "is back to before prompt 2: two" in out and "--undo" in out and "rewind of conversation" in peg("show")[1]
    again = Transcript.resume(path)
    assert len(again.messages) == 2
    assert peg("rewind", "--last")[0] == 1, "a session in use is not touched"
    again.close()
    assert peg("rewind", "--undo")[0] == 0
    again = Transcript.resume(path)
    assert len(again.messages) == 4 and problems({"model": "m", "max_tokens": 1, "messages": plain(again)}) == []
    again.close()


HUGE = """
import sys, time
from pathlib import Path
import pegboard.session
from pegboard.transcript import Transcript
from pegboard import sessions
from pegboard.places import find_places
peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])
base = peak()
begin = time.monotonic()
(item,) = sessions.listing(find_places())
listed = peak()
transcript = Transcript.resume(Path(sys.argv[1]))
print(len(transcript.messages), item.bytes, listed - base, peak() - base)
"""


def test_sess_huge_transcript_resumes_in_the_memory_of_what_is_live(places: Places) -> None:
    transcript = Transcript.create(places.sessions_dir / "big", cwd=places.cwd, version="0")
    transcript.append(said("begin", 1))
    transcript.close()
    asked = said("x" * 15_000)
    answer = events.Assistant(
        content=[{"type": "text", "text": "ok"}], stop_reason="end_turn", model="m", usage=Usage()
    )
    pair = encode(asked) + encode(answer)
    with transcript.path.open("ab") as file:
        for _ in range(100):
            file.write(pair * 200)
    with transcript.path.open("ab") as file:
        file.write(encode(events.Compacted(summary="what was", kept=[], trigger="auto", before=1)) + pair * 25)
    size = transcript.path.stat().st_size
    assert size > 300_000_000
    run = subprocess.run(
        [sys.executable, "-c", HUGE, str(transcript.path)], capture_output=True, text=True, check=True, timeout=60
    )
    messages, listed, listing, whole = map(int, run.stdout.split())
    transcript.path.unlink()
    assert (messages, listed) == (50, size)
    assert listing < 20_000 and whole < 60_000, "KiB beyond the modules: head and tail; what is live"
