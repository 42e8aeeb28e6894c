"""Where plug-ins lie: packages of the environment, plug-in folders of the machine, the user and the project.

The order and the exclusions are what keeps a repository from adding code by merely being the current directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard import sealed
from pegboard.candidate import Candidate, Origin
from pegboard.errors import UsageError
from pegboard.scan import Index, Shelf, archived, candidates, plugin_shelf

if TYPE_CHECKING:
    from pegboard.places import Places
    from pegboard.trust import Trust


APPROVAL = "plugin"
"""What approvals of plug-ins are filed under."""


def everything(places: Places, plugin_dirs: Sequence[Path], paths: Sequence[str], index: Index) -> list[Candidate]:
    """Every candidate of these places, as data. ``paths``: the import path."""
    shelf = Shelf(_environment(paths, places), index)
    found = list(candidates(shelf, index, Origin.PACKAGE))
    if shelf.archives:
        found += archived(shelf.archives)
    for origin, folder in _plugin_folders(places, plugin_dirs):
        found += candidates(plugin_shelf(folder, index), index, origin, root=folder)
    return found


def digest(candidate: Candidate) -> str:
    """Digest over the files of a candidate: its plug-in folder, or its import package in the environment."""
    from pegboard.trust import digest_folder

    try:
        return digest_folder(files_of(candidate))
    except OSError as error:
        return f"unreadable: {error}"


def approved_digest(trust: Trust, candidate: Candidate) -> str | None:
    """The digest that was approved for a candidate, or None."""
    if candidate.origin is Origin.BUNDLED:
        return None
    return trust.approved(APPROVAL, candidate.distribution, where=candidate.root)


def files_of(candidate: Candidate) -> Path:
    """The folder that an approval covers."""
    if candidate.root:
        return Path(candidate.root)
    top = candidate.entry.partition(":")[0].partition(".")[0].strip()
    folder = Path(candidate.folder)
    return next((one for one in (folder, *folder.parents) if one.name == top), folder)


def _environment(paths: Sequence[str], places: Places) -> Iterator[str]:
    """Import folders that belong to the environment: not where somebody happens to stand, and no plug-in folder."""
    here = {str(places.cwd), str(places.root)}
    apart = [*sealed.roots(), *(str(folder) for _, folder in homes(places))]
    for path in paths:
        if not path or not os.path.isabs(path):
            continue
        real = os.path.realpath(path)
        if real not in here and not any(real == root or real.startswith(root + os.sep) for root in apart):
            yield path


def homes(places: Places) -> tuple[tuple[Origin, Path], ...]:
    """Folders that hold plug-in folders, with the origin that they give."""
    return (
        (Origin.MANAGED, places.managed_dir / "plugins"),
        (Origin.USER, places.user_dir / "plugins"),
        (Origin.PROJECT, places.project_dir / "plugins"),
    )


def _plugin_folders(places: Places, plugin_dirs: Sequence[Path]) -> Iterator[tuple[Origin, str]]:
    for folder in plugin_dirs:
        if not os.path.isdir(folder):
            raise UsageError(f"--plugin-dir {folder} is no folder.")
        yield Origin.FLAG, os.path.realpath(folder)
    for origin, home in homes(places):
        try:
            names = sorted(os.listdir(home))
        except OSError:
            continue
        for name in names:
            path = os.path.join(home, name)
            if not name.startswith(".") and os.path.isdir(path):
                yield origin, os.path.realpath(path)
