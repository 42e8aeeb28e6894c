"""Installing plug-ins for one user: each into a folder of its own, looked at before it may run.

A wheel is unpacked and a folder is copied; nothing of either is executed, and nothing lands in the environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.cli.plugin_make import copy_tree
from pegboard.errors import PolicyError, UsageError

if TYPE_CHECKING:
    from pegboard.places import Places
    from pegboard.settings import Settings


def refuse_source(spec: str, settings: Settings) -> None:
    """Raise `PolicyError` when managed policy does not let plug-ins be installed from there. Asked before anything."""
    from fnmatch import fnmatchcase

    counted = [entry for entry in settings.entries("plugins.allow_sources") if not entry.why_not]
    if not counted:
        return
    allowed = settings.value("plugins.allow_sources")
    named = {spec, os.path.realpath(spec)} if os.path.exists(spec) else {spec}
    if not any(fnmatchcase(name, pattern) for name in named for pattern in allowed):
        place = counted[0].source
        raise PolicyError(f"Managed policy does not let plug-ins be installed from {spec} ({place}).")


@contextmanager
def staged(spec: str, places: Places) -> Iterator[Path]:
    """The plug-in in a folder beside its future place; removed again unless it was moved away."""
    home = places.user_dir / "plugins"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = home / f".incoming-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        if spec.endswith(".whl") and os.path.isfile(spec):
            unpack(Path(spec), folder)
        elif os.path.isdir(spec):
            copy_tree(Path(spec), folder)
        elif os.path.exists(spec):
            raise UsageError(f"{spec} is neither a wheel nor a folder.")
        else:
            download(spec, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def unpack(wheel: Path, folder: Path) -> None:
    """Unpack a wheel's modules and metadata. Raises `UsageError` for an archive that would write elsewhere."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                parts = Path(info.filename).parts
                if Path(info.filename).is_absolute() or ".." in parts or "\\" in info.filename:
                    raise UsageError(
                        f"{wheel} would write outside its folder ({info.filename}). Nothing was installed."
                    )
            archive.extractall(folder)
    except (zipfile.BadZipFile, OSError) as error:
        raise UsageError(f"{wheel} cannot be unpacked: {error}") from None
    for data in folder.glob("*.data"):
        for kind in ("purelib", "platlib"):
            if (data / kind).is_dir():
                shutil.copytree(data / kind, folder, dirs_exist_ok=True)
        shutil.rmtree(data)


def download(spec: str, folder: Path) -> None:
    """Let uv or pip fetch a wheel by name or address. Source archives are refused: building one runs its code."""
    if spec.startswith("-"):
        raise UsageError(f"{spec} is no package.")
    options = ["--target", str(folder), "--no-deps", "--only-binary", ":all:", spec]
    uv = shutil.which("uv")
    if uv is not None:
        argv = [uv, "pip", "install", "--quiet", "--python", sys.executable, *options]
    else:
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", *options]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UsageError(f"{spec} could not be fetched: {lines[-1] if lines else f'exit code {done.returncode}'}")


def missing(folder: Path) -> list[str]:
    """Requirements of the unpacked packages that neither the environment nor the folder meets, by name."""
    from importlib.metadata import PackageNotFoundError, distribution, distributions

    from pegboard.names import normal

    inside = list(distributions(path=[str(folder)]))
    here = {normal(one.name) for one in inside}
    found: list[str] = []
    for requirement in [line for one in inside for line in one.requires or ()] + _project_requires(folder):
        if "extra ==" in requirement:
            continue
        name = normal(requirement.split(";")[0].split("[")[0].translate(_STOPS).split()[0])
        try:
            if name not in here:
                distribution(name)
        except PackageNotFoundError:
            found.append(requirement)
    return found


_STOPS = {ord(char): " " for char in "<>=!~ (@"}


def _project_requires(folder: Path) -> list[str]:
    import tomllib

    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8")).get("project", {})
        return [str(line) for line in project.get("dependencies", ())]
    except (OSError, ValueError):
        return []
