"""The tools of one session: installed ones and the session's own, loaded at their first call, shown to the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pegboard.errors import Code, Refusal
from pegboard.names import pick

if TYPE_CHECKING:
    from pegboard.errors import Refused
    from pegboard.loader import Found
    from pegboard.manifest import Schema
    from pegboard.provider import ToolSpec
    from pegboard.session import Session
    from pegboard.tool import Tool

BROKEN_CONTRACT = 3
"""[C] A tool that breaks its output schema this often in a session is switched off for its rest."""

SEARCH = "ToolSearch"
"""The tool that loads deferred ones; offered only where there are any."""


class Toolbox:
    """What may be called in a session, by name. Nothing is imported before its first call."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._own: dict[str, Found] | None = None
        self._loaded: dict[str, Tool[Any, Any]] = {}
        self._breaks: dict[str, int] = {}
        self._calls: dict[str, int] = {}
        self.failed: dict[str, str] = {}
        """Sources that could not bring their tools -> why; told by tool search."""
        self._specs: dict[tuple[str, bool], ToolSpec] = {}
        self._kept: tuple[Any, dict[Any, Any]] = ((), {})

    def all(self) -> dict[str, Found]:
        """Every tool that may be called here, by name: installed ones and those of `peg_tools`."""
        if self._own is None:
            from pegboard.loader import Found

            self._own = {}
            for given in self._session.manager.hook.peg_tools(session=self._session):
                for tool in given:
                    own = Found.of_instance(tool)
                    self._own.setdefault(own.manifest.name, own)
        installed = self._session.registry.tools()
        every = {**self._own, **installed} if self._own else installed
        broken = [name for name, times in self._breaks.items() if times >= BROKEN_CONTRACT]
        return {name: found for name, found in every.items() if name not in broken} if broken else every

    def find(self, name: str) -> Found | None:
        """The tool of this name or alias, or None."""
        tools = self.all()
        if name in tools:
            return tools[name]
        return next((found for found in tools.values() if name in found.manifest.aliases), None)

    def absent(self, name: str) -> str:
        """Why a tool of this name is not here, when it is known but off; empty for an unknown one."""
        if self._breaks.get(name, 0) >= BROKEN_CONTRACT:
            return f"{name} broke its own output schema {BROKEN_CONTRACT} times and is off for this session."
        return self._session.registry.absent(name)

    def load(self, found: Found) -> Tool[Any, Any]:
        """The tool object, imported at its first call. Raises `Broken`."""
        name = found.manifest.name
        if name not in self._loaded:
            self._loaded[name] = found.instance or self._session.registry.load_tool(name)
        return self._loaded[name]

    def use(self, name: str, tool: Tool[Any, Any]) -> None:
        """Hold this object as the tool of this name: a wrapped one, as the testing kit makes it."""
        self._loaded[name] = tool

    def gate(self, found: Found) -> Refused | None:
        """The gate's answer for this tool under the settings of now; None = may be used."""
        return None if found.instance is not None else self._session.registry.recheck(found)

    def schema(self, found: Found) -> Schema:
        """The schema of a tool, read once. Raises `Broken`."""
        return found.schema or self._session.registry.schema(found.manifest.name)

    def offers(self, name: str) -> bool:
        """Whether a tool of this name may be called here: it is there, and no rule denies it as a whole."""
        found = self.all().get(name)
        return found is not None and not self._session.snapshot().bare_denied(found.manifest)

    def deferred(self) -> dict[str, Found]:
        """The tools that tool search can load here, by name: neither switched off nor denied as a whole."""
        kept = self._of_now()
        if "deferred" not in kept:
            every = sorted(self.all().items())
            kept["deferred"] = {
                name: found for name, found in every if found.manifest.load == "deferred" and self.offers(name)
            }
        known: dict[str, Found] = kept["deferred"]
        return known

    def specs(self, found: Mapping[str, bool] | None = None) -> list[ToolSpec]:
        """Tools as a request carries them: sorted by name, without those that a bare deny rule removes.

        ``found``: the deferred tools that were loaded, in order -> whether a reference in the conversation loads them;
        they come last. None = no tool is deferred.
        """
        kept, key = self._of_now(), tuple(found.items()) if found is not None else None
        if key not in kept:
            later = self.deferred() if found is not None else {}
            first = [name for name in sorted(self.all()) if name not in later and self.offers(name)]
            if not later and SEARCH in first:
                first.remove(SEARCH)
            loaded = sorted(((name, live) for name, live in key or () if name in later), key=lambda item: item[1])
            kept[key] = [self._spec(name, False) for name in first] + [self._spec(*item) for item in loaded]
        specs: list[ToolSpec] = kept[key]
        return specs

    def _spec(self, name: str, defer: bool) -> ToolSpec:
        """The same object for as long as the tool stays what it is, so that its encoding can be kept."""
        from pegboard.provider import ToolSpec

        schema = self.schema(self.all()[name])
        spec = self._specs.get((name, defer))
        if spec is None or spec.input_schema is not schema.input:
            spec = self._specs[name, defer] = ToolSpec(name, schema.description, schema.input, defer)
        return spec

    def _of_now(self) -> dict[Any, Any]:
        """What was worked out for today's tools and rules; emptied when either changes."""
        now = (self._session.snapshot().generation, len(self._breaks), len(self.all()))
        if self._kept[0] != now:
            self._kept = (now, {})
        return self._kept[1]

    def count(self, name: str) -> None:
        """Count a call that is about to run. Raises `Refusal` (limit_reached) when the session has had enough of it."""
        limits = self._session.settings.value("limits.calls")
        most = next((limits[key] for key in limits if pick(key, [name])), None)
        if isinstance(most, int) and self._calls.get(name, 0) >= most:
            raise Refusal(
                Code.LIMIT_REACHED,
                f"{name} was not run: this session may call it {most} times, and has (limits.calls.{name}).",
                hint="Work with what is known, or tell the user.",
            )
        self._calls[name] = self._calls.get(name, 0) + 1

    def broke_contract(self, name: str) -> None:
        """Count a result that did not fit the tool's own output model."""
        self._breaks[name] = self._breaks.get(name, 0) + 1
