"""Import from plug-in folders that were approved by digest: what was looked at is what runs.

A compiled file beside a source file is run in its place, and one can be made that Python never checks; a link leads to
files that nobody looked at. So below such a folder modules are compiled from their source, and links must not lead out.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

_roots: list[str] = []


class SourceOnly(SourceFileLoader):
    """Loads a module from its source; compiled files are neither read nor written."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class Sealed(FileFinder):
    """Finds modules in one folder of an approved plug-in, as long as their files lie in the plug-in."""

    def __init__(self, path: str, root: str) -> None:
        super().__init__(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceOnly, [".py"]))
        self._root = root

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module, or None when it is not here or lies outside the plug-in."""
        spec = super().find_spec(fullname, target)
        if spec is not None and spec.origin is not None and not inside(spec.origin, self._root):
            return None
        return spec


def inside(path: str, root: str) -> bool:
    """Whether a file lies below a folder, links resolved."""
    return os.path.realpath(path).startswith(os.path.realpath(root) + os.sep)


def _hook(path: str) -> Sealed:
    for root in _roots:
        if path == root or path.startswith(root + os.sep):
            return Sealed(path, root)
    raise ImportError(path)


def roots() -> list[str]:
    """Plug-in folders that code may come from in this process."""
    return list(_roots)


def open_folder(root: str, paths: tuple[str, ...]) -> None:
    """Append the folders ``paths`` of the plug-in folder ``root`` to the import path. Only the loader calls this.

    At the end, so that nothing there can stand in for a module of the environment.
    """
    if _hook not in sys.path_hooks:
        sys.path_hooks.insert(0, _hook)
    if root not in _roots:
        _roots.append(root)
    for path in paths:
        sys.path_importer_cache.pop(path, None)
        if path not in sys.path:
            sys.path.append(path)
