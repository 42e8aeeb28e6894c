"""The nine questions as pure functions, and the laws that hold for any candidate and any snapshot."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard import gate
from pegboard.candidate import PINNED, Candidate, Kind, Origin
from pegboard.gate import GATE, PASSES, GateSnapshot, Switch, holders, judge
from pegboard.manifest import Manifest


def candidate(name="Echo", origin=Origin.PACKAGE, dist="acme-echo", **fields):
    manifest = Manifest(name=name, summary="x", api=fields.pop("api", 1), **fields.pop("manifest", {}))
    return Candidate(
        kind=Kind.TOOL, name=name, origin=origin, where=f"{dist} 1", manifest=manifest, distribution=dist, **fields
    )


def after(found, **fields):
    """A snapshot that knows who holds which name."""
    now = GateSnapshot(**fields)
    return msgspec.structs.replace(now, holders=holders(found, now))


def test_there_are_nine_questions_in_this_order():
    assert [question.__name__ for question in GATE] == [
        "denied", "not_allowed", "origin_off", "untrusted", "changed", "switched_off", "clashes", "wrong_api",
        "missing_engine",
    ]  # fmt: skip
    assert PASSES.keys() == {question.__name__ for question in GATE}
    assert all(question.__doc__ for question in GATE)


@pytest.mark.parametrize(
    ("question", "one", "snapshot"),
    [
        ("denied", candidate(), {"deny": ("Echo",)}),
        ("denied", candidate(), {"deny": ("acme-*",)}),
        ("denied", candidate(manifest={"aliases": ["Agent"]}), {"deny": ("Agent",)}),
        ("denied", candidate("Read", Origin.BUNDLED, "pegboard-read"), {"deny": ("*",)}),
        ("not_allowed", candidate(), {"allow": ("acme-other",)}),
        ("not_allowed", candidate(), {"allow": ()}),
        ("origin_off", candidate(), {"origins": frozenset({"bundled"})}),
        ("untrusted", candidate(origin=Origin.PROJECT, root="/p"), {"approved": {"/p": "d"}}),
        ("untrusted", candidate(origin=Origin.PROJECT, root="/p"), {"trusted": True}),
        ("untrusted", candidate(origin=Origin.USER, root="/p"), {}),
        ("untrusted", candidate(origin=Origin.MARKETPLACE, root="/p"), {}),
        ("changed", candidate(origin=Origin.USER, root="/p", digest="new"), {"approved": {"/p": "old"}}),
        ("switched_off", candidate(), {"default": "none"}),
        ("switched_off", candidate(manifest={"load": "deferred"}), {"default": "core"}),
        ("switched_off", candidate(), {"switches": (Switch(scope="user", source="f", off=frozenset({"echo"})),)}),
        ("switched_off", candidate(), {"switches": (Switch(scope="user", source="f", off=frozenset({"*"})),)}),
        ("clashes", candidate("Read"), {}),
        ("clashes", candidate(manifest={"aliases": ["Bash"]}), {}),
        ("wrong_api", candidate(api=7), {}),
        ("missing_engine", candidate(manifest={"needs": ["rg"]}), {"missing": {"rg": "it is gone"}}),
    ],
)
def test_each_question_objects_and_names_itself(question, one, snapshot):
    refused = judge(one, after([one], **snapshot))
    assert refused is not None
    assert refused.question == question
    assert refused.reason and not refused.reason.endswith(".")


@pytest.mark.parametrize(
    ("one", "snapshot"),
    [
        (candidate(), {}),
        (candidate(), {"allow": ("acme-echo",)}),
        (candidate("Read", Origin.BUNDLED, "pegboard-read"), {"allow": ()}),
        (candidate(origin=Origin.MANAGED, root="/m"), {"allow": ()}),
        (candidate(origin=Origin.FLAG, root="/f"), {}),
        (candidate(origin=Origin.USER, root="/p", digest="d"), {"approved": {"/p": "d"}}),
        (candidate("Read"), {"override": {"Read": ("acme-echo", "user")}}),
        (candidate("Read"), {"override": {"Read": ("", "user")}}),
        (candidate(manifest={"load": "deferred"}), {"default": "all"}),
        (candidate(), {"default": "none", "switches": (Switch(scope="user", source="f", on=frozenset({"echo"})),)}),
        (candidate(manifest={"needs": ["rg"]}), {"missing": {"rg": ""}}),
    ],
)
def test_what_passes(one, snapshot):
    assert judge(one, after([one], **snapshot)) is None


def test_the_highest_scope_that_speaks_decides():
    off = Switch(scope="project", source="p", off=frozenset({"echo"}))
    on = Switch(scope="user", source="u", on=frozenset({"echo"}))
    assert judge(candidate(), after([], switches=(off, on))).source == "p"
    assert judge(candidate(), after([], switches=(on, off))) is None


def test_the_better_origin_holds_the_name():
    mine = candidate(origin=Origin.USER, dist="mine", root="/m", digest="d")
    theirs = candidate(dist="theirs")
    now = after([theirs, mine], approved={"/m": "d"})
    assert judge(mine, now) is None
    assert "mine 1 (user)" in judge(theirs, now).reason
    unapproved = after([theirs, mine])
    assert judge(theirs, unapproved) is None


def test_two_heirs_of_a_bundled_name_leave_it_where_it_is():
    ours = candidate("Read", Origin.BUNDLED, "pegboard-read")
    heirs = [candidate("Read", dist="one"), candidate("Read", dist="two")]
    now = after([ours, *heirs], override={"Read": ("", "user")})
    assert judge(ours, now) is None
    assert [judge(heir, now).question for heir in heirs] == ["clashes", "clashes"]


NAMES = st.sampled_from(["Echo", "Read", "Other"])
CANDIDATES = st.builds(
    candidate,
    name=NAMES,
    origin=st.sampled_from(Origin),
    dist=st.sampled_from(["one", "two", "three"]),
    root=st.sampled_from(["/a", "/b"]),
    digest=st.sampled_from(["d", "e"]),
    api=st.sampled_from([1, 2]),
    manifest=st.builds(lambda load, alias: {"load": load, "aliases": alias}, st.sampled_from(["core", "deferred"]),
                       st.lists(st.sampled_from(["Agent", "Bash"]), max_size=1)),
)  # fmt: skip
SWITCHES = st.builds(
    Switch,
    scope=st.sampled_from(["managed", "user"]),
    source=st.just("file"),
    on=st.frozensets(st.sampled_from(["echo", "read"])),
    off=st.frozensets(st.sampled_from(["echo", "other", "*"])),
)
SNAPSHOTS = st.fixed_dictionaries(
    {
        "deny": st.lists(st.sampled_from(["one", "Echo", "t*"])).map(tuple),
        "allow": st.none() | st.lists(st.sampled_from(["one", "two"])).map(tuple),
        "origins": st.frozensets(st.sampled_from([str(one) for one in Origin])),
        "trusted": st.booleans(),
        "approved": st.dictionaries(st.sampled_from(["/a", "/b"]), st.just("d")),
        "switches": st.lists(SWITCHES, max_size=2).map(tuple),
        "default": st.sampled_from(["all", "core", "none"]),
        "override": st.dictionaries(st.just("Read"), st.tuples(st.sampled_from(["", "one"]), st.just("user"))),
    }
)


@settings(max_examples=150, deadline=None)
@given(st.lists(CANDIDATES, min_size=1, max_size=5, unique_by=lambda one: (one.name, one.origin, one.distribution)),
       SNAPSHOTS)  # fmt: skip
def test_laws_of_the_gate(found, fields):
    now = after(found, **fields)
    passed = [one for one in found if judge(one, now) is None]
    assert len({one.name for one in passed}) == len(passed), "two hold one name"
    for one in found:
        refused = judge(one, now)
        answers = [question(one, now) for question in GATE]
        assert (refused is None) == (not any(answers))
        if refused is not None:
            assert refused.question == next(answer for answer in answers if answer is not None).question
    for one in passed:
        assert not {one.name, one.distribution} & set(fields["deny"])
        if one.origin in PINNED:
            assert fields["approved"].get(one.root) == one.digest
        if one.origin is Origin.PROJECT:
            assert fields["trusted"]
        if one.name in gate.own_names() and one.origin is not Origin.BUNDLED:
            assert "Read" in fields["override"]


@settings(max_examples=60, deadline=None)
@given(st.lists(CANDIDATES, min_size=1, max_size=5, unique_by=lambda one: (one.name, one.origin, one.distribution)),
       SNAPSHOTS, st.sampled_from(["Echo", "one"]))  # fmt: skip
def test_a_further_deny_never_lets_anything_in_of_that_name(found, fields, denied):
    stricter = after(found, **{**fields, "deny": (*fields["deny"], denied)})
    for one in found:
        if denied in (one.name, one.distribution):
            assert judge(one, stricter).question == "denied"
