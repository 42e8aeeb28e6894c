"""A box for the processes of one call, as far as every sandbox makes it alike.

What a box must hold is found out anew for every process, because the tree may have changed since the last one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pegboard.errors import Code, Refusal
from pegboard.paths import inside
from pegboard.sandbox import Need, Planted

from pegboard_boxes.plan import Plan, forget, plan
from pegboard_boxes.planted import Marks, marks, planted
from pegboard_boxes.premises import Premises
from pegboard_boxes.secrets import credentials, environment, sockets
from pegboard_boxes.survey import Kind, View
from pegboard_boxes.violations import of_files

if TYPE_CHECKING:
    from pegboard_boxes.proxy import Guest

LOOPBACK = "localhost,127.0.0.1,::1"

RECENT = 1.0
"""[C] Seconds for which the look of `prepare` serves the first process too."""

OUTSIDE = "it lies outside of what may be written"

STARTERS = ("bwrap: ", "nsenter: ", "sandbox: ", "sandbox-exec: ")
"""How the programs that make boxes begin what they complain about."""


class CallBox:
    """What every box does alike: survey, planted files, refusals, variables."""

    level = "none"
    veiled: tuple[str, ...] = ()
    """Folders of which nothing is seen inside but what is writable."""

    def __init__(self, premises: Premises, need: Need) -> None:
        self._premises = premises
        self._need = need
        self._marks: Marks = {}
        self._plan: Plan | None = None
        self._seen: tuple[float, View] | None = None

    async def prepare(self) -> None:
        """Look at the tree, so that `planted` can tell what is new. Raises `Refusal` when it cannot be seen whole."""
        import anyio.to_thread

        self._marks = await anyio.to_thread.run_sync(self._look_first)

    def _look_first(self) -> Marks:
        _ = self._premises.folder
        view = self._look()
        fresh = {os.path.realpath(root) for root in self._need.roots} - self._premises.looked
        for sight in view.of(Kind.GIT):
            if sight.folder and os.path.dirname(sight.path) in fresh:
                self._premises.born.setdefault(sight.path, os.lstat(sight.path).st_ino)
        for root in fresh:
            forget(root)
        self._premises.looked |= fresh
        if not view.complete and self._need.required and self._need.rule is not None:
            raise Refusal(
                Code.SANDBOX_REFUSED,
                "The working directories are too large to find everything that rules with patterns hide, and a sandbox "
                "is required here (sandbox.required). Nothing was started.",
                hint="Work in a smaller directory, or name what is to be hidden without a pattern.",
            )
        self._seen = (time.monotonic(), view)
        return marks(view)

    def _look(self) -> View:
        need = self._need
        roots = (os.path.realpath(root) for root in need.roots)
        return self._premises.survey.look([*(root for root in roots if root != "/"), *need.watched], need.rule)

    def _make_plan(self) -> Plan:
        need, shared = self._need, self._premises
        secret = (*credentials(need.home, os.environ), *sockets())
        seen, self._seen = self._seen, None
        view = seen[1] if seen is not None and time.monotonic() - seen[0] < RECENT else self._look()
        self._plan = plan(need, view, secret, shared.born, shared.ghosts, self.veiled)
        return self._plan

    def _why(self, path: str, sign: str) -> str:
        """What the box does with a path that a program was refused; empty if it has no hand in it."""
        real = os.path.realpath(os.path.join(self._need.cwd, path))
        made = self._plan
        if made is None:
            return ""
        if inside(real, made.hidden):
            return "it is hidden from processes in the sandbox"
        if self._refuses_writes(sign):
            if inside(real, (*made.locked, *made.ghosts, *made.own)):
                return "it is protected: programs run it by themselves, or a rule locks it"
            if "busy" not in sign.casefold() and not inside(real, (*made.writable, *made.opened, self._premises.tmp)):
                return OUTSIDE
            if "only" in sign and not os.path.isabs(path):
                return OUTSIDE  # the command went to another directory first
        return ""

    def _refuses_writes(self, sign: str) -> bool:
        return "only" in sign or "busy" in sign or sign in ("EROFS", "EBUSY")

    def violations(self, output: str) -> list[str]:
        """Refused file operations that the output tells of, and what kept the box itself from starting."""
        failed = [f"sandbox: {line}" for line in output.splitlines()[:3] if line.startswith(STARTERS)]
        return failed + of_files(output, self._why)

    async def planted(self) -> list[Planted]:
        """Files that run by themselves and are new or other than before the call."""
        import anyio.to_thread

        now = await anyio.to_thread.run_sync(lambda: marks(self._look()))
        return planted(self._marks, now)

    def _environment(self, env: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
        own = {"TMPDIR": self._premises.tmp, "PEG_SANDBOX": self.level, **added}
        return environment(env, self._need.variables, own)

    async def close(self) -> None:
        """Nothing is left behind: what a process needs goes with it, the rest belongs to the session."""

    def _proxied(self, guest: Guest | None, port: int) -> dict[str, str]:
        """The variables by which programs find the proxy."""
        if guest is None:
            return {}
        address = f"http://{guest.word}:x@127.0.0.1:{port}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        proxies = {name: address for both in names for name in (both, both.lower())}
        return {**proxies, "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK, "NODE_USE_ENV_PROXY": "1"}
