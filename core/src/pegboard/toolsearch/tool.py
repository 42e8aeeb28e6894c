"""ToolSearch: load deferred tools by name or by what they do.

What it found is in its result as references; the conversation keeps them, so a resumed session has them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from pegboard.errors import Broken
from pegboard.model import Input, Output
from pegboard.tool import Blocks, Context, Tool
from pegboard.toolsearch.search import Fields, ranked, selected

if TYPE_CHECKING:
    from pegboard.loader import Found
    from pegboard.toolbox import Toolbox

MOST = 50
"""[C] Most tools that one search may load."""


class ToolSearchInput(Input):
    query: str = Field(min_length=1, max_length=1_000, description="`select:Name,OtherName`, or words for the task.")
    max_results: int = Field(5, ge=1, le=MOST, description="Most tools to load by words.")


class ToolSearchOutput(Output):
    query: str
    tools: list[str]
    """What is loaded now, best fit first."""
    loaded: list[str] = []
    """Selected tools that need no search."""
    unknown: list[str] = []
    failed: dict[str, str] = {}
    """Sources whose tools are missing, with the reason."""
    deferred: int
    """How many tools can be found here."""


class ToolSearch(Tool[ToolSearchInput, ToolSearchOutput]):
    """Find tools that are known by name only, and load them."""

    Input = ToolSearchInput
    Output = ToolSearchOutput

    async def run(self, input: ToolSearchInput, ctx: Context) -> ToolSearchOutput:
        toolbox = ctx.toolbox
        deferred = toolbox.deferred()
        chosen = selected(input.query, deferred)
        names, unknown = chosen or (ranked(input.query, _fields(deferred, toolbox))[: input.max_results], [])
        loaded = [name for name in unknown if toolbox.offers(name)]
        return ToolSearchOutput(
            query=input.query,
            tools=names,
            loaded=loaded,
            unknown=[name for name in unknown if name not in loaded],
            failed=dict(toolbox.failed),
            deferred=len(deferred),
        )

    def render(self, output: ToolSearchOutput, ctx: Context) -> str | Blocks:
        said = [f"{name} is loaded already; call it." for name in output.loaded]
        said += [f"There is no tool {name!r} to load here." for name in output.unknown]
        if not output.tools and not said:
            said.append(f"None of the {output.deferred} tools that can be loaded here fits {output.query!r}.")
        said += [f"The tools of {source} are missing: {reason}" for source, reason in output.failed.items()]
        found: Blocks = [{"type": "tool_reference", "tool_name": name} for name in output.tools]
        text = "\n".join(said)
        if not found:
            return text
        return [*found, {"type": "text", "text": text}] if text else found


def _fields(tools: Mapping[str, Found], toolbox: Toolbox) -> dict[str, Fields]:
    found = {}
    for name, tool in tools.items():
        try:
            schema = toolbox.schema(tool)
        except Broken:
            continue  # it could not be called either
        properties = " ".join(schema.input.get("properties") or {})
        rest = f"{' '.join(tool.manifest.aliases)} {properties} {schema.description}"
        found[name] = (name, tool.manifest.summary, rest)
    return found
