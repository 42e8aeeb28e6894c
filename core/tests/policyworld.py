"""A small world to decide in: manifests of the tools, what they access, a project and a home."""

from __future__ import annotations

from pegboard.manifest import Manifest
from pegboard.policy import Mode, Snapshot, decide, parse_rule, resolve_accesses
from pegboard.tool import Access


def tool(name: str, **given: object) -> Manifest:
    return Manifest(name=name, summary=name, api=1, **given)  # type: ignore[arg-type]


TOOLS = {
    manifest.name: manifest
    for manifest in (
        tool("Read", family="Read", concurrency="read"),
        tool("Glob", family="Read", concurrency="read"),
        tool("Grep", family="Read", concurrency="read"),
        tool("Edit", family="Edit", effects=["file"]),
        tool("Write", family="Edit", effects=["file"]),
        tool("NotebookEdit", family="Edit", effects=["file"]),
        tool("Bash", effects=["process", "file", "network"]),
        tool("WebFetch", concurrency="read"),
        tool("WebSearch", concurrency="read"),
        tool("Skill", concurrency="session", effects=["mode"]),
        tool("Task", concurrency="spawn", aliases=["Agent"], ask=False),
        tool("Workflow", concurrency="spawn", aliases=["RunWorkflow"]),
        tool("TodoWrite", ask=False, effects=["registry"]),
        tool("TaskList", concurrency="read"),
        tool("AskUserQuestion", concurrency="session", person=True),
        tool("mcp__mail__send", effects=["remote"]),
        tool("mcp__mail__list", concurrency="read"),
        tool("Plain"),
    )
}

SPECIFIC = {
    "Read": lambda given: [Access.read(given["file_path"])],
    "Glob": lambda given: [Access.read(given["path"])],
    "Grep": lambda given: [Access.read(given["path"])],
    "Edit": lambda given: [Access.edit(given["file_path"])],
    "Write": lambda given: [Access.edit(given["file_path"])],
    "NotebookEdit": lambda given: [Access.edit(given["notebook_path"])],
    "Bash": lambda given: [Access.run(part) for part in given["command"].split(" && ")],
    "WebFetch": lambda given: [Access.fetch(given["host"])],
    "Skill": lambda given: [Access.use(given["skill"])],
    "Task": lambda given: [Access.use(given["subagent_type"])],
    "Workflow": lambda given: [Access.use(given["name"])],
    "WebSearch": lambda given: [Access.use("search")],
}


def rules(scope: str = "user", **texts: list[str]):
    return [parse_rule(text, effect=effect, scope=scope) for effect, each in texts.items() for text in each]


class World:
    def __init__(self, base) -> None:
        base = base.resolve()
        self.cwd, self.home = base / "w" / "proj", base / "home" / "u"
        self.cwd.mkdir(parents=True)
        self.home.mkdir(parents=True)

    def snapshot(self, given=(), *, mode=Mode.DEFAULT, trusted=True, **more) -> Snapshot:
        return Snapshot.make(given, mode=mode, cwd=more.pop("cwd", self.cwd), home=self.home, trusted=trusted, **more)

    def judge(self, name, given=None, ruled=(), **more):
        return self.under(self.snapshot(ruled, **more), name, given)

    def under(self, snapshot, name, given=None):
        given = given or {}
        accesses = SPECIFIC[name](given) if name in SPECIFIC else []
        return decide(TOOLS[name], given, resolve_accesses(accesses, snapshot), snapshot)

    def edit(self, path, ruled=(), **more):
        return self.judge("Edit", {"file_path": str(self.cwd / path)}, ruled, **more).verdict

    def read(self, path, ruled=(), **more):
        return self.judge("Read", {"file_path": str(self.cwd / path)}, ruled, **more).verdict

    def bash(self, command, ruled=(), **more):
        return self.judge("Bash", {"command": command}, ruled, **more).verdict
