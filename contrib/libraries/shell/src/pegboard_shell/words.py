"""From the nodes of a word to the argument a program gets: quotes, escapes, braces, tildes, variables.

A word is literal only if every character of it is. What an expansion would put there is said to be unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tree_sitter import Node

from pegboard_shell.script import GLOB, LITERAL, UNKNOWN, Word

PLAIN = re.compile(rb"[\w./:=,@%+-]+|[\w./:=,@%+\x80-\xff-]+")
"""A word without anything that the shell would change."""

_HIDE = {ord(char): 0xF0000 + ord(char) for char in "{},.~*?[]!^-$\\"}
_SHOW = {hidden: chr(code) for code, hidden in _HIDE.items()}
_UNKNOWN = 0xF1000
"""Quoted characters move to a private plane, where no expansion finds them; unknown parts get a character each."""

_MADE = re.compile("[\U000f1000-\U000f1fff]")
_LIVE = re.compile("[*?\U000f1000-\U000f1fff]|\\[(?=.*\\])", re.DOTALL)
_WILD = re.compile(r"[*?]|\[.*\]", re.DOTALL)

_NAME = r"(?:[A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[(?:[@*]|\d+)\])?"
_REST = r"(?:[^`$\\'\"{}]|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\}|\\[^\n])*"
_TAME = re.compile(
    rf"\$\{{(?:#?{_NAME}|{_NAME}(?::?[-+?]|\#\#?|%%?|//?[\#%]?|\^\^?|,,?){_REST}|{_NAME}@[QULu]|"
    rf"{_NAME}:\s?-?\d+(?::-?\d+)?|[a-z_][a-z0-9_]*:?={_REST})\}}",
    re.DOTALL,
)
"""Parameter expansions that evaluate nothing: no indirection, no arithmetic, no prompt."""

_SIMPLE = re.compile(r"\$(?:\w+|[@*#?$!-])")
_NUMBERS = re.compile(rb"\$\(\([\d\s+*/%()<>=!&|^~?:-]*\)\)")
_DOLLAR = re.compile(r"\$[\w({@*#?!$'\"-]")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "?": "?", "r": "\r", "a": "\a", "b": "\b", "f": "\f",
            "v": "\v", "e": "\x1b", "E": "\x1b"}  # fmt: skip
_ANSI = re.compile(
    r"\\(?:([ntr\\'\"?abfveE])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8}))"
)

_BROKEN = re.compile(r"^(?:[^\\]|\\.)*?[\s;&|<>()'\"]", re.DOTALL)

MOST_WORDS = 256
"""[C] Words that one brace expansion may become."""

SUBSTITUTIONS = frozenset(("command_substitution", "process_substitution"))


class Words:
    """Decodes the words of one source text. Substitutions inside are handed to ``walk``, what is not known to ``doubt``
    and ``blind``.
    """

    def __init__(
        self,
        src: bytes,
        variables: dict[str, str],
        walk: Callable[[Node], None],
        doubt: Callable[[str], None],
        blind: Callable[[str], None],
        bash: bool = True,
    ) -> None:
        self.src = src
        self.variables = variables
        """Variables whose value is certain: HOME and PWD, where the script leaves them alone."""
        self.loops: dict[str, Word] = {}
        """Variables of the loops around this place, with the value of this round."""
        self.walk = walk
        self.doubt = doubt
        self.blind = blind
        self.bash = bash
        """False: the shell may know neither braces nor ``$'...'``."""
        self.literals: list[tuple[int, int]] = []
        """Byte ranges in which nothing is expanded."""
        self.quoted: list[tuple[int, int]] = []
        """Byte ranges between double quotes, where ``<(`` is text."""
        self.seen: set[int] = set()
        """Bytes at which a substitution that was walked begins or ends."""

    def text(self, node: Node) -> str:
        """The source of a node."""
        return self.src[node.start_byte : node.end_byte].decode(errors="replace")

    def words(self, node: Node) -> list[Word]:
        """The arguments that one word becomes: one, or as many as its braces say."""
        source = self.src[node.start_byte : node.end_byte]
        if PLAIN.fullmatch(source):
            raw = source.decode(errors="replace")
            return [Word(raw, raw, LITERAL, False, raw)]
        if self.loops and (looped := self._looped(source.decode(errors="replace"))) is not None:
            return [looped]
        parts: list[str] = []
        unknown: list[tuple[str, bool]] = []
        self._pieces(node, parts, unknown)
        text, raw = "".join(parts), source.decode(errors="replace")
        if "{" not in text:
            return [self._word(raw, text, unknown)]
        made = braces(text) if text.count("{") == text.count("}") else None
        if not self.bash and made != [text]:
            made = None
        if made is None:
            lead = _shown(text[: text.index("{")], unknown)
            return [Word(raw, _shown(text, unknown), UNKNOWN, True, lead)]
        return [self._word(raw, each, unknown) for each in made if each or "'" in raw or '"' in raw]

    def one(self, node: Node) -> Word:
        """A word where braces are not expanded: a redirect's target, a value."""
        if self.loops and (looped := self._looped(self.text(node))) is not None:
            return looped
        parts: list[str] = []
        unknown: list[tuple[str, bool]] = []
        self._pieces(node, parts, unknown)
        return self._word(self.text(node), "".join(parts), unknown)

    def _looped(self, raw: str) -> Word | None:
        """A quoted loop variable that stands for the file names of a pattern."""
        match = re.fullmatch(r'"\$(?:(\w+)|\{(\w+)\})"', raw)
        value = self.loops.get(match[1] or match[2]) if match else None
        return value._replace(raw=raw) if value is not None and value.kind == GLOB else None

    def _word(self, raw: str, text: str, unknown: list[tuple[str, bool]]) -> Word:
        if text.startswith("~"):
            home = self.variables.get("HOME")
            if home is None or text[1:2] not in ("", "/"):
                return Word(raw, _shown(text, unknown), UNKNOWN, False, "")
            text = home.translate(_HIDE) + text[1:]
        live = _LIVE.search(text)
        if live is None:
            plain = text.translate(_SHOW)
            return Word(raw, plain, LITERAL, False, plain)
        lead = _shown(text[: live.start()], unknown)
        if _MADE.search(text):
            many = any(unknown[ord(char) - _UNKNOWN][1] for char in text if ord(char) >= _UNKNOWN)
            return Word(raw, _shown(text, unknown), UNKNOWN, many or bool(_WILD.search(text)), lead)
        # a pattern keeps its quoting, so that whoever expands it sees which characters are live
        return Word(raw, re.sub("[\U000f0000-\U000f00ff]", _bracketed, text), GLOB, True, lead)

    # -- pieces ------------------------------------------------------------------------------------------------------

    def _pieces(self, node: Node, parts: list[str], unknown: list[tuple[str, bool]]) -> None:
        kind = node.type
        if kind in ("word", "number", "test_operator", "variable_name", "extglob_pattern", "regex", "brace_expression"):
            raw = self.text(node)
            if kind == "word" and _BROKEN.search(raw):
                self.blind(f"{raw[:60]!r} is no word")
            text = re.sub(r"\\(.)", lambda m: _hide(m[1]) if m[1] != "\n" else "", raw, flags=re.DOTALL)
            if _DOLLAR.search(text) or "`" in text:
                self._made(raw, True, parts, unknown)
            else:
                parts.append(text)
        elif kind == "raw_string":
            self.literals.append((node.start_byte, node.end_byte))
            parts.append(_hide(self.text(node)[1:-1]))
        elif kind == "ansi_c_string":
            self.literals.append((node.start_byte, node.end_byte))
            decoded = ansi(self.text(node)[2:-1])
            if decoded is None or not self.bash:
                self._made(self.text(node), False, parts, unknown)
            else:
                parts.append(_hide(decoded))
        elif kind == "string":
            self._string(node, parts, unknown)
        elif kind == "concatenation":
            self._concatenation(node, parts, unknown)
        elif kind in ("simple_expansion", "expansion"):
            self._variable(node, parts, unknown, quoted=False)
        elif kind == "command_substitution":
            self._output(node, True, parts, unknown)
        elif kind == "process_substitution":
            self.substitution(node)
            parts.append(_hide("/dev/fd/63"))
        elif kind == "arithmetic_expansion":
            self.arithmetic(node)
            self._made(self.text(node), False, parts, unknown)
        else:
            self.doubt(f"{self.text(node)[:60]} is no word that is understood")
            self.inside(node)
            self._made(self.text(node), True, parts, unknown)

    def _made(self, raw: str, many: bool, parts: list[str], unknown: list[tuple[str, bool]]) -> None:
        parts.append(chr(_UNKNOWN + min(len(unknown), 0xFFF)))
        unknown.append((raw, many))

    def _output(self, node: Node, many: bool, parts: list[str], unknown: list[tuple[str, bool]]) -> None:
        """What a command prints: not known, but for where the shell is, and a number is one word."""
        self.substitution(node)
        raw = self.text(node)
        here = self.variables.get("PWD") if raw in ("$(pwd)", "`pwd`") else None
        if here is not None and (not many or PLAIN.fullmatch(here.encode())):
            parts.append(_hide(here))
        else:
            self._made(raw, many and raw != "$(nproc)", parts, unknown)

    def _concatenation(self, node: Node, parts: list[str], unknown: list[tuple[str, bool]]) -> None:
        at = node.start_byte
        for child in node.children:
            if child.start_byte != at:
                self.doubt(f"{self.text(node)[:60]} is no word that is understood")
            at = child.end_byte
            if child.is_named:
                self._pieces(child, parts, unknown)
            elif self.text(child) == "$":  # before a string it asks for a translation, and is gone
                follower = child.next_sibling
                if follower is None or follower.type != "string" or not self.bash:
                    parts.append(_hide("$"))
            else:
                self._made(self.text(child), True, parts, unknown)

    def _string(self, node: Node, parts: list[str], unknown: list[tuple[str, bool]]) -> None:
        at, end = node.start_byte + 1, node.end_byte - 1
        for child in node.children:
            if not child.is_named or child.type == "string_content":
                continue
            self._quoted(at, child.start_byte, parts, unknown)
            if child.type in ("simple_expansion", "expansion"):
                self._variable(child, parts, unknown, quoted=True)
            elif child.type == "command_substitution":
                self._output(child, False, parts, unknown)
            else:
                self._pieces(child, parts, unknown)
            at = child.end_byte
        self._quoted(at, end, parts, unknown)

    def _quoted(self, start: int, end: int, parts: list[str], unknown: list[tuple[str, bool]]) -> None:
        if start >= end:
            return
        self.quoted.append((start, end))
        raw = self.src[start:end].decode(errors="replace")
        rest = re.sub(r"\\.", "", raw, flags=re.DOTALL)
        if _DOLLAR.search(rest.replace('"', "")) or "`" in rest or '"' in rest:
            self._made(raw, False, parts, unknown)
            self.doubt(f"{raw[:60]} is no text that is understood")
        else:
            parts.append(_hide(re.sub(r"\\([$`\"\\\n])", lambda m: "" if m[1] == "\n" else m[1], raw)))

    def _variable(self, node: Node, parts: list[str], unknown: list[tuple[str, bool]], *, quoted: bool) -> None:
        raw = self.text(node)
        name = raw[1:].strip("{}")
        if node.type == "simple_expansion" and not _SIMPLE.fullmatch(raw):
            self.blind(f"{raw[:60]!r} is no variable")
        value = self.variables.get(name)
        if name in self.loops and self.loops[name].literal:
            value = self.loops[name].text
        if value is not None and (quoted or PLAIN.fullmatch(value.encode())):
            parts.append(_hide(value))
            return
        if node.type == "expansion" and not _TAME.fullmatch(raw):
            self.doubt(f"{raw[:60]} may evaluate what a variable holds")
            self.inside(node)
        self._made(raw, not quoted or "@" in raw, parts, unknown)

    # -- what is inside ----------------------------------------------------------------------------------------------

    def substitution(self, node: Node) -> None:
        """Walk the commands of a substitution."""
        self.seen.add(node.start_byte)
        if self.src[node.start_byte : node.start_byte + 1] == b"`":
            self.seen.add(node.end_byte - 1)
            if b"\\" in self.src[node.start_byte : node.end_byte]:
                self.doubt("a backslash between backticks is read twice")
        self.walk(node)

    def arithmetic(self, node: Node) -> None:
        """Arithmetic evaluates variables as expressions, which can run commands: only numbers are free of doubt."""
        self.seen.add(node.start_byte)
        if not _NUMBERS.fullmatch(self.src[node.start_byte : node.end_byte]):
            self.doubt("arithmetic evaluates what its variables hold")
            self.inside(node)

    def inside(self, node: Node) -> None:
        """Walk every substitution below a node that is not understood itself."""
        for child in node.children:
            if child.type in SUBSTITUTIONS:
                self.substitution(child)
            elif child.type == "arithmetic_expansion":
                self.arithmetic(child)
            elif child.child_count:
                self.inside(child)


def _hide(text: str) -> str:
    return text.translate(_HIDE)


def _bracketed(match: re.Match[str]) -> str:
    char = _SHOW[ord(match[0])]
    return f"[{char}]" if char in "*?[" else char


def _shown(text: str, unknown: list[tuple[str, bool]]) -> str:
    text = _MADE.sub(lambda m: unknown[min(ord(m[0]) - _UNKNOWN, len(unknown) - 1)][0], text)
    return text.translate(_SHOW)


def ansi(body: str) -> str | None:
    r"""Decode the inside of ``$'...'``; None for what has no certain meaning, such as bytes that are no UTF-8."""
    out, at = bytearray(), 0
    for match in _ANSI.finditer(body):
        if "\\" in body[at : match.start()]:
            return None
        out += body[at : match.start()].encode()
        at = match.end()
        char, octal, byte, short, long = match.groups()
        if char:
            out += _ESCAPES[char].encode()
        elif octal or byte:
            out.append(int(octal, 8) & 0xFF if octal else int(byte, 16))
        else:
            code = int(short or long, 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                return None
            out += chr(code).encode()
    if "\\" in body[at:] or 0 in out:
        return None
    out += body[at:].encode()
    try:
        return out.decode()
    except UnicodeDecodeError:
        return None


def braces(text: str) -> list[str] | None:
    """Expand braces as the shell does, left to right; None where that is more than is worth knowing."""
    start = 0
    while True:
        start = text.find("{", start)
        if start < 0:
            return [text]
        end, parts = _group(text, start)
        if parts is None:
            start += 1
            continue
        if not parts:
            return None
        tails = braces(text[end + 1 :])
        middles = [braces(part) for part in parts]
        if tails is None or None in middles:
            return None
        inner = [each for middle in middles if middle is not None for each in middle]
        if len(inner) * len(tails) > MOST_WORDS:
            return None
        return [text[:start] + middle + tail for middle in inner for tail in tails]


def _group(text: str, start: int) -> tuple[int, list[str] | None]:
    """The end of the group that opens at ``start`` and its alternatives: None if it is none, [] if it is too odd."""
    depth, at = 0, start + 1
    parts: list[str] = []
    for index in range(start, len(text)):
        char = text[index]
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                body = text[start + 1 : index]
                if parts:
                    return index, [*parts, text[at:index]]
                return index, _sequence(body)
        elif char == "," and depth == 1:
            parts.append(text[at:index])
            at = index + 1
    return start, None


def _sequence(body: str) -> list[str] | None:
    if ".." not in body:
        return None
    match = re.fullmatch(r"(-?[1-9]\d{0,5}|0)\.\.(-?[1-9]\d{0,5}|0)", body)
    if match is None:
        return []
    first, last = int(match[1]), int(match[2])
    if abs(last - first) >= MOST_WORDS:
        return []
    step = 1 if last >= first else -1
    return [str(number).translate(_HIDE) for number in range(first, last + step, step)]
