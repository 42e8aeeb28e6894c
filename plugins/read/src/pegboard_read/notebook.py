"""Jupyter notebooks: cells with their ids, sources and outputs, as NotebookEdit will address them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pegboard_files.disk import size_text

from pegboard_read.lines import Limits, tokens
from pegboard_read.models import Cell, NotebookFile
from pegboard_read.picture import damaged

NOTEBOOK_BYTES = 100 * 1024 * 1024
"""[D] Largest notebook file."""

OUTPUT_CHARS = 10_000
"""[C] Characters of one output that are shown."""

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def read_notebook(
    raw: bytes, path: str, shown: str, limits: Limits, offset: int | None, limit: int | None
) -> tuple[NotebookFile, list[str], bool]:
    """The cells of a notebook, what has to be said about them, and whether the view is complete.

    Blocking; call it in a thread. Raises `Refusal` (io_error) for what is no notebook.
    """
    notebook = _parsed(raw, shown)
    cells = notebook["cells"]
    first = offset or 1
    chosen: list[Cell] = []
    room = limits.tokens
    for index in range(first - 1, len(cells)):
        if limit is not None and len(chosen) == limit:
            break
        cell = _cell(cells[index], index, shown)
        size = tokens(words(cell))
        if size > room and (chosen or size > limits.tokens):
            break
        room -= size
        chosen.append(cell)
    notes = _faults(notebook)
    wanted = len(cells) - first + 1 if limit is None else min(limit, len(cells) - first + 1)
    complete = len(chosen) >= max(0, wanted)
    if first > len(cells) > 0:
        notes.append(f"Offset {first} is past the end: the notebook has {len(cells)} cells.")
    elif not complete:
        last = first + len(chosen) - 1
        after = (
            f"Read on with offset {last + 1}." if chosen else "Its next cell alone is too large; use a shell command."
        )
        notes.append(f"PARTIAL view: {len(chosen)} of {len(cells)} cells are shown ({first} to {last}). {after}")
    elif not cells:
        notes.append("The notebook has no cells.")
    return NotebookFile(filePath=path, cells=chosen, totalCells=len(cells)), notes, complete


def words(cell: Cell) -> str:
    """A cell as the model reads it."""
    count = f' count="{cell.executionCount}"' if cell.executionCount is not None else ""
    parts = [f'<cell id="{cell.id}" type="{cell.cellType}"{count}>', cell.source, "</cell>"]
    for output in cell.outputs:
        parts += [f'<output of="{cell.id}">', output, "</output>"]
    return "\n".join(parts)


def _parsed(raw: bytes, shown: str) -> dict[str, Any]:
    found: Any
    try:
        found = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise damaged(shown, "notebook", "it is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise damaged(shown, "notebook", f"it is not JSON ({error})") from None
    if not isinstance(found, dict) or not isinstance(found.get("nbformat"), int):
        raise damaged(shown, "notebook", "it has no format version")
    if found["nbformat"] < 4:
        found = _converted(raw, shown)
    cells = found.get("cells")
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise damaged(shown, "notebook", "it has no list of cells")
    return dict(found)


def _converted(raw: bytes, shown: str) -> dict[str, Any]:
    """A notebook of an older format, in the present one."""
    import nbformat

    try:
        old = nbformat.reader.reads(raw.decode("utf-8-sig"))
        new: dict[str, Any] = nbformat.convert(old, 4)
    except Exception as error:
        raise damaged(shown, "notebook", f"its old format cannot be converted ({error})") from None
    return new


def _faults(notebook: dict[str, Any]) -> list[str]:
    """What the format's own schema objects to, in one line."""
    from nbformat.validator import iter_validate

    try:
        first = next(iter(iter_validate(notebook, relax_add_props=True)), None)
    except Exception as error:
        first = error
    if first is None:
        return []
    complaint = str(getattr(first, "message", first)).splitlines()[0][:200]
    return [f"The notebook does not follow its format: {complaint}"]


def _cell(cell: dict[str, Any], index: int, shown: str) -> Cell:
    source = _joined(cell.get("source", ""))
    if source is None or not isinstance(cell.get("cell_type"), str):
        raise damaged(shown, "notebook", f"cell {index} has no type or no source")
    count = cell.get("execution_count")
    outputs = cell.get("outputs")
    return Cell(
        id=str(cell.get("id") or f"cell-{index}"),
        cellType=cell["cell_type"],
        source=source,
        executionCount=count if isinstance(count, int) else None,
        outputs=[text for output in outputs if isinstance(output, dict) for text in _output(output)]
        if isinstance(outputs, list)
        else [],
    )


def _output(output: dict[str, Any]) -> Iterator[str]:
    if output.get("output_type") == "error":
        trace = _joined(output.get("traceback", []), "\n") or ""
        yield _short(_COLOURS.sub("", trace) or f"{output.get('ename')}: {output.get('evalue')}")
        return
    if "text" in output:
        yield _short(_COLOURS.sub("", _joined(output["text"]) or ""))
        return
    data = output.get("data")
    data = data if isinstance(data, dict) else {}
    for kind, value in data.items():
        text = _joined(value) if isinstance(value, str | list) else json.dumps(value, ensure_ascii=False)
        if kind.startswith("text/") and kind != "text/html" and text is not None:
            yield _short(_COLOURS.sub("", text))
        elif kind == "text/html" and "text/plain" in data:
            continue
        elif kind.startswith("text/") or kind.endswith(("json", "xml")):
            yield _short(text or "")
        else:
            yield f"[{kind}, {size_text(len(text or '') * 3 // 4)}]"


def _short(text: str) -> str:
    text = text.rstrip("\n")
    if len(text) <= OUTPUT_CHARS:
        return text
    return f"{text[:OUTPUT_CHARS]}\n[output cut: {OUTPUT_CHARS:,} of {len(text):,} characters are shown]"


def _joined(value: object, glue: str = "") -> str | None:
    """Text that the format stores as one string or as a list of lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = glue.join(value)
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None
