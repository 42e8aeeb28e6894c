"""A tool as data: `tool.toml` and `schema.json`, read without importing the tool.

The first request, the listings, tool search, the gate and the doctor need nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from pegboard.errors import Broken

API = 1
"""The contract number of this core. The gate refuses manifests that ask for another one."""

Load = Literal["core", "deferred"]
ConcurrencyName = Literal["read", "write", "session", "spawn"]
EffectName = Literal["file", "process", "network", "remote", "registry", "mode"]


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One setting that a plug-in declares, so that it can be listed, checked and explained without import."""

    default: bool | int | float | str | list[str] | dict[str, Any]
    """The type of the default is the type of the setting. A table is empty by default, its names are free."""
    summary: str
    min: int | float | None = None
    max: int | float | None = None
    choices: list[str] | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything the core must know of a tool before it is imported."""

    name: str
    """Pascal case, as the model sees it."""
    summary: str
    """One line, for listings and tool search."""
    api: int
    """Contract number; the gate refuses what it does not know."""
    load: Load = "core"
    """``core``: in every request. ``deferred``: listed by name, loaded through tool search."""
    concurrency: ConcurrencyName = "write"
    """Which calls of one message may run beside it."""
    effects: list[EffectName] = []
    """What a call may change. A kind that is not listed here must never show up in a ledger."""
    owners: list[str] = []
    """State owners, as ``module:Class``."""
    needs: list[str] = []
    """Engines, e.g. ``rg>=13``; `peg doctor` checks them, the gate refuses without them."""
    requires: list[str] = []
    """Distributions the code imports beside the core and the owners' own, as requirements, e.g. ``pillow>=12``."""
    budget: int = 25_000
    """[S] Largest result text in Unicode characters."""
    person: bool = False
    """True: only a person can answer; no rule or mode lets it pass unasked."""
    expose: bool = True
    """Offered by `peg mcp serve` by default."""
    aliases: list[str] = []
    """Other names under which the model may call it."""
    family: str = ""
    """The name under which path rules speak about it: ``Read`` or ``Edit``; empty for its own name."""
    ask: bool = True
    """False: runs without a question in default mode inside the working directories."""
    ignored: list[str] = []
    """Deprecated input fields that are dropped instead of refused."""
    settings: dict[str, Setting] = {}
    """Settings of the tool, by full dotted name."""


class ProviderManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything the core must know of a provider before it is imported; ``provider.toml`` beside its code."""

    name: str
    """What stands before the slash in ``anthropic/claude-x``."""
    summary: str
    api: int
    prefixes: list[str] = []
    """Beginnings of model names that this provider speaks for when none is named."""
    default_model: str = ""
    """Model to use when the settings name none."""
    credentials: list[str] = []
    """Environment variables that hold its key, any one of them; `peg doctor` looks for them."""
    settings: dict[str, Setting] = {}
    """Settings of the provider, by full dotted name."""


class HooksManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the core may know of a hook module before it is imported; ``hooks.toml`` beside its code, if any."""

    name: str
    summary: str
    api: int
    needs_settings: list[str] = []
    """It is imported only while one of these settings has a value; empty = always."""
    settings: dict[str, Setting] = {}
    """Settings of the module, by full dotted name."""


M = TypeVar("M", Manifest, ProviderManifest, HooksManifest)


class Schema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The generated half: what a request carries about a tool. Written by `peg plugins build`, never by hand."""

    description: str
    input: dict[str, Any]
    output: dict[str, Any]


def read_manifest(path: Path) -> Manifest:
    """Read a `tool.toml`. Raises `Broken` naming the file and the field."""
    return _read(path, Manifest)


def read_provider(path: Path) -> ProviderManifest:
    """Read a `provider.toml`. Raises `Broken` naming the file and the field."""
    return _read(path, ProviderManifest)


def read_hooks(path: Path) -> HooksManifest:
    """Read a `hooks.toml`. Raises `Broken` naming the file and the field."""
    return _read(path, HooksManifest)


def _read(path: Path, shape: type[M]) -> M:
    import tomllib

    try:
        with open(path, "rb") as file:
            return msgspec.convert(tomllib.load(file), shape)
    except FileNotFoundError:
        hint = f"run: peg plugins build {path.parent}"
        raise Broken(path.parent.name, f"there is no manifest at {path}; {hint}") from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise Broken(path.parent.name, f"{path}: {error}") from None


def read_schema(path: Path) -> Schema:
    """Read a `schema.json`. Raises `Broken` naming the file and the command that makes it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Schema)
    except FileNotFoundError:
        raise Broken(path.parent.name, f"there is no {path}; run: peg plugins build {path.parent}") from None
    except msgspec.DecodeError as error:
        raise Broken(path.parent.name, f"{path}: {error}; run: peg plugins build {path.parent}") from None


def schema_of(tool: Any, folder: Path) -> Schema:
    """Generate the schema of a tool class from its models and the ``prompt.md`` beside it.

    Loads pydantic; called by `peg plugins build` and by the test that the committed file is current.
    """
    return Schema(
        description=(folder / "prompt.md").read_text("utf-8").strip(),
        input=_plain(tool.Input.model_json_schema(by_alias=True)),
        output=_plain(tool.Output.model_json_schema(by_alias=True, mode="serialization")),
    )


def encode_schema(schema: Schema) -> bytes:
    """The bytes of `schema.json`: indented, stable order, one newline at the end."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=1) + b"\n"


def _plain(node: Any, *, names: bool = False) -> Any:
    """Drop pydantic's generated titles: they cost tokens and say nothing. ``names``: the keys are field names."""
    if isinstance(node, dict):
        return {
            key: _plain(value, names=key in ("properties", "$defs") and not names)
            for key, value in node.items()
            if names or key != "title"
        }
    return [_plain(item) for item in node] if isinstance(node, list) else node
