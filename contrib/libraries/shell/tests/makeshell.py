"""Makes shell commands at random, nastier than people do: quotes, substitutions, here-documents, wrappers, loops."""

from __future__ import annotations

import random

PROGRAMS = ("rm", "curl", "ls", "id", "cat", "git", "npm", "make", "cp", "sed", "grep", "wc", "tee", "foo", "bar")
PLAIN = ("a", "b.txt", "-n", "--flag=x", "sub/c", "1", "x=y", ".", "-", "--", "é")

MARKS = (
    *"'\"\\$`(){}<>|&;#!~*?[]=\n\t ",
    "$(",
    "<<",
    "\\\n",
    " \\\n",
    "((",
    "))",
    "${",
    ";;",
    "&&",
    "#\n",
    "\n#",
    "$'",
    '$"',
)


class Maker:
    """One stream of random commands."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.depth = 0
        self.later: list[str] = []

    def pick(self, *choices):
        return self.random.choice(choices)

    def command(self) -> str:
        """One whole command line."""
        self.depth, self.later = 0, []
        text = self.statements(self.random.randint(1, 3))
        if self.later:
            text += "".join(self.later)
        return text

    def mutant(self) -> str:
        """A command with some characters put in or taken out: most are broken, some mean something else."""
        text = self.command()
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randint(0, len(text))
            if self.random.random() < 0.3:
                text = text[:at] + text[at + 1 :]
            else:
                text = text[:at] + self.pick(*MARKS) + text[at:]
        return text

    def statements(self, count: int) -> str:
        parts = [self.statement() for _ in range(count)]
        out = parts[0]
        for part in parts[1:]:
            out += self.pick(" && ", " || ", "; ", " | ", " |& ", " & ", "\n", ";", "&&", "|") + part
        return out

    def statement(self) -> str:
        self.depth += 1
        try:
            if self.depth > 3 or self.random.random() < 0.62:
                return self.simple()
            inner = self.statements(self.random.randint(1, 2)) if not self.later else self.simple()
            return self.pick(
                lambda: f"( {inner} )",
                lambda: f"{{ {inner}; }}",
                lambda: f"if {self.simple()}; then {inner}; else {self.simple()}; fi",
                lambda: f"for v in {self.word()} {self.word()}; do {inner}; done",
                lambda: f'for w in {self.pick(*PLAIN)} {self.pick(*PROGRAMS)} *; do {inner}; $w "$w" x$w; done',
                lambda: f"while false; do {inner}; done",
                lambda: f"until true; do {inner}; done",
                lambda: f"case {self.word()} in a|b) {inner};; *) {self.simple()};; esac",
                lambda: f"f() {{ {inner}; }}",
                lambda: f"f() {{ {inner}; }}; f",
                lambda: f"! {self.simple()}",
                lambda: f"time {self.simple()}",
                lambda: f"[ -n {self.word()} ] && {inner}",
                lambda: f"[[ {self.word()} == {self.word()} ]] || {inner}",
                lambda: f"for ((i=0; i<2; i++)); do {inner}; done",
                lambda: f"( {inner} ) > {self.word()}",
                lambda: f"{inner} # {self.word()}",
            )()
        finally:
            self.depth -= 1

    def simple(self) -> str:
        words = [self.program(), *(self.word() for _ in range(self.random.randint(0, 3)))]
        text = " ".join(words)
        chance = self.random.random()
        if chance < 0.10:
            text = self.wrapped(text)
        elif chance < 0.20:
            text = self.pick("A=1", "v=$(id)", 'B="x y"', "PATH=$PATH", "a[0]=1") + " " + text
        elif chance < 0.24:
            text = self.pick("cd sub", "cd", "cd ..", "cd $X", "x=1", "v=`id`", "arr=(a $(id))", "set -e", ": ok")
        if self.random.random() < 0.15:
            text += " " + self.redirect()
        if self.random.random() < 0.04 and not self.later:
            text += " " + self.heredoc()
        return text

    def program(self) -> str:
        name = self.pick(*PROGRAMS)
        cut = self.random.randint(0, len(name) - 1)
        head, tail = name[:cut], name[cut:]
        if self.random.random() < 0.4:
            return name
        return self.pick(
            f"{head}\\{tail}", f"{head}'{tail}'", f'"{name}"', f'{head}""{tail}', f"$'{name}'", f"\\{name}",
            f"command {name}", f"{{{name},a}}", "$X", f"{head}$E{tail}",
        )  # fmt: skip

    def wrapped(self, text: str) -> str:
        quoted = text.replace("'", "'\\''")
        return self.pick(
            f"timeout 2 {text}", f"env {text}", f"env A=1 {text}", f"nice -n 5 {text}", f"nohup {text}",
            f"command {text}", f"builtin {text}", f"stdbuf -o0 {text}", f"bash -c '{quoted}'", f"sh -c '{quoted}'",
            f"eval '{quoted}'", f"xargs {text}", f"echo a | xargs {text}", f"time -p {text}",
            f"env -i PATH=$PATH RAN=$RAN {text}", f"timeout -k 1 2 {text}", f"bash -ec '{quoted}'",
            f"find . -maxdepth 0 -exec {text} \\;", f"exec {text}", f"coproc {text}", f"bash <<< '{quoted}'",
        )  # fmt: skip

    def word(self) -> str:
        self.depth += 1
        try:
            if self.depth > 4 or self.random.random() < 0.5:
                return self.pick(*PLAIN)
            inner = self.simple() if not self.later else "id"
            return self.pick(
                lambda: f"$({inner})",
                lambda: f'"$({inner})"',
                lambda: f"'{self.pick('a b', '$(id)', '`id`', '<(id)', 'x;rm y', '*')}'",
                lambda: '"' + self.pick("a b", "x$v", "${v}", "a;b", "<(id)", "#x", "a\\$(id)", "\\`id\\`") + '"',
                lambda: "`" + self.pick("id", "ls a", "cat 'b c'") + "`",
                lambda: f"<({inner})",
                lambda: f"${{v:-{self.pick('a', '$(id)', '`id`', '$w', 'a b')}}}",
                lambda: f'"${{v:-{self.pick("a", "$(id)", "`id`", chr(39) + "$(id)" + chr(39))}}}"',
                lambda: "$v",
                lambda: '"$@"',
                lambda: f"a{{b,c}}{self.pick('', 'd', '{e,f}')}",
                lambda: self.pick("{1..3}", "{a,b}", "{a}", "{}", "~", "~/x", "a~", "$HOME", "${HOME}/x", "*", "sub*"),
                lambda: self.pick("$'a\\tb'", "$'\\x41'", "$'it\\'s'", '$"hi"', "a\\ b", "\\$x", "\\*", "a\\;b", "\\#"),
                lambda: f"$(( {self.pick('1+2', 'v', 'a[$(id)]', '2*3')} ))",
                lambda: self.pick("a#b", "#c", "x'y'z", '"a"b', "''", '""', "a''b", "%", "@", "!x", "a!b", "^x"),
            )()
        finally:
            self.depth -= 1

    def redirect(self) -> str:
        target = self.pick(
            "out", "sub/out", "'o p'", '"out"', "$v", "out{1,2}", "/dev/null", f"$({self.pick('id', 'ls')})"
        )
        return self.pick(">", ">>", "2>", "&>", ">|", "< ", "<<< ", "2>&1 >", "1> ") + target

    def heredoc(self) -> str:
        tag, body = self.pick("E", "EOF", "E_1"), self.pick("x\n", "$(id)\n", "\t$(ls)\n", "`cat`\n", "a 'b\n", "")
        form = self.pick("<<{}", "<<'{}'", '<<"{}"', "<<-{}", "<<\\{}").format(tag)
        self.later.append(f"\n{body}{tag}\n{self.pick('', 'ls after', 'id')}")
        return form
