"""The decision log: every decision is in it, the chain holds, and every way to break it shows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard import audit
from pegboard.audit import DecisionLog, Link, Record, files, last_link
from pegboard.call import DecidedBy
from pegboard.cli.audit import check
from pegboard.host import Choice
from pegboard.testing.sessions import Listener, Willing


def record(number: int = 1, **fields: object) -> Record:
    given = {
        "id": f"call-{number}", "ts": "2026-12-01T00:00:00.000Z", "session": "s", "agent": "main", "tool": "Read",
        "input_digest": "0" * 64, "cwd": "/w", "mode": "default", "verdict": "allow",
        "decided_by": DecidedBy(by="mode", reason="reading"),
    }  # fmt: skip
    return Record(**{**given, **fields})


def filled(folder: Path, count: int) -> Path:
    log = DecisionLog(folder)
    for number in range(1, count + 1):
        log.append(record(number))
    log.close()
    return folder / audit.FILE_NAME


def records(folder: Path) -> list[dict]:
    return [json.loads(line) for path in files(folder) for line in path.read_text().splitlines()]


def test_chain_is_canonical_json_that_anybody_can_check(tmp_path: Path) -> None:
    import hashlib

    filled(tmp_path, 3)
    before = ""
    for seq, line in enumerate(records(tmp_path), 1):
        told = line.pop("hash")
        body = json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha256(body.encode()).hexdigest() == told
        assert (line["seq"], line["prev_hash"]) == (seq, before)
        before = told
    assert check(tmp_path).last_hash == before
    assert (tmp_path / audit.FILE_NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_pl_audit_a_changed_record_is_named(tmp_path: Path, number: int) -> None:
    path = filled(tmp_path, 5)
    lines = path.read_text().splitlines(keepends=True)
    lines[number - 1] = lines[number - 1].replace('"verdict":"allow"', '"verdict":"deny!"')
    path.write_text("".join(lines))
    found = check(tmp_path)
    assert found.broken is not None
    assert (found.broken["seq"], found.broken["line"], found.records) == (number, number, number - 1)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_removed_record_is_noticed_at_the_next(tmp_path: Path, number: int) -> None:
    path = filled(tmp_path, 5)
    lines = path.read_text().splitlines(keepends=True)
    del lines[number - 1]
    path.write_text("".join(lines))
    found = check(tmp_path)
    assert found.broken is not None and found.broken["seq"] == number + 1
    assert "not here" in found.broken["reason"]


def test_a_record_written_anew_with_a_fitting_hash_breaks_the_next_one(tmp_path: Path) -> None:
    path = filled(tmp_path, 3)
    lines = path.read_text().splitlines()
    forged = DecisionLog(tmp_path / "forged")
    forged.last = Link(1, json.loads(lines[0])["hash"])
    forged.append(record(2, tool="Write"))
    lines[1] = (tmp_path / "forged" / audit.FILE_NAME).read_text().rstrip("\n")
    path.write_text("\n".join(lines) + "\n")
    found = check(tmp_path)
    assert found.broken is not None and found.broken["seq"] == 3


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_changed_byte_is_noticed(tmp_path_factory, data) -> None:
    folder = tmp_path_factory.mktemp("log")
    path = filled(folder, 4)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, whole.rindex(b"\n", 0, len(whole) - 1)))
    value = data.draw(st.integers(0, 255).filter(lambda value: value != whole[at]))
    path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
    found = check(folder)
    last_line = whole.rindex(b"\n", 0, len(whole) - 1)
    assert found.broken is not None or at >= last_line


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 2_000), crashes=st.integers(1, 3))
def test_cut_at_any_byte_the_chain_goes_on(tmp_path_factory, cut: int, crashes: int) -> None:
    """What kill -9 leaves: the beginning of a record. The next process notes it and goes on."""
    folder = tmp_path_factory.mktemp("log")
    path = filled(folder, 3)
    whole, kept = 0, 0
    for number in range(crashes):
        size = path.stat().st_size
        ends_a_torn_line = not path.read_bytes().endswith(b"\n")  # with a newline of its own, first of all
        DecisionLog(folder).append(record(number))
        length = path.stat().st_size - size - 1
        os.truncate(path, size + min(cut, length))
        whole += cut >= length
        kept += ends_a_torn_line < cut < length
    DecisionLog(folder).append(record(9))
    found = check(folder)
    assert found.broken is None, found.broken
    assert found.records == 4 + whole
    assert len(found.skipped) == kept


def test_a_torn_end_alone_is_no_breach(tmp_path: Path) -> None:
    path = filled(tmp_path, 2)
    with path.open("ab") as file:
        file.write(b'{"agent":"ma')
    found = check(tmp_path)
    assert (found.broken, found.records, len(found.skipped)) == (None, 2, 1)


def test_a_line_put_between_records_is_a_breach(tmp_path: Path) -> None:
    path = filled(tmp_path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"hello\n" + b"".join(lines[1:]))
    found = check(tmp_path)
    assert found.broken is not None and found.broken["line"] == 2


def test_a_process_that_still_runs_notices_a_shortened_log(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path)
    for number in range(4):
        log.append(record(number))
    path = tmp_path / audit.FILE_NAME
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    log.append(record(5))
    found = check(tmp_path)
    assert found.broken is not None and "2 records between them are not here" in found.broken["reason"]
    path.unlink()
    log.append(record(6))
    found = check(tmp_path)
    assert found.broken is not None and found.broken["seq"] == 6


def test_a_full_file_is_set_aside_and_the_chain_goes_on(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(audit, "ROTATE", 1_000)
    first, second = DecisionLog(tmp_path), DecisionLog(tmp_path)
    for number in range(1, 21):
        (first if number % 3 else second).append(record(number))
    assert len(files(tmp_path)) > 3
    found = check(tmp_path)
    assert (found.broken, found.records, found.last) == (None, 20, 20)
    oldest = files(tmp_path)[0]
    last = json.loads(oldest.read_text().splitlines()[-1])
    oldest.unlink()
    assert check(tmp_path).broken is not None
    assert check(tmp_path, after=last["hash"]).broken is None
    assert check(tmp_path, after="0" * 64).broken is not None


WRITER = """
import sys
sys.path[:0] = sys.argv[3:]
from pathlib import Path
from test_audit import record
from pegboard.audit import DecisionLog
log = DecisionLog(Path(sys.argv[1]))
for number in range(int(sys.argv[2])):
    log.append(record(number, session=sys.argv[2]))
"""


def writer(folder: Path, count: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", WRITER, str(folder), str(count), str(Path(__file__).parent)]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL)


def test_several_processes_share_one_chain(tmp_path: Path) -> None:
    running = [writer(tmp_path, 60) for _ in range(4)]
    assert [one.wait() for one in running] == [0] * 4
    found = check(tmp_path)
    assert (found.broken, found.records, found.skipped) == (None, 240, [])


def test_killed_writers_leave_a_sound_chain(tmp_path: Path) -> None:
    for _ in range(4):
        one = writer(tmp_path, 100_000)
        end = time.monotonic() + 60
        size = (tmp_path / audit.FILE_NAME).stat().st_size if (tmp_path / audit.FILE_NAME).exists() else 0
        while not (tmp_path / audit.FILE_NAME).exists() or (tmp_path / audit.FILE_NAME).stat().st_size < size + 5_000:
            assert time.monotonic() < end and one.poll() is None
            time.sleep(0.005)
        one.send_signal(signal.SIGKILL)
        one.wait()
    DecisionLog(tmp_path).append(record(1))
    found = check(tmp_path)
    assert found.broken is None and found.records > 40


def test_the_end_is_found_without_reading_all(tmp_path: Path) -> None:
    path = filled(tmp_path, 50)
    handle = os.open(path, os.O_RDONLY)
    try:
        link, skipped, torn = last_link(handle, path.stat().st_size)
    finally:
        os.close(handle)
    assert link is not None and (link.seq, skipped, torn) == (50, [], False)


def test_keys_and_passwords_are_not_written(tmp_path: Path) -> None:
    secrets = [
        "sk-ant-api03-abcdefghijklmnop", "ghp_abcdefghijklmnopqrstuvwx", "AKIAABCDEFGHIJKLMNOP", "xoxb-12345678901",
        "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4",
    ]  # fmt: skip
    texts = [*secrets, "Bearer abcd1234", "password=hunter22", "https://me:hunter22@host/x"]
    log = DecisionLog(tmp_path)
    for text in texts:
        log.append(record(cwd=f"curl -H 'X: {text}' y"))
    whole = (tmp_path / audit.FILE_NAME).read_text()
    assert not [text for text in [*secrets, "abcd1234", "hunter22"] if text in whole]
    assert whole.count("[masked]") == len(texts)
    assert check(tmp_path).broken is None


# -- in the pipeline -------------------------------------------------------------------------------------------------


def log_of(bench) -> list[dict]:
    return records(bench.places.user_dir / "audit")


async def test_every_kind_of_decision_is_logged_once(peg_session) -> None:
    host = Willing()
    async with peg_session(host=host, deny=["Read(secret/**)"], ask=["Edit(ask/**)"]) as bench:
        (bench.folder / "a.txt").write_text("a\n")
        await bench.call("Read", {"file_path": "a.txt"}, "allowed")
        await bench.call("Read", {"file_path": "secret/x"}, "denied")
        await bench.call("Write", {"file_path": str(bench.folder / "n.txt"), "content": "x"}, "asked")
        host.choice = Choice.NO
        await bench.call("Write", {"file_path": str(bench.folder / "m.txt"), "content": "x"}, "refused")
        await bench.call("Read", {"nonsense": 1}, "invalid")
        await bench.call("Nothing", {}, "unknown")
        found = {one["id"]: one for one in log_of(bench)}
        assert list(found) == ["allowed", "denied", "asked", "refused"]
        assert found["allowed"]["verdict"] == "allow"
        assert found["denied"]["decided_by"]["by"] == "rule"
        assert "deny rule Read(secret/**)" in found["denied"]["decided_by"]["reason"]
        rule = found["denied"]["segments"][0]["rules"][0]
        assert rule["file"] == str(bench.settings_file) and rule["line"] and rule["effect"] == "deny"
        assert found["asked"]["decided_by"]["by"] == "user" and found["asked"]["asked"]
        assert found["asked"]["answer"] == f"{host.questions[0].digest} once"
        assert found["refused"]["verdict"] == "deny" and found["refused"]["decided_by"]["by"] == "user"
        assert len(found["allowed"]["input_digest"]) == 64
    assert check(bench.places.user_dir / "audit").broken is None


async def test_a_hook_that_denies_is_named(peg_session) -> None:
    async with peg_session(hooks=[Listener(decision="deny", reason="not today")]) as bench:
        await bench.call("Read", {"file_path": "a.txt"})
        (one,) = log_of(bench)
    assert one["verdict"] == "deny" and one["decided_by"]["by"] == "hook"
    assert one["hook"].endswith(": deny")


async def test_required_log_that_cannot_be_written_stops_calls(peg_session, tmp_path) -> None:
    async with peg_session() as bench:
        (bench.folder / "a.txt").write_text("a\n")
        (bench.places.managed_dir / "managed.toml").write_text("audit.required = true\n")
        (bench.places.user_dir / "audit").write_text("a file where the folder should be")
        outcome = await bench.call("Read", {"file_path": "a.txt"})
        assert (outcome.status, outcome.code) == ("not_started", "denied_by_policy"), outcome.plain()
        assert "decision log" in outcome.plain() and "Nothing was run" in outcome.plain()
        (bench.places.managed_dir / "managed.toml").write_text("")
        assert (await bench.call("Read", {"file_path": "a.txt"}, "again")).status == "ok"


async def test_invalid_requirement_counts_as_required(peg_session) -> None:
    async with peg_session() as bench:
        (bench.places.managed_dir / "managed.toml").write_text('audit.required = "perhaps"\n')
        (bench.places.user_dir / "audit").write_text("")
        assert (await bench.call("Read", {"file_path": "a.txt"})).code == "denied_by_policy"


async def test_switched_off_it_writes_nothing(peg_session) -> None:
    async with peg_session(settings={"audit.enabled": False}) as bench:
        await bench.call("Read", {"file_path": "a.txt"})
        assert not (bench.places.user_dir / "audit").exists()


# -- as a command ----------------------------------------------------------------------------------------------------


def peg(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "work").mkdir(exist_ok=True)
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PEG_MANAGED_DIR": str(tmp_path / "managed")}
    command = [sys.executable, "-m", "pegboard", *words]
    return subprocess.run(
        command, cwd=tmp_path / "work", env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def test_verify_names_the_first_broken_record_and_anchors_show_a_cut(tmp_path: Path) -> None:
    assert "empty" in peg(tmp_path, "audit", "verify").stdout
    (tmp_path / "work").mkdir(exist_ok=True)
    (tmp_path / "work" / "a.txt").write_text("a\n")
    extra = tmp_path / "second-place"
    for _ in range(3):
        done = peg(tmp_path, "call", "Read", '{"file_path": "a.txt"}', "--set", f"audit.anchor_file={extra}")
        assert done.returncode == 0, done.stderr
    good = peg(tmp_path, "audit", "verify", "--sessions", "--anchors", str(extra), "--json")
    told = json.loads(good.stdout)
    assert good.returncode == 0 and told["ok"] and (told["records"], told["anchors"]) == (3, 6)
    shown = json.loads(peg(tmp_path, "audit", "show", "--json", "-n", "2").stdout)
    assert [one["seq"] for one in shown] == [2, 3]

    path = tmp_path / ".peg" / "audit" / audit.FILE_NAME
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    assert peg(tmp_path, "audit", "verify").returncode == 0, "without an anchor a cut end cannot be seen"
    cut = peg(tmp_path, "audit", "verify", "--sessions")
    assert cut.returncode == 1 and "its end was cut off" in cut.stdout
    cut = peg(tmp_path, "audit", "verify", "--anchors", str(extra))
    assert cut.returncode == 1 and "record 3" in cut.stdout

    path.write_bytes(whole.replace(b'"tool":"Read"', b'"tool":"Grep"', 1))
    broken = peg(tmp_path, "audit", "verify")
    assert broken.returncode == 1 and "broken at record 1" in broken.stdout
