"""The access of files outside of checkpoints and tables that have keys or values of their entries.

Such a file is a page, a plan, an export or an archive. Only users who can read the state can read it, and the umask of
the process limits it further. It gets this access after it is written; until then only its owner can read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce

from ttlsnap.checkpoint import layout
from ttlsnap.storage.access import Access, own_access, umask, without_group
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.new_access import newest_file

_LOG = "_delta_log"


def access_outside(sources: Iterable[Directory], replaced: Access | None = None) -> Access:
    """Return the access of a file with entries of checkpoints or tables, or with entries of none.

    Only users may read it who can read each source, and the file that it replaces. Sources that record no access, as in
    an object store, set no limit.
    """
    accesses = [access for files in sources for access in _accesses(files)]
    limited_access = limit(reduce(_common, accesses)) if accesses else None
    if replaced is not None:
        return replaced if limited_access is None else _common(replaced, limited_access)
    return limited_access or own_access(0o666 & ~umask())


def limit(access: Access) -> Access:
    """Return the access of a file outside of the source that has ``access``: its owner can use it, under the umask."""
    return replace(access, mode=(access.mode & 0o666 & ~umask()) | 0o600)


def folder_access(access: Access) -> Access:
    """Return the access of a folder for files that have ``access``: who can read them can list it."""
    return replace(access, mode=access.mode | (access.mode & 0o444) >> 2 | 0o700)


def _accesses(files: Directory) -> Iterator[Access]:
    """Yield the access of the directory, and of the newest file in each folder of its state."""
    top_access = files.effective_access("")
    if top_access is None:
        return
    yield replace(top_access, mode=top_access.mode & 0o666)
    folders = ("", _LOG) if files.stat(_LOG) is not None else _folders_below(files, layout.STATE)
    newest_files = filter(None, each(files, lambda folder: newest_file(files, folder), folders))
    yield from filter(None, each(files, files.effective_access, newest_files))


def _folders_below(files: Directory, path: str) -> Iterator[str]:
    yield path
    for info in files.list(path):
        if info.is_dir:
            yield from _folders_below(files, f"{path}/{info.name}")


def _common(first: Access, second: Access) -> Access:
    """Return an access that gives each user no more than both others do."""
    mode = first.mode & second.mode
    if (first.owner, first.group) == (second.owner, second.group):
        return replace(first, mode=mode)
    return own_access(without_group(mode))
