"""The profile as text: well formed, in the order that decides, with every path quoted; and how a command is wrapped."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard.errors import Refusal
from pegboard.floors import names
from pegboard.sandbox import Need
from pegboard_seatbelt.confinement import PROGRAM, Seatbelt
from pegboard_seatbelt.profile import HEAD, Terms, pattern, profile, quoted


def parsed(text: str) -> list:
    """The profile as nested lists; fails where parentheses or quotes do not fit."""
    tokens = re.findall(r'#?"(?:[^"\\]|\\.)*"|[()]|[^\s()"]+', text)
    assert "".join(tokens) == re.sub(r'(#?"(?:[^"\\]|\\.)*")|\s+', lambda m: m[1] or "", text)
    stack: list[list] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    assert len(stack) == 1
    return stack[0]


def rules(text: str, *words: str) -> list[list]:
    """The rules that begin with these words."""
    return [rule for rule in parsed(text) if rule[: len(words)] == list(words)]


def judge(terms: Terms, operation: str, path: str) -> bool:
    """Whether a profile lets an operation on a path pass: the last rule that fits decides, as the system does it."""
    verdict = False
    for rule in parsed(profile(terms))[1:]:
        verb, *rest = rule
        words = [word for word in rest if isinstance(word, str)]
        filters = [word for word in rest if isinstance(word, list)]
        named = any(operation == word or (word.endswith("*") and operation.startswith(word[:-1])) for word in words)
        if not named and words != ["default"]:
            continue
        if not filters or any(_fits(one, path) for one in filters):
            verdict = verb == "allow"
    return verdict


def _fits(one: list, path: str) -> bool:
    kind, value = one[0], one[-1]
    text = re.sub(r"\\(.)", r"\1", value[1:-1]) if isinstance(value, str) and value.startswith('"') else ""
    if kind == "subpath":
        return path == text or path.startswith(text.rstrip("/") + "/")
    if kind == "literal":
        return path == text
    if kind == "regex":
        return re.search(value[2:-1], path) is not None
    return False


TERMS = Terms(
    writable=("/w/proj", "/private/tmp/own"),
    locked=("/w/proj/.git/hooks", "/w/proj/.git/config", "/w/proj/.vscode"),
    locked_names=(".envrc", ".vscode", ".mcp.json"),
    opened=("/w/proj/.peg/worktrees",),
    hidden=("/w/proj/.env", "/Users/u/.ssh"),
    port=8899,
)


@pytest.mark.parametrize(
    ("operation", "path", "allowed"),
    [
        ("file-write-create", "/w/proj/a/b", True), ("file-write-data", "/private/tmp/own/x", True),
        ("file-write-data", "/w/other", False), ("file-write-data", "/etc/hosts", False),
        ("file-write-data", "/w/project", False),
        ("file-write-data", "/w/proj/.git/hooks/pre-commit", False), ("file-write-data", "/w/proj/.git/config", False),
        ("file-write-data", "/w/proj/.git/index", True), ("file-write-unlink", "/w/proj/.git", False),
        ("file-write-unlink", "/w/proj/.git/hooks", False), ("file-write-data", "/w/proj/.envrc", False),
        ("file-write-create", "/w/proj/deep/er/.envrc", False),
        ("file-write-create", "/w/proj/deep/.VSCode/tasks.json", False),
        ("file-write-create", "/w/proj/x.envrc", True), ("file-write-create", "/w/proj/.envrc.bak", True),
        ("file-write-create", "/w/proj/.peg/worktrees/w/a", True), ("file-read-data", "/etc/hosts", True),
        ("file-read-data", "/w/proj/.env", False), ("file-read-data", "/Users/u/.ssh/id", False),
        ("file-write-data", "/w/proj/.env", False), ("file-read-data", "/Users/u/.sshx", True),
        ("file-write-data", "/dev/null", True), ("file-write-data", "/dev/disk0", False),
    ],
)  # fmt: skip
def test_what_passes(operation, path, allowed):
    assert judge(TERMS, operation, path) is allowed


def test_the_network_is_the_proxy_and_nothing_else():
    text = profile(TERMS)
    outbound = rules(text, "allow", "network-outbound")
    assert outbound == [["allow", "network-outbound", ["remote", "ip", '"localhost:8899"']]]
    assert rules(text, "deny", "network*") and "*:*" not in text
    assert not rules(profile(Terms(writable=("/w",))), "allow", "network-outbound")


def test_everything_is_denied_first_and_no_acting_service_is_reached():
    text = profile(TERMS)
    assert parsed(text)[:2] == [["version", "1"], ["deny", "default"]]
    for service in ("pasteboard", "securityd", "SecurityServer", "keychain", "appleevent", "tccd", "launchd"):
        assert service not in text
    assert not rules(text, "allow", "default") and not rules(text, "allow", "mach-register")


def test_the_head_is_well_formed():
    assert len(parsed(HEAD)) > 10


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_no_path_can_end_its_quotes(name):
    path = f"/w/{name}"
    assert parsed(f"(x {quoted(path)})") == [["x", quoted(path)]]
    terms = Terms(writable=(path,), locked=(f"{path}/.git/hooks",), locked_names=(".envrc",), hidden=(f"{path}/h",))
    parsed(profile(terms))
    assert judge(terms, "file-write-data", f"{path}/a") and not judge(terms, "file-write-data", f"{path}/.git/hooks/a")


@given(st.text(st.characters(codec="utf-8", exclude_characters='\n"'), min_size=1, max_size=30), st.text(max_size=30))
@settings(max_examples=100, deadline=None)
def test_a_pattern_matches_its_text_alone(text, other):
    assert re.fullmatch(pattern(text), text)
    if other.casefold() != text.casefold() and other.lower() != text.lower() and other.upper() != text.upper():
        assert not re.fullmatch(pattern(text), other)


@pytest.mark.parametrize("path", ["/w/a\nb", "/w/\0", "/w/\x7f"])
def test_a_path_that_no_profile_can_name_is_an_error(path):
    with pytest.raises(ValueError, match="control characters"):
        profile(Terms(writable=(path,)))


def test_elsewhere_than_on_macos_there_is_none(tmp_path):
    need = Need(cwd=tmp_path, home=tmp_path, roots=(tmp_path,))
    assert Seatbelt("linux").status(need).level == "none"
    missing = Seatbelt("darwin").status(need)
    assert missing.level in ("none", "full")
    if not Path(PROGRAM).exists():
        assert missing.reasons == (f"{PROGRAM} is missing",)


@pytest.fixture
def shared():
    made = Seatbelt("darwin")
    made._status = made.open_proxy()
    yield made
    made.end()


@pytest.fixture
def need(tmp_path):
    for name in ("work", "home/.ssh"):
        (tmp_path / name).mkdir(parents=True)
    return Need(cwd=tmp_path / "work", home=tmp_path / "home", roots=(tmp_path / "work",), hosts=("ok.example",))


async def test_a_command_is_wrapped(shared, need):
    assert shared.status(need).level == "full"
    subprocess.run(["git", "init", "-q"], cwd=need.cwd, check=True)
    box = shared.box(need)
    await box.prepare()
    argv, env = box.wrap(["/bin/bash", "-c", "true"], {"PATH": "/bin", "ANTHROPIC_API_KEY": "k", "LD_X": "1"})
    assert argv[:2] == [PROGRAM, "-p"] and argv[3:] == ["/bin/bash", "-c", "true"]
    text = argv[2]
    assert f'(subpath "{need.cwd}")' in text and f'(subpath "{need.cwd}/.git/hooks")' in text
    assert f'(subpath "{need.home}/.ssh")' in text and f'"localhost:{shared.proxy.port}"' in text
    assert env["PATH"] == "/bin" and not {"ANTHROPIC_API_KEY", "LD_X"} & env.keys()
    assert env["HTTPS_PROXY"].endswith(f"@127.0.0.1:{shared.proxy.port}") and env["PEG_SANDBOX"] == "full"
    box.ended()
    assert sorted(path.name for path in need.cwd.iterdir()) == [".git"]
    for name in (names().files | names().folders) - {".git", "git~1"}:
        assert pattern(name) in text


async def test_nobody_without_a_word_uses_the_proxy(shared, need):
    import socket

    shared.box(need)
    with socket.create_connection(("127.0.0.1", shared.proxy.port), 20) as line:
        line.sendall(b"CONNECT ok.example:443 HTTP/1.1\r\n\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 407")


async def test_refusals_are_read_in_the_words_of_the_system(shared, need, tmp_path):
    box = shared.box(need)
    await box.prepare()
    box.wrap(["true"], {})
    said = f"touch: /etc/x: Operation not permitted\ncat: {need.home}/.ssh/id: Operation not permitted\n"
    found = box.violations(said + f"touch: {need.cwd}/a: Operation not permitted\n")
    assert found == [
        "file: /etc/x was refused: it lies outside of what may be written",
        f"file: {need.home}/.ssh/id was refused: it is hidden from processes in the sandbox",
    ]
    assert not box.signal(1, 15)


async def test_a_directory_that_cannot_be_named_starts_nothing(shared, need, tmp_path):
    odd = tmp_path / "new\nline"
    odd.mkdir()
    box = shared.box(Need(cwd=odd, home=need.home, roots=(odd,)))
    await box.prepare()
    with pytest.raises(Refusal, match="cannot be set up"):
        box.wrap(["true"], {})


async def test_closing_removes_what_was_made(need):
    shared = Seatbelt("darwin")
    shared._status = shared.open_proxy()
    box = shared.box(need)
    await box.prepare()
    folder = shared.folder
    await shared.close()
    assert not folder.exists() and shared.proxy is None
