"""The product's own framing of text in the conversation, and the escape of text that imitates it.

What the program adds is told apart from what people, files and services say; foreign text must not be able to
pose as the program. This is the one place that knows how the frame looks.
"""

from __future__ import annotations

import re

TAG = "peg-note"
"""Tag around everything that the program itself puts into a user message."""

_IMITATED_TAG = re.compile(r"<(?=\s*/?\s*(?:peg-note|system-reminder)\b)", re.IGNORECASE)
_ROLE_LINE = re.compile(r"^(?=(?:Human|Assistant|System):)", re.MULTILINE)


def escape_framing(text: str) -> str:
    """Make foreign text harmless as framing, and change nothing else.

    Two forms are escaped: ``<`` before a reminder tag becomes ``&lt;``, and a line that begins with ``Human:``,
    ``Assistant:`` or ``System:`` gets a backslash in front.
    """
    if "<" in text:
        text = _IMITATED_TAG.sub("&lt;", text)
    if "n:" in text or "t:" in text or "m:" in text:
        text = _ROLE_LINE.sub(r"\\", text)
    return text


def framed(text: str, *, author: str, origin: str) -> str:
    """Text of the program or of a third party, in the product's frame, with its author and origin."""
    by = re.sub(r'[<>"\s]+', " ", author).strip() or "pegboard"
    return f'<{TAG} from="{by}" origin="{origin}">\n{escape_framing(text)}\n</{TAG}>'
