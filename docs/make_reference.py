"""Write docs/reference.md from the code: commands, settings, hooks, error codes, manifests, the tool contract.

A table that is kept by hand is wrong within a month; this one is compared byte for byte by a test.
Run it with: python docs/make_reference.py
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "core" / "src" / "pegboard"
TARGET = ROOT / "docs" / "reference.md"

HEAD = """\
# Reference

Everything here is generated from the code by `docs/make_reference.py`, and a test fails when it differs.
How to use it is told elsewhere: [one call](a-call.md), [write a tool](write-a-tool.md), [hooks](hooks.md),
[settings and policy](policy.md).
"""


def cell(text: object) -> str:
    """A value as one cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("--" for _ in head) + " |"]
    lines += ["| " + " | ".join(cell(item) for item in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


# -- sources ---------------------------------------------------------------------------------------------------


def class_node(module: str, name: str) -> ast.ClassDef:
    """The syntax tree of one class of the core."""
    tree = ast.parse((CORE / f"{module}.py").read_text("utf-8"))
    return next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)


def fields(module: str, name: str) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and description of each field: the string below it, or the comment beside it."""
    body = class_node(module, name).body
    for node, below in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        described = ""
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            described = below.value.value
        default = "required" if node.value is None else f"`{ast.unparse(node.value)}`"
        yield f"`{node.target.id}`", f"`{ast.unparse(node.annotation)}`", default, described


def members(module: str, name: str) -> Iterator[tuple[str, str]]:
    """Value and description of each member of a string enumeration."""
    body = class_node(module, name).body
    for node, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            described = ""
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                described = str(below.value.value)
            yield f"`{node.value.value}`", described


def methods(module: str, name: str) -> Iterator[tuple[str, str]]:
    """Signature and description of each public method and property of a class."""
    for node in class_node(module, name).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        kind = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
        is_property = any(isinstance(item, ast.Name) and item.id == "property" for item in node.decorator_list)
        arguments = "" if is_property else f"({ast.unparse(node.args).removeprefix('self').removeprefix(', ')})"
        yield f"`{kind}{node.name}{arguments}`", ast.get_docstring(node) or ""


# -- chapters --------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command of `peg` with its arguments and options."""
    from pegboard.cli import COMMANDS, peg

    parts = ["## Commands\n", "Every listing has `--json`. Notices go to stderr, stdout carries only the format.\n"]
    parts.append(command_text("peg", peg))
    for name in sorted(COMMANDS):
        module = importlib.import_module(f"pegboard.cli.{'import_' if name == 'import' else name}")
        parts.append(command_text(f"peg {name}", module.command))
    return "\n".join(parts)


def command_text(path: str, command: click.Command) -> str:
    """One command, then its sub-commands."""
    parts = [f"### `{path}`\n"]
    if command.help:
        parts.append(inspect.cleandoc(command.help).replace("\b\n", "") + "\n")
    rows: list[tuple[object, ...]] = []
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            if parameter.hidden:
                continue
            shown = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
            kind = "" if parameter.is_flag else f" {parameter.make_metavar(click.Context(command))}"
            rows.append((shown + kind, parameter.help or ""))
        else:
            rows.append((f"`{parameter.human_readable_name}`", "" if parameter.required else "optional"))
    if rows:
        parts.append(table(("argument", "meaning"), rows))
    if isinstance(command, click.Group) and path != "peg":
        parts += [command_text(f"{path} {name}", command.commands[name]) for name in sorted(command.commands)]
    return "\n".join(parts)


def codes() -> str:
    """The closed list of error codes."""
    from pegboard.errors import Code

    rows: list[tuple[object, ...]] = [(f"`{code.value}`", code.meaning) for code in Code]
    return "## Error codes\n\nWhy a call did not end in `ok`. The list is closed.\n\n" + table(
        ("code", "meaning"), rows
    )


def outcomes() -> str:
    """Outcome classes as the table of the module that computes them."""
    doc = ast.get_docstring(ast.parse((CORE / "call.py").read_text("utf-8"))) or ""
    lines = [line for line in doc.splitlines() if line.startswith("    ")]
    rows = [tuple(part.strip() for part in re.split(r"\s{2,}", line.strip())) for line in lines]
    parts = [
        "## Outcomes\n",
        "The class of a call is computed from its ledger of effects, never claimed by the tool.\n",
    ]
    parts.append(table(("what escaped", "effects in the ledger", "outcome", "retry"), [tuple(row) for row in rows]))
    parts.append("### The envelope of a result\n")
    parts.append(table(("field", "type", "default", "meaning"), list(fields("call", "Outcome"))))
    parts.append("### Effect kinds\n")
    parts.append(table(("kind", "meaning"), list(members("call", "EffectKind"))))
    return "\n".join(parts)


def manifest() -> str:
    """Fields of `tool.toml`, and of the settings a tool declares in it."""
    parts = ["## Manifest (`tool.toml`)\n", (ast.get_docstring(class_node("manifest", "Manifest")) or "") + "\n"]
    parts.append(table(("field", "type", "default", "meaning"), list(fields("manifest", "Manifest"))))
    parts.append("### A setting in a manifest\n")
    parts.append((ast.get_docstring(class_node("manifest", "Setting")) or "") + "\n")
    parts.append(table(("field", "type", "default", "meaning"), list(fields("manifest", "Setting"))))
    parts.append("### Concurrency classes\n")
    parts.append(table(("class", "meaning"), list(members("tool", "Concurrency"))))
    return "\n".join(parts)


def contract() -> str:
    """The four methods of a tool, and what its context offers."""
    parts = ["## Tool\n", (ast.get_docstring(class_node("tool", "Tool")) or "") + "\n"]
    parts.append(table(("method", "meaning"), list(methods("tool", "Tool"))))
    parts.append("### Context\n")
    parts.append((ast.get_docstring(class_node("tool", "Context")) or "") + "\n")
    parts.append(table(("member", "meaning"), list(methods("tool", "Context"))))
    parts.append("### Access\n")
    parts.append((ast.get_docstring(class_node("tool", "Access")) or "") + "\n")
    parts.append(table(("made by", "meaning"), list(methods("tool", "Access"))))
    parts.append("### Owner\n")
    parts.append((ast.get_docstring(class_node("state", "Owner")) or "") + "\n")
    parts.append(table(("method", "meaning"), list(methods("state", "Owner"))))
    return "\n".join(parts)


def hooks() -> str:
    """The sixteen hooks with their arguments."""
    rows: list[tuple[object, ...]] = []
    for node in class_node("hooks", "Specs").body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        arguments = ", ".join(argument.arg for argument in node.args.args[1:])
        kind = "async" if isinstance(node, ast.AsyncFunctionDef) else "sync"
        gives = ast.unparse(node.returns) if node.returns else "None"
        rows.append((f"`{node.name}({arguments})`", kind, f"`{gives}`", ast.get_docstring(node) or ""))
    text = "An implementation is marked with `pegboard.hook` and takes any of the arguments, by name.\n"
    return "## Hooks\n\n" + text + "\n" + table(("hook", "kind", "returns", "meaning"), rows)


def settings() -> str:
    """Settings of the core, then those that the tools declare."""
    from pegboard.settings_keys import core_keys

    parts = [
        "## Settings\n",
        "Dotted keys are tables in `settings.toml`. `peg settings explain KEY` says which file decides a key.\n",
    ]
    rows: list[tuple[object, ...]] = []
    for key, entry in sorted(core_keys().items()):
        default = f"`{toml(entry.default)}`" if entry.default is not None else ""
        rows.append((f"`{key}`", entry.kind, default, entry.set_by, entry.summary + limits(entry)))
    parts.append(table(("key", "type", "default", "set by", "meaning"), rows))
    rows = []
    for path in sorted(ROOT.glob("plugins/*/src/*/tool.toml")):
        data = tomllib.loads(path.read_text("utf-8"))
        for key, entry in sorted(data.get("settings", {}).items()):
            rows.append((f"`{key}`", data["name"], f"`{toml(entry['default'])}`", entry["summary"]))
    parts.append("### Settings of the tools\n")
    parts.append(table(("key", "tool", "default", "meaning"), rows))
    return "\n".join(parts)


def limits(entry: Any) -> str:
    """Bounds, choices and trust of a setting, in words."""
    said = []
    if entry.choices:
        said.append("One of " + ", ".join(f"`{choice}`" for choice in entry.choices) + ".")
    if entry.min is not None or entry.max is not None:
        said.append(f"From {entry.min} to {entry.max}." if entry.max is not None else f"At least {entry.min}.")
    if entry.trust:
        said.append("A project's files set it in a trusted workspace only.")
    return "".join(f" {part}" for part in said)


def toml(value: Any) -> str:
    """A default as it would be written in a settings file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return str(value)


def reference() -> str:
    """The whole page."""
    chapters = (commands(), settings(), outcomes(), codes(), manifest(), contract(), hooks())
    return HEAD + "\n" + "\n".join(chapter.rstrip("\n") + "\n" for chapter in chapters)


if __name__ == "__main__":
    TARGET.write_text(reference(), "utf-8")
