"""Finding, judging and loading plug-ins: the checks PLG-1 to PLG-8 of the specification, and P-9."""

from __future__ import annotations

import os
import sys
import zipfile

import pytest
from pegboard.errors import Broken, Refused, UsageError
from pegboard.find import APPROVAL, digest, files_of
from pegboard.loader import Kind, Origin, Registry, State
from pegboard.names import bundled
from pegboard.trust import digest_files, digest_of


def approve(world, candidate):
    files = digest_files(files_of(candidate))
    world.trust.approve(APPROVAL, candidate.distribution, digest_of(files), files=files, where=candidate.root)


def test_plg_1_a_third_party_package_is_listed_and_can_be_off_in_one_project(world, only):
    world.add("acme-echo")
    registry = world.find()
    candidate = only(registry, "Echo")
    assert (candidate.kind, candidate.origin, candidate.distribution) == (Kind.TOOL, Origin.PACKAGE, "acme-echo")
    assert registry.standing(candidate).state is State.ACTIVE
    assert registry.tools()["Echo"].folder == world.site / "acme_echo"
    assert registry.schema("Echo").description == "Says it again."
    assert not world.marker("acme-echo").exists()

    world.settings("project", 'tools.disabled = ["echo"]\n')
    registry = world.find()
    assert registry.tools() == {}
    standing = registry.standing(only(registry, "Echo"))
    assert (standing.state, standing.question) == (State.REFUSED, "switched_off")
    assert standing.source.endswith("project/.peg/settings.toml")
    assert "off in the project settings" in registry.absent("Echo")

    other = world.base / "elsewhere"
    other.mkdir()
    places = world.places.__class__(other, world.home, other, world.home / ".peg", world.managed)
    elsewhere = Registry.find(places, type(registry._settings).load(places), world.trust, paths=[str(world.site)])
    assert "Echo" in elsewhere.tools()


def test_plg_2_what_managed_policy_denies_is_never_imported(world, only):
    world.add("acme-echo")
    world.settings("managed", 'plugins.deny = ["acme-*"]\n')
    seen = []

    class Spy:
        def find_spec(self, name, path=None, target=None):
            seen.append(name)

    sys.meta_path.insert(0, spy := Spy())
    try:
        registry = world.find()
        candidate = only(registry, "Echo")
        standing = registry.standing(candidate)
        for load in (lambda: registry.load(candidate), lambda: registry.load_tool("Echo")):
            with pytest.raises((Refused, UsageError)):
                load()
        _ = registry.manager
    finally:
        sys.meta_path.remove(spy)
    assert (standing.question, standing.source) == ("denied", str(world.managed / "managed.toml"))
    assert not [name for name in seen if name.startswith("acme")]
    assert not world.marker("acme-echo").exists()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise RuntimeError('no engine')", "RuntimeError: no engine"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("assert False, 'never'", "AssertionError: never"),
        ("import there_is_no_such_module", "ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        ("x = 1", "AttributeError"),
        ("class Bad:\n    pass", "it has no method check"),
    ],
)
def test_plg_3_a_package_that_raises_at_import_is_reported_and_others_work(world, only, body, says):
    world.add("acme-bad", "Bad", code=body)
    world.add("acme-echo")
    registry = world.find()
    assert set(registry.tools()) == {"Bad", "Echo"}
    for _ in range(2):
        with pytest.raises(Broken, match="Bad") as caught:
            registry.load_tool("Bad")
        assert says in str(caught.value)
    assert registry.load_tool("Echo").Input.model_fields.keys() == {"text"}
    assert set(registry.tools()) == {"Echo"}
    assert registry.standing(only(registry, "Bad")).state is State.BROKEN
    assert "Bad cannot be used here" in registry.absent("Bad")


def test_plg_4_a_bundled_name_needs_an_override(world, only):
    world.add("acme-read", "Read")
    registry = world.find()
    standing = registry.standing(only(registry, "Read"))
    assert standing.question == "clashes"
    assert "tools.override" in standing.reason

    world.settings("project", 'tools.override = ["Read"]\n')
    assert "Read" not in world.find().tools()

    world.settings("user", 'tools.override = ["Read=acme-read"]\n')
    world.add("pegboard-read", "Read")
    registry = world.find()
    assert registry.tools()["Read"].candidate.distribution == "acme-read"
    ours = next(one for one in registry.candidates if one.origin is Origin.BUNDLED)
    assert "acme-read 1.0 replaces it" in registry.standing(ours).reason

    world.settings("managed", 'plugins.deny = ["acme-read"]\n')
    assert world.find().tools()["Read"].candidate.distribution == "pegboard-read"


def test_an_alias_does_not_take_a_bundled_name_either(world, only):
    world.add("acme-echo", extra='aliases = ["Read"]\n')
    registry = world.find()
    assert registry.standing(only(registry, "Echo")).question == "clashes"
    assert registry.alias("Read") is None


def test_plg_5_a_project_plugin_in_an_untrusted_workspace_is_refused(world, only):
    world.add("their-echo", into=world.project / ".peg" / "plugins" / "their-echo")
    registry = world.find()
    standing = registry.standing(only(registry, "Echo"))
    assert (standing.state, standing.question, standing.source) == (State.REFUSED, "untrusted", "workspace")
    assert "peg trust" in standing.reason

    world.trusted = True
    registry = world.find()
    standing = registry.standing(only(registry, "Echo"))
    assert (standing.question, standing.source) == ("untrusted", "approvals")
    assert "peg plugins trust Echo" in standing.reason

    approve(world, only(registry, "Echo"))
    registry = world.find()
    assert registry.load_tool("Echo")
    assert world.marker("their-echo").exists()


def test_plg_7_each_tool_of_the_product_can_be_missing(world, monkeypatch):
    tools = [tool for dist, tool in bundled().items() if tool and dist not in ("pegboard-core", "pegboard-tasks")]
    assert len(tools) == 29
    folders = {}
    for dist, tool in bundled().items():
        if tool in tools:
            folders[tool] = world.add(dist, tool, into=world.base / dist)
    for missing in tools:
        paths = [str(folder.parent) for tool, folder in folders.items() if tool != missing]
        settings = type(world.find()._settings).load(world.places)
        registry = Registry.find(world.places, settings, world.trust, paths=paths)
        assert registry.tools().keys() == set(tools) - {missing}
    sys.path[:0] = [str(folder.parent) for folder in folders.values()]
    packages = {folder.name for folder in folders.values()}
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        monkeypatch.delitem(sys.modules, name)  # the real ones, where an earlier test of this process used them
    registry = Registry.find(world.places, settings, world.trust, paths=sys.path[:29])
    for tool in tools:
        assert type(registry.load_tool(tool)).__name__ == tool


def test_plg_8_a_changed_plugin_is_held_until_it_is_approved_again(world, only):
    package = world.add("my-echo", into=world.places.user_dir / "plugins" / "my-echo")
    registry = world.find()
    assert registry.standing(only(registry, "Echo")).question == "untrusted"
    approve(world, only(registry, "Echo"))
    registry = world.find()
    candidate = only(registry, "Echo")
    assert registry.standing(candidate).state is State.ACTIVE
    assert registry.tools()["Echo"].digest == digest(candidate)

    package.joinpath("tool.py").write_text(package.joinpath("tool.py").read_text() + "\n# changed\n")
    registry = world.find()
    standing = registry.standing(only(registry, "Echo"))
    assert (standing.state, standing.question) == (State.REFUSED, "changed")
    assert not world.marker("my-echo").exists()

    approve(world, only(registry, "Echo"))
    assert "Echo" in world.find().tools()


def test_a_package_that_was_pinned_by_digest_is_held_when_it_changes(world, only):
    package = world.add("acme-echo")
    approve(world, only(world.find(), "Echo"))
    assert "Echo" in world.find().tools()
    package.joinpath("late.py").write_text("x = 1\n")
    assert world.find().standing(only(world.find(), "Echo")).question == "changed"


def test_p_9_two_plugins_offer_one_name_and_the_loser_stays_visible(world):
    world.add("acme-echo")
    world.add("my-echo", into=world.places.user_dir / "plugins" / "my-echo")
    mine = next(one for one in world.find().candidates if one.origin is Origin.USER)
    assert world.find().tools()["Echo"].candidate.distribution == "acme-echo"
    approve(world, mine)
    registry = world.find()
    assert registry.tools()["Echo"].candidate.distribution == "my-echo"
    loser = next(one for one in registry.candidates if one.origin is Origin.PACKAGE)
    assert "my-echo 1.0" in registry.standing(loser).reason
    assert registry.standing(loser).question == "clashes"


def test_p_9_a_tie_is_refused_for_both(world):
    world.add("acme-echo")
    world.add("other-echo")
    registry = world.find()
    standings = [registry.standing(one) for one in registry.candidates]
    assert [one.question for one in standings] == ["clashes", "clashes"]
    assert "other-echo 1.0" in standings[0].reason and "acme-echo 1.0" in standings[1].reason
    assert registry.tools() == {}


def test_a_package_without_manifest_is_broken_and_says_the_command(world, only):
    folder = world.add("acme-echo", manifest="")
    registry = world.find()
    standing = registry.standing(only(registry, "Echo"))
    assert standing.state is State.BROKEN
    assert f"peg plugins build {folder}" in standing.reason


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        ("name = ", "tool.toml"),
        ('name = "Echo"\nsummary = "x"\napi = 1\ncolour = "red"\n', "colour"),
        ('name = "Other"\nsummary = "x"\napi = 1\n', "says Other"),
        ('summary = "x"\napi = 1\n', "name"),
        ("\udcff", "tool.toml"),
    ],
)
def test_a_broken_manifest_names_its_file(world, only, manifest, says):
    folder = world.add("acme-echo")
    (folder / "tool.toml").write_text(manifest, errors="surrogateescape")
    for _ in range(2):
        registry = world.find()
        standing = registry.standing(only(registry, "Echo"))
        assert standing.state is State.BROKEN
        assert says in standing.reason


def test_another_contract_and_a_missing_engine_are_refused(world, only):
    world.add("acme-next", "Next", manifest='name = "Next"\nsummary = "x"\napi = 99\n')
    world.add("acme-need", "Need", extra='needs = ["no-such-engine-anywhere>=3"]\n')
    world.add("acme-old", "Old", extra='needs = ["python3>=99.1"]\n')
    world.add("acme-fine", "Fine", extra='needs = ["python3>=3.1", "python3"]\n')
    registry = world.find()
    assert registry.standing(only(registry, "Next")).question == "wrong_api"
    assert "no-such-engine-anywhere is not installed" in registry.standing(only(registry, "Need")).reason
    assert "python3>=99.1 is needed" in registry.standing(only(registry, "Old")).reason
    assert set(registry.tools()) == {"Fine"}


def test_a_flag_folder_may_be_a_source_tree_and_needs_no_approval(world, only):
    tree = world.base / "tree"
    world.add("my-echo", into=tree / "src")
    (tree / "src" / "my_echo-1.0.dist-info" / "entry_points.txt").unlink()
    (tree / "pyproject.toml").write_text(
        '[project]\nname = "my-echo"\nversion = "2.5"\n'
        '[project.entry-points."pegboard.tools"]\nEcho = "my_echo.tool:Echo"\n'
    )
    registry = world.find(plugin_dirs=(tree,))
    candidate = only(registry, "Echo")
    assert (candidate.origin, candidate.version, candidate.root) == (Origin.FLAG, "2.5", str(tree))
    assert registry.load_tool("Echo")
    with pytest.raises(UsageError, match="no folder"):
        world.find(plugin_dirs=(world.base / "nowhere",))


def test_origins_can_be_switched_off(world, only):
    world.add("acme-echo")
    world.settings("user", 'plugins.sources = ["bundled", "managed"]\n')
    registry = world.find()
    standing = registry.standing(only(registry, "Echo"))
    assert standing.question == "origin_off"
    assert standing.source.startswith(str(world.home))


def test_managed_force_holds_against_every_scope(world):
    world.add("acme-echo")
    world.add("acme-other", "Other")
    world.settings("managed", 'tools.force_disabled = ["Echo"]\ntools.force_enabled = ["Other"]\n')
    world.settings("user", 'tools.enabled = ["Echo"]\ntools.disabled = ["Other"]\n')
    world.settings("local", 'tools.enabled = ["Echo"]\ntools.disabled = ["*"]\n')
    world.trusted = True
    assert set(world.find().tools()) == {"Other"}


def test_tools_default_decides_what_nobody_names(world):
    world.add("acme-echo")
    world.add("acme-late", "Late", extra='load = "deferred"\n')
    for value, left in (("core", {"Echo"}), ("none", set()), ("all", {"Echo", "Late"})):
        world.settings("user", f'tools.default = "{value}"\n')
        assert set(world.find().tools()) == left
    world.settings("user", 'tools.default = "none"\ntools.enabled = ["Late"]\n')
    assert set(world.find().tools()) == {"Late"}


def test_a_switch_of_now_reaches_a_running_registry(world):
    world.add("acme-echo")
    registry = world.find()
    found = registry.tools()["Echo"]
    assert registry.recheck(found) is None
    world.settings("user", 'tools.disabled = ["Echo"]\n')
    registry._settings.refresh()
    refused = registry.recheck(found)
    assert refused is not None and refused.question == "switched_off"
    assert registry.tools() == {}


def test_the_current_directory_adds_no_packages(world):
    world.add("evil-echo", into=world.project)
    assert world.find(more=(world.project,)).candidates == ()
    old = world.project / "evil.egg-info"
    old.mkdir()
    (old / "entry_points.txt").write_text("[pegboard.tools]\nEcho = evil.tool:Echo\n")
    nested = world.base / "other"
    nested.mkdir()
    os.rename(old, nested / "evil.egg-info")
    assert world.find(more=(nested,)).candidates == ()
    os.rename(nested / "evil.egg-info", world.site / "evil.egg-info")
    assert [one.distribution for one in world.find().candidates] == ["evil"]


def test_an_archive_is_reported_not_missed(world, only):
    path = world.base / "acme.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("acme_zip-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: acme-zip\nVersion: 1.0\n")
        archive.writestr("acme_zip-1.0.dist-info/entry_points.txt", "[pegboard.tools]\nZipped = acme_zip.tool:Zipped\n")
    registry = world.find(more=(path,))
    assert "inside an archive" in registry.standing(only(registry, "Zipped")).reason


def test_an_editable_package_is_found_in_its_source_tree(world, only):
    tree = world.base / "checkout" / "src"
    folder = world.add("acme-echo", into=tree)
    os.rename(tree / "acme_echo-1.0.dist-info", world.site / "acme_echo-1.0.dist-info")
    assert world.find(more=(tree,)).tools()["Echo"].folder == folder
    hooked = world.site / "acme_echo-1.0.dist-info" / "direct_url.json"
    hooked.write_text(f'{{"dir_info": {{"editable": true}}, "url": "{(world.base / "checkout").as_uri()}"}}')
    assert world.find().tools()["Echo"].folder == folder
