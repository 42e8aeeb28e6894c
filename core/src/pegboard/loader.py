"""One door for everything that can be plugged in: Registry finds candidates, has them judged, and loads what passed.

Nothing is deleted from its list. Whatever cannot be used stays there with the one reason why.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pegboard.candidate import Candidate, Kind, Origin, Source, ranked
from pegboard.engines import problems
from pegboard.errors import Broken, Refused, UsageError
from pegboard.find import approved_digest, digest, everything
from pegboard.gate import GATE, GateSnapshot, judge
from pegboard.manifest import Manifest, ProviderManifest, Schema, Setting, read_schema
from pegboard.names import close
from pegboard.scan import Index

if TYPE_CHECKING:
    import pluggy

    from pegboard.places import Places
    from pegboard.provider import ModelRef, Provider
    from pegboard.settings import Settings
    from pegboard.tool import Tool
    from pegboard.trust import Trust

__all__ = ["GATE", "Candidate", "Found", "GateSnapshot", "Kind", "Origin", "Refused", "Registry", "Source",
           "Standing", "State", "judge"]  # fmt: skip


class State(StrEnum):
    """How far a candidate got."""

    ACTIVE = "active"
    REFUSED = "refused"
    BROKEN = "broken"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a candidate, and the one reason for it."""

    state: State
    question: str = ""
    """The gate question that objected."""
    reason: str = ""
    source: str = ""
    """Who or what set it: a file, a scope, ``workspace``, ``approvals``."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that may be used, as data. Nothing of it is imported yet, unless it came as an object."""

    manifest: Manifest
    candidate: Candidate | None = None
    schema: Schema | None = None
    """Set for tools that came as objects; `Registry.schema` reads it for the others."""
    instance: Any = None

    @property
    def folder(self) -> Path:
        """Where `tool.toml` and its neighbours lie."""
        return Path(self.candidate.folder) if self.candidate is not None else Path()

    @property
    def where(self) -> str:
        """The plug-in to name when it fails: distribution and version, folder, or the class of an object."""
        return self.candidate.where if self.candidate is not None else type(self.instance).__qualname__

    @property
    def digest(self) -> str:
        """Digest of the plug-in's files; empty for what needs no approval."""
        return self.candidate.digest if self.candidate is not None else ""

    @classmethod
    def of_instance(cls, tool: Tool[Any, Any]) -> Found:
        """A tool that exists for one session only. It carries its own ``manifest`` and ``schema``. Raises `Broken`."""
        manifest, schema = getattr(tool, "manifest", None), getattr(tool, "schema", None)
        if not isinstance(manifest, Manifest) or not isinstance(schema, Schema):
            raise Broken(type(tool).__name__, "it needs a Manifest as manifest and a Schema as schema")
        return cls(manifest=manifest, schema=schema, instance=tool)


class Registry:
    """Everything that was found in one start, judged under the settings of now. Made by `find`."""

    def __init__(
        self, found: Iterable[Candidate], missing: Mapping[str, str], settings: Settings, trust: Trust
    ) -> None:
        self.candidates: tuple[Candidate, ...] = ranked(found)
        """All of them, best origin first. Those of `peg_sources` come with `gather`."""
        self._missing = missing
        self._settings = settings
        self._trust = trust
        self._generation = -1
        self._snapshot = GateSnapshot()
        self._verdicts: dict[Candidate, Refused | None] = {}
        self._tools: dict[str, Found] = {}
        self._schemas: dict[str, Schema] = {}
        self._loaded: dict[Candidate, Any] = {}
        self._broken: dict[Candidate, Broken] = {}
        self._manager: pluggy.PluginManager | None = None
        self._heard = -1
        self._sources: dict[Candidate, Source] = {}
        self._gathered = False
        self._lock = RLock()

    @classmethod
    def find(
        cls,
        places: Places,
        settings: Settings,
        trust: Trust,
        *,
        plugin_dirs: Sequence[Path] = (),
        paths: Sequence[str] | None = None,
    ) -> Registry:
        """Find every candidate, importing none. Judging waits until somebody asks.

        ``plugin_dirs`` are the folders of ``--plugin-dir``; ``paths`` stands in for ``sys.path``. The index in the user
        directory is only a hint, and it does not matter when it cannot be written.
        """
        index = Index(os.path.join(places.user_dir, "cache"), sys.prefix)
        found = everything(places, plugin_dirs, sys.path if paths is None else paths, index)
        missing = problems(
            [need for one in found if isinstance(one.manifest, Manifest) for need in one.manifest.needs],
            index,
            os.environ,
        )
        index.save()
        return cls(found, missing, settings, trust)

    # -- judged ------------------------------------------------------------------------------------------------

    def rejudge(self) -> None:
        """Forget every verdict: settings, trust or approvals changed."""
        self._generation = -1

    @property
    def snapshot(self) -> GateSnapshot:
        """What the gate judges by, under the settings of now."""
        if self._generation != self._settings.generation:
            from pegboard.snapshot import take

            self._generation = self._settings.generation
            self.candidates, approved = self._pinned()
            self._snapshot = take(self.candidates, self._settings, approved, self._missing)
            self._verdicts = {one: judge(one, self._snapshot) for one in self.candidates}
            self._tools = {
                one.name: Found(manifest=one.tool, candidate=one)
                for one in sorted(self.candidates, key=lambda one: one.name)
                if one.kind is Kind.TOOL and not one.error and self._verdicts[one] is None
            }
        return self._snapshot

    def _pinned(self) -> tuple[tuple[Candidate, ...], dict[str, str]]:
        """The candidates with a digest wherever an approval has to be compared, and the approved digests by key."""
        approved: dict[str, str] = {}
        digests: dict[str, str] = {}
        for one in self.candidates:
            if one.key not in digests:
                known = approved_digest(self._trust, one)
                if known is not None:
                    approved[one.key] = known
                digests[one.key] = digest(one) if known is not None else ""
        found = tuple(
            msgspec.structs.replace(one, digest=digests[one.key]) if digests[one.key] else one
            for one in self.candidates
        )
        return found, approved

    def verdict(self, candidate: Candidate) -> Refused | None:
        """The gate's answer: the first question that objects, or None."""
        now = self.snapshot
        return self._verdicts[candidate] if candidate in self._verdicts else judge(candidate, now)

    def standing(self, candidate: Candidate) -> Standing:
        """The state of a candidate and its reason: refused before broken before active."""
        refused = self.verdict(candidate)
        if refused is not None:
            return Standing(
                state=State.REFUSED, question=refused.question, reason=refused.reason, source=refused.source
            )
        broken = self._broken.get(candidate)
        if candidate.error or broken is not None:
            reason = candidate.error or (broken.reason if broken is not None else "")
            return Standing(state=State.BROKEN, reason=reason, source=candidate.where)
        return Standing(state=State.ACTIVE)

    def of_kind(self, kind: Kind) -> list[Candidate]:
        """Candidates of one kind that passed the gate and are not broken, best origin first."""
        return [one for one in self.candidates if one.kind is kind and self.standing(one).state is State.ACTIVE]

    # -- tools as data -----------------------------------------------------------------------------------------

    def tools(self) -> dict[str, Found]:
        """Tools that may be used, by name, in the order of their names."""
        _ = self.snapshot
        return dict(self._tools)

    def alias(self, name: str) -> str | None:
        """The own name of the tool that the model means by ``name``; None for an unknown one."""
        _ = self.snapshot
        if name in self._tools:
            return name
        return next((tool for tool, found in self._tools.items() if name in found.manifest.aliases), None)

    def absent(self, name: str) -> str:
        """Why a tool that was found is not among `tools`, as a sentence; empty for a name that nobody offers."""
        for one in self.candidates:
            if one.kind is Kind.TOOL and (one.name == name or (one.manifest and name in one.tool.aliases)):
                standing = self.standing(one)
                if standing.state is not State.ACTIVE:
                    source = f" ({standing.source})" if standing.source else ""
                    return f"{one.name} cannot be used here: {standing.reason}{source}."
        return ""

    def recheck(self, found: Found) -> Refused | None:
        """The gate again, under the settings of now. Candidates keep their files, so only policy can differ."""
        return self.verdict(found.candidate) if found.candidate is not None else None

    def schema(self, name: str) -> Schema:
        """The `schema.json` of a tool, read once. Raises `Broken` naming the command that makes it."""
        if name not in self._schemas:
            self._schemas[name] = read_schema(Path(self._tool(name).folder, "schema.json"))
        return self._schemas[name]

    def declared_settings(self) -> dict[str, Setting]:
        """The settings that manifests declare, by full name. Asked before anything is judged: judging needs settings.

        Of two that declare the same name, the better origin counts, so that nobody can redefine a bundled one.
        """
        found: dict[str, Setting] = {}
        for one in self.candidates:
            for name, setting in (one.manifest.settings if one.manifest is not None else {}).items():
                found.setdefault(name, setting)
        return found

    def providers(self) -> dict[str, ProviderManifest]:
        """Providers that may be used, by name."""
        found = {}
        for one in self.of_kind(Kind.PROVIDER):
            if isinstance(one.manifest, ProviderManifest):
                found[one.name] = one.manifest
        return found

    def load(self, candidate: Candidate) -> Any:
        """The object behind a candidate that passed the gate, made once. Raises `Refused` or `Broken`."""
        refused = self.verdict(candidate)
        if refused is not None:
            raise refused
        with self._lock:
            if candidate in self._broken:
                raise self._broken[candidate]
            if candidate not in self._loaded:
                try:
                    self._loaded[candidate] = self._make(candidate)
                except Broken as error:
                    self._broken[candidate] = error
                    self._tools.pop(candidate.name, None)
                    raise
            return self._loaded[candidate]

    def _make(self, candidate: Candidate) -> Any:
        from pegboard import loading

        source = self._sources.get(candidate)
        if source is not None:
            return source.load(candidate)
        if candidate.kind is not Kind.TOOL:
            return loading.load(candidate)
        tool = loading.make_tool(candidate)
        module = sys.modules.get(type(tool).__module__)
        if module is not None and any(name.startswith("peg_") for name in vars(module)):
            from pegboard.hooks import register

            register(self.manager, module, candidate.name)
        return tool

    def load_tool(self, name: str) -> Tool[Any, Any]:
        """The tool object, imported at its first use and then kept. May be called from a thread.

        Raises `Broken` with the plug-in's name when the import fails or the class breaks the contract; other tools are
        not touched by that. Raises `UsageError` for a tool that cannot be used here.
        """
        tool: Tool[Any, Any] = self.load(self._tool(name))
        return tool

    def _tool(self, name: str) -> Candidate:
        _ = self.snapshot
        found = self._tools.get(name)
        if found is None or found.candidate is None:
            for one in self.candidates:
                if one.kind is Kind.TOOL and one.name == name and one in self._broken:
                    raise self._broken[one]
            raise UsageError(self.absent(name) or f"There is no tool {name}.")
        return found.candidate

    def provider(self, model: ModelRef, settings: Settings, environ: Mapping[str, str]) -> Provider:
        """The provider that speaks for a model: the one it names, a hook's answer, or the one with its prefix.

        Raises `UsageError` when nobody speaks for it, `Refused` or `Broken` when the one who would cannot be used.
        """
        from pegboard import loading

        chosen = self._provider_for(model)
        if chosen is None:
            hooked: Provider | None = self.manager.hook.peg_provider(model=model) if self._hears() else None
            if hooked is not None:
                return hooked
            raise self._no_provider(model)
        refused = self.verdict(chosen)
        if refused is not None:
            raise refused
        try:
            return loading.make_provider(chosen, settings, environ)
        except Broken as error:
            self._broken[chosen] = error
            raise

    def _provider_for(self, model: ModelRef) -> Candidate | None:
        every = [one for one in self.candidates if one.kind is Kind.PROVIDER]
        if model.provider:
            named = [one for one in every if one.name == model.provider]
            return next((one for one in named if self.verdict(one) is None), named[0] if named else None)
        best: tuple[int, Candidate] | None = None
        usable = [(one, one.manifest) for one in self.of_kind(Kind.PROVIDER)]
        for one, manifest in usable:
            for prefix in manifest.prefixes if isinstance(manifest, ProviderManifest) else ():
                if model.model.startswith(prefix) and (best is None or len(prefix) > best[0]):
                    best = (len(prefix), one)
        return best[1] if best else None

    def _no_provider(self, model: ModelRef) -> UsageError:
        names = list(self.providers())
        if not names:
            return UsageError("No provider is installed; pegboard-anthropic is one.")
        if model.provider:
            alike = close(model.provider, names)
            return UsageError(f"There is no provider {model.provider}; there is {', '.join(alike or names)}.")
        known = ", ".join(f"{name}/{model.model}" for name in names)
        return UsageError(f"No provider speaks for the model {model.model} by its name alone; say one of {known}.")

    def _hears(self) -> bool:
        return self._manager is not None or any(map(self._wanted, self.of_kind(Kind.HOOKS)))

    def _wanted(self, candidate: Candidate) -> bool:
        """Whether a hook module has anything to do here: one that waits for a setting costs nothing until then."""
        needs = getattr(candidate.manifest, "needs_settings", None)
        return not needs or any(self._settings.value(name) for name in needs)

    @property
    def manager(self) -> pluggy.PluginManager:
        """The plug-in manager, with every approved hook module registered that has anything to do; made at first use.

        Better origins answer first. A module that cannot be registered is broken, and the others are not touched.
        """
        if self._manager is None or self._heard != self._settings.generation:
            with self._lock:  # only then: another thread may hold it for as long as an import takes
                self._manager = self._hearing(self._manager)
        return self._manager

    def _hearing(self, known: pluggy.PluginManager | None) -> pluggy.PluginManager:
        """The manager with the hook modules that are wanted now; what was registered once stays."""
        from pegboard.hooks import make_manager, register

        manager, generation = known or make_manager(), self._settings.generation
        hooks = [one for one in self.candidates if one.kind is Kind.HOOKS]
        approved = [one for one in hooks if self.verdict(one) is None]
        for name in {one.name for one in hooks} - {one.name for one in approved} if known is None else ():
            manager.set_blocked(name)
        for one in reversed(approved):
            if one not in self._broken and not manager.has_plugin(one.name) and self._wanted(one):
                try:
                    register(manager, self.load(one), one.name)
                except Broken as error:
                    self._broken[one] = error
        self._heard = generation
        return manager

    def gather(self) -> tuple[Candidate, ...]:
        """Every candidate, also those that plug-ins find through `peg_sources` (skills, agents, servers)."""
        if not self._gathered:
            self._gathered = True
            for given in self.manager.hook.peg_sources(registry=self) if self._hears() else ():
                for source in given:
                    self._sources.update(dict.fromkeys(source.find(self), source))
            if self._sources:
                self.candidates = ranked((*self.candidates, *self._sources))
                self.rejudge()
        return self.candidates
