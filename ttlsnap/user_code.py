"""Modules of the user's in a folder that is not installed: the current folder, or that of a policy.

Such a folder may be a checkpoint, whose files must never run. On ``sys.path`` it would answer every import that finds
nothing else, for example that of an optional package. So a module in it is found only if the user named it, as in
``--transformer module:attribute``, or if such a module imports it. Whatever is installed has precedence.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType

Found = tuple[tuple[str, tuple[str, ...]], ...]
"""Folders, and the modules that were found in each."""

_named: set[str] = set()  # what may be found in a folder
_imported: set[str] = set()


class _FolderFinder(MetaPathFinder):
    """Finds modules in one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.found: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See ``MetaPathFinder``. Python itself finds what is in a package."""
        if path is not None or not (fullname in _named or _importer() in self.found):
            return None
        spec = PathFinder.find_spec(fullname, [self.folder])
        if spec is not None:
            self.found.add(fullname)
        return spec


def search_in(folder: str) -> None:
    """Let the user name modules in a folder."""
    folder = os.path.abspath(folder)  # noqa: PTH100 - a path that is not text stays as it is
    if folder not in (finder.folder for finder in _finders()):
        sys.meta_path.append(_FolderFinder(folder))


def search_in_current_folder() -> None:
    """Let the user name modules in the current folder. Installed modules have precedence."""
    with suppress(FileNotFoundError):  # somebody has removed the current folder
        search_in(os.curdir)


def import_named(module: str) -> ModuleType:
    """Import a module that the user named. That runs its author's code."""
    _named.add(module.partition(".")[0])
    found = importlib.import_module(module)
    _imported.add(module)
    return found


def find_names(module: str) -> frozenset[str] | None:
    """Return the names that the source of a module binds, without running it. None if that is unknown.

    Raise ModuleNotFoundError if there is no such module. To find one in a package, Python runs the package.
    """
    _named.add(module.partition(".")[0])
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    try:
        nodes = list(ast.walk(ast.parse(Path(spec.origin).read_bytes())))
    except (OSError, SyntaxError, ValueError):
        return None  # the import explains it
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return None if names & {"*", "__getattr__", "globals", "exec", "setattr"} else frozenset(names)


def list_named() -> Sequence[str]:
    """Return the full names of the modules that the user named."""
    return sorted(_imported)


def list_found() -> Found:
    """Return what a worker of Spark needs to load objects of the user's; see ``find_again``.

    A module that was only looked for (``find_names``), or whose import failed, is not among it.
    """
    return tuple((finder.folder, tuple(sorted(finder.found & sys.modules.keys()))) for finder in _finders())


def list_unknown_elsewhere() -> list[str]:
    """Return the imported top-level modules that a new Python process would not find.

    They are in folders that only this process has on its path, as the current folder in ``python -m pytest``, or the
    folder of a test.
    """
    command = [sys.executable, "-P", "-c", "import sys; print(*sys.path, sep='\\0', end='')"]
    paths = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    own_folders = {os.path.abspath(path) for path in sys.path} - {os.path.abspath(path) for path in paths}  # noqa: PTH100
    return [
        name
        for name, module in list(sys.modules.items())
        if "." not in name and name != "__main__" and _folder_of(module) in own_folders
    ]


def _folder_of(module: ModuleType) -> str | None:
    """Return the folder on the path in which a top-level module is; None if it has no file."""
    places = [*getattr(module, "__path__", ()), getattr(module, "__file__", None)]
    return os.path.dirname(os.path.abspath(places[0])) if isinstance(places[0], str) else None  # noqa: PTH100, PTH120


def find_again(found: Found) -> None:
    """Find the same modules as another process on this machine, before objects of their classes are unpickled."""
    for folder, names in found:
        search_in(folder)
        _named.update(names)


def _finders() -> Iterable[_FolderFinder]:
    return [finder for finder in sys.meta_path if isinstance(finder, _FolderFinder)]


def _importer() -> str:
    """Return the top-level name of the module whose code imports something now."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if name not in ("importlib", "_frozen_importlib", "_frozen_importlib_external"):
            return name
        frame = frame.f_back
    return ""


def place_of_error(error: BaseException) -> str:
    """Return where in the user's code an error was raised, as `` at FILE:LINE``; empty if it was not raised there."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((str(Path(__file__).parent), "<")) and "site-packages" not in file:
            place = f" at {Path(file).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
