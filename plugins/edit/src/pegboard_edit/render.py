"""A finished edit in words: one sentence, then the lines around the first change as they are now."""

from __future__ import annotations

from pegboard_edit.models import EditOutput

SHOWN_LINES = 200
"""[C] Lines of the change that are shown."""

LINE_CHARS = 500
"""[C] Characters of one of these lines."""


def words(output: EditOutput, shown: str) -> str:
    """What the model reads."""
    patch = output.structuredPatch
    if output.originalFile == "" or not patch or not any(hunk.oldLines for hunk in patch):
        said = f"{shown} now holds the given text."
    elif output.replaceAll:
        said = f"Edited {shown}: every occurrence was replaced."
    else:
        said = f"Edited {shown}."
    if not patch:
        return said
    number, lines = patch[0].newStart, []
    for line in patch[0].lines:
        if line[:1] in (" ", "+"):
            lines.append(f"{number}\t{_short(line[1:])}")
            number += 1
    if len(lines) > SHOWN_LINES:
        lines = [*lines[:SHOWN_LINES], f"[{len(lines) - SHOWN_LINES} more lines]"]
    others = [str(hunk.newStart) for hunk in patch[1:]]
    if others:
        more = f" and {len(others) - 20} more" if len(others) > 20 else ""
        lines.append(f"[Also changed, from line: {', '.join(others[:20])}{more}]")
    return "\n".join([said, *lines])


def _short(line: str) -> str:
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} … [{len(line):,} characters]"
