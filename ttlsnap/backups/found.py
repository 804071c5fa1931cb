"""The backups in a folder: copies of checkpoints, each in a folder of its own; and the removal of one."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Literal

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import COPY_MARK, read_logs
from ttlsnap.copies.manifest import BEGUN, MANIFEST, UNFINISHED, CopyFacts, read_begun, read_manifest, write_begun
from ttlsnap.copies.verify import find_others, is_unused
from ttlsnap.documents import Result
from ttlsnap.errors import CorruptionError, RefusedError
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import OWN, Directory, each
from ttlsnap.storage.open import open_directory, open_for_reading

BackupStatus = Literal["complete", "unfinished", "used", "damaged"]


@dataclass(frozen=True, kw_only=True)
class FoundBackup(Result):
    """A copy of a checkpoint.

    place           its folder
    status          ``complete``; ``unfinished``; ``used``: a query or a run of ttlsnap has worked on it since;
                    ``damaged``: its manifest cannot be read, and ``error`` says why
    batch           the batch that it continues from
    made_at         when it was made
    source          the checkpoint
    query_id        the id of the query in the checkpoint
    files, bytes    its size, if it is complete or used
    """

    place: str
    status: BackupStatus
    batch: int | None = None
    made_at: str | None = None
    source: str | None = None
    query_id: str | None = None
    files: int | None = None
    bytes: int | None = None
    error: str | None = None

    def is_of(self, source: str, query_id: str | None) -> bool:
        """Return whether this may be a copy of the checkpoint ``source``, whose query has this id."""
        is_same_query = query_id is not None and query_id == self.query_id
        return self.status == "damaged" or source == self.source or is_same_query


def find_backups(folder: Directory) -> list[FoundBackup]:
    """Return the copies in the folders of ``folder``, oldest first. Folders with something else are left out."""
    names = [info.name for info in folder.list("") if info.is_dir]
    found = each(folder, lambda name: _find(f"{folder.root}/{name}"), names)
    return sorted(filter(None, found), key=lambda backup: (backup.made_at or "", backup.batch or 0, backup.place))


def _find(place: str) -> FoundBackup | None:
    files = open_for_reading(place)
    try:
        begun = read_begun(files)
        if begun is not None:
            return _describe(place, "unfinished", begun[0])
        manifest = read_manifest(files)
        if manifest is None:
            return None
        status: BackupStatus = "complete" if is_unused(manifest, Runs.read(files), read_logs(files)) else "used"
    except CorruptionError as error:
        return FoundBackup(place=place, status="damaged", error=error.message)
    return _describe(place, status, manifest.facts, len(manifest.files), manifest.size)


def _describe(
    place: str, status: BackupStatus, facts: CopyFacts, files: int | None = None, size: int | None = None
) -> FoundBackup:
    return FoundBackup(
        place=place,
        status=status,
        batch=facts.batch,
        made_at=facts.made_at,
        source=facts.source,
        query_id=facts.source_query_id,
        files=files,
        bytes=size,
    )


def remove_backup(backup: FoundBackup) -> None:
    """Remove a backup, which is complete or unfinished, and that nobody has used.

    It becomes an unfinished copy first, so that nobody starts a query on what is left after a crash.

    Raise RefusedError if it has changed, or has files that ttlsnap did not write, and BusyError if somebody is making
    it.
    """
    files = open_directory(backup.place)
    if files.root != backup.place:
        raise RefusedError(f"{backup.place} is a symbolic link, so this backup was not removed. Remove it yourself")
    with files.lock():
        if _find(backup.place) != backup:
            raise RefusedError(f"{backup.place} has changed in the meantime, so this backup was not removed")
        manifest = read_manifest(files)
        if manifest is not None:
            fence = layout.offset_file(manifest.facts.batch + 1)
            others = [path for path in find_others(files, manifest.files) if path != fence]
            if others:
                raise RefusedError(
                    f"{backup.place}/{others[0]} is not a file of the backup, so this backup was not removed. Move "
                    "that file, or remove the backup yourself"
                )
            write_begun(files, manifest.facts)
            files.replace(fence, f"{COPY_MARK}; it is an old backup that is being removed\n".encode())
            files.remove(MANIFEST)
    _remove_folder(open_directory(backup.place.rpartition("/")[0]), backup)


def _remove_folder(folder: Directory, backup: FoundBackup) -> None:
    """Remove the folder of an unfinished copy. Its fence and its record go last: the next run then finds the rest."""
    name = posixpath.basename(backup.place)
    fence = layout.offset_file((backup.batch or 0) + 1)
    _remove_all(folder, name, but=(layout.OFFSETS, OWN))
    for path in (fence, UNFINISHED, BEGUN):
        _remove_all(folder, f"{name}/{posixpath.dirname(path)}", but=(posixpath.basename(path),))
    folder.remove_tree(f"{name}/{layout.OFFSETS}")
    folder.remove_tree(name)


def _remove_all(folder: Directory, path: str, but: tuple[str, ...]) -> None:
    for info in folder.list(path):
        if info.name not in but:
            (folder.remove_tree if info.is_dir else folder.remove)(f"{path}/{info.name}")
