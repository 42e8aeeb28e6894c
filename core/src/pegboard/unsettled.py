"""Remote targets whose last change may or may not have happened: no call acts on them before somebody looked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pegboard.errors import Code, Refusal

if TYPE_CHECKING:
    from pegboard.loader import Found
    from pegboard.tool import Access, Context, Tool


async def settle(
    targets: dict[str, str], found: Found, accesses: Sequence[Access], tool: Tool[Any, Any], ctx: Context
) -> list[tuple[str, bool]]:
    """Settle what this call would touch: ask the tool's ``settle``, and take what it knows off the table.

    Returns each settled target and whether its change happened. Raises `Refusal` (unknown_outcome) for one that stays
    unknown. Reading is never held up.
    """
    if not targets or found.manifest.concurrency == "read":
        return []
    known: list[tuple[str, bool]] = []
    for target in [access.target for access in accesses if access.target in targets]:
        ask = getattr(tool, "settle", None)
        happened = await ask(target, ctx) if ask is not None else None
        if happened is None:
            raise Refusal(
                Code.UNKNOWN_OUTCOME,
                f"An earlier call of {targets[target]} may have changed {target}; whether it did is not known, so it "
                "is not repeated blindly.",
                hint="Read the remote object first, or ask the user.",
            )
        del targets[target]
        known.append((target, happened))
    return known


def refuse_repeat(known: Sequence[tuple[str, bool]], name: str) -> None:
    """Refuse the call by which it came out that a change did happen: who made it could not know that.

    It is refused once; the next call acts. Raises `Refusal` (conflict).
    """
    happened = [target for target, it_did in known if it_did]
    if happened:
        raise Refusal(
            Code.CONFLICT,
            f"The earlier change of {', '.join(happened)} did happen, as it turns out now, so this call of {name} was "
            "not run.",
            hint="Nothing has to be repeated. If you want a further change, call again.",
        )
