"""One name rule for the 29 tools: WebFetch = pegboard-web-fetch = pegboard_web_fetch = plugins/web-fetch."""

from __future__ import annotations

import ast
import re
import tomllib

from pegboard.names import distribution, kebab, module, pascal

TOOLS = (
    "Read", "Edit", "Write", "NotebookEdit", "Glob", "Grep", "LSP", "WebFetch", "WebSearch", "Bash",
    "AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "EnterWorktree", "ExitWorktree", "Task", "TaskCreate",
    "TaskGet", "TaskList", "TaskUpdate", "TaskOutput", "TodoWrite", "SendMessage", "Skill", "Workflow", "Artifact",
    "CronCreate", "CronDelete", "CronList",
)  # fmt: skip

BANNED = ("Manager", "Handler", "Helper", "Util", "Utils", "Base", "Abstract")


def test_there_are_29():
    assert len(TOOLS) == len(set(TOOLS)) == len(set(map(kebab, TOOLS))) == 29
    assert [kebab(name) for name in ("WebFetch", "LSP", "TodoWrite", "EnterPlanMode")] == [
        "web-fetch", "lsp", "todo-write", "enter-plan-mode",
    ]  # fmt: skip
    assert [pascal(kebab(name)) for name in TOOLS] == list(TOOLS)


def test_folders_distributions_and_imports_agree(repository):
    folders = {kebab(name): name for name in TOOLS}
    for found in (found for found in repository.distributions if found.kind == "tool"):
        folder = found.folder.name
        assert folder in folders, f"plugins/{folder} is none of the 29"
        assert found.name == distribution(folders[folder])
        assert found.source.is_dir(), f"{found.source} is missing"
        points = found.project["entry-points"]["pegboard.tools"]
        assert points == {folders[folder]: f"{module(folders[folder])}.tool:{folders[folder]}"}
        manifest = tomllib.loads((found.source / "tool.toml").read_text("utf-8"))
        assert manifest["name"] == folders[folder]


def test_plugins_hold_tools_only(repository):
    stray = [
        path.name
        for path in (repository.root / "plugins").iterdir()
        if path.is_dir() and any(path.iterdir()) and path.name not in {kebab(name) for name in TOOLS}
    ]
    assert not stray


def test_classes_are_nouns_of_the_field(repository):
    """A class named by what it is, not by the fact that it does something."""
    broken = []
    for found in repository.distributions:
        for path in found.files():
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef) and re.search(
                    rf"({'|'.join(BANNED)})$|^Abstract|^Base[A-Z]", node.name
                ):
                    broken.append(f"{repository.shown(path)}:{node.lineno} {node.name}")
    assert not broken, "\n".join(broken)


def test_every_module_says_what_and_why(repository):
    silent = [
        repository.shown(path)
        for found in repository.distributions
        for path in found.files()
        if path.stat().st_size and not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert not silent, "no module docstring: " + ", ".join(silent)
