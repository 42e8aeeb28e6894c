"""Play cases that are written as data (JSON) through a real `peg call --jsonl`, and check what came of them.

A case is a list of steps in an empty folder - shell lines and tool calls, in order - and checks on the results and
on the folder afterwards. So the same cases can examine any program that speaks the same lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

REPEAT = re.compile(r"\$REPEAT\((.*?),(\d+)\)", re.DOTALL)
NOBODY = 65534
NEEDS_PLAIN_USER = "needs a non-root user"

ALLOW = ("Edit(//**)", "Read(//**)", "Bash")
"""Rules under which the cases are played: they examine tools, not permissions."""


@dataclass
class Played:
    """What came of a case: one result for each call, the seconds each took, and the folder."""

    folder: Path
    user: Sequence[str] = ()
    """Words put before a command so that it runs as the user of the case."""
    results: list[dict[str, Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    exit_code: int = 0
    noise: str = ""
    """What was written to stderr."""

    def text(self, call: int = -1) -> str:
        """The text of one result, without its other blocks."""
        return plain(self.results[call]["text"])

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a shell line in the folder of the case."""
        return subprocess.run(
            [*self.user, "bash", "-c", line],
            cwd=self.folder,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )


class Pipe:
    """A running `peg call --jsonl`: lines in, lines out. Use as a context manager."""

    def __init__(
        self,
        folder: Path,
        home: Path,
        *,
        allow: Sequence[str] = ALLOW,
        options: Sequence[str] = (),
        before: Sequence[str] = (),
    ) -> None:
        flags = [part for rule in allow for part in ("--allow", rule)]
        self._noise = home / "stderr"
        with open(self._noise, "wb") as noise:
            self._process = subprocess.Popen(
                [*before, sys.executable, "-m", "pegboard", "call", "--jsonl", *flags, *options],
                cwd=folder,
                env=environment(home),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=noise,
            )

    def ask(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Send one request line; the results of its calls, in order."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode("ascii") + b"\n")
        self._process.stdin.flush()
        results = []
        for _ in request.get("calls", [None]):
            line = self._process.stdout.readline()
            if not line:
                raise AssertionError(
                    f"the process ended without an answer: {self._noise.read_text('utf-8', 'replace')}"
                )
            results.append(json.loads(line.decode("utf-8")))
        return results

    def close(self) -> tuple[int, str]:
        """End the input; the exit code, and what was written to stderr."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(timeout=60)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code, self._noise.read_text("utf-8", "replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def environment(home: Path) -> dict[str, str]:
    """An environment in which nothing of the machine's own settings is seen."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PEG_", "ANTHROPIC_"))}
    return kept | {
        "HOME": str(home),
        "PEG_HOME": str(home / ".peg"),
        "PEG_MANAGED_DIR": str(home / "managed"),
        "PYTHONUTF8": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def plain_user(case: Mapping[str, Any]) -> Sequence[str]:
    """Words that make a command run as somebody else than root, where the case asks for that and we are root."""
    if NEEDS_PLAIN_USER not in case.get("note", "") or os.geteuid() != 0:
        return ()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise AssertionError("setpriv is needed to play this case as another user than root")
    return (setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")


def play(
    case: Mapping[str, Any],
    place: Path,
    *,
    installed: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Played:
    """Play the steps of a case in ``place``, which must exist and be empty.

    ``installed``: names of the tools that are there; a call of Bash becomes a shell step where Bash is not.
    ``options``: more words for the command line.
    """
    folder, home = place / "work", place / "home"
    user = plain_user(case)
    for path in (folder, home):
        path.mkdir(mode=0o755)
        if user:
            os.chown(path, NOBODY, NOBODY)
    played = Played(folder, user)
    with Pipe(folder, home, options=options, before=user) as pipe:
        for step in case["input"]["steps"]:
            if "sh" in step:
                _shell(played, step["sh"])
                continue
            calls = step["parallel"] if "parallel" in step else [step["call"]]
            if calls[0]["tool"] == "Bash" and "Bash" not in installed:
                _shell(played, calls[0]["input"]["command"])
                continue
            calls = [{"tool": item["tool"], "input": filled(item["input"], folder)} for item in calls]
            started = time.monotonic()
            played.results += pipe.ask({"calls": calls} if "parallel" in step else calls[0])
            played.seconds += [time.monotonic() - started] * len(calls)
        played.exit_code, played.noise = pipe.close()
    return played


def _shell(played: Played, line: str) -> None:
    done = played.shell(line)
    assert done.returncode == 0, f"the step {line!r} failed: {done.stderr}"


def filled(value: Any, folder: Path) -> Any:
    """A step's input with ``$W`` and ``$REPEAT(c,n)`` filled in, at any depth."""
    if isinstance(value, str):
        value = value.replace("$W", str(folder))
        return REPEAT.sub(lambda match: match[1] * int(match[2]), value)
    if isinstance(value, Mapping):
        return {key: filled(item, folder) for key, item in value.items()}
    return [filled(item, folder) for item in value] if isinstance(value, list) else value


def plain(text: Any) -> str:
    """The text of a result, be it a string or blocks."""
    if isinstance(text, str):
        return text
    return "\n".join(block["text"] for block in text if block.get("type") == "text")


def problems(case: Mapping[str, Any], played: Played) -> list[str]:
    """What the checks of the case object to, one line each."""
    found = []
    for check in case["check"]:
        if "result" in check:
            wanted = dict(check["result"])
            call = wanted.pop("call", -1)
            for kind, value in wanted.items():
                said = CHECKS[kind](played, call, value)
                if said:
                    found.append(f"call {call}, {kind}: {said}")
        else:
            done = played.shell(check["sh"])
            if done.returncode != check.get("rc", 0):
                found.append(f"after the case, {check['sh']!r} ended with {done.returncode}: {done.stderr}")
    return found


def _contains(played: Played, call: int, wanted: list[str]) -> str:
    text = played.text(call)
    missing = [item for item in wanted if item not in text]
    return f"{missing} not in {text!r}" if missing else ""


def _not_contains(played: Played, call: int, wanted: list[str]) -> str:
    text = played.text(call)
    present = [item for item in wanted if item in text]
    return f"{present} in {text!r}" if present else ""


def _not_regex(played: Played, call: int, wanted: list[str]) -> str:
    text = played.text(call)
    present = [item for item in wanted if re.search(item, text, re.MULTILINE)]
    return f"{present} matches {text!r}" if present else ""


def _is_error(played: Played, call: int, wanted: bool) -> str:
    result = played.results[call]
    return "" if result["is_error"] is wanted else f"{result['is_error']}: {result['text']!r}"


def _max_seconds(played: Played, call: int, wanted: float) -> str:
    """Start-up of the process counts for the first call; the bound stands for "does not hang"."""
    return "" if played.seconds[call] <= wanted + 5 else f"took {played.seconds[call]:.1f} s"


def _max_chars(played: Played, call: int, wanted: int) -> str:
    size = len(played.text(call))
    return "" if size <= wanted else f"{size} characters"


def _order(played: Played, call: int, wanted: list[str]) -> str:
    places = [played.text(call).find(item) for item in wanted]
    return "" if -1 not in places and places == sorted(places) else f"{wanted} stand at {places}"


def _count(played: Played, call: int, wanted: dict[str, int]) -> str:
    counts = {item: played.text(call).count(item) for item in wanted}
    return "" if counts == wanted else f"{counts}"


def _json_safe(played: Played, call: int, wanted: bool) -> str:
    """The line was decoded as UTF-8 already; what is left is half a character hidden behind an escape."""
    text = json.dumps(played.results[call], ensure_ascii=False)
    return "" if not any("\ud800" <= char <= "\udfff" for char in text) else "holds half a character"


def _blocks(played: Played, call: int) -> list[dict[str, Any]]:
    text = played.results[call]["text"]
    return [] if isinstance(text, str) else text


def _no_block_type(played: Played, call: int, wanted: str) -> str:
    present = [
        item for result in played.results for item in (result["text"] if isinstance(result["text"], list) else ())
    ]
    return f"a block of type {wanted}" if any(block["type"] == wanted for block in present) else ""


def _image_max_side(played: Played, call: int, wanted: int) -> str:
    import base64

    for block in _blocks(played, call):
        if block["type"] == "image":
            width, height = image_size(base64.b64decode(block["source"]["data"]))
            if max(width, height) > wanted:
                return f"{width}x{height}"
    return ""


def image_size(data: bytes) -> tuple[int, int]:
    """Width and height of a PNG or a JPEG."""
    if data.startswith(b"\x89PNG"):
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        if 0xC0 <= data[at + 1] <= 0xCF and data[at + 1] not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    raise AssertionError("neither a PNG nor a JPEG")


def _exit_code(played: Played, call: int, wanted: int) -> str:
    return "" if played.exit_code == wanted else f"{played.exit_code}"


CHECKS: dict[str, Callable[[Played, int, Any], str]] = {
    "contains": _contains,
    "not_contains": _not_contains,
    "not_regex": _not_regex,
    "is_error": _is_error,
    "max_seconds": _max_seconds,
    "max_chars": _max_chars,
    "order": _order,
    "count": _count,
    "json_safe": _json_safe,
    "no_block_type": _no_block_type,
    "image_max_side": _image_max_side,
    "exit_code": _exit_code,
}
"""Check of a result -> what it objects to, or an empty text."""
