"""Edit: replace an exact string in one file, and touch no other byte.

All gates run before the permission question and again under the file's lock, right before the write.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pegboard.errors import Code, Refusal
from pegboard.tool import Access, Context, Tool
from pegboard_files import FileHistory, FileViews, disk, gates, names
from pegboard_files.gates import Target
from pegboard_files.patch import hunks
from pegboard_files.text import Text, decode, matches, plain, refuse_halves, substitute

from pegboard_edit.explain import ambiguous, missing
from pegboard_edit.models import EditInput, EditOutput
from pegboard_edit.render import words

ORIGINAL_BYTES = 1024 * 1024
"""[C] Largest content that comes back as ``originalFile``."""


@dataclass(frozen=True)
class Plan:
    """What an edit would do: where in the text of which file. No places: the file is created or filled."""

    target: Target
    places: tuple[int, ...] = ()


class Edit(Tool[EditInput, EditOutput]):
    """Replace an exact string."""

    Input = EditInput
    Output = EditOutput

    async def check(self, input: EditInput, ctx: Context) -> None:
        await _plan(input, ctx)

    def accesses(self, input: EditInput, ctx: Context) -> Iterable[Access]:
        return [Access.edit(path) for path in dict.fromkeys((input.file_path, disk.aim(ctx, input.file_path)))]

    async def run(self, input: EditInput, ctx: Context) -> EditOutput:
        history = await ctx.own(FileHistory)
        async with history.lock(disk.aim(ctx, input.file_path)):
            plan = await _plan(input, ctx)
            before = plan.target.text or Text("", "utf-8")
            data, after = await ctx.thread(_changed, plan, input)
            if plan.target.content is None:
                await history.create(ctx, input.file_path, data, text=after)
            else:
                known = not plan.places
                expected = plan.target.content
                await history.replace(ctx, input.file_path, data, expected=expected, text=after, known=known)
        if plan.target.unseen:
            ctx.note(f"{plan.target.unseen} The edit fitted today's content; look at the rest before you rely on it.")
        patch = await ctx.thread(hunks, before.plain, after.plain)
        small = plan.target.content is not None and len(plan.target.content.raw) <= ORIGINAL_BYTES
        return EditOutput(
            filePath=input.file_path,
            oldString=input.old_string,
            newString=input.new_string,
            originalFile=before.text if small else None,
            structuredPatch=patch,
            replaceAll=input.replace_all,
        )

    def render(self, output: EditOutput, ctx: Context) -> str:
        return words(output, ctx.shown(output.filePath))


async def _plan(input: EditInput, ctx: Context) -> Plan:
    """All gates, in the order of the specification."""
    path, shown = input.file_path, ctx.shown(input.file_path)
    gates.refuse_denied(ctx, path)
    if path.lower().endswith(".ipynb"):
        raise Refusal(Code.INVALID_INPUT, f"{shown} is a notebook.", hint="Change its cells with NotebookEdit.")
    if input.old_string == input.new_string:
        raise Refusal(
            Code.INVALID_INPUT,
            "old_string and new_string are the same, so there is no change to make.",
            hint="If the file is already right, go on; otherwise say what it should become.",
        )
    refuse_halves("old_string", input.old_string)
    refuse_halves("new_string", input.new_string)
    relaxed = ctx.setting("files.gate") == "relaxed"
    target = await gates.open_target(ctx, path, whole=False, relaxed=relaxed)
    if target.content is None:
        if input.old_string:
            raise await ctx.thread(_absent, path, shown, ctx)
        return Plan(target)
    if target.text is None or not target.text.intact:
        kind = "binary data" if target.text is None else "bytes that cannot be decoded"
        raise Refusal(Code.PRECONDITION_FAILED, f"{shown} holds {kind}.", hint="Change it with a shell command.")
    if not input.old_string:
        if target.content.raw:
            raise Refusal(
                Code.INVALID_INPUT,
                f"{shown} exists and is not empty; an empty old_string only creates or fills a file.",
                hint="Name the text to replace, or use Write to replace the whole file.",
            )
        return Plan(target)
    return Plan(target, await _places(input, target, target.text, shown, ctx))


async def _places(input: EditInput, target: Target, text: Text, shown: str, ctx: Context) -> tuple[int, ...]:
    found = await ctx.thread(matches, text, input.old_string)
    if not found:
        views = await ctx.own(FileViews)
        digest = target.content.digest if target.content else ""
        again = views.failed_before(ctx.call_id, target.real, digest, input.old_string, input.new_string)
        raise await ctx.thread(missing, text, input.old_string, input.new_string, shown, again)
    if not input.replace_all:
        if len(found) > 1:
            raise ambiguous(text, input.old_string, found, shown)
        return tuple(found)
    size = len(plain(input.old_string, text.ending))
    apart: list[int] = []
    for place in found:
        if not apart or place >= apart[-1] + size:
            apart.append(place)
    return tuple(apart)


def _absent(path: str, shown: str, ctx: Context) -> Refusal:
    alike = [other for other in names.alike(path) if ctx.denied(Access.edit(other)) is None]
    hint = "An empty old_string creates a file."
    if alike:
        hint = f"A file whose name differs only in Unicode form or quotes exists: {alike[0]!r}."
    return Refusal(Code.NOT_FOUND, f"{shown} does not exist.", hint=hint)


def _changed(plan: Plan, input: EditInput) -> tuple[bytes, Text]:
    """The new bytes and the new text. Raises `Refusal` (invalid_input) when nothing would change."""
    content, text = plan.target.content, plan.target.text
    if content is None or text is None or not plan.places:
        data = input.new_string.encode("utf-8")
        return data, decode(data) or Text(input.new_string, "utf-8")
    data, after = substitute(text, content.raw, input.old_string, input.new_string, list(plan.places))
    if data == content.raw:
        raise Refusal(
            Code.INVALID_INPUT,
            "old_string and new_string differ only in their line ends, which follow the file: there is no change.",
            hint="Convert line ends with a shell command.",
        )
    return data, after
