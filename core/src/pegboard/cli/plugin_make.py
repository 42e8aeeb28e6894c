"""Making plug-ins: a new one from the template, the generated files of an existing one, and its exam.

The template is a real plug-in with its own tests; a new plug-in is a copy with other names, so it works at once.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pegboard import names
from pegboard.errors import Broken, UsageError
from pegboard.manifest import Manifest, encode_schema, read_manifest, schema_of

if TYPE_CHECKING:
    from pegboard.scan import Shelf

TEMPLATE = "plugin-template"
LEFT_OUT = ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "dist", ".git", ".venv")
"""Folders of a plug-in that are never copied."""


class Part(msgspec.Struct, frozen=True):
    """One tool of a plug-in's source: its name, its entry point, its package folder, and the plug-in's own folder."""

    name: str
    entry: str
    folder: Path
    root: Path
    paths: tuple[str, ...]


def template() -> Path:
    """Folder of the template: inside an installed package, beside the sources in a checkout."""
    import pegboard

    here = Path(pegboard.__file__).resolve().parent
    for folder in (here / TEMPLATE, here.parents[1] / TEMPLATE):
        if (folder / "pyproject.toml").is_file():
            return folder.resolve()
    raise UsageError("This installation of pegboard has no plug-in template; install pegboard-core again.")


def new(name: str, into: Path) -> Path:
    """Copy the template to a folder of the plug-in's name below ``into``. Raises `UsageError`; returns the folder."""
    tool = name if name.isidentifier() and name[:1].isupper() else names.pascal(name)
    short = names.kebab(tool)
    if not tool.isidentifier() or not tool.isascii():
        raise UsageError(f"{name!r} is no name for a tool; write words with dashes, such as weather-map.")
    if names.distribution(tool) in names.bundled() or tool in names.bundled().values() or tool == "Example":
        raise UsageError(f"{tool} is the name of a part of pegboard; choose another one.")
    target = into / short
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists already. Nothing was changed.")
    replace = {
        "pegboard_example": names.module(tool),
        "pegboard-example": names.distribution(tool),
        "Example": tool,
        "example": names.snake(tool),
    }
    source = template()
    for path in _files(source):
        relative = _renamed(str(path.relative_to(source)), replace)
        (target / relative).parent.mkdir(parents=True, exist_ok=True)
        (target / relative).write_text(_renamed(path.read_text("utf-8"), replace), "utf-8")
    return target


def _renamed(text: str, replace: dict[str, str]) -> str:
    for old, fresh in replace.items():
        text = text.replace(old, fresh)
    return text


def _files(folder: Path) -> Iterator[Path]:
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if one not in LEFT_OUT and not one.endswith(".egg-info"))
        yield from (Path(base, one) for one in sorted(files) if not one.endswith((".pyc", ".orig")))


def parts(folder: Path) -> list[Part]:
    """The tools of a source tree, an installed package or a package folder. Raises `UsageError` when there is none."""
    from pegboard.scan import Index, plugin_shelf

    index = Index(os.devnull, "")
    real = Path(os.path.realpath(folder))
    if not real.is_dir():
        raise UsageError(f"{folder} is no folder.")
    for root in (real, *list(real.parents)[:3]):
        shelf = plugin_shelf(str(root), index)
        found = [_part(shelf, root, name, entry) for name, entry in _tools(shelf)]
        mine = [one for one in found if root == real or one.folder == real]
        if mine:
            return mine
    bare = [_bare(real, path) for path in sorted(real.glob("src/*/tool.toml"))]
    if bare:
        return bare
    raise UsageError(f'{folder} offers no tool: no entry point in the group "pegboard.tools" leads there.')


def _bare(root: Path, path: Path) -> Part:
    """A tool of a source tree that has no ``pyproject.toml`` yet; the names follow the rule for all names."""
    name = read_manifest(path).name
    return Part(name, f"{path.parent.name}.tool:{name}", path.parent, root, (str(root / "src"),))


def _tools(shelf: Shelf) -> Iterator[tuple[str, str]]:
    for listing, _ in shelf.listings:
        yield from ((name, value) for group, name, value in listing.points if group == "pegboard.tools")


def _part(shelf: Shelf, root: Path, name: str, entry: str) -> Part:
    folder, _ = shelf.folder(entry.partition(":")[0], "tool.toml")
    if not folder:
        raise Broken(name, f"{root} has no package for the entry point {entry}")
    return Part(name, entry, Path(folder), root, tuple(top for top, _ in shelf.tops))


def build(folder: Path) -> list[str]:
    """Write what is generated: ``schema.json``, a first ``tool.toml`` and ``prompt.md`` where they are missing, and the
    ``pyproject.toml`` of the product's own tools. Returns the paths that changed; raises `Broken` or `UsageError`.
    """
    changed: list[str] = []
    for part in parts(folder):
        tool = _tool_class(part)
        for name, text in (("tool.toml", _first_manifest(part, tool)), ("prompt.md", _first_prompt(tool))):
            if not (part.folder / name).exists():
                _write(part.folder / name, text.encode("utf-8"), changed)
        manifest = read_manifest(part.folder / "tool.toml")
        if manifest.name != part.name:
            raise Broken(part.name, f"the entry point is named {part.name}, but tool.toml says {manifest.name}")
        _write(part.folder / "schema.json", encode_schema(schema_of(tool, part.folder)), changed)
        _render(part, manifest, changed)
    return changed


def _render(part: Part, manifest: Manifest, changed: list[str]) -> None:
    from pegboard.packaging import render_pyproject

    path = part.root / "pyproject.toml"
    ours = names.bundled().get(names.distribution(part.name)) == part.name or part.name == "Example"
    regular = part.folder == part.root / "src" / names.module(part.name)
    if regular and (ours or not path.exists()):
        _write(path, render_pyproject(manifest).encode("utf-8"), changed)


def _write(path: Path, data: bytes, changed: list[str]) -> None:
    if not path.exists() or path.read_bytes() != data:
        path.write_bytes(data)
        changed.append(str(path))


def _tool_class(part: Part) -> Any:
    module, _, attribute = part.entry.partition(":")
    sys.path[:0] = part.paths
    try:
        found = importlib.import_module(module)
        tool: Any = getattr(found, attribute)
    except Exception as error:
        raise Broken(part.name, f"importing {part.entry} failed: {type(error).__name__}: {error}") from error
    finally:
        del sys.path[: len(part.paths)]
    if not Path(str(found.__file__)).resolve().is_relative_to(part.folder.resolve()):
        raise Broken(part.name, f"{found.__file__} was imported instead of {part.folder}")
    return tool


def _first_manifest(part: Part, tool: Any) -> str:
    """A careful manifest to start from: the tool is asked about, runs alone, and declares no effects yet."""
    import json

    summary = (tool.__doc__ or part.name).strip().splitlines()[0]
    return (
        f'name = "{part.name}"\nsummary = {json.dumps(summary, ensure_ascii=False)}\napi = 1\nload = "deferred"\n'
        'concurrency = "write"\neffects = []\nowners = []\nneeds = []\n'
    )


def _first_prompt(tool: Any) -> str:
    import inspect

    return f"{inspect.getdoc(tool) or tool.__name__}\n"


def validate(folder: Path) -> tuple[int, list[tuple[str, str]]]:
    """Run the plug-in's tests, the standard suite among them, without installing it.

    Returns how many checks ran, and (check, what is wrong) for each that failed. Raises `UsageError` when there is
    nothing to run.
    """
    import importlib.util
    import subprocess
    import tempfile

    found = parts(folder)
    tests = found[0].root / "tests"
    if not tests.is_dir():
        raise UsageError(f"{found[0].root} has no tests; copy tests/ from a plug-in made with: peg plugins new")
    if importlib.util.find_spec("pytest") is None:
        raise UsageError("The exam runs in pytest, which is not installed here; install it and try again.")
    with tempfile.TemporaryDirectory(prefix="peg-validate-") as temporary:
        _pretend(found, Path(temporary))
        report = Path(temporary) / "report.xml"
        folders = [temporary, *dict.fromkeys(path for part in found for path in part.paths)]
        path = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        argv = [
            sys.executable, "-m", "pytest", str(tests), "-q", "-p", "no:cacheprovider", "--import-mode=importlib",
            "-o", "addopts=", f"--junitxml={report}",
        ]  # fmt: skip
        env = {**os.environ, "PYTHONPATH": path, "HYPOTHESIS_STORAGE_DIRECTORY": temporary}
        done = subprocess.run(argv, env=env, cwd=found[0].root, capture_output=True, check=False)
        if not report.exists():
            lines = done.stderr.decode("utf-8", "replace").strip() or done.stdout.decode("utf-8", "replace").strip()
            raise UsageError(f"pytest could not run: {lines.splitlines()[-1] if lines else done.returncode}")
        return _results(report)


def _pretend(found: list[Part], folder: Path) -> None:
    """Metadata as an installer would leave it, so that the suite finds the tools where they lie."""
    name = names.module(found[0].name)
    info = folder / f"{name}-0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 0\n")
    lines = [f"{part.name} = {part.entry}" for part in found]
    info.joinpath("entry_points.txt").write_text("\n".join(["[pegboard.tools]", *lines, ""]))


def _results(report: Path) -> tuple[int, list[tuple[str, str]]]:
    from xml.etree import ElementTree

    failed: list[tuple[str, str]] = []
    every = list(ElementTree.parse(report).getroot().iter("testcase"))
    for test in every:
        for fault in (*test.findall("failure"), *test.findall("error")):
            failed.append((test.get("name", "?"), _reason(fault.get("message") or "", fault.text or "")))
    return len(every), failed


def _reason(message: str, trace: str) -> str:
    """The first line of a failure; of a file that could not be imported, the error itself."""
    if message.strip() and message != "collection failure":
        return message.strip().splitlines()[0]
    errors = [line[1:].strip() for line in trace.splitlines() if line.startswith("E ")]
    return errors[-1] if errors else message or "it failed"


def copy_tree(source: Path, target: Path) -> None:
    """Copy a plug-in's folder without caches, version control and built files. Links are copied as links."""
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT, "*.egg-info", "*.pyc"))
