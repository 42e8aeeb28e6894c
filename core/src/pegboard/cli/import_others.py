"""Servers, scheduled jobs and instructions of other tools: all are listed, only instructions are ever taken over."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pegboard.cli.import_plan import Left, Mapped, Plan, digest_of
from pegboard.errors import UsageError
from pegboard.places import Places
from pegboard.settings_files import Unparsable, parse_json, parse_toml, read_text

DESKTOP = {
    "darwin": "Library/Application Support/Claude/claude_desktop_config.json",
    "win32": "AppData/Roaming/Claude/claude_desktop_config.json",
}

INSTRUCTIONS = (
    ".cursorrules", ".cursor/rules", ".github/copilot-instructions.md", "GEMINI.md", ".windsurfrules",
    ".windsurf/rules", ".clinerules",
)  # fmt: skip
"""Files, or folders of files, that hold instructions for other agents."""


def server_plans(places: Places) -> Iterator[Plan]:
    """Servers that other programs know. Each needs a decision: it would run a program or send data away."""
    home, root = places.home, places.root
    sources = [
        (home / ".claude.json", "mcpServers"),
        (home / DESKTOP.get(sys.platform, ".config/Claude/claude_desktop_config.json"), "mcpServers"),
        (root / ".vscode/mcp.json", "servers"),
        (home / ".cursor/mcp.json", "mcpServers"),
        (root / ".cursor/mcp.json", "mcpServers"),
        (home / ".gemini/settings.json", "mcpServers"),
        (root / ".gemini/settings.json", "mcpServers"),
        (home / ".codex/config.toml", "mcp_servers"),
    ]
    for source, key in sources:
        if source.is_file():
            found = _read(source)
            plan = Plan(source, places.user_dir / "settings.toml", "user")
            tables = [found.get(key), *_of_projects(found, str(root), key)]
            for table in tables:
                for name, server in table.items() if isinstance(table, Mapping) else ():
                    plan.decide.append(Left(f"server {name}: {_server(server)}", WHY_SERVER))
            yield plan


WHY_SERVER = "put it under [mcp.servers] of your settings if you want it; it is approved when it first starts"


def _of_projects(found: Mapping[str, Any], root: str, key: str) -> list[Any]:
    projects = found.get("projects")
    project = projects.get(root) if isinstance(projects, Mapping) else None
    return [project.get(key)] if isinstance(project, Mapping) else []


def _server(server: Any) -> str:
    """How a server is started; values of its variables and headers stay where they are."""
    if not isinstance(server, Mapping):
        return "something that is no server"
    args = [str(one) for one in server.get("args", ())] if isinstance(server.get("args", ()), list) else []
    said = " ".join([str(server.get("command") or server.get("url") or "no command"), *args])
    env = server.get("env")
    return f"{said} (with {', '.join(env)})" if isinstance(env, Mapping) and env else said


def schedule_plans(places: Places) -> Iterator[Plan]:
    """Durable jobs of Claude Code: two schedulers on one file would fire twice, so none is taken over by itself."""
    source = places.root / ".claude" / "scheduled_tasks.json"
    if not source.is_file():
        return
    plan = Plan(source, places.project_dir, "project")
    found = _read(source)
    jobs = found.get("tasks", found.get("jobs", []))
    for job in jobs if isinstance(jobs, list) else []:
        if isinstance(job, Mapping):
            why = "remove it there first, then have it created here"
            plan.decide.append(Left(f"job {job.get('cron')}: {job.get('prompt')}", why))
    yield plan


def _read(source: Path) -> Mapping[str, Any]:
    try:
        text, _ = read_text(str(source))
        return parse_toml(text or "") if source.suffix == ".toml" else parse_json(text or "")
    except Unparsable as error:
        raise UsageError(f"{source}: cannot be read: {error}. Nothing was imported.") from None


def instruction_plans(places: Places) -> Iterator[Plan]:
    """A plan for each file of instructions: its text would be added to AGENTS.md."""
    target = places.root / "AGENTS.md"
    there = target.read_text("utf-8", "replace") if target.is_file() else ""
    for source in _instruction_files(places.root):
        plan = Plan(source, target, "project")
        name = source.relative_to(places.root).as_posix()
        text = _instructions(source)
        if not text:
            plan.dropped.append(Left(name, "it is empty"))
        elif target.is_symlink():
            plan.decide.append(Left(name, f"{target} is a link, and what it leads to is not changed; add it by hand"))
        elif mark(name, digest_of(source)) in there or text in there:
            plan.same.append(name)
        elif f"<!-- from {name} " in there:
            plan.decide.append(Left(name, f"an earlier version of it is in {target} already"))
        else:
            plan.mapped.append(Mapped(name, text, name, f"added to {target}", tuple(text.splitlines())))
        yield plan


def _instruction_files(root: Path) -> Iterator[Path]:
    for name in INSTRUCTIONS:
        path = root / name
        inside = path.resolve().is_relative_to(root.resolve())
        if path.is_file() and inside:
            yield path
        elif path.is_dir() and inside:
            found = sorted(one for one in path.rglob("*") if one.suffix in (".md", ".mdc") and one.is_file())
            yield from (one for one in found if one.resolve().is_relative_to(root.resolve()))


def _instructions(source: Path) -> str:
    """The text of a file without its front matter; the files that it is meant for are said in front."""
    try:
        text = read_text(str(source))[0] or ""
    except Unparsable as error:
        raise UsageError(f"{source}: cannot be read: {error}. Nothing was imported.") from None
    head = re.match(r"---\s*\n(.*?)\n---\s*(?:\n|$)", text, re.DOTALL)
    body = (text[head.end() :] if head else text).strip()
    meant = re.search(r"^(?:globs|applyTo):\s*(.+)$", head[1], re.MULTILINE) if head else None
    return f"For files that match {meant[1].strip()}:\n\n{body}" if meant and body else body


def mark(name: str, digest: str) -> str:
    """The comment in front of imported instructions."""
    return f"<!-- from {name} {digest} -->"


def append(plan: Plan) -> list[str]:
    """Add the instructions of a plan to its target; returns their names. Raises `UsageError`."""
    from pegboard import atomic

    added = "".join(
        f"\n{mark(one.key, digest_of(plan.source))}\n\n{one.value.strip()}\n" for one in plan.mapped if one.value
    )
    try:
        old = plan.target.read_text("utf-8") if plan.target.exists() else ""
        gap = "" if not old or old.endswith("\n") else "\n"
        atomic.replace(plan.target, (old + gap + added.removeprefix("" if old else "\n")).encode(), mode=0o644)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{plan.target} cannot be written: {error}. Nothing was changed.") from None
    return [one.key for one in plan.mapped]
