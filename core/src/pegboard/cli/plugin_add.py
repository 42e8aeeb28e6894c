"""Installing plug-ins for one user: each into a folder of its own, looked at before it may run.

A wheel is unpacked and a folder is copied; nothing of either is executed, and nothing lands in the environment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.cli.plugin_make import copy_tree
from pegboard.errors import PolicyError, UsageError

if TYPE_CHECKING:
    from pegboard.places import Places
    from pegboard.settings import Settings


_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,. -]+\])?\s*([<>=!~][\w.*+!<>=~, -]*)?")
_WHEEL = re.compile(r"([A-Za-z0-9][\w.-]*\s*@\s*)?https?://[^\s?#]+\.whl(#\S*)?")
_AT_EVERY_START = frozenset(("sitecustomize", "usercustomize", "pegboard"))
_NOBODYS = frozenset(("test", "tests"))
"""Top-level folders that many packages leave lying about; nothing is imported under these names."""


def refuse_source(spec: str, settings: Settings) -> None:
    """Refuse a source before anything is fetched or unpacked.

    Raises `PolicyError` for what managed policy does not list, and `UsageError` for a source that runs code while it is
    installed: a repository, a source archive, a command.
    """
    from fnmatch import fnmatchcase

    if "user" not in settings.value("plugins.sources"):
        raise PolicyError(
            "Plug-ins of your own are switched off here (plugins.sources has no user), so none can be installed; "
            "peg settings explain plugins.sources says where."
        )
    here = os.path.exists(spec)
    counted = [entry for entry in settings.entries("plugins.allow_sources") if not entry.why_not]
    if counted:
        # What is there counts by where it really is: neither dots nor links lead into an allowed folder.
        name = os.path.realpath(spec) if here else spec
        listed = [str(pattern) for pattern in settings.value("plugins.allow_sources")]
        real = [os.path.realpath(pattern) for pattern in listed if os.path.isabs(pattern)]
        if not any(fnmatchcase(name, pattern) and _same_host(name, pattern) for pattern in (*listed, *real)):
            place = counted[0].source
            raise PolicyError(f"Managed policy does not let plug-ins be installed from {spec} ({place}).")
    if not here and not (_PACKAGE.fullmatch(spec) or _WHEEL.fullmatch(spec)):
        raise UsageError(
            f"{spec} is no wheel, folder, package name or address of a wheel. Repositories, source archives and "
            "commands are not taken: installing them runs their code. Build a wheel of it, and look at that."
        )


def _same_host(name: str, pattern: str) -> bool:
    """Whether a wildcard stayed inside its part of an address: hosts are compared by themselves, dots lead nowhere."""
    from fnmatch import fnmatchcase
    from urllib.parse import unquote, urlsplit

    if "://" not in pattern:
        return "://" not in name
    try:
        given, wanted = urlsplit(name.partition("@ ")[2] or name), urlsplit(pattern.partition("@ ")[2] or pattern)
    except ValueError:
        return False
    return fnmatchcase(given.netloc, wanted.netloc) and ".." not in unquote(given.path).split("/")


def refuse_contents(folder: Path) -> None:
    """Raise `UsageError` for files that take effect beyond the plug-in: at every start of Python, or for others.

    Looks at what would lie on the import path, by name; nothing is imported.
    """
    for place in (folder, folder / "src"):
        names = sorted(os.listdir(place)) if place.is_dir() else []
        for name in names:
            if name.lower().endswith(".pth"):
                raise UsageError(f"It carries {name}, which Python runs at every start. Nothing was installed.")
        for name in _tops(place, names):
            if owner := _owner(name):
                raise UsageError(f"It carries the module {name}, which belongs to {owner}. Nothing was installed.")


def _tops(place: Path, names: list[str]) -> Iterator[str]:
    """Modules and packages that lie directly in a folder."""
    from importlib.machinery import all_suffixes

    suffixes = tuple(all_suffixes())
    for name in names:
        inside = os.listdir(place / name) if (place / name).is_dir() else [name]
        code = [one for one in inside if one.endswith(suffixes) and (one == name or one.startswith("__init__."))]
        if code and (top := name.partition(".")[0]).isidentifier() and top not in _NOBODYS:
            yield top


def _owner(top: str) -> str:
    """Who has a top-level module of this name already: Python, pegboard or an installed distribution; empty: nobody."""
    if top in sys.stdlib_module_names or top in _AT_EVERY_START:
        return "pegboard" if top == "pegboard" else "Python"
    return _installed().get(top, "")


@lru_cache(maxsize=1)
def _installed() -> dict[str, str]:
    """Top-level modules of the environment and their distributions; editable ones by their source trees."""
    import json
    from importlib.metadata import distributions, packages_distributions
    from urllib.parse import unquote, urlsplit

    found = {top: owners[0] for top, owners in packages_distributions().items()}
    for one in distributions():
        origin = json.loads(one.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            tree = Path(unquote(urlsplit(origin["url"]).path))
            place = tree / "src" if (tree / "src").is_dir() else tree
            if place.is_dir():
                found |= dict.fromkeys(_tops(place, os.listdir(place)), one.name)
    return found


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
    options = ["--target", str(folder), "--no-deps", "--only-binary", ":all:", spec]
    uv = shutil.which("uv")
    if uv is not None:
        argv = [uv, "pip", "install", "--quiet", "--python", sys.executable, *options]
    else:
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", *options]
    # Beside the future place: settings of the current directory must not name another index.
    done = subprocess.run(argv, cwd=folder.parent, stdin=subprocess.DEVNULL, capture_output=True, check=False)
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
