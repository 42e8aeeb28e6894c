"""Content blocks as the model service must see them: results, texts of people, and texts of everything else."""

from __future__ import annotations

import hashlib

import msgspec

from pegboard.call import Block, Text
from pegboard.events import Origin, Result, UserText
from pegboard.framing import escape_framing, framed


def text_block(text: str) -> Block:
    """A text block."""
    return {"type": "text", "text": text}


def is_blank(block: Block) -> bool:
    """Whether it is a text without any; services refuse those."""
    return block.get("type") == "text" and not block.get("text", "").strip()


def digest(block: Block) -> str:
    """A name for a block's content that stays the same across resumes."""
    return hashlib.sha256(msgspec.json.encode(block)).hexdigest()[:32]


def said(text: str, *, author: str, origin: Origin = "unclassified") -> UserText:
    """A text of the program or a plug-in for the conversation."""
    return UserText(content=[text_block(text)], author=author, origin=origin)


def user_blocks(record: UserText) -> list[Block]:
    """The blocks of a user-role text. What no person wrote is framed with its author and origin."""
    blocks = [block for block in record.content if not is_blank(block)]
    if record.origin == "human":
        return blocks
    return [
        {**block, "text": framed(block["text"], author=record.author, origin=record.origin)}
        if block.get("type") == "text"
        else block
        for block in blocks
    ]


def result_block(record: Result) -> Block:
    """The ``tool_result`` block of a result: foreign text escaped, never empty, text only when it is an error."""
    block: Block = {"type": "tool_result", "tool_use_id": record.id, "content": _content(record.text, record.is_error)}
    if record.is_error:
        block["is_error"] = True
    return block


def _content(text: Text, is_error: bool) -> Text:
    if isinstance(text, str):
        return escape_framing(text) if text.strip() else "(no output)"
    blocks: list[Block] = []
    for item in text:
        if item.get("type") == "text":
            if not is_blank(item):
                blocks.append({**item, "text": escape_framing(item["text"])})
        elif is_error:
            blocks.append(text_block(f"[{item.get('type')}]"))
        else:
            blocks.append(item)
    return blocks or "(no output)"
