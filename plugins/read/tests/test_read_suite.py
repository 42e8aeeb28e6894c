"""Read takes the exam that every tool takes."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pegboard.testing.suite import ToolSuite, case

NOTEBOOK = json.dumps(
    {
        "cells": [{"cell_type": "markdown", "id": "t1", "metadata": {}, "source": ["# t\n", "x"]}],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
)


def fifo(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


class TestRead(ToolSuite):
    tool = "Read"
    good = [
        case({"file_path": "{tmp}/a.txt"}, files={"a.txt": "x\ny\n"}, says=["1\tx", "2\ty"]),
        case({"file_path": "a.txt", "offset": 2, "limit": 1}, files={"a.txt": "x\ny\nz\n"}, says="2\ty"),
        case({"file_path": "{tmp}/n.ipynb"}, files={"n.ipynb": NOTEBOOK}, says='<cell id="t1" type="markdown">'),
    ]
    bad = [
        case({"file_path": "{tmp}/none"}, code="not_found"),
        case({"file_path": "{tmp}"}, code="precondition_failed"),
        case({"file_path": "{tmp}/pipe"}, make=fifo, code="precondition_failed"),
        case({"file_path": "{tmp}/b.bin"}, files={"b.bin": b"\0\1\2"}, code="precondition_failed"),
        case({"file_path": "{tmp}/a.txt", "pages": "x"}, files={"a.txt": "x"}, code="invalid_input"),
        case({"file_path": "{tmp}/a.txt", "offset": 0}, files={"a.txt": "x"}, code="invalid_input"),
        case({"file_path": "{tmp}/c.png"}, files={"c.png": "no picture"}, code="io_error"),
    ]
