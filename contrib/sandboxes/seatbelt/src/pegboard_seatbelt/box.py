"""A box for the processes of one call on macOS: the plan of what it must hold, as a profile of the system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pegboard.errors import Code, Refusal
from pegboard.floors import names
from pegboard.sandbox import Need
from pegboard_boxes.addresses import AllowList
from pegboard_boxes.box import CallBox

from pegboard_seatbelt.confinement import PROGRAM
from pegboard_seatbelt.profile import Terms, profile

if TYPE_CHECKING:
    from pegboard_boxes.plan import Plan
    from pegboard_boxes.proxy import Guest

    from pegboard_seatbelt.confinement import Seatbelt

SPARED = (".git", "git~1")
"""Protected names that work goes on in; what decides about programs in them is locked by path."""


class ProfileBox(CallBox):
    """A box of the system's sandbox."""

    def __init__(self, shared: Seatbelt, need: Need, level: str) -> None:
        super().__init__(shared, need)
        self.level = level
        self._proxy = shared.proxy
        self._guest: Guest | None = None
        if self._proxy is not None:
            self._guest = self._proxy.welcome(AllowList(need.hosts, need.refused_hosts))

    def wrap(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """The command and environment that start ``argv`` inside. Raises `Refusal` for a path no profile can name."""
        try:
            text = profile(self.terms(self._make_plan()))
        except ValueError as error:
            raise Refusal(
                Code.SANDBOX_REFUSED, f"The sandbox cannot be set up: {error}. Nothing was started."
            ) from None
        port = self._proxy.port if self._proxy is not None else 0
        return [PROGRAM, "-p", text, *argv], self._environment(env, self._proxied(self._guest, port))

    def terms(self, plan: Plan) -> Terms:
        """What the profile of a plan says. Names are locked at any depth, also where nothing bears them yet."""
        known = names()
        return Terms(
            writable=(*plan.writable, self._premises.tmp),
            locked=(*plan.locked, *plan.ghosts),
            locked_names=tuple(sorted((known.folders | known.files) - set(SPARED))),
            opened=(*plan.opened, *(path for path in map(str, self._need.writable) if path in plan.writable)),
            hidden=tuple(sorted(plan.hidden)),
            port=self._proxy.port if self._proxy is not None else 0,
        )

    def signal(self, pid: int, number: int) -> bool:
        """No way of its own is needed: the command is in the group that was started."""
        return False

    def ended(self) -> None:
        """Nothing was made for a process."""

    def _refuses_writes(self, sign: str) -> bool:
        return True

    def violations(self, output: str) -> list[str]:
        """Refused hosts by the proxy's record, then refused files by what the output tells."""
        return [*map(str, self._guest.denials if self._guest is not None else ()), *super().violations(output)]
