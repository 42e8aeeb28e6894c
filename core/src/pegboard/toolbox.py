"""The tools of one session: installed ones and the session's own, loaded at their first call, shown to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pegboard.errors import Refused
    from pegboard.loader import Found
    from pegboard.provider import ToolSpec
    from pegboard.session import Session
    from pegboard.tool import Tool

BROKEN_CONTRACT = 3
"""[C] A tool that breaks its output schema this often in a session is switched off for its rest."""


class Toolbox:
    """What may be called in a session, by name. Nothing is imported before its first call."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._own: dict[str, Found] | None = None
        self._loaded: dict[str, Tool[Any, Any]] = {}
        self._breaks: dict[str, int] = {}
        self._specs: tuple[Any, list[ToolSpec]] | None = None

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

    def specs(self) -> list[ToolSpec]:
        """Tools as a request carries them: sorted by name, without those that a bare deny rule removes."""
        from pegboard.provider import ToolSpec

        session = self._session
        snapshot = session.snapshot()
        key = (snapshot.generation, frozenset(session.loaded), len(self._breaks))
        if self._specs is None or self._specs[0] != key:
            specs = [
                ToolSpec(name, schema.description, schema.input)
                for name, found in sorted(self.all().items())
                if (found.manifest.load == "core" or name in session.loaded)
                and not snapshot.bare_denied(found.manifest)
                for schema in (found.schema or session.registry.schema(name),)
            ]
            self._specs = (key, specs)
        return self._specs[1]

    def broke_contract(self, name: str) -> None:
        """Count a result that did not fit the tool's own output model."""
        self._breaks[name] = self._breaks.get(name, 0) + 1
