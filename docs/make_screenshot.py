"""Make docs/tour.svg: run `peg tour` in a pseudo-terminal and draw what it printed.

make screenshot
"""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 100
TARGET = Path(__file__).parent / "tour.svg"


def record(argv: list[str]) -> str:
    """Everything that a command writes to its terminal."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    said = bytearray()
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environ) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # the end of a terminal is an error on Linux
            while data := os.read(ours, 65536):
                said += data
    os.close(ours)
    text = said.decode("utf-8").replace("\r\n", "\n")
    if process.returncode:
        sys.exit(f"{argv[0]} failed:\n{text}")
    return text


def main() -> None:
    """Draw the tour."""
    text = record([str(Path(sys.executable).with_name("peg")), "tour"])
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("$ peg tour\n" + text))
    drawn = console.export_svg(title="peg tour", unique_id="tour")
    # The picture must not fetch anything: system fonts serve as well.
    drawn = re.sub(r"@font-face \{.*?\}|<!--.*?-->", "", drawn, flags=re.DOTALL)
    TARGET.write_text("\n".join(line.rstrip() for line in drawn.splitlines() if line.strip()) + "\n", "utf-8")


if __name__ == "__main__":
    main()
