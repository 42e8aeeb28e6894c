"""What a long session costs: resuming 10,000 turns, a listing of many sessions, a checkpoint of a file of 1 MB.

    python tests/bench/sessions.py [TURNS=10000]

Each figure stands beside a floor measured in the same run: reading the same file once, a plain write of the same bytes.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pegboard import events
from pegboard.call import Outcome, Status
from pegboard.provider import Answer, Usage
from pegboard.transcript import Transcript

READ = """
import sys, time
peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])
base = peak()
begin = time.perf_counter()
data = open(sys.argv[1], "rb").read()
data.count(b"\\n")
print(time.perf_counter() - begin, peak() - base)
"""

DECODE = """
import sys, time
from pathlib import Path
from pegboard.lines import read
peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])
base = peak()
begin = time.perf_counter()
for record in read(Path(sys.argv[1])):
    pass
print(time.perf_counter() - begin, peak() - base)
"""

RESUME = """
import sys, time
from pathlib import Path
from pegboard.transcript import Transcript
peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])
base = peak()
begin = time.perf_counter()
transcript = Transcript.resume(Path(sys.argv[1]))
transcript.messages
print(time.perf_counter() - begin, peak() - base)
"""

LIST = """
import sys, time
from pegboard import sessions
from pegboard.places import find_places
peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])
base = peak()
begin = time.perf_counter()
sessions.listing(find_places())
print(time.perf_counter() - begin, peak() - base)
"""


def long_session(folder: Path, turns: int) -> Path:
    """A session of so many turns, each with a call and a result of 2,000 characters."""
    transcript = Transcript.create(folder, cwd=folder, version="0")
    transcript.append(events.UserText(content=[{"type": "text", "text": "begin"}], prompt=1))
    for number in range(turns):
        call = {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": {"file_path": f"/src/{number}.py"}}
        turn = transcript.open(Answer("m", "m", [{"type": "text", "text": "I look."}, call], "tool_use", Usage()))
        transcript.append(events.Began(id=f"c{number}", tool="Read"))
        turn.fill(f"c{number}", Outcome(status=Status.OK, text=f"{number} some text of the file\n" * 70))
        turn.close()
        transcript.append(events.State(owners={"files": {f"/src/{number}.py": {"digest": "0" * 64, "size": 2000}}}))
    transcript.close()
    return transcript.path


def measured(code: str, path: Path, env: dict[str, str]) -> tuple[float, float]:
    """Median seconds and MiB of a program, each run in a process of its own."""
    found = []
    for _ in range(5):
        out = subprocess.check_output([sys.executable, "-c", code, str(path)], env=env, cwd=env["HOME"], text=True)
        found.append(tuple(map(float, out.split())))
    return statistics.median(one[0] for one in found), statistics.median(one[1] for one in found) / 1024


def checkpoint(folder: Path, rounds: int = 9) -> tuple[float, float]:
    """Median seconds of keeping a content of 1 MB before its change, and of a plain write of the same bytes."""
    from pegboard_files.checkpoints import Checkpoints, Touch
    from pegboard_files.disk import digest_of

    store, kept, plain = Checkpoints(folder / "checkpoints"), [], []
    for number in range(rounds):
        raw = os.urandom(1_000_000)
        digest = digest_of(raw)
        store.begin()
        begin = time.perf_counter()
        store.keep(Touch(span=0, path=f"/f{number}", before=digest, after="new"), raw)
        middle = time.perf_counter()
        (folder / f"plain{number}").write_bytes(raw)
        plain.append(time.perf_counter() - middle)
        kept.append(middle - begin)
    return statistics.median(kept), statistics.median(plain)


def main(turns: int = 10_000) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as temporary:
        room = Path(temporary)
        env = {**os.environ, "HOME": temporary, "PEG_HOME": str(room / ".peg")}
        path = long_session(room / "long", turns)
        size = path.stat().st_size / 1e6
        print(f"a session of {turns:,} turns, {size:.1f} MB, {path.read_bytes().count(bytes([10])):,} lines")
        read, read_mb = measured(READ, path, env)
        decode, decode_mb = measured(DECODE, path, env)
        resume, resume_mb = measured(RESUME, path, env)
        print(f"  read once               {read * 1000:8.1f} ms  {read_mb:6.1f} MiB")
        print(f"  read and decoded once   {decode * 1000:8.1f} ms  {decode_mb:6.1f} MiB")
        print(
            f"  resumed                 {resume * 1000:8.1f} ms  {resume_mb:6.1f} MiB"
            f"   {resume / decode:.1f} x decoded once, {resume_mb * 1.048576 / size:.1f} x its size in memory"
        )
        from pegboard.places import find_places

        sessions = find_places(room, env).sessions_dir
        for number in range(1_000):
            long_session(sessions / f"s{number}", 3)
        took, _ = measured(LIST, path, env)
        print(f"a listing of 1,000 sessions {took * 1000:6.1f} ms")
        kept, plain = checkpoint(room)
        print(f"a checkpoint of 1 MB        {kept * 1000:6.2f} ms   {kept / plain:.1f} x a plain write of it")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
