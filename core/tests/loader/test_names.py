"""One rule for names, held for all tools of the product."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard import names

TABLE = {
    "Read": "read", "Edit": "edit", "Write": "write", "NotebookEdit": "notebook-edit", "Glob": "glob", "Grep": "grep",
    "LSP": "lsp", "WebFetch": "web-fetch", "WebSearch": "web-search", "Bash": "bash",
    "AskUserQuestion": "ask-user-question", "EnterPlanMode": "enter-plan-mode", "ExitPlanMode": "exit-plan-mode",
    "EnterWorktree": "enter-worktree", "ExitWorktree": "exit-worktree", "Task": "task", "TaskCreate": "task-create",
    "TaskGet": "task-get", "TaskList": "task-list", "TaskUpdate": "task-update", "TaskOutput": "task-output",
    "TodoWrite": "todo-write", "SendMessage": "send-message", "Skill": "skill", "Workflow": "workflow",
    "Artifact": "artifact", "CronCreate": "cron-create", "CronDelete": "cron-delete", "CronList": "cron-list",
}  # fmt: skip


def test_the_rule_holds_for_all_29():
    assert len(TABLE) == 29
    for tool, folder in TABLE.items():
        assert names.kebab(tool) == folder
        assert names.pascal(folder) == tool
        assert names.snake(tool) == folder.replace("-", "_")
        assert names.distribution(tool) == f"pegboard-{folder}"
        assert names.module(tool) == f"pegboard_{folder.replace('-', '_')}"
        assert names.bundled()[names.distribution(tool)] == tool
    brought = {tool for tool in names.bundled().values() if tool}
    assert brought == TABLE.keys() | {"ToolSearch", "TaskStop"}


def test_every_distribution_of_the_repository_is_listed():
    from pathlib import Path

    root = Path(__file__).resolve().parents[3]
    here = [
        path.parent.name for pattern in ("plugins/*", "contrib/*/*") for path in root.glob(f"{pattern}/pyproject.toml")
    ]
    assert here
    assert {f"pegboard-{name}" for name in here} <= names.bundled().keys()


def test_mixed_spellings():
    assert names.kebab("LSPTool") == "lsp-tool"
    assert names.kebab("web_fetch") == names.kebab("Web Fetch") == names.kebab("web-fetch") == "web-fetch"
    assert names.pick("bash", ["Bash", "Read"]) == "Bash"
    assert names.pick("web-fetch", ["WebFetch"]) == "WebFetch"
    assert names.pick("x", ["Bash"]) is None
    assert names.pick("ab", ["Ab", "aB"]) is None
    assert names.close("raed", ["Read", "Write"]) == ["Read"]
    assert names.normal("Acme.Tool__Box") == "acme-tool-box"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.from_regex(r"[a-z][a-z0-9]{1,6}", fullmatch=True), min_size=1, max_size=4))
def test_kebab_and_pascal_undo_each_other(words):
    kebab = "-".join(words)
    assert names.kebab(names.pascal(kebab)) == kebab
    assert names.fold(names.pascal(kebab)) == names.fold(kebab)
