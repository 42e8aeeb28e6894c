"""Edit takes the exam that every tool takes."""

from __future__ import annotations

from pathlib import Path

from pegboard.testing.suite import ToolSuite, case

READ = [("Read", {"file_path": "{tmp}/a.txt"})]


def link(folder: Path) -> None:
    (folder / "link").symlink_to("a.txt")


class TestEdit(ToolSuite):
    tool = "Edit"
    good = [
        case(
            {"file_path": "{tmp}/a.txt", "old_string": "x", "new_string": "z"},
            files={"a.txt": "x\ny\n"},
            before=READ,
            says="1\tz",
            leaves={"a.txt": "z\ny\n"},
        ),
        case(
            {"file_path": "{tmp}/a.txt", "old_string": "x", "new_string": "z", "replace_all": True},
            files={"a.txt": "x\r\nx\r\n"},
            before=READ,
            leaves={"a.txt": b"z\r\nz\r\n"},
        ),
        case(
            {"file_path": "{tmp}/new/b.txt", "old_string": "", "new_string": "made\n"},
            leaves={"new/b.txt": "made\n"},
        ),
        case(
            {"file_path": "{tmp}/link", "old_string": "x", "new_string": "z"},
            files={"a.txt": "x\n"},
            make=link,
            before=READ,
            leaves={"a.txt": "z\n"},
        ),
    ]
    bad = [
        case({"file_path": "{tmp}/a.txt", "old_string": "x", "new_string": "z"}, files={"a.txt": "x"}, code="not_read"),
        case({"file_path": "{tmp}/none", "old_string": "x", "new_string": "z"}, code="not_found"),
        case(
            {"file_path": "{tmp}/a.txt", "old_string": "q", "new_string": "z"},
            files={"a.txt": "x\n"},
            before=READ,
            code="not_found",
        ),
        case(
            {"file_path": "{tmp}/a.txt", "old_string": "x", "new_string": "z"},
            files={"a.txt": "x\nx\n"},
            before=READ,
            code="ambiguous",
            says=["2 times", "1, 2"],
        ),
        case(
            {"file_path": "{tmp}/a.txt", "old_string": "x", "new_string": "x"},
            files={"a.txt": "x\n"},
            before=READ,
            code="invalid_input",
        ),
        case(
            {"file_path": "{tmp}/n.ipynb", "old_string": "x", "new_string": "z"},
            files={"n.ipynb": "{}"},
            code="invalid_input",
            says="NotebookEdit",
        ),
        case({"file_path": "{tmp}", "old_string": "x", "new_string": "z"}, code="precondition_failed"),
    ]
