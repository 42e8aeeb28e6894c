"""From approved candidates to live objects: sealed imports, hooks, sources, providers."""

from __future__ import annotations

import textwrap

import pytest
from pegboard.errors import Broken, Refused, UsageError
from pegboard.find import APPROVAL, files_of
from pegboard.loader import Found, State
from pegboard.manifest import Manifest, Schema
from pegboard.provider import ModelRef
from pegboard.trust import digest_files, digest_of


def approve(world, candidate):
    files = digest_files(files_of(candidate))
    world.trust.approve(APPROVAL, candidate.distribution, digest_of(files), files=files, where=candidate.root)


def test_what_was_judged_is_what_runs(world):
    """A compiled file that Python would never check, a namesake in the environment, and a link that leads out."""
    import importlib.util
    import py_compile

    home = world.places.user_dir / "plugins"
    package = world.add("my-echo", into=home / "my-echo")
    source = package / "tool.py"
    evil = world.base / "evil.py"
    evil.write_text(source.read_text() + f"\nPath({str(world.base / 'pwned')!r}).write_text('x')\n")
    cached = importlib.util.cache_from_source(str(source))
    py_compile.compile(str(evil), cached, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH, doraise=True)
    for one in world.find().candidates:
        approve(world, one)
    assert world.find().load_tool("Echo")
    assert world.marker("my-echo").exists()
    assert not (world.base / "pwned").exists()

    outside = world.base / "outside"
    outside.mkdir()
    (outside / "extra.py").write_text("")
    linked = world.add("my-link", "Link", into=home / "my-link", code="import my_link.inner.extra\n")
    (linked / "inner").symlink_to(outside)
    shadow = world.add("my-shadow", "Shadow", into=home / "my-shadow", module="shadowed")
    assert shadow
    world.add("acme-shadow", "Elsewhere", module="shadowed")
    registry = world.find()
    for one in registry.candidates:
        if one.root:
            approve(world, one)
    registry = world.find()
    with pytest.raises(Broken, match="ModuleNotFoundError"):
        registry.load_tool("Link")
    with pytest.raises(Broken, match="was judged, but"):
        registry.load_tool("Shadow")


def test_a_hook_module_passes_the_gate_before_it_is_registered(world, only):
    hooks = """
        from pegboard.hooks import hook

        @hook
        def peg_context(session):
            return ["from acme"]
    """
    points = "[pegboard.hooks]\naudit = acme_audit.tool\n"
    world.add("acme-audit", code=hooks, points=points)
    world.add(
        "acme-wrong",
        code=hooks.replace("peg_context(session)", "peg_nonsense(session)"),
        points=points.replace("audit", "wrong"),
    )
    registry = world.find()
    assert registry.manager.hook.peg_context(session=None) == [["from acme"]]
    assert registry.standing(only(registry, "wrong")).state is State.BROKEN
    assert "peg_nonsense" in registry.standing(only(registry, "wrong")).reason

    world.settings("managed", 'plugins.deny = ["acme-audit"]\n')
    manager = world.find().manager
    assert manager.hook.peg_context(session=None) == []
    assert manager.register(object(), "audit") is None


def test_a_tool_module_with_hooks_is_registered_at_its_first_use(world):
    code = textwrap.dedent(TOOL_WITH_HOOK)
    world.add("acme-echo", code=code)
    registry = world.find()
    assert registry.manager.hook.peg_context(session=None) == []
    registry.load_tool("Echo")
    assert registry.manager.hook.peg_context(session=None) == [["echo"]]


TOOL_WITH_HOOK = """
from pegboard.hooks import hook
from pegboard.model import Input, Output
from pegboard.tool import Tool


class I(Input):
    text: str


class O(Output):
    text: str


class Echo(Tool[I, O]):
    Input = I
    Output = O

    async def run(self, input, ctx):
        return O(text=input.text)


@hook
def peg_context(session):
    return ["echo"]
"""


def test_sources_of_plugins_are_judged_too(world, only):
    code = """
        from pegboard.candidate import Candidate, Kind, Origin
        from pegboard.hooks import hook

        class Skills:
            def find(self, registry):
                yield Candidate(kind=Kind.SKILL, name="commit", origin=Origin.USER, where="/my", root="/my")
                yield Candidate(kind=Kind.SKILL, name="review", origin=Origin.MANAGED, where="/etc/skills/review")

            def load(self, candidate):
                return f"body of {candidate.name}"

        @hook
        def peg_sources(registry):
            return [Skills()]
    """
    world.add("acme-skills", code=code, points="[pegboard.hooks]\nskills = acme_skills.tool\n")
    registry = world.find()
    assert [one.name for one in registry.candidates] == ["skills"]
    registry.gather()
    assert registry.standing(only(registry, "commit")).question == "untrusted"
    assert registry.load(only(registry, "review")) == "body of review"


def test_settings_of_manifests_are_declared_once(world):
    declare = '\n[settings."echo.times"]\ndefault = {}\nsummary = "How often."\n'
    world.add("pegboard-read", "Read", extra=declare.format(1))
    world.add("acme-echo", extra=declare.format(5))
    assert world.find().declared_settings()["echo.times"].default == 1


def test_a_session_tool_carries_its_own_data():
    class Given:
        manifest = Manifest(name="Given", summary="x", api=1)
        schema = Schema(description="x", input={}, output={})

    found = Found.of_instance(Given())
    assert found.manifest.name == "Given" and found.schema is Given.schema
    with pytest.raises(Broken, match="object"):
        Found.of_instance(object())


PROVIDER = """
class Fake:
    name = "acme"

    def __init__(self, settings, environ):
        self.key = environ.get("KEY")

    async def stream(self, request): ...
    async def count(self, request): ...
    def abilities(self, model): ...
    async def models(self): ...
    async def close(self): ...


def make(settings, environ):
    return Fake(settings, environ)
"""


def add_provider(world, dist, name, prefixes, code=PROVIDER):
    folder = world.add(
        dist, code=code, manifest="", points=f"[pegboard.providers]\n{name} = {dist.replace('-', '_')}.tool:make\n"
    )
    data = f'name = "{name}"\nsummary = "x"\napi = 1\nprefixes = {prefixes}\ndefault_model = "m"\n'
    (folder / "provider.toml").write_text(data)


def test_a_provider_is_chosen_by_name_then_by_the_longest_prefix(world, only):
    add_provider(world, "acme-one", "one", ["m-"])
    add_provider(world, "acme-two", "two", ["m-large-"])
    add_provider(world, "acme-three", "three", ["bad-"], code="def make(settings, environ):\n    return object()\n")
    registry = world.find()
    assert {name: one.default_model for name, one in registry.providers().items()} == dict.fromkeys(
        ("one", "two", "three"), "m"
    )

    def module(model):
        return type(registry.provider(ModelRef.parse(model), registry._settings, {"KEY": "k"})).__module__

    assert module("m-small") == "acme_one.tool"
    assert module("m-large-2") == "acme_two.tool"
    assert module("one/m-large-2") == "acme_one.tool"
    assert registry.provider(ModelRef.parse("m-x"), registry._settings, {"KEY": "k"}).key == "k"
    with pytest.raises(Broken, match="no method stream"):
        module("bad-1")
    assert "three" not in registry.providers()
    with pytest.raises(UsageError, match="say one of one/gpt"):
        module("gpt")
    with pytest.raises(UsageError, match="no provider tow; there is two"):
        module("tow/x")
    world.settings("managed", 'plugins.deny = ["acme-one"]\n')
    registry = world.find()
    with pytest.raises(Refused, match="managed policy"):
        module("one/x")
    with pytest.raises(UsageError):
        module("m-small")


def test_a_hook_may_speak_for_a_model_that_no_provider_names(world):
    code = """
        from pegboard.hooks import hook

        @hook
        def peg_provider(model):
            return f"speaks for {model.model}" if model.model.startswith("odd") else None
    """
    world.add("acme-odd", code=code, points="[pegboard.hooks]\nodd = acme_odd.tool\n")
    registry = world.find()
    assert registry.provider(ModelRef("odd-1"), registry._settings, {}) == "speaks for odd-1"
    with pytest.raises(UsageError, match="No provider is installed"):
        registry.provider(ModelRef("even"), registry._settings, {})
