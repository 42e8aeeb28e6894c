"""What a model cannot take, in a form that it can: a picture becomes a line with its type and size.

The transcript keeps what it was, so that a model which takes it sees it again. What is left out is said once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_
from typing import TYPE_CHECKING

from pegboard.provider import Message

if TYPE_CHECKING:
    from pegboard.call import Block
    from pegboard.provider import Abilities, ToolSpec


class Lacks:
    """The limits of one model, laid over the requests of one agent."""

    def __init__(self, model: str, abilities: Abilities) -> None:
        self._model = model
        self._tools = abilities.tools
        able = {"image": abilities.images, "document": abilities.documents}
        self._kinds = frozenset(kind for kind, taken in able.items() if not taken)
        self._given: list[Message] = []
        self._shown: list[Message] = []
        self._met: dict[str, bool] = {}
        """What was left out so far -> whether that was said."""

    def messages(self, messages: list[Message]) -> list[Message]:
        """The messages as the model can take them; one that needs no change stays the same object."""
        if not self._kinds:
            return messages
        same = min(len(self._given), len(messages))
        if not all(map(is_, self._given, messages)):
            same = next(index for index in range(same) if self._given[index] is not messages[index])
        del self._given[same:], self._shown[same:]
        for message in messages[same:]:
            self._given.append(message)
            content = self._blocks(message.content)
            self._shown.append(message if content is message.content else Message(message.role, content))
        return self._shown

    def tools(self, specs: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """The tools, or none."""
        if self._tools or not specs:
            return specs
        self._met.setdefault("tools", False)
        return ()

    def news(self) -> Iterable[str]:
        """What was left out and not said yet, for the person."""
        new = [kind for kind, said in self._met.items() if not said]
        self._met.update(dict.fromkeys(new, True))
        for kind in new:
            if kind == "tools":
                yield f"{self._model} takes no tools; it answers from the conversation alone."
            else:
                yield f"{self._model} takes no {kind}s; it is told their type and size in their place."

    def _blocks(self, blocks: list[Block]) -> list[Block]:
        """The same list where nothing has to change."""
        changed = [self._block(block) for block in blocks]
        return blocks if all(new is old for new, old in zip(changed, blocks, strict=True)) else changed

    def _block(self, block: Block) -> Block:
        kind = block.get("type")
        if kind == "tool_result" and isinstance(block.get("content"), list):
            inner = self._blocks(block["content"])
            return block if inner is block["content"] else {**block, "content": inner}
        if kind not in self._kinds:
            return block
        self._met.setdefault(str(kind), False)
        return {"type": "text", "text": f"[{_told(block)}: not shown, because {self._model} takes no {kind}s.]"}


def _told(block: Block) -> str:
    """Type and size of a picture or a document, as far as they can be told."""
    source = block.get("source") or {}
    media = source.get("media_type") or block["type"]
    data = source.get("data") or ""
    if source.get("type") == "base64":
        return f"{media}, {len(data) * 3 // 4 - data[-2:].count('='):,} bytes"
    return f"{media}, {len(data):,} characters" if data else f"{media} at {source.get('url') or 'an unknown place'}"
