"""From an approved candidate to a live object: import, contract check, one error with the plug-in's name.

stevedore imports, from a list that the gate approved and from nothing else. Only `pegboard.loader` calls this.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pegboard import sealed
from pegboard.candidate import Candidate, Kind, Origin
from pegboard.errors import Broken

if TYPE_CHECKING:
    from pegboard.provider import Provider
    from pegboard.settings import Settings
    from pegboard.tool import Tool

EARLY = (Kind.PROVIDER, Kind.HOST, Kind.HOOKS)
"""Kinds of the product that stand between a start and its first request: imported without stevedore's own cost."""


def load(candidate: Candidate) -> Any:
    """Import what the entry point names. Raises `Broken`, whatever the import raised."""
    if candidate.error:
        raise Broken(candidate.name, candidate.error)
    if candidate.root:
        sealed.open_folder(candidate.root, candidate.paths)
    try:
        direct = candidate.origin is Origin.BUNDLED and candidate.kind in EARLY
        found = _import(candidate.entry) if direct else _through_stevedore(candidate)
    except Broken:
        raise
    except (Exception, SystemExit) as error:
        _same_place(candidate)
        raise Broken(candidate.name, f"importing {candidate.entry} failed: {_said(error)}") from error
    _same_place(candidate)
    return found


def _import(entry: str) -> Any:
    import importlib

    module, _, attribute = entry.partition(":")
    found: Any = importlib.import_module(module.strip())
    for part in attribute.strip().split(".") if attribute.strip() else ():
        found = getattr(found, part)
    return found


def _through_stevedore(candidate: Candidate) -> Any:
    from importlib.metadata import EntryPoint

    from stevedore.extension import ExtensionManager

    failures: list[BaseException] = []

    class Approved(ExtensionManager[Any]):
        """Loads what the gate approved; stevedore's own search and its cache file are never asked."""

        def list_entry_points(self) -> list[EntryPoint]:
            return [EntryPoint(candidate.name, candidate.entry, f"pegboard.{candidate.kind}")]

    approved = Approved(
        f"pegboard.{candidate.kind}", on_load_failure_callback=lambda _, __, error: failures.append(error)
    )
    if failures:
        raise failures[0]
    return approved.extensions[0].plugin


def _said(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _same_place(candidate: Candidate) -> None:
    """What was imported must be what the gate looked at, not a namesake from elsewhere on the path."""
    import sys

    module = sys.modules.get(candidate.entry.partition(":")[0].strip())
    file = getattr(module, "__file__", None)
    if not candidate.folder or file is None:
        return
    if not sealed.inside(file, candidate.folder):
        raise Broken(candidate.name, f"{candidate.folder} was judged, but {file} was imported; rename one of the two")


def make_tool(candidate: Candidate) -> Tool[Any, Any]:
    """The tool object of an approved candidate, held to the contract. Raises `Broken`."""
    found = load(candidate)
    try:
        tool: Tool[Any, Any] = found() if isinstance(found, type) else found
    except Exception as error:
        raise Broken(candidate.name, f"making {candidate.entry} failed: {_said(error)}") from error
    fault = contract_fault(tool)
    if fault:
        raise Broken(candidate.name, f"{candidate.entry} breaks the tool contract: {fault}")
    return tool


def contract_fault(tool: Any) -> str:
    """The first way in which an object is no tool, or an empty text."""
    from pydantic import BaseModel

    for name, wants_async in (("check", True), ("accesses", False), ("run", True), ("render", False)):
        method = getattr(tool, name, None)
        if not callable(method):
            return f"it has no method {name}"
        if inspect.iscoroutinefunction(method) != wants_async:
            return f"{name} must be {'async def' if wants_async else 'a plain def'}"
    from pegboard.tool import Tool

    if getattr(type(tool), "run", None) is Tool.run:
        return "it does not define run"
    for name in ("Input", "Output"):
        model = getattr(tool, name, None)
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return f"{name} is no pydantic model"
    if tool.Input.model_config.get("extra") != "forbid":
        return "Input lets unknown fields pass; derive it from pegboard.model.Input"
    return ""


def make_provider(candidate: Candidate, settings: Settings, environ: Mapping[str, str]) -> Provider:
    """The provider of an approved candidate: its factory is called with the settings and the environment.

    Raises `Broken`; errors that the provider raises on purpose (`PegError`) pass.
    """
    from pegboard.errors import PegError

    make = load(candidate)
    if not callable(make):
        raise Broken(candidate.name, f"{candidate.entry} is no function make(settings, environ)")
    try:
        provider: Provider = make(settings, environ)
    except PegError:
        raise
    except Exception as error:
        raise Broken(candidate.name, f"making the provider failed: {_said(error)}") from error
    for name in ("stream", "count", "abilities", "models", "close"):
        if not callable(getattr(provider, name, None)):
            raise Broken(candidate.name, f"the provider has no method {name}")
    return provider
