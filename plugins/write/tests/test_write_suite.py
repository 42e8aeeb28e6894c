"""Write takes the exam that every tool takes."""

from __future__ import annotations

from pegboard.testing.suite import ToolSuite, case

READ = [("Read", {"file_path": "{tmp}/a.txt"})]


class TestWrite(ToolSuite):
    tool = "Write"
    good = [
        case({"file_path": "{tmp}/new.txt", "content": "hi\n"}, says="Created", leaves={"new.txt": "hi\n"}),
        case({"file_path": "{tmp}/a/b/c.txt", "content": ""}, leaves={"a/b/c.txt": ""}),
        case(
            {"file_path": "{tmp}/a.txt", "content": "new\n"},
            files={"a.txt": "old\n"},
            before=READ,
            says="Replaced",
            leaves={"a.txt": "new\n"},
        ),
    ]
    bad = [
        case({"file_path": "{tmp}/a.txt", "content": "x"}, files={"a.txt": "old"}, code="not_read"),
        case({"file_path": "{tmp}", "content": "x"}, code="precondition_failed"),
        case({"file_path": "{tmp}/a.txt/b", "content": "x"}, files={"a.txt": "f"}, code="precondition_failed"),
        case({"file_path": "{tmp}/n.ipynb", "content": "x"}, code="invalid_input"),
        case({"file_path": "{tmp}/s.txt", "content": "x\ud83d"}, code="invalid_input"),
    ]
