"""The conversation as the model service must see it, built from transcript records one by one.

A call and its result can only be written as a pair here: an answer opens one slot for each of its calls, and the
next user message is made from the slots. Live sessions and resumed files go through the same code, so a repaired
history is the history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pegboard.blocks import digest, is_blank, result_block, said, text_block, user_blocks
from pegboard.call import Block
from pegboard.clearing import Bodies, weight
from pegboard.events import (
    Assistant,
    Began,
    Cleared,
    Closed,
    Compacted,
    Deferred,
    Event,
    Removed,
    Result,
    UserText,
)
from pegboard.framing import framed
from pegboard.provider import Message

__all__ = ["History", "Slot", "digest", "repair", "result_block", "said", "tombstone", "user_blocks"]

LOST_START = "The beginning of this conversation could not be read."


@dataclass
class Slot:
    """Where the result of one call goes. ``where`` is the position of what stands in for it, or of it."""

    id: str
    tool: str
    began: Began | None = None
    block: Block | None = None
    where: tuple[int, int] | None = None
    input: Any = None
    deferred: bool = False
    """The next result only says that the call was put off."""


class History:
    """Messages with alternating roles and paired calls. ``messages`` only grows; what is in it never changes.

    Where something already sent has to change (a removed block, a cleared body, texts after a failed request), a new
    list is made.
    """

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._slots: dict[str, Slot] = {}
        self._texts: list[Block] = []
        self._late: dict[str, Slot] = {}
        self.deferred: dict[str, Slot] = {}
        """Calls that a hook put off, as long as nothing follows them: a later result takes its place."""
        self._used: set[str] = set()
        self.orphans = 0
        self.doubles = 0
        self.size = 0
        """Weight of all messages in characters, as `clearing.weight` counts."""
        self.bodies = Bodies()
        """The results that can be cleared."""
        self.told: dict[str, str] = {}
        """What the program and its plug-ins said last in these messages, by author."""
        self.found: dict[str, bool] = {}
        """Tools that a search has loaded, in order -> whether a reference in the messages loads them."""
        self.asked: list[Block] = []
        """The last thing that a person said."""
        self.references = True
        """Whether the model takes ``tool_reference`` blocks; without, they are put in words."""

    @property
    def messages(self) -> list[Message]:
        """The messages for the next request. Raises ValueError while a call has no result."""
        if self._slots:
            raise ValueError(f"calls without a result: {', '.join(self._slots)}")
        self._flush()
        return self._messages

    @property
    def open_slots(self) -> list[Slot]:
        """The calls of the last answer that have no result yet, in call order."""
        return [slot for slot in self._slots.values() if slot.block is None]

    def unique(self, content: list[Block]) -> list[Block]:
        """The same blocks, with call ids that no earlier call has; some services count from zero in each answer."""
        if not any(_is_call(block) and block.get("id") in self._used for block in content) and _distinct(content):
            return content
        fresh, taken = [], set(self._used)
        for block in content:
            if _is_call(block):
                name, number = block["id"], 2
                while block["id"] in taken:
                    block = {**block, "id": f"{name}-{number}"}
                    number += 1
                taken.add(block["id"])
            fresh.append(block)
        return fresh

    def feed(self, record: object) -> None:
        """Take in one record, in file order. Records that are no part of the conversation change nothing."""
        if isinstance(record, Result):
            self.result(record)
        elif isinstance(record, Assistant):
            self.assistant(record)
        elif isinstance(record, UserText):
            blocks = user_blocks(record)
            self._texts.extend(blocks)
            if record.author:
                self.told[record.author] = "".join(block.get("text", "") for block in record.content)
            if record.origin == "human":
                self.asked = blocks
        elif isinstance(record, Began):
            if record.id in self.deferred:
                self._late[record.id] = self.deferred.pop(record.id)
            slot = self._slots.get(record.id) or self._late.get(record.id)
            if slot is not None:
                slot.began = record
        elif isinstance(record, Deferred):
            slot = self._slots.get(record.id) or self.deferred.get(record.id)
            if slot is not None:
                slot.deferred = True
        elif isinstance(record, Closed):
            if not self.open_slots:
                self.close()
        elif isinstance(record, Removed):
            self._remove(record)
        elif isinstance(record, Cleared):
            self._clear(record.calls)
        elif isinstance(record, Compacted):
            self._compact(record)

    def assistant(self, record: Assistant) -> list[Slot]:
        """Add an answer and open a slot for each of its calls. Calls that are still open get a stand-in."""
        self._stand_in()
        self._flush()
        self.deferred.clear()
        blocks = [block for block in record.content if not is_blank(block)]
        if all(block.get("type") in ("thinking", "redacted_thinking") for block in blocks):
            return []
        if not self._messages:
            self._messages.append(Message("user", [{"type": "text", "text": LOST_START}]))
        self._push("assistant", blocks)
        for block in blocks:
            if _is_call(block):
                self._slots[block["id"]] = Slot(block["id"], block.get("name", ""), input=block.get("input"))
                self._used.add(block["id"])
        return list(self._slots.values())

    def result(self, record: Result) -> bool:
        """Put a result into its slot. False for an orphan or a second result of the same call, which are dropped."""
        slot = self._slots.get(record.id)
        if slot is not None and slot.block is None:
            slot.block = self._shown(record)
            return True
        held = self.deferred.get(record.id)
        if held is not None and held.deferred:
            held.deferred = False
            return True
        late = self._late.pop(record.id, None) or self.deferred.pop(record.id, None)
        if late is not None and late.where is not None:
            self._flush()
            message, position = late.where
            self._replace(message, position, self._shown(record))
            return True
        if slot is not None or record.id in self._used:
            self.doubles += 1
        else:
            self.orphans += 1
        return False

    def close(self) -> None:
        """Turn filled slots into the head of the next user message. Raises ValueError when one is empty."""
        missing = [slot.id for slot in self.open_slots]
        if missing:
            raise ValueError(f"calls without a result: {', '.join(missing)}")
        self._texts[:0] = [slot.block for slot in self._slots.values() if slot.block is not None]
        for position, slot in enumerate(self._slots.values()):
            slot.where = (len(self._messages), position)
            self.bodies.add(slot.id, slot.tool, slot.input, slot.block, slot.where)
            if slot.deferred:
                slot.deferred, self.deferred[slot.id] = False, slot
        self._slots.clear()

    @property
    def in_turn(self) -> bool:
        """Whether an answer with calls waits for its user message."""
        return bool(self._slots)

    @property
    def empty(self) -> bool:
        """Whether nothing of a conversation is here."""
        return not (self._messages or self._slots or self._texts)

    def missing(self) -> list[Slot]:
        """Every call of the whole history that has no result, oldest first."""
        return [*self._late.values(), *self.open_slots]

    def _stand_in(self) -> None:
        """Close a turn of a damaged file: a call without a result gets one that a later record may replace."""
        if not self._slots:
            return
        lost = [(position, slot) for position, slot in enumerate(self._slots.values()) if slot.block is None]
        for _, slot in lost:
            slot.block = result_block(tombstone(slot))
        self.close()
        self._flush()
        for position, slot in lost:
            slot.where = (len(self._messages) - 1, position)
            self._late[slot.id] = slot

    def _flush(self) -> None:
        if self._texts and not self._slots:
            blocks, self._texts = self._texts, []
            self._push("user", blocks)

    def _push(self, role: Any, blocks: list[Block]) -> None:
        self.size += sum(map(weight, blocks))
        last = self._messages[-1] if self._messages else None
        if last is not None and last.role == role:
            self._messages = [*self._messages[:-1], Message(role, [*last.content, *blocks])]
        else:
            self._messages.append(Message(role, blocks))

    def _replace(self, message: int, position: int, *blocks: Block) -> None:
        old = self._messages[message]
        self.size += sum(map(weight, blocks)) - weight(old.content[position])
        content = [*old.content[:position], *blocks, *old.content[position + 1 :]]
        self._messages = list(self._messages)
        self._messages[message] = Message(old.role, content or [{"type": "text", "text": "(removed)"}])

    def _shown(self, record: Result) -> Block:
        """The result block of a record. References to loaded tools stand alone in it, or are put in words."""
        block = result_block(record)
        names = _referenced(block)
        if not names:
            return block
        live = [name for name in names if self.references and self.found.get(name, True)]
        self.found.update({name: name in live for name in names})
        if not live:
            return _in_words(block)
        if said := "\n".join(item["text"] for item in block["content"] if item.get("type") == "text"):
            self._texts.append(text_block(framed(said, author=record.tool, origin="unclassified")))
        return {**block, "content": [item for item in block["content"] if item.get("tool_name") in live]}

    def dissolve(self) -> None:
        """Put every reference to a loaded tool in words: a tool is gone, or the model does not take references."""
        self._flush()
        for index, message in enumerate(list(self._messages)):
            for position, block in enumerate(message.content):
                if _referenced(block):
                    self._replace(index, position, _in_words(block))
        self.found.update(dict.fromkeys(self.found, False))

    def _clear(self, calls: Iterable[str]) -> None:
        """Put a line in the place of the bodies of these results."""
        self._flush()
        for call in calls:
            if (body := self.bodies.pop(call)) is not None:
                message, position = body.where
                block = self._messages[message].content[position]
                self._replace(message, position, {**block, "content": body.line()})

    def _compact(self, record: Compacted) -> None:
        """Begin again with the summary; what was found stays found."""
        self._slots.clear()
        self._late.clear()
        self.deferred.clear()
        self._texts = [*user_blocks(said(record.summary, author="pegboard")), *record.kept]
        self.asked = record.kept
        self._messages, self.size, self.bodies, self.told = [], 0, Bodies(), {}
        self.found.update(dict.fromkeys(self.found, False))

    def _remove(self, record: Removed) -> None:
        self._flush()
        for message in range(len(self._messages) - 1, -1, -1):
            for position, block in enumerate(self._messages[message].content):
                if digest(block) == record.digest:
                    self._replace(message, position, *_without(block, record.note))
                    return
                inner = block.get("content")
                if block.get("type") == "tool_result" and isinstance(inner, list):
                    kept = [text_block(record.note) if digest(item) == record.digest else item for item in inner]
                    if kept != inner:
                        self._replace(message, position, {**block, "content": kept})
                        return


def _without(block: Block, note: str) -> list[Block]:
    if block.get("type") == "tool_result":
        return [{**block, "content": note}]
    if block.get("type") in ("thinking", "redacted_thinking"):
        return []
    return [text_block(note)]


def _referenced(block: Block) -> list[str]:
    """Names of the tools that a result loads by reference."""
    inner = block.get("content") if block.get("type") == "tool_result" else None
    items = inner if isinstance(inner, list) else []
    return [item["tool_name"] for item in items if item.get("type") == "tool_reference"]


def _in_words(block: Block) -> Block:
    names = ", ".join(_referenced(block))
    rest = [item for item in block["content"] if item.get("type") != "tool_reference"]
    return {
        **block,
        "content": [text_block(f"Loaded: {names}. What is in the list of tools can be called now."), *rest],
    }


def _is_call(block: Block) -> bool:
    return block.get("type") == "tool_use"


def _distinct(content: list[Block]) -> bool:
    ids = [block["id"] for block in content if _is_call(block)]
    return len(ids) == len(set(ids))


def tombstone(slot: Slot) -> Result:
    """The result of a call that never got one. It repairs the conversation and undoes nothing."""
    began = slot.began
    if began is None:
        return Result(
            id=slot.id,
            tool=slot.tool,
            outcome="not_started",
            is_error=True,
            code="cancelled",
            text=f"{slot.tool} was interrupted before it ran; nothing was done.",
        )
    remote = "remote" in began.kinds
    known = "it may have acted on a remote service" if remote else "effects may exist"
    return Result(
        id=slot.id,
        tool=slot.tool,
        outcome="unknown" if remote else "partial",
        retry="forbidden" if remote else "check_first",
        is_error=True,
        code="unknown_outcome" if remote else "cancelled",
        text=f"{slot.tool} was interrupted while it ran; {known}.\n"
        "Look at the real state before anything else; do not simply repeat the call.",
    )


def repair(records: Iterable[object]) -> tuple[History, list[Event]]:
    """The history of these records, and what must be appended so that every call is answered.

    Repairing a second time adds nothing and gives the same messages.
    """
    history = History()
    for record in records:
        history.feed(record)
    added: list[Event] = [tombstone(slot) for slot in history.missing()]
    if history.in_turn:
        added.append(Closed())
    for record in added:
        history.feed(record)
    return history, added
