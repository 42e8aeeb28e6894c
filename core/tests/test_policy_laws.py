"""Laws of deciding, over random rules and calls: a plain reference, order, scopes, and what more rules may do."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard.policy import Mode, Snapshot, decide, parse_rule, resolve_accesses
from pegboard.rules import SCOPES
from pegboard.tool import Access

sys.path.insert(0, str(Path(__file__).parent))
from policyworld import TOOLS

LAW = settings(max_examples=100, deadline=None)
CWD, HOME = "/none/w/proj", "/none/home"
"""Folders that do not exist, so that nothing depends on the machine."""

word = st.sampled_from(["a", "b", "git", "push", "*", "a*", "*b"])
part = st.sampled_from(["a", "b", "x.py", "*", "**", "*.py", "?"])
command_rule = st.tuples(st.lists(word, min_size=1, max_size=3), st.sampled_from(["", " *", ":*", "*"])).map(
    lambda given: f"Bash({' '.join(given[0])}{given[1]})"
)
path_rule = st.tuples(
    st.sampled_from(["Read", "Edit"]),
    st.sampled_from(["", "./", "~/", "/", "//none/w/", "../"]),
    st.lists(part, min_size=1, max_size=3),
).map(lambda given: f"{given[0]}({given[1]}{'/'.join(given[2])})")
host_rule = st.sampled_from(["a.b", "*.b", "*.a.b", "a.*", "*", "c*.b"]).map(lambda host: f"WebFetch(domain:{host})")
name_rule = st.sampled_from(["Skill(a)", "Skill(a*)", "Skill(*b)", "Skill"])
whole_rule = st.sampled_from(
    ["Bash", "Read", "Edit", "Write", "WebFetch", "mcp__mail", "mcp__mail__send", "mcp__mail__*", "mcp__*", "*", "Gr*"]
)
rule_text = st.one_of(command_rule, path_rule, host_rule, name_rule, whole_rule)
rule = st.builds(
    lambda effect, text, scope: parse_rule(text, effect=effect, scope=scope),
    st.sampled_from(["allow", "ask", "deny"]),
    rule_text,
    st.sampled_from(SCOPES),
)
rule_list = st.lists(rule, max_size=8)

path = st.tuples(
    st.sampled_from([CWD, f"{CWD}/a", HOME, "/none/w", "/none"]),
    st.lists(st.sampled_from(["a", "b", "x.py", ".git"]), min_size=1, max_size=3),
).map(lambda given: given[0] + "/" + "/".join(given[1]))
command = st.lists(st.sampled_from(["a", "b", "ab", "git", "push"]), min_size=1, max_size=3).map(" ".join)
call = st.one_of(
    st.tuples(st.sampled_from(["Read", "Grep"]), path.map(lambda target: [Access.read(target)])),
    st.tuples(st.sampled_from(["Edit", "Write"]), path.map(lambda target: [Access.edit(target)])),
    st.tuples(
        st.just("Bash"), st.lists(command, min_size=1, max_size=3).map(lambda each: [Access.run(c) for c in each])
    ),
    st.tuples(
        st.just("WebFetch"), st.sampled_from(["a.b", "c.a.b", "cc.b", "b", "a.c"]).map(lambda h: [Access.fetch(h)])
    ),
    st.tuples(st.just("Skill"), st.sampled_from(["a", "ab", "b"]).map(lambda name: [Access.use(name)])),
    st.tuples(st.sampled_from(["mcp__mail__send", "Plain"]), st.just([])),
)
mode = st.sampled_from(list(Mode))


def snapshot(rules, mode=Mode.DEFAULT) -> Snapshot:
    return Snapshot.make(rules, mode=mode, cwd=CWD, home=HOME, trusted=True)


def judge(rules, call, mode=Mode.DEFAULT):
    policy = snapshot(rules, mode)
    return decide(TOOLS[call[0]], {}, resolve_accesses(call[1], policy), policy)


RANK = {"deny": 0, "ask": 1, "allow": 2}


# -- a slow reference ------------------------------------------------------------------------------------------------


def like(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(re.escape(piece) for piece in pattern.split("*")), text, re.DOTALL) is not None


def covers_command(pattern: str, text: str) -> bool:
    for tail in (" *", ":*"):
        if pattern.endswith(tail):
            stem = pattern[: -len(tail)]
            return like(stem, text) or like(stem + " *", text)
    return like(pattern, text)


def covers_parts(pattern: list[str], names: list[str], deep: bool) -> bool:
    if not pattern:
        return not names or deep
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(names)
        return any(covers_parts(pattern[1:], names[at:], deep) for at in range(len(names) + 1))
    if not names:
        return False
    one = re.escape(pattern[0]).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(one, names[0]) is not None and covers_parts(pattern[1:], names[1:], deep)


def covers_path(pattern: str, allow: bool, target: str) -> bool:
    for lead, base in (("//", "/"), ("~/", HOME), ("/", CWD), ("./", CWD), ("../", "/none/w")):
        if pattern.startswith(lead):
            return below(base, target, pattern[len(lead) :].split("/"), False, allow)
    parts = pattern.split("/")
    floats = (len(parts) == 1 and parts != ["**"]) or (not allow and len(parts) == 2 and parts[1] == "**" != parts[0])
    return below(CWD, target, parts, floats, allow)


def below(base: str, target: str, parts: list[str], floats: bool, allow: bool) -> bool:
    if not (target + "/").startswith(base.rstrip("/") + "/"):
        return False
    names = [name for name in target[len(base.rstrip("/")) :].split("/") if name]
    starts = range(len(names)) if floats else (0,)
    return any(covers_parts(parts, names[at:], not (allow and floats)) for at in starts)


def covers_host(pattern: str, host: str) -> bool:
    if pattern == "*":
        return True
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and host != pattern[2:]
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^.]*"), host) is not None


def speaks(rule, name: str, access: Access | None) -> bool:
    manifest = TOOLS[name]
    kind = access.kind.value if access else ""
    owners = {"read": ["Read"], "edit": ["Edit", "Read"]}.get(kind, []) if rule.effect != "allow" else []
    if rule.effect == "allow":
        owners = {"read": ["Read", "Edit"], "edit": ["Edit"]}.get(kind, [])
    whole = {name, manifest.family, *owners}
    if "*" in rule.tool:
        counts = rule.effect != "allow" or rule.tool == "mcp__mail__*"
        return counts and any(like(rule.tool, one) for one in whole if one)
    if rule.specifier is None:
        return rule.tool in whole or name.startswith(rule.tool + "__")
    if access is None:
        return False
    if kind == "run":
        return rule.tool == "Bash" and covers_command(rule.specifier, access.target)
    if kind == "fetch":
        return rule.tool == "WebFetch" and covers_host(rule.specifier.removeprefix("domain:"), access.target)
    if kind == "use":
        return rule.tool == name and like(rule.specifier, access.target)
    return rule.tool in owners and covers_path(rule.specifier, rule.effect == "allow", access.target)


def reference(rules, call) -> str:
    name, accesses = call
    verdicts = []
    for access in accesses or [None]:
        effects = {rule.effect for rule in rules if speaks(rule, name, access)}
        kind = access.kind.value if access else ""
        protected = kind == "edit" and ".git" in access.target.split("/")
        free = kind == "read" and (access.target + "/").startswith(CWD + "/")
        if "deny" in effects:
            verdicts.append("deny")
        elif "ask" in effects or protected:
            verdicts.append("ask")
        else:
            verdicts.append("allow" if free or "allow" in effects else "ask")
    return min(verdicts, key=RANK.__getitem__)


@settings(max_examples=400, deadline=None)
@given(rule_list, call)
def test_equals_a_slow_linear_reference(rules, call):
    assert judge(rules, call).verdict == reference(rules, call)


# -- laws ------------------------------------------------------------------------------------------------------------


@LAW
@given(rule_list, call, mode, st.randoms())
def test_the_order_of_rules_is_irrelevant(rules, call, mode, random):
    one = judge(rules, call, mode)
    random.shuffle(rules)
    other = judge(rules, call, mode)
    assert (one.verdict, one.decided_by) == (other.verdict, other.decided_by)
    assert {rule.id for rule in one.losers} == {rule.id for rule in other.losers}


@LAW
@given(rule_list, rule_list, call, mode)
def test_more_allow_rules_never_lift_a_deny_or_ask_rule(rules, more, call, mode):
    before = judge(rules, call, mode)
    allows = [parse_rule(rule.text, effect="allow", scope=rule.scope) for rule in more if rule.effect == "allow"]
    after = judge(rules + allows, call, mode)
    if before.winner is not None and before.winner.effect != "allow":
        assert after.verdict == before.verdict
    assert RANK[after.verdict] >= RANK[before.verdict]


@LAW
@given(rule_list, rule_list, call, mode)
def test_more_deny_and_ask_rules_never_loosen(rules, more, call, mode):
    stricter = [rule for rule in more if rule.effect != "allow"]
    assert RANK[judge(rules + stricter, call, mode).verdict] <= RANK[judge(rules, call, mode).verdict]


@LAW
@given(rule_list, call, mode, st.sampled_from(SCOPES))
def test_the_scope_of_a_deny_is_irrelevant(rules, call, mode, scope):
    moved = [parse_rule(rule.text, effect="deny", scope=scope) if rule.effect == "deny" else rule for rule in rules]
    assert judge(moved, call, mode).verdict == judge(rules, call, mode).verdict


@LAW
@given(rule_list, call)
def test_an_untrusted_workspace_is_never_more_than_a_trusted_one(rules, call):
    trusted = snapshot(rules)
    untrusted = Snapshot.make(rules, cwd=CWD, home=HOME, trusted=False)
    judged = resolve_accesses(call[1], trusted)
    verdicts = [decide(TOOLS[call[0]], {}, judged, policy).verdict for policy in (untrusted, trusted)]
    assert RANK[verdicts[0]] <= RANK[verdicts[1]]


@LAW
@given(rule_list, call)
def test_modes_that_never_ask_never_ask(rules, call):
    asked = judge(rules, call).verdict
    assert judge(rules, call, Mode.DONT_ASK).verdict == ("deny" if asked == "ask" else asked)


@LAW
@given(rule, st.sampled_from(SCOPES))
def test_a_rule_reads_back_as_itself(rule, scope):
    again = parse_rule(rule.text, effect=rule.effect, scope=rule.scope)
    assert again == rule


@LAW
@given(st.text(max_size=40))
def test_any_text_is_a_rule_or_a_clear_error(text):
    from pegboard.errors import UsageError

    try:
        rule = parse_rule(text, effect="deny", scope="user")
    except UsageError as error:
        assert str(error)
        return
    assert parse_rule(rule.text, effect="deny", scope="user") == rule
    judge([rule], ("Read", [Access.read(f"{CWD}/a")]))


@LAW
@given(st.text(alphabet="ab/*?[]!-^\\.~{}", min_size=1, max_size=24), path)
def test_no_path_specifier_breaks_deciding(specifier, target):
    from pegboard.errors import UsageError

    for effect in ("allow", "deny"):
        try:
            rules = [parse_rule(f"Edit({specifier})", effect=effect, scope="user")]
        except UsageError:
            continue
        assert judge(rules, ("Edit", [Access.edit(target)])).verdict in RANK
        snapshot(rules).read_deny_globs(CWD)
