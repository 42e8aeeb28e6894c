"""Standard tests of what a tool says about itself before it runs: manifest, schema, prompt, import."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from pegboard.manifest import API, EffectName, encode_schema, schema_of
from pegboard.model import Input, Output
from pegboard.state import Owner
from pegboard.testing.exam import Exam
from pegboard.tool import Tool

PROMPT_CHARS = (80, 12_000)
"""[C] A prompt shorter than this explains nothing; a longer one costs more than the tool is worth."""

QUIET = ("file", "remote", "registry", "mode")
"""Effects that a tool of the class ``read`` cannot have: such calls run beside each other."""

IMPORT_CHECK = """
import json, os, sys, threading
seen = []
def hook(event, args):
    if event in ("socket.connect", "socket.bind", "os.mkdir", "subprocess.Popen", "os.posix_spawn", "os.fork"):
        seen.append(event)
    if event == "open" and isinstance(args[0], str) and isinstance(args[2], int):
        wrote = args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if wrote and "__pycache__" not in args[0] and not args[0].startswith("/dev/"):
            seen.append("open " + args[0])
sys.addaudithook(hook)
import importlib
importlib.import_module(sys.argv[1])
print(json.dumps({"seen": seen, "threads": threading.active_count(), "modules": sorted(sys.modules)}))
"""


class DataTests(Exam):
    """Manifest and class agree, the generated files are current, importing does nothing."""

    def test_manifest_and_class_agree(self) -> None:
        """`tool.toml` is what the core knows; the class must be what it says."""
        tool = self.tool_class()
        assert issubclass(tool, Tool), f"{tool.__name__} is no pegboard.tool.Tool"
        assert self.manifest.name == self.tool
        assert self.manifest.api == API, f"the manifest asks for contract {self.manifest.api}, this core has {API}"
        assert self.manifest.summary.strip() and "\n" not in self.manifest.summary
        assert set(self.manifest.effects) <= set(get_args(EffectName))

    def test_reading_tools_change_nothing_by_their_manifest(self) -> None:
        """Class ``read`` means: may run beside other calls. A tool that changes shared state is another class."""
        if self.manifest.concurrency == "read":
            assert not set(self.manifest.effects) & set(QUIET)

    def test_models_refuse_unknown_fields(self) -> None:
        """Input and Output derive from `pegboard.model`; neither loosens its rules."""
        tool = self.tool_class()
        assert issubclass(tool.Input, Input) and issubclass(tool.Output, Output)
        assert tool.Input.model_config.get("extra") == "forbid"

    def test_owners_exist(self) -> None:
        """Every owner named in the manifest can be imported and is an Owner."""
        for name in self.manifest.owners:
            module, _, attribute = name.partition(":")
            assert issubclass(getattr(importlib.import_module(module), attribute), Owner), name

    def test_schema_file_is_current(self) -> None:
        """`schema.json` is generated, never edited."""
        wanted = encode_schema(schema_of(self.tool_class(), self.folder))
        assert (self.folder / "schema.json").read_bytes() == wanted, f"run: peg plugins build {self.folder}"

    def test_schema_describes_its_fields(self) -> None:
        """The model sees the input schema and nothing else of the models."""
        schema = json.loads((self.folder / "schema.json").read_text("utf-8"))["input"]
        silent = [name for name, entry in schema.get("properties", {}).items() if not entry.get("description")]
        assert not silent, f"fields without a description: {', '.join(silent)}"
        assert schema.get("additionalProperties") is False

    def test_prompt_tells_what_failure_means(self) -> None:
        """`prompt.md` is there, has a sensible size, and says what a failed call means for the next step."""
        text = (self.folder / "prompt.md").read_text("utf-8")
        low, high = PROMPT_CHARS
        assert low <= len(text) <= high, f"prompt.md has {len(text)} characters, not {low} to {high}"
        assert re.search(r"\b(fail|refus|error|reject|denied|stale|not_)\w*", text, re.IGNORECASE), (
            "prompt.md does not say what it means when a call fails"
        )

    def test_import_does_nothing(self, tmp_path: Path) -> None:
        """Importing the module starts no thread, process or socket, writes no file and prints nothing."""
        module = self.tool_class().__module__
        empty = tmp_path / "empty"
        empty.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", IMPORT_CHECK, module], cwd=empty, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) == 1, f"importing {module} printed: {lines[:-1]}"
        report = json.loads(lines[0])
        assert not report["seen"], f"importing {module} did {report['seen']}"
        assert report["threads"] == 1, f"importing {module} started a thread"
        assert not list(empty.iterdir()), f"importing {module} left files behind"
        strangers = self.other_tool_packages() & set(report["modules"])
        assert not strangers, f"{module} imports another tool: {', '.join(strangers)}"

    def test_package_import_is_free(self) -> None:
        """The package itself holds a docstring: finding a tool must not load it."""
        package = self.package
        around = package.rpartition(".")[0] or "sys"
        code = (
            f"import sys, {around}; before = set(sys.modules); import {package}; print(len({{*sys.modules}} - before))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "1", f"import {package} loads {done.stdout.strip()} modules"

    def test_good_cases_fit_the_schema(self) -> None:
        """What the tool takes is what its schema says, so that a model that obeys the schema succeeds."""
        jsonschema = pytest.importorskip("jsonschema")
        schema = json.loads((self.folder / "schema.json").read_text("utf-8"))["input"]
        for item in self.good:
            jsonschema.validate(item.given(Path("/tmp")), schema)
