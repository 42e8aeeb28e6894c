"""What every command starts from: places, trust, settings and the registry, each made when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pegboard.errors import UsageError
from pegboard.places import Places, find_places

if TYPE_CHECKING:
    from pegboard.host import Host
    from pegboard.loader import Registry
    from pegboard.session import Session
    from pegboard.settings import Settings
    from pegboard.trust import Trust


BARE = {
    "plugins.sources": ["bundled", "managed", "flag"],
    "hooks.disabled": True,
    "discovery.enabled": False,
}
"""What --bare sets, beside leaving out the settings of the workspace. Managed policy, its hooks too, holds as ever."""


class Start:
    """The parts of one start, in the order in which they depend on each other."""

    def __init__(self, cwd: Path | None, trust_flag: bool, flags: Mapping[str, Any], bare: bool = False) -> None:
        self.places: Places = find_places(cwd)
        self._trust_flag = trust_flag
        self._flags = {**flags, **BARE} if bare else dict(flags)
        self._bare = bare

    @cached_property
    def trust(self) -> Trust:
        """Approvals and trusted workspaces of this user."""
        from pegboard.trust import Trust

        return Trust.load(self.places)

    @cached_property
    def trusted(self) -> bool:
        """Whether this workspace's own files may widen anything: by a stored decision, or by --trust for this run."""
        return not self._bare and (self._trust_flag or self.trust.trusted())

    @cached_property
    def settings(self) -> Settings:
        """The effective settings, with those that the installed tools declare."""
        self.registry  # noqa: B018 - finding the tools declares their settings
        return self._settings

    @cached_property
    def _settings(self) -> Settings:
        from pegboard.settings import Settings

        return Settings.load(self.places, flags=self._flags, trusted=self.trusted, workspace=not self._bare)

    @cached_property
    def registry(self) -> Registry:
        """Everything that is installed, found without importing it."""
        from pegboard.loader import Registry

        registry = Registry.find(self.places, self._settings, self.trust)
        self._settings.declare(registry.declared_settings())
        self._settings.check_flags()
        return registry


def start(
    cwd: Path | None = None, trust_flag: bool = False, flags: Mapping[str, Any] | None = None, bare: bool = False
) -> Start:
    """The start for a directory. ``flags`` holds settings from the command line, by dotted key.

    ``bare``: nothing of the project or of the user's folders is looked for. Raises `UsageError`: bare and trusted.
    """
    if bare and trust_flag:
        raise UsageError("--bare takes nothing from the workspace, so there is nothing for --trust to trust.")
    return Start(cwd, trust_flag, flags or {}, bare)


def flags_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from the options of `policy_options`: rules, mode, and every ``--set KEY=VALUE``."""
    from pegboard.settings import parse_value

    flags: dict[str, Any] = {}
    for text in options.get("overrides") or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {text!r} has no value; write --set KEY=VALUE.")
        flags[key.strip()] = parse_value(value.strip())
    for effect in ("allow", "ask", "deny"):
        given = list(options.get(effect) or ())
        if given:
            flags[f"permissions.{effect}"] = given
    if options.get("permission_mode"):
        flags["permissions.mode"] = options["permission_mode"]
    return flags


def open_session(
    options: Mapping[str, Any],
    *,
    session_id: str | None = None,
    host: Host | None = None,
    cwd: Path | None = None,
    fork: bool = False,
    name: str = "",
) -> Session:
    """A session for a command: a new one, or the one with this id when it exists. Notices go to stderr.

    ``fork``: go on in a copy of it, under a new id. ``name``: of the new session or copy. Raises `UsageError`.
    """
    import uuid

    import click

    from pegboard import __version__
    from pegboard.cli.notices import Notices
    from pegboard.lines import FILE_NAME
    from pegboard.lines import begun as begun_file
    from pegboard.session import Session
    from pegboard.transcript import Transcript

    begun = start(cwd, bool(options.get("trust")), flags_of(options), bool(options.get("bare")))
    settings, registry = begun.settings, begun.registry
    if any(entry.scope == "managed" for entry in settings.entries("hooks")):
        from pegboard.external import demand

        demand(registry)
    if settings.value("sandbox.required"):
        from pegboard import sandbox
        from pegboard.needs import blank_need

        sandbox.demand(registry, blank_need(begun.places.home, begun.places.cwd, settings))
    for problem in settings.problems:
        click.echo(f"peg: {problem}", err=True)
    if rules := settings.parsed_rules():
        from pegboard.cli.policy_judge import rule_problems

        for dead in rule_problems(rules, registry):
            click.echo(f"peg: {dead}", err=True)
    if name:
        from pegboard.cli import keeping

        keeping.check_name(begun.places, name)
    folders = begun.places.sessions_dir
    source = folders / session_id if session_id else None
    exists = source is not None and begun_file(source / FILE_NAME)
    folder = source if source is not None and not fork else folders / str(uuid.uuid4())
    if exists and source is not None and fork:
        from pegboard.cli import keeping

        keeping.fork(source, folder, version=__version__, name=name)
        click.echo(f"peg: session {folder.name} is a copy of {source.name}", err=True)
    elif exists and name:
        raise UsageError("A session keeps its name; add --fork to go on in a copy with another one.")
    if exists:
        transcript = Transcript.resume(folder)
    else:
        transcript = Transcript.create(
            folder, cwd=begun.places.cwd, version=__version__, session=folder.name, name=name
        )
    for notice in transcript.notices:
        click.echo(f"peg: {notice}", err=True)
    host = host or Notices()
    return Session.create(begun.places, settings, registry, host=host, trusted=begun.trusted, transcript=transcript)
