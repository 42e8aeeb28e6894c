"""What a user waits for: from exec to the first model request, a whole one-turn run, a further Read turn, peak memory.

The service is the strict one, in this process; the floor is a bare interpreter started in the same run.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pegboard.testing.messages import MessagesService

ROUNDS = 9
TURNS = 50
PEG = Path(sys.executable).with_name("peg")


def main() -> None:
    """Print the figures, and each as a ratio to the floor."""
    floor = statistics.median(bare() for _ in range(ROUNDS))
    print(f"bare interpreter        {floor * 1000:7.1f} ms")
    hello = [run(["ok"]) for _ in range(ROUNDS)]
    for key, label in (("first", "exec to first request"), ("wall", "whole one-turn run")):
        value = statistics.median(one[key] for one in hello)
        print(f"{label:23} {value * 1000:7.1f} ms   {value / floor:5.1f} x bare")
    print(f"peak memory             {statistics.median(one['rss'] for one in hello) / 1024:7.1f} MiB")
    read = [run([*[reading(number) for number in range(TURNS)], "ok"]) for _ in range(3)]
    turn = statistics.median((one["times"][-1] - one["times"][5]) / (len(one["times"]) - 6) for one in read)
    sent = statistics.median(resend(one["bodies"]) for one in read)
    print(f"a further Read turn     {turn * 1000:7.2f} ms   {turn / sent:5.1f} x the same requests sent blindly")
    print(f"  of it, the client     {(turn - sent) * 1000:7.2f} ms")


def bare() -> float:
    """Seconds that the interpreter takes to start and end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - began


def reading(number: int) -> dict[str, object]:
    """A turn that reads a different part of the file each time, so that nothing is answered from memory."""
    call = {"type": "tool_use", "name": "Read", "id": f"toolu_{number}",
            "input": {"file_path": "a.txt", "offset": number + 1, "limit": 20}}  # fmt: skip
    return {"content": [call]}


def run(script: list[object]) -> dict[str, Any]:
    """One headless run against the service: its times in seconds, its peak memory in KiB, the requests it sent."""
    with tempfile.TemporaryDirectory() as folder, MessagesService(script) as service:
        (Path(folder) / "a.txt").write_text("a line of text\n" * 200)
        environ = {"PATH": os.environ["PATH"], "HOME": folder, "ANTHROPIC_BASE_URL": service.url,
                   "ANTHROPIC_API_KEY": "bench"}  # fmt: skip
        began, wall = time.time(), time.perf_counter()
        process = subprocess.Popen([PEG, "-p", "go", "--output-format", "stream-json"], cwd=folder, env=environ,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)  # fmt: skip
        assert process.stdout is not None
        last = process.stdout.read().splitlines()[-1]
        _, status, usage = os.wait4(process.pid, 0)
        spent = time.perf_counter() - wall
        assert not status and json.loads(last)["subtype"] == "success", last
        times = [seen.at - began for seen in service.requests if seen.path == "/v1/messages"]
        bodies = [seen.raw for seen in service.requests if seen.path == "/v1/messages"]
    return {"first": times[0], "wall": spent, "rss": usage.ru_maxrss, "times": times, "bodies": bodies}


def resend(bodies: list[bytes]) -> float:
    """Seconds a turn of the floor: the recorded requests over one plain connection, answers thrown away."""
    script = [*[reading(number) for number in range(TURNS)], "ok"]
    with MessagesService(script) as service:
        host = urlsplit(service.url)
        connection = http.client.HTTPConnection(host.hostname or "", host.port)
        headers = {"x-api-key": "bench", "anthropic-version": "2023-06-01", "content-type": "application/json"}
        times = []
        for body in bodies:
            times.append(time.perf_counter())
            connection.request("POST", "/v1/messages", body, headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
        connection.close()
    return (times[-1] - times[5]) / (len(times) - 6)


if __name__ == "__main__":
    main()
