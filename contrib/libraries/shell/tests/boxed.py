"""Runs commands in a real bash in a box where most programs only write down that they were run, and with what.

Used by the differential test and by the measurement with more commands. The box has no network, no capabilities, no
further user namespaces; only its own folder can be written.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pegboard_shell.known import know
from pegboard_shell.read import parse
from pegboard_shell.script import Script, Segment
from pegboard_shell.tables import builtins

STUBS = ("rm", "curl", "ls", "id", "cat", "git", "npm", "make", "cp", "sed", "grep", "wc", "tee", "foo", "bar", "node")
REAL = ("env", "timeout", "nice", "nohup", "stdbuf", "xargs", "find", "bash", "sh", "seq")
HOME = "/home/u"

EVALUATING = builtins().opaque | {"test", "[", "[[", "printf"}
"""Builtins that may run what one of their words holds; what is said about them counts as a doubt."""

_STREAM = re.compile(r"/dev/fd/\d+")

RECORD = """#!/bin/sh
printf '%s\\0' "$PWD" "${0##*/}" "$@" '@end' >>"$RAN"
"""

DRIVER = """
import json, os, subprocess, sys
base, shell = sys.argv[1], sys.argv[2]
commands = json.load(open(base + "/commands.json"))
results = []
for number, command in enumerate(commands):
    where, ran = f"{base}/in/{number}", f"{base}/ran/{number}"
    os.makedirs(where + "/sub")
    env = {"PATH": base + "/stubs", "HOME": sys.argv[3], "RAN": ran, "LC_ALL": "C.UTF-8"}
    out = subprocess.DEVNULL
    late = False
    try:
        child = subprocess.Popen([shell, "-c", command], cwd=where, env=env, stdin=out, stdout=out, stderr=out,
                                 start_new_session=True)
        try:
            child.wait(3)
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(child.pid, 9)
            child.wait()
    except (OSError, ValueError) as error:
        late = True
    runs = []
    try:
        data = open(ran, "rb").read().decode("utf-8", "surrogateescape")
        for line in data.split("\\0@end\\0"):
            if line:
                runs.append(line.split("\\0"))
    except FileNotFoundError:
        pass
    made = []
    for folder, _, files in os.walk(where):
        made += [os.path.relpath(os.path.join(folder, name), where) for name in files]
    results.append({"runs": runs, "made": made, "late": late})
json.dump(results, open(base + "/results.json", "w"))
"""


def missing() -> str:
    """Why no box can be made here; empty if one can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    return "" if shutil.which("bash") else "bash is not installed"


def run(commands: list[str], base: Path) -> list[dict]:
    """Run each command in a folder of its own; gives what ran, which files there are, and whether it took too long."""
    base = base.resolve()
    for folder in ("stubs", "in", "ran"):
        (base / folder).mkdir()
    for name in STUBS:
        stub = base / "stubs" / name
        stub.write_text(RECORD)
        stub.chmod(0o755)
    for name in REAL:
        found = shutil.which(name)
        assert found, f"{name} is not installed"
        (base / "stubs" / name).symlink_to(os.path.realpath(found))
    (base / "commands.json").write_text(json.dumps(commands))
    (base / "driver.py").write_text(DRIVER)
    box = [
        "bwrap", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--unshare-net", "--unshare-pid",
        "--unshare-ipc", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--tmpfs", "/tmp", "--tmpfs",
        "/home", "--dir", HOME, "--dev", "/dev", "--proc", "/proc", "--bind", str(base), str(base), "--clearenv",
        "--setenv", "PATH", "/usr/bin:/bin",
    ]  # fmt: skip
    program = os.path.realpath(sys.executable)
    subprocess.run([*box, program, "-S", "-I", str(base / "driver.py"), str(base), "/bin/bash", HOME], check=True)
    return json.loads((base / "results.json").read_text())


@dataclass
class Verdict:
    """What a command did against what was seen in it."""

    command: str
    certain: bool
    missed: list[str]


def compare(command: str, result: dict, where: str) -> Verdict:
    """Check that whatever ran was seen. ``where``: the folder it ran in."""
    script = parse(command, cwd=where, home=HOME)
    problems = [*script.problems, *(problem for segment in script.segments for problem in segment.problems)]
    certain = all(problem.weight == "risk" for problem in problems)
    certain = certain and not any(know(each).doubts for each in script.segments if each.name in EVALUATING)
    missed = []
    for folder, *argv in result["runs"]:
        if not any(_could_be(segment, argv, folder) for segment in script.segments):
            missed.append(f"ran {argv} in {os.path.relpath(folder, where)}")
    for name in result["made"]:
        if not _written(script, where, name):
            missed.append(f"wrote {name}")
    return Verdict(command, certain, missed)


def _could_be(segment: Segment, argv: list[str], folder: str) -> bool:
    if segment.name != argv[0].rpartition("/")[2]:
        return False
    if segment.dirs is not None and folder not in {os.path.normpath(each) for each in segment.dirs}:
        return False
    given = argv[1:]
    for word in segment.argv[1:]:
        if word.kind != "literal" and word.many:
            return all(each.startswith(word.lead) for each in given[:1]) or word.kind == "unknown"
        if not given:
            return False
        fits = _STREAM.fullmatch(given[0]) if word.text == "/dev/fd/63" else None
        fits = fits or (given[0] == word.text if word.literal else given[0].startswith(word.lead))
        if not fits:
            return False
        given = given[1:]
    return not given


def _written(script: Script, where: str, name: str) -> bool:
    for segment in script.segments:
        for redirect in segment.redirects:
            if redirect.writes and redirect.target is not None:
                word = redirect.target
                if not word.literal or segment.dirs is None:
                    return True
                if any(os.path.normpath(os.path.join(base, word.text)) == f"{where}/{name}" for base in segment.dirs):
                    return True
    return False
