"""The files that commands write beside their result: where they may be."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ttlsnap.cli.output import is_special
from ttlsnap.errors import UsageError

Output = tuple[str, Path]
"""An option with the file that it names."""
_STATE = ("offsets", "commits", "state", "_delta_log")


def require_files(
    outputs: Iterable[Output], inputs: Iterable[str] = (), targets: Iterable[str] = (), output: str | None = None
) -> None:
    """Raise UsageError for a file that a command must not write, before it does anything.

    These are files in a folder that does not exist, in one of the ``targets`` or in the new checkpoint ``output``. They
    are also the ``inputs`` of the command, and a file that two options name. ``inputs`` may have other names, too.
    """
    earlier: list[Output] = []
    targets, inputs = list(targets), list(inputs)
    for option, path in outputs:
        _require_place(path, option)
        _require_outside(path, option, targets, output)
        if is_special(path):
            continue
        for name in inputs:
            if _is_same(path, name):
                raise UsageError(f"{option} would replace {name}, which this command reads. Name another file")
        for other_option, other_path in earlier:
            if _is_same(path, other_path):
                raise UsageError(f"{other_option} and {option} have the same file, {path.resolve()}; give each its own")
        earlier.append((option, path))


def files_of_functions(document: object, folder: str = "") -> Iterator[str]:
    """Yield the file in ``folder`` of each ``module:function`` in a text, or in the texts of a document.

    Some may not exist, because the module is elsewhere.
    """
    from ttlsnap.transformers.registry import is_function

    if isinstance(document, str) and is_function(document):
        yield str(Path(folder, f"{document.partition(':')[0].replace('.', os.sep)}.py"))
    elif isinstance(document, Mapping):
        yield from files_of_functions(list(document.values()), folder)
    elif isinstance(document, list):
        for part in document:
            yield from files_of_functions(part, folder)


def _is_same(path: Path, other: str | Path) -> bool:
    """Return whether two paths are the same file, also through links, or would be."""
    try:
        return path.resolve() == Path(other).resolve() or path.samefile(other)
    except (OSError, ValueError):  # one does not exist, or cannot be a path
        return False


def _require_place(path: Path, option: str) -> None:
    """Raise UsageError if a path cannot be a file, or is in a folder that does not exist."""
    try:
        is_folder = path.is_dir()
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # such as a name that is too long
        raise UsageError(f"{option}: this cannot be a file: {error}") from error
    if is_folder:
        raise UsageError(f"{option}: {path} is a folder; name a file")
    if not path.parent.is_dir():
        raise UsageError(f"{option}: there is no folder {path.parent}; make it first")


def _require_outside(path: Path, option: str, targets: Iterable[str], output: str | None) -> None:
    """Raise UsageError if a file would be in a checkpoint or a table, also in a damaged target or in ``output``."""
    from ttlsnap.checkpoint.recognize import find_owner
    from ttlsnap.storage.open import open_local
    from ttlsnap.storage.uris import is_local

    place, owner = path.resolve(), find_owner(path)
    enclosing_target = None if owner is None else str(owner)
    for target in filter(is_local, targets):
        root = Path(open_local(target).root)
        if place.is_relative_to(root) and any((root / name).is_dir() for name in _STATE):
            enclosing_target = target
    if output is not None and is_local(output) and place.is_relative_to(Path(open_local(output).root).resolve()):
        enclosing_target = output
    if enclosing_target is not None:
        raise UsageError(f"{option} is inside {enclosing_target}, whose files ttlsnap must not mix with others")
