"""`peg doctor`: everything that is wrong, each by its name."""

from __future__ import annotations

import json


def test_cli_2_names_all_four_faults(world):
    world.write("home/.peg/settings.toml", "broken = [\n")
    world.write("project/.peg/settings.toml", 'permissions.allow = ["Reed(/**)", "Edit(/**)"]\n')
    package = "home/.peg/plugins/odd"
    world.write(f"{package}/acme_odd/__init__.py", "")
    world.write(
        f"{package}/acme_odd/tool.toml",
        'name = "Odd"\nsummary = "Needs what is not here."\napi = 1\nneeds = ["no-such-engine>=3"]\n',
    )
    world.write(f"{package}/acme_odd/schema.json", '{"description": "x", "input": {"type": "object"}, "output": {}}')
    world.write(f"{package}/acme_odd-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: acme-odd\nVersion: 1.0\n")
    world.write(f"{package}/acme_odd-1.0.dist-info/entry_points.txt", "[pegboard.tools]\nOdd = acme_odd.tool:Odd\n")
    world.peg("plugins", "trust", "acme-odd", "--yes")
    done = world.peg("doctor", "--json")
    assert done.returncode == 1
    said = {item["area"]: item["text"] for item in json.loads(done.stdout)["findings"] if item["level"] == "problem"}
    assert "settings.toml:2" in said["settings"]
    assert "Edit(/**)" in said["trust"]
    assert "Reed" in said["rules"]
    assert "no-such-engine" in said["engines"]


def test_a_sound_set_up_is_said_to_be_one(world):
    done = world.peg("doctor")
    assert done.returncode == 0, done.stdout
    assert "All is well." in done.stdout


def test_broken_managed_policy_stops_everything_but_the_doctor(world):
    world.write("managed/managed.toml", "lock = [\n")
    assert "managed.toml" in world.peg("doctor").stdout
    done = world.peg("call", "Glob", '{"pattern": "*"}')
    assert done.returncode == 2
    assert "managed.toml" in done.stderr
    assert done.stdout == ""
