"""Read: show one file and record what of it was seen.

The record is what Edit and Write go by; the text itself may leave the conversation at any time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass

from pegboard.call import Block
from pegboard.errors import Code, Refusal
from pegboard.tool import Access, Context, Tool
from pegboard_files import FileViews, View, disk, names
from pegboard_files.text import Text, decode
from pegboard_files.views import Extent

from pegboard_read import notebook, pdf, picture
from pegboard_read.lines import Limits, Selection, select
from pegboard_read.models import ReadInput, ReadOutput, TextFile, UnchangedFile
from pegboard_read.render import blocks
from pegboard_read.stream import Streamed, binary, stream

LOADED = 10 * 1024 * 1024
"""[C] Size up to which a text file is loaded whole; larger ones are read in one pass."""

_IMAGE_NAMES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".avif")


@dataclass(frozen=True)
class Found:
    """The file of a call, before it is known what it holds."""

    path: str
    real: str
    shown: str
    stat: os.stat_result


class Read(Tool[ReadInput, ReadOutput]):
    """Show one file."""

    Input = ReadInput
    Output = ReadOutput

    async def check(self, input: ReadInput, ctx: Context) -> None:
        if input.pages is not None:
            pdf.parse_pages(input.pages)
        try:
            os.stat(input.file_path)
        except OSError as error:
            if error.errno == errno.ELOOP:
                ctx.refuse_denied(Access.read(input.file_path))
                text = f"{ctx.shown(input.file_path)} is a link that leads in a circle; no file is behind it."
                raise Refusal(Code.PRECONDITION_FAILED, text) from None

    def accesses(self, input: ReadInput, ctx: Context) -> Iterable[Access]:
        return [Access.read(path) for path in dict.fromkeys((input.file_path, disk.aim(ctx, input.file_path)))]

    async def run(self, input: ReadInput, ctx: Context) -> ReadOutput:
        found = await ctx.thread(_find, input.file_path, ctx)
        suffix = os.path.splitext(found.path)[1].lower()
        head = await ctx.thread(_head, found)
        if pdf.is_pdf(head) or suffix == ".pdf":
            return await _pdf(found, head, input, ctx)
        if input.pages is not None:
            raise Refusal(
                Code.INVALID_INPUT, f"{found.shown} is not a PDF, so it has no pages.", hint="Use offset and limit."
            )
        if picture.is_image(head) or suffix in _IMAGE_NAMES:
            return await _picture(found, head, ctx)
        if suffix == ".ipynb":
            return await _notebook(found, input, ctx)
        if found.stat.st_size > LOADED:
            return await _streamed(found, input, ctx)
        return await _text(found, input, ctx)

    def render(self, output: ReadOutput, ctx: Context) -> str | list[Block]:
        return blocks(output)


def _find(path: str, ctx: Context) -> Found:
    """The file at a path; or the only one whose name is the same in another Unicode form, which is then said."""
    try:
        return _found(path, ctx)
    except FileNotFoundError:
        others = [other for other in names.alike(path) if ctx.denied(Access.read(other)) is None]
        if len(others) == 1 and others[0] != path:
            found = _found(others[0], ctx)
            ctx.note(f"There is no file of exactly this name; shown is {others[0]!r}, the only name like it. Use that.")
            return found
        raise _not_found(path, others, ctx) from None


def _found(path: str, ctx: Context) -> Found:
    shown = ctx.shown(path)
    status = disk.look(path, shown)
    return Found(path, disk.aim(ctx, path), shown, status)


def _not_found(path: str, alike: list[str], ctx: Context) -> Refusal:
    folder, shown = os.path.dirname(path), ctx.shown(path)
    near = [os.path.join(folder, name) for name in names.similar(path)]
    close = list(dict.fromkeys([*alike, *near]))
    close = [ctx.shown(other) for other in close if other != path and ctx.denied(Access.read(other)) is None]
    hint = f"Similar names there: {', '.join(map(repr, close))}." if close else "Find it with Glob."
    if not os.path.isdir(folder):
        return Refusal(Code.NOT_FOUND, f"{shown} does not exist; neither does its folder.", hint=hint)
    if os.path.islink(path):
        return Refusal(Code.NOT_FOUND, f"{shown} is a symbolic link to {os.readlink(path)!r}, which does not exist.")
    return Refusal(Code.NOT_FOUND, f"{shown} does not exist. The session directory is {ctx.cwd}.", hint=hint)


def _head(found: Found) -> bytes:
    with disk.reading(found.real, found.shown) as handle:
        return os.read(handle, 4_096)


def _limits(ctx: Context) -> Limits:
    return Limits(ctx.setting("read.max_tokens"), ctx.setting("read.page_lines"), ctx.setting("read.line_chars"))


async def _seen_whole(found: Found, content: disk.Content, input: ReadInput, ctx: Context) -> ReadOutput | None:
    """The short answer for a file whose unchanged text is still in the conversation."""
    if input.offset is not None or input.limit is not None or input.pages is not None:
        return None
    view = (await ctx.own(FileViews)).get(found.real)
    if view is None or view.view != "full" or not view.shown_by or view.digest != content.digest:
        return None
    return ReadOutput(type="file_unchanged", file=UnchangedFile(filePath=found.path))


async def _saw(
    found: Found,
    content: disk.Content,
    ctx: Context,
    extent: Extent,
    *,
    text: Text | None = None,
    why: str = "",
    ranges: Iterable[tuple[int, int]] = (),
    lines: int | None = None,
) -> None:
    if not content.steady:
        extent, why = "partial", "it changed while it was being read"
        ctx.note("PARTIAL view: the file changed while it was being read. Read it again before you change it.")
    view = View(
        digest=content.digest,
        size=content.stat.st_size,
        mtime_ns=content.stat.st_mtime_ns,
        view=extent,
        why=why,
        ranges=() if extent == "full" else tuple(ranges),
        encoding=text.encoding if text else "",
        mark=bool(text and text.mark),
        ending=text.ending if text else "",
        shown_by=ctx.call_id if extent == "full" else "",
    )
    (await ctx.own(FileViews)).saw(found.real, view, content.raw, lines=lines)


async def _text(found: Found, input: ReadInput, ctx: Context) -> ReadOutput:
    content = await ctx.thread(disk.read_content, found.real, found.shown, LOADED)
    unchanged = await _seen_whole(found, content, input, ctx)
    if unchanged is not None:
        return unchanged
    limits = _limits(ctx)
    text, chosen = await ctx.thread(_selected, content.raw, found.shown, limits, input)
    extent: Extent = "full"
    if not text.intact:
        extent = "partial"
    elif chosen.more or chosen.first > 1 or chosen.cut:
        extent = "range" if _explicit(input) or not chosen.more else "partial"
    _tell_encoding(text, ctx)
    _tell_selection(chosen, extent, limits, ctx)
    if chosen.lines or not chosen.total:
        why = "" if text.intact else "its bytes cannot all be decoded"
        ranges = chosen.whole_runs or () if text.intact else ()
        await _saw(found, content, ctx, extent, text=text, why=why, ranges=ranges, lines=chosen.total)
    return _text_output(found, chosen)


def _explicit(input: ReadInput) -> bool:
    return input.offset is not None or input.limit is not None


def _selected(raw: bytes, shown: str, limits: Limits, input: ReadInput) -> tuple[Text, Selection]:
    text = decode(raw)
    if text is None:
        raise binary(shown)
    lines = text.plain.split("\n")
    if lines[-1] == "":
        lines.pop()
    return text, select(lines, limits, input.offset, input.limit)


def _text_output(found: Found, chosen: Selection) -> ReadOutput:
    file = TextFile(
        filePath=found.path,
        content="\n".join(chosen.lines),
        numLines=len(chosen.lines),
        startLine=chosen.first,
        totalLines=chosen.total,
        truncatedByTokenCap=chosen.capped,
    )
    return ReadOutput(type="text", file=file)


def _tell_encoding(text: Text, ctx: Context) -> None:
    if not text.intact:
        ctx.note(
            f"PARTIAL view: not all bytes are {text.label}, and no other encoding fits; what cannot be decoded is "
            "shown as U+FFFD. Edit and Write refuse such a file: use a shell command, or convert it to UTF-8 first."
        )
    elif not text.sure:
        ctx.note(
            f"The file is not UTF-8. It is shown as {text.label}, which is a guess. Its bytes are kept by an edit; "
            "only its ASCII text can be changed."
        )
    elif text.encoding != "utf-8" or text.mark:
        ctx.note(f"The file is {text.label}; an edit keeps that.")


def _tell_selection(chosen: Selection, extent: Extent, limits: Limits, ctx: Context) -> None:
    if not chosen.lines:
        if chosen.total == 0:
            ctx.note("The file exists and is empty (0 bytes).")
        elif chosen.total is not None and chosen.first > chosen.total:
            ctx.note(f"Offset {chosen.first} is past the end: the file has {_lines(chosen.total)}.")
        return
    of = f"of {chosen.total}" if chosen.total is not None else "of a file whose lines were not counted"
    if chosen.more and extent == "partial":
        end = f"at the limit of {limits.tokens:,} tokens" if chosen.capped else "at the end of the page"
        ctx.note(
            f"PARTIAL view: lines {chosen.first}-{chosen.last} {of} are shown; it was cut {end}. "
            f"Read on with offset {chosen.last + 1}, or search with Grep."
        )
    elif chosen.more:
        ctx.note(f"Lines {chosen.first}-{chosen.last} {of}.")
    if chosen.cut:
        ctx.note(f"{_lines(chosen.cut)} cut at {limits.line:,} characters; search inside with Grep -o.")


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


async def _streamed(found: Found, input: ReadInput, ctx: Context) -> ReadOutput:
    limits = _limits(ctx)
    part: Streamed = await ctx.thread(stream, ctx, found.real, found.shown, limits, input.offset, input.limit)
    chosen = part.selection
    text = Text("", part.encoding, mark=b"\xff" if part.mark else b"", intact=part.intact)
    extent: Extent = "range" if part.digest and part.intact and chosen.lines else "partial"
    _tell_encoding(text, ctx)
    _tell_selection(chosen, extent if _explicit(input) or not chosen.more else "partial", limits, ctx)
    if chosen.lines:
        why = "" if part.intact else "its bytes cannot all be decoded"
        content = disk.Content(b"", part.stat, part.digest, part.steady)
        await _saw(found, content, ctx, extent, text=text, why=why, ranges=chosen.whole_runs or ())
    return _text_output(found, chosen)


async def _picture(found: Found, head: bytes, ctx: Context) -> ReadOutput:
    if not picture.is_image(head):
        begins = f"it begins with {head[:8].hex(' ')}" if head else "it is empty"
        raise picture.damaged(found.shown, f"image ({os.path.splitext(found.path)[1]})", begins)
    if found.stat.st_size > picture.IMAGE_BYTES:
        hint = "Scale it down with a shell command first."
        raise picture.too_heavy(found.shown, "picture", found.stat.st_size, picture.IMAGE_BYTES, hint)
    content = await ctx.thread(disk.read_content, found.real, found.shown, picture.IMAGE_BYTES)
    unchanged = await _seen_whole(found, content, ReadInput(file_path=found.path), ctx)
    if unchanged is not None:
        return unchanged
    file, notes = await ctx.thread(picture.read_picture, content.raw, found.path, found.shown)
    await _saw(found, content, ctx, "full")
    for note in notes:
        ctx.note(note)
    return ReadOutput(type="image", file=file)


async def _pdf(found: Found, head: bytes, input: ReadInput, ctx: Context) -> ReadOutput:
    if not pdf.is_pdf(head):
        raise picture.damaged(found.shown, "PDF", "it does not begin like one")
    if found.stat.st_size > pdf.PDF_BYTES:
        hint = "Take the pages you need out of it with a shell command first."
        raise picture.too_heavy(found.shown, "PDF", found.stat.st_size, pdf.PDF_BYTES, hint)
    content = await ctx.thread(disk.read_content, found.real, found.shown, pdf.PDF_BYTES)
    unchanged = await _seen_whole(found, content, input, ctx)
    if unchanged is not None:
        return unchanged
    pages = pdf.parse_pages(input.pages) if input.pages is not None else None
    tokens = ctx.setting("read.max_tokens")
    file, notes = await ctx.thread(pdf.read_pdf, content.raw, found.path, found.shown, pages, tokens)
    whole = len(file.pages) == file.count
    await _saw(found, content, ctx, "full" if whole else "range")
    for note in notes:
        ctx.note(note)
    return ReadOutput(type="pdf" if whole else "parts", file=file)


async def _notebook(found: Found, input: ReadInput, ctx: Context) -> ReadOutput:
    if found.stat.st_size > notebook.NOTEBOOK_BYTES:
        hint = "Take a slice of its cells with a shell command such as jq."
        raise picture.too_heavy(found.shown, "notebook", found.stat.st_size, notebook.NOTEBOOK_BYTES, hint)
    content = await ctx.thread(disk.read_content, found.real, found.shown, notebook.NOTEBOOK_BYTES)
    unchanged = await _seen_whole(found, content, input, ctx)
    if unchanged is not None:
        return unchanged
    work = notebook.read_notebook
    file, notes, complete = await ctx.thread(
        work, content.raw, found.path, found.shown, _limits(ctx), input.offset, input.limit
    )
    whole = len(file.cells) == file.totalCells
    extent: Extent = "full" if whole else "range" if complete and _explicit(input) else "partial"
    if file.cells or whole:
        await _saw(found, content, ctx, extent)
    for note in notes:
        ctx.note(note)
    return ReadOutput(type="notebook", file=file)
