"""PDF: the text of each page, and a picture of it for what text cannot say.

The engine is not safe for threads, so one lock guards all of its calls.
"""

from __future__ import annotations

import base64
import io
import re
import threading
from typing import TYPE_CHECKING, Any

from pegboard.errors import Code, Refusal
from pegboard_files.disk import check_aborted

from pegboard_read.lines import BYTES_PER_TOKEN
from pegboard_read.models import Page, PdfFile
from pegboard_read.picture import damaged

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

PDF_BYTES = 32 * 1024 * 1024
"""[C] Largest PDF file."""

WHOLE_PAGES = 10
"""[D] Pages up to which a PDF is shown without being asked for pages."""

CALL_PAGES = 20
"""[D] Most pages of one call."""

LONG_SIDE = 1_200
"""[C] Pixels of the longer side of a page's picture."""

QUALITY = 75
"""[C] JPEG quality of a page's picture."""

_RANGE = re.compile(r"\s*(\d{1,6})\s*(?:-\s*(\d{1,6})\s*)?")
_lock = threading.Lock()


def parse_pages(text: str) -> tuple[int, int]:
    """First and last page of ``"3"`` or ``"1-5"``. Raises `Refusal` (invalid_input)."""
    match = _RANGE.fullmatch(text)
    first = int(match[1]) if match else 0
    last = int(match[2] or match[1]) if match else 0
    if not 1 <= first <= last:
        raise Refusal(Code.INVALID_INPUT, f"pages {text!r} is no page and no range.", hint='Write "3" or "1-5".')
    if last - first + 1 > CALL_PAGES:
        raise Refusal(
            Code.INVALID_INPUT,
            f"pages {text!r} are {last - first + 1} pages; one call shows at most {CALL_PAGES}.",
            hint="Read them in several calls.",
        )
    return first, last


def is_pdf(head: bytes) -> bool:
    """Whether bytes begin like a PDF."""
    return b"%PDF-" in head[:1024]


def read_pdf(
    raw: bytes, path: str, shown: str, pages: tuple[int, int] | None, max_tokens: int
) -> tuple[PdfFile, list[str]]:
    """The pages of a PDF, and what has to be said about them. Blocking; call it in a thread.

    Raises `Refusal`: io_error with the engine's complaint, too_large for a long file without ``pages``,
    invalid_input for pages that it does not have.
    """
    from pypdfium2 import PdfDocument, PdfiumError

    with _lock:
        try:
            document = PdfDocument(raw)
        except PdfiumError as error:
            raise damaged(shown, "PDF", _complaint(error)) from None
        try:
            first, last = _chosen(len(document), pages, shown)
            room = max_tokens * BYTES_PER_TOKEN
            made, cut = [], False
            for number in range(first, last + 1):
                check_aborted()
                page = _page(document, number)
                kept = page.text.encode("utf-8")[: max(0, room)].decode("utf-8", "ignore")
                cut = cut or len(kept) < len(page.text)
                room -= len(kept.encode("utf-8"))
                made.append(page.model_copy(update={"text": kept}))
        except PdfiumError as error:
            raise damaged(shown, "PDF", _complaint(error)) from None
        finally:
            count = len(document)
            document.close()
    notes = [f"Pages {first}-{last} of {count}."] if last - first + 1 < count else []
    if cut:
        notes.append("The text of the pages was cut at the token limit; read fewer pages in one call to see it whole.")
    return PdfFile(filePath=path, originalSize=len(raw), count=count, pages=made), notes


def _chosen(count: int, pages: tuple[int, int] | None, shown: str) -> tuple[int, int]:
    if not count:
        raise damaged(shown, "PDF", "it has no pages")
    if pages is None:
        if count > WHOLE_PAGES:
            raise Refusal(
                Code.TOO_LARGE,
                f"{shown} has {count} pages; up to {WHOLE_PAGES} are shown at once without asking for pages.",
                hint=f'Give pages, for example "1-{min(count, CALL_PAGES)}".',
            )
        return 1, count
    if pages[1] > count:
        raise Refusal(
            Code.INVALID_INPUT, f"{shown} has {count} pages, so there is no page {pages[1]}.", hint="Ask for others."
        )
    return pages


def _page(document: PdfDocument, number: int) -> Page:
    page: Any = document[number - 1]
    try:
        words = page.get_textpage()
        try:
            text = words.get_text_bounded()
        finally:
            words.close()
        longest = max(*page.get_size(), 1)
        picture = page.render(scale=min(LONG_SIDE / longest, 4)).to_pil()
    finally:
        page.close()
    buffer = io.BytesIO()
    picture.convert("RGB").save(buffer, "JPEG", quality=QUALITY)
    clean = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return Page(number=number, text=clean.strip(), picture=encoded)


def _complaint(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    if "password" in text.lower():
        return "it is encrypted and needs a password"
    return text[:1].lower() + text[1:]
