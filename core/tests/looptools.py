"""Small real tools for tests of the loop; run as a program it is `peg` with these tools added."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
from pegboard.call import Call
from pegboard.errors import Code, Refusal
from pegboard.hooks import Verdict, hook
from pegboard.model import Input, Output
from pegboard.testing import tool_of
from pegboard.testing.sessions import Brought
from pegboard.tool import Access, Context, Tool


class Text(Input):
    text: str = ""


class Said(Output):
    said: str


class Echo(Tool[Text, Said]):
    """Gives back its text; refuses the text "no"."""

    Input, Output = Text, Said

    async def run(self, input, ctx) -> Any:
        if input.text == "no":
            raise Refusal(Code.NOT_FOUND, "There is nothing called no.")
        return Said(said=f"echo {input.text}")

    def render(self, output, ctx) -> str:
        return output.said


class Picture(Echo):
    """Gives back an image that is none."""

    def render(self, output, ctx) -> Any:
        source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
        return [{"type": "text", "text": "a picture"}, {"type": "image", "source": source}]


class Teach(Echo):
    """Acknowledges, and puts a body of its own behind the results, as a skill does."""

    async def run(self, input, ctx) -> Any:
        ctx.say(f"the body of {input.text}", author=input.text)
        return Said(said=f"launching {input.text}")


class Linger(Tool[Text, Said]):
    """Runs a program that appends its process id to a file in the working directory and stays for a minute."""

    Input, Output = Text, Said

    def accesses(self, input, ctx):
        return [Access.run("linger")]

    async def run(self, input, ctx) -> Any:
        script = "echo $$ >> linger.txt; sleep 60 & echo $! >> linger.txt; wait"
        with ctx.effect("process", "linger"):
            async with await ctx.process(["sh", "-c", script]) as process:
                await process.wait()
        return Said(said="done")


class Touch(Tool[Text, Said]):
    """Makes an empty file in the working directory."""

    Input, Output = Text, Said

    def accesses(self, input, ctx):
        return [Access.edit(str(ctx.cwd / input.text))]

    async def run(self, input, ctx) -> Any:
        path = Path(ctx.cwd / input.text)
        with ctx.effect("file", path):
            path.touch()
        await anyio.sleep(0)
        return Said(said=f"made {input.text}")


class Noisy(Echo):
    """Prints to stdout, as careless plug-ins do."""

    async def run(self, input, ctx) -> Any:
        print("noise on stdout")
        sys.stdout.flush()
        return Said(said="quiet")


class Judge(Tool[Input, Said]):
    """Answers permission questions: yes to what touches the file "yes", else no; "odd" gets no answer at all."""

    class Input(Input):
        tool_name: str
        input: dict[str, Any]
        tool_use_id: str

    Output = Said

    async def run(self, input, ctx) -> Any:
        text = input.input.get("text")
        if text == "odd":
            return Said(said="perhaps")
        answer = {"behavior": "allow"} if text == "yes" else {"behavior": "deny", "message": f"not {text}"}
        return Said(said=json.dumps(answer))

    def render(self, output, ctx) -> str:
        return output.said


class Later:
    """Puts calls of Touch off until there is a file "verdict" in the working directory, and does what it says."""

    @hook
    async def peg_before_call(self, call: Call, ctx: Context) -> Verdict | None:
        if call.tool != "Touch" or "later" not in call.input["text"]:
            return None
        path = ctx.cwd / "verdict"
        return Verdict(path.read_text() if path.exists() else "defer", "not yet")


def tools() -> list[Tool[Any, Any]]:
    free = {"concurrency": "read", "ask": False}
    return [
        tool_of(Echo, **free),
        tool_of(Picture, **free),
        tool_of(Noisy, **free),
        tool_of(Teach, concurrency="session", ask=False),
        tool_of(Linger, effects=["process"], ask=False),
        tool_of(Touch, effects=["file"], family="Edit"),
        tool_of(Judge, **free),
    ]


def program() -> None:
    from pegboard.cli import main, start
    from pegboard.hooks import register

    usual = start.open_session

    def open_session(*given: Any, **more: Any) -> Any:
        session = usual(*given, **more)
        register(session.manager, Brought(tools()), "looptools")
        register(session.manager, Later(), "later")
        return session

    start.open_session = open_session
    main()


if __name__ == "__main__":
    program()
