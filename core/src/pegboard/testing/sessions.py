"""A real session in a folder of a test's own: settings files, registry, policy and pipeline as in the product.

Nothing is replaced but the folders and the person: no network, no settings of the machine, no managed policy of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pegboard.call import Call, Outcome
from pegboard.events import Event, Result
from pegboard.hooks import Note, Verdict, hook, register
from pegboard.host import Choice, Host, Question, Reply
from pegboard.loader import Registry
from pegboard.manifest import Manifest, Schema
from pegboard.places import Places, find_places
from pegboard.policy import Mode
from pegboard.session import Session
from pegboard.settings import Settings
from pegboard.tool import Tool
from pegboard.trust import Trust

if TYPE_CHECKING:
    from pegboard.loader import Found
    from pegboard.tool import Context

SECRET = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL")


def set_room(folder: Path, setenv: Callable[[str, str], None]) -> None:
    """Point the environment into ``folder``, so that nothing of the machine's own settings is read or written."""
    for name in ("home", "managed", "temporary"):
        (folder / name).mkdir(exist_ok=True)
    setenv("HOME", str(folder / "home"))
    setenv("PEG_HOME", str(folder / "home" / ".peg"))
    setenv("PEG_MANAGED_DIR", str(folder / "managed"))
    setenv("TMPDIR", str(folder / "temporary"))


class Willing(Host):
    """A host whose person answers every permission question the same way, and remembers what happened."""

    name = "willing"

    def __init__(self, choice: Choice = Choice.ONCE) -> None:
        self.choice = choice
        self.questions: list[Question] = []
        self.results: list[str] = []
        """Ids of the calls whose result was shown."""
        self.events: list[Event] = []
        self.said: list[str] = []
        """Progress of running calls."""

    async def ask(self, question: Question) -> Reply | None:
        self.questions.append(question)
        return Reply(self.choice)

    async def show(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Result):
            self.results.append(event.id)

    async def progress(self, call_id: str, tool: str, text: str) -> None:
        self.said.append(text)


class Listener:
    """A plug-in that hears of every call, and may answer with a verdict before it and a note after it."""

    def __init__(self, *, decision: str | None = None, reason: str = "", note: str = "") -> None:
        self.verdict = Verdict(decision, reason) if decision else None
        self.note = Note(text=note) if note else None
        self.before: list[Call] = []
        self.after: list[tuple[Call, Outcome]] = []

    @hook
    async def peg_before_call(self, call: Call, ctx: Context) -> Verdict | None:
        self.before.append(call)
        return self.verdict

    @hook
    async def peg_after_call(self, call: Call, outcome: Outcome, ctx: Context) -> Note | None:
        self.after.append((call, outcome))
        return self.note


class Brought:
    """A plug-in that brings tools which exist for one session only."""

    def __init__(self, tools: Sequence[Tool[Any, Any]]) -> None:
        self._tools = tools

    @hook
    def peg_tools(self, session: Session) -> Sequence[Tool[Any, Any]]:
        return self._tools


class Bench:
    """A room with a working folder, a home and a session. Use as an async context manager.

    ``settings``: user settings by dotted key. ``allow``, ``ask``, ``deny``: rules of the user. ``only``: the tools that
    are switched on (None = all that are installed). ``tools``: tools that exist for this session alone. ``hooks``:
    plug-ins to register. ``paths``: folders to look for installed plug-ins in, instead of ``sys.path``.
    """

    def __init__(
        self,
        room: Path,
        *,
        settings: Mapping[str, Any] | None = None,
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        mode: str | None = None,
        host: Host | None = None,
        trusted: bool = False,
        only: Sequence[str] | None = None,
        tools: Sequence[Tool[Any, Any]] = (),
        hooks: Sequence[object] = (),
        paths: Sequence[str] | None = None,
    ) -> None:
        self.folder = room / "work"
        self.outside = room / "home"
        self.temporary = room / "temporary"
        for path in (self.folder, self.outside, self.temporary, room / "managed"):
            path.mkdir(parents=True, exist_ok=True)
        # Real names: a temporary folder is often behind a link, and paths are compared after links are resolved.
        self.folder, self.outside = Path(os.path.realpath(self.folder)), Path(os.path.realpath(self.outside))
        self.environ = {
            **{name: value for name, value in os.environ.items() if name not in SECRET},
            "HOME": str(self.outside),
            "PEG_HOME": str(self.outside / ".peg"),
            "PEG_MANAGED_DIR": str(room / "managed"),
        }
        self.places: Places = find_places(self.folder, self.environ)
        self._settings: dict[str, Any] = dict(settings or {})
        for effect, rules in (("allow", allow), ("ask", ask), ("deny", deny)):
            if rules:
                self._settings[f"permissions.{effect}"] = list(rules)
        if only is not None:
            self._settings |= {"tools.default": "none", "tools.enabled": list(only)}
        self._save()
        trust = Trust.load(self.places)
        found = Settings.load(self.places, trusted=trusted)
        registry = Registry.find(self.places, found, trust, paths=paths)
        found.declare(registry.declared_settings())
        self.session = Session.create(
            self.places, found, registry, host=host, mode=Mode.parse(mode) if mode else None, trusted=trusted
        )
        self._count = 0
        for plugin in ([Brought(tools)] if tools else []) + list(hooks):
            self.hook(plugin)

    @property
    def settings_file(self) -> Path:
        """The user's settings file."""
        return self.places.user_dir / "settings.toml"

    def hook(self, plugin: object) -> None:
        """Register a plug-in with the session."""
        self._count += 1
        register(self.session.manager, plugin, f"{type(plugin).__name__.lower()}-{self._count}")

    def deny(self, rule: str) -> None:
        """Add a deny rule to the user's settings file, as an editor would while the session runs."""
        self._settings["permissions.deny"] = [*self._settings.get("permissions.deny", []), rule]
        self._save()

    def _save(self) -> None:
        import tomli_w

        nested: dict[str, Any] = {}
        for key, value in self._settings.items():
            table = nested
            *path, last = key.split(".")
            for part in path:
                table = table.setdefault(part, {})
            table[last] = value
        if nested:
            self.settings_file.parent.mkdir(parents=True, exist_ok=True)
            self.settings_file.write_text(tomli_w.dumps(nested), "utf-8")

    def found(self, tool: str) -> Found:
        """A tool as the session finds it."""
        found = self.session.find_tool(tool)
        assert found is not None, self.session.toolbox.absent(tool) or f"there is no tool {tool}"
        return found

    def swap(self, tool: str, instance: Tool[Any, Any]) -> None:
        """Let this object stand for a tool from now on, as if its plug-in had been made so."""
        self.session.toolbox.load(self.found(tool))
        self.session.toolbox.use(tool, instance)

    async def call(self, tool: str, given: Any, id: str = "call-1") -> Outcome:
        """One call through the whole pipeline."""
        return (await self.session.run_calls([Call(id=id, tool=tool, input=given)]))[0]

    async def calls(self, calls: Sequence[tuple[str, Any]]) -> list[Outcome]:
        """The calls of one message, as (tool, input); their ids are call-1, call-2 and so on."""
        return await self.session.run_calls(
            [Call(id=f"call-{index}", tool=tool, input=given) for index, (tool, given) in enumerate(calls, 1)]
        )

    async def once(self, tool: str, given: Any) -> Outcome:
        """One call, and the session is closed."""
        async with self:
            return await self.call(tool, given)

    async def __aenter__(self) -> Self:
        await self.session.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.session.__aexit__(None, None, None)


def tool_of(cls: type[Tool[Any, Any]], **fields: Any) -> Tool[Any, Any]:
    """An object of a tool class with a manifest and a schema of its own, for tools that a test defines in place.

    ``fields`` are fields of the manifest; the name is the class's name unless it says otherwise.
    """
    tool = cls()
    values = {"name": cls.__name__, "summary": "A tool of a test.", "api": 1, **fields}
    described = {"input": cls.Input.model_json_schema(), "output": cls.Output.model_json_schema()}
    tool.manifest = Manifest(**values)  # type: ignore[attr-defined]
    tool.schema = Schema(description="A tool of a test.", **described)  # type: ignore[attr-defined]
    return tool
