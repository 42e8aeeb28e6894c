"""A machine in a folder: an environment to install dummy packages in, a user, a project and a managed directory."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pegboard import sealed
from pegboard.loader import Registry
from pegboard.places import Places
from pegboard.settings import Settings
from pegboard.trust import Trust

TOOL = """
from pathlib import Path

Path({marker!r}).write_text("imported")

from pegboard.model import Input, Output
from pegboard.tool import Tool


class I(Input):
    text: str


class O(Output):
    text: str


class {name}(Tool[I, O]):
    Input = I
    Output = O

    async def run(self, input, ctx):
        return O(text=input.text)

    def render(self, output, ctx):
        return output.text
"""

SCHEMA = '{"description": "Says it again.", "input": {"type": "object"}, "output": {"type": "object"}}'


@dataclass
class World:
    """Where everything is, and how to look at it."""

    base: Path
    trusted: bool = False
    flags: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in (self.site, self.home, self.project, self.project / ".peg", self.managed):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def site(self) -> Path:
        return self.base / "lib" / "site-packages"

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def project(self) -> Path:
        return self.base / "project"

    @property
    def managed(self) -> Path:
        return self.base / "managed"

    @property
    def places(self) -> Places:
        return Places(self.project, self.home, self.project, self.home / ".peg", self.managed)

    @property
    def trust(self) -> Trust:
        return Trust.load(self.places)

    def marker(self, dist: str) -> Path:
        """The file that the dummy package writes when it is imported."""
        return self.base / f"{dist}.imported"

    def add(
        self,
        dist: str,
        tool: str = "Echo",
        *,
        into: Path | None = None,
        code: str | None = None,
        manifest: str | None = None,
        extra: str = "",
        points: str | None = None,
        module: str | None = None,
    ) -> Path:
        """Install a dummy package with one tool, as an installer would leave it. Returns its package folder."""
        into = into or self.site
        package = module or dist.replace("-", "_")
        info = into / f"{dist.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
        info.joinpath("entry_points.txt").write_text(
            points or f"[console_scripts]\nx = y:z\n\n[pegboard.tools]\n{tool} = {package}.tool:{tool}\n"
        )
        folder = into / package
        folder.mkdir(parents=True)
        folder.joinpath("__init__.py").write_text("")
        body = TOOL.format(marker=str(self.marker(dist)), name=tool) if code is None else textwrap.dedent(code)
        folder.joinpath("tool.py").write_text(body)
        if manifest is None:
            manifest = f'name = "{tool}"\nsummary = "Says it again."\napi = 1\n{extra}'
        if manifest:
            folder.joinpath("tool.toml").write_text(manifest)
        folder.joinpath("schema.json").write_text(SCHEMA)
        return folder

    def settings(self, scope: str, text: str) -> None:
        """Write the settings file of a scope."""
        path = {
            "managed": self.managed / "managed.toml",
            "user": self.home / ".peg" / "settings.toml",
            "project": self.project / ".peg" / "settings.toml",
            "local": self.project / ".peg" / "settings.local.toml",
        }[scope]
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)

    def find(self, *, plugin_dirs: tuple[Path, ...] = (), more: tuple[Path, ...] = ()) -> Registry:
        """What a start in the project finds."""
        settings = Settings.load(self.places, trusted=self.trusted, flags=self.flags)
        paths = [str(self.site), *map(str, more)]
        return Registry.find(self.places, settings, self.trust, plugin_dirs=plugin_dirs, paths=paths)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A fresh machine; what it imports is forgotten afterwards."""
    made = World(tmp_path)
    monkeypatch.syspath_prepend(str(made.site))
    monkeypatch.setattr(sealed, "_roots", [])
    path, hooks, modules = list(sys.path), list(sys.path_hooks), set(sys.modules)
    yield made
    sys.path[:], sys.path_hooks[:] = path, hooks
    sys.path_importer_cache.clear()
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def only():
    """The one candidate of a name."""

    def pick(registry, name):
        (found,) = [one for one in registry.candidates if one.name == name]
        return found

    return pick
