"""`peg` with one more tool: Publish, which reaches a remote service and says so in the ledger. Run as a program."""

from __future__ import annotations

from typing import Any

from pegboard.model import Input, Output
from pegboard.testing import tool_of
from pegboard.testing.sessions import Brought
from pegboard.tool import Access, Tool


class Page(Input):
    page: str


class Published(Output):
    url: str


class Publish(Tool[Page, Published]):
    """Puts a page on a service."""

    Input, Output = Page, Published

    def accesses(self, input, ctx):
        return [Access.use(input.page)]

    async def run(self, input, ctx) -> Any:
        url = f"https://pages.example/{input.page}"
        with ctx.effect("remote", url):
            pass
        return Published(url=url)

    def render(self, output, ctx) -> str:
        return output.url


def program() -> None:
    from pegboard.cli import main, start
    from pegboard.hooks import register

    usual = start.open_session

    def open_session(*given: Any, **more: Any) -> Any:
        session = usual(*given, **more)
        register(session.manager, Brought([tool_of(Publish, effects=["remote"], ask=False)]), "remotetools")
        return session

    start.open_session = open_session
    main()


if __name__ == "__main__":
    program()
