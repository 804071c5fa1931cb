"""The backups in a folder: copies of checkpoints, each in a folder of its own; and the removal of one."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import Literal

from ttlsnap.amounts import such_files
from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import COPY_MARK, is_copy_fence, read_logs
from ttlsnap.copies.manifest import (
    BEGUN,
    DAMAGED,
    MANIFEST,
    UNFINISHED,
    CopyFacts,
    Manifest,
    read_begun,
    read_manifest,
    write_begun,
)
from ttlsnap.copies.verify import find_others, is_unused
from ttlsnap.documents import Result, in_json
from ttlsnap.errors import RefusedError, TtlsnapError
from ttlsnap.printable import printable, shell_word
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import OWN, Directory, each
from ttlsnap.storage.open import open_directory, open_for_reading
from ttlsnap.storage.trees import stat_files

_MOST_WORDS = 10_000
"""The bytes of what a mark says."""
_CLOCKS_DIFFER_S = 300
"""A time that is later by more than this, in seconds, is that of a wrong clock."""

BackupStatus = Literal["complete", "unfinished", "used", "damaged"]


@dataclass(frozen=True, kw_only=True)
class FoundBackup(Result):
    """A copy of a checkpoint.

    place           its folder
    status          ``complete``; ``unfinished``; ``used``: a query or a run of ttlsnap has worked on it since;
                    ``damaged``: its manifest cannot be read, files are missing, or a later backup has found others,
                    and ``error`` says what is wrong
    batch           the batch that it continues from
    made_at         when it was made
    state_at        the last time at which the checkpoint is known to have had this state
    source          the checkpoint
    query_id        the id of the query in the checkpoint; with ``new_id``, the copy has another one
    last_run        the run that was published there last
    files, bytes    its size, if it is complete or used
    """

    place: str
    status: BackupStatus
    batch: int | None = None
    made_at: str | None = None
    source: str | None = None
    query_id: str | None = None
    new_id: bool = False
    last_run: str | None = None
    state_at: str | None = field(default=None, metadata=in_json(hidden=True))
    files: int | None = None
    bytes: int | None = None
    error: str | None = None

    @property
    def made_at_s(self) -> float | None:
        """When it was made, in seconds since the epoch; None if that is not known, as with a time in the future."""
        return _seconds(self.made_at)

    @property
    def state_at_s(self) -> float | None:
        """The last time at which the checkpoint is known to have had this state, as ``made_at_s``."""
        return _seconds(self.state_at)

    def is_of(self, source: str, query_id: str | None) -> bool:
        """Return whether this may be a copy of the checkpoint ``source``, whose query has this id."""
        is_same_query = query_id is not None and query_id == self.query_id
        return self.status == "damaged" or source == self.source or is_same_query


def find_backups(folder: Directory) -> list[FoundBackup]:
    """Return the copies in the folders of ``folder``, oldest first.

    Folders with something else are left out, and so are links: the folder that one leads to would count twice.
    """
    names = [info.name for info in folder.list("") if info.is_dir and not folder.is_link(info.name)]
    found = list(filter(None, each(folder, lambda name: _find(f"{folder.root}/{name}"), names)))

    return _in_order(found, attrgetter("made_at_s"))


def _in_order(backups: Sequence[FoundBackup], time_of: Callable[[FoundBackup], float | None]) -> list[FoundBackup]:
    """Return the backups by their times, oldest first."""

    def age(backup: FoundBackup) -> tuple[float, int, float, str]:
        batch, moment = backup.batch or 0, time_of(backup)
        if moment is None:  # its batch shows that it is later than these
            own = [other for other in backups if (other.source, other.query_id) == (backup.source, backup.query_id)]
            moment = max((time_of(other) or 0 for other in own if (other.batch or 0) <= batch), default=0)
        return moment, batch, backup.made_at_s or 0, backup.place

    return sorted(backups, key=age)


def _seconds(time_text: str | None) -> float | None:
    """Return a time in seconds since the epoch; None if it is not known, or that of a wrong clock."""
    with suppress(ValueError):
        moment = datetime.fromisoformat(time_text or "").timestamp()
        return moment if moment <= time.time() + _CLOCKS_DIFFER_S else None
    return None


def restorable(backups: Iterable[FoundBackup]) -> list[FoundBackup]:
    """Return the complete backups, that of the newest state last. Clones are left out.

    The numbers of batches do not show which is the newest: that of a restore may have been undone. Nor do the times at
    which they were made: a backup can be copied later.
    """
    complete = [backup for backup in backups if backup.status == "complete" and not backup.new_id]
    return _in_order(complete, attrgetter("state_at_s"))


def restore_command(place: str, target: str, *, is_lost: bool = False) -> str:
    """Return the command that restores a checkpoint from a backup. For one that is lost, the user has to say N."""
    last_batch = " --last-batch N" if is_lost else ""
    return f"ttlsnap copy {shell_word(place)} {shell_word(target)} --replace{last_batch} --stopped"


def _find(place: str) -> FoundBackup | None:
    try:
        return _look_at(open_for_reading(place), place)
    except TtlsnapError as error:  # this folder must not hide the others
        return FoundBackup(place=place, status="damaged", error=error.message)


def _look_at(files: Directory, place: str) -> FoundBackup | None:
    begun = read_begun(files)
    if begun is not None:
        logs = read_logs(files)
        is_used = logs.offsets[-1:] > (begun[0].batch,) and not is_copy_fence(logs.fence)
        return _describe(place, "used" if is_used else "unfinished", begun[0])
    manifest = read_manifest(files)
    if manifest is None:
        return None
    if not is_unused(manifest, Runs.read(files), read_logs(files)):
        return _describe(place, "used", manifest.facts, manifest)
    if files.stat(DAMAGED) is not None:
        words = printable(files.read(DAMAGED, _MOST_WORDS).decode("utf-8", "replace").strip())
        return replace(_describe(place, "damaged", manifest.facts, manifest), error=f"{words}. Remove it")
    infos = stat_files(files, manifest.files)
    wrong = [path for path, file in manifest.files.items() if path not in infos or infos[path].size != file.size]
    if wrong:
        what = "is missing, or has another size than the manifest says"
        error = f"{place}/{wrong[0]} {what}{such_files(len(wrong))}"
        return replace(_describe(place, "damaged", manifest.facts, manifest), error=error)
    return _describe(place, "complete", manifest.facts, manifest)


def _describe(place: str, status: BackupStatus, facts: CopyFacts, manifest: Manifest | None = None) -> FoundBackup:
    return FoundBackup(
        place=place,
        status=status,
        batch=facts.batch,
        made_at=facts.made_at,
        source=facts.source,
        query_id=facts.source_query_id,
        new_id=facts.query_id != facts.source_query_id,
        last_run=facts.last_run,
        state_at=facts.state_at,
        files=None if manifest is None else len(manifest.files),
        bytes=None if manifest is None else manifest.size,
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
        others = _find_foreign(files, manifest)
        if others:
            raise RefusedError(
                f"{backup.place}/{others[0]} is not a file of the backup, so this backup was not removed. Move that "
                "file, or remove the backup yourself"
            )
        if manifest is not None:
            write_begun(files, manifest.facts)
            files.replace(
                layout.offset_file(manifest.facts.batch + 1),
                f"{COPY_MARK}; it is an old backup that is being removed\n".encode(),
            )
            files.remove(MANIFEST)
        _remove_all(files, "", but=(layout.OFFSETS, OWN))
    _remove_folder(files, backup)


def _find_foreign(files: Directory, manifest: Manifest | None) -> list[str]:
    """Return the files that are none of the backup. An unfinished one can have more files than it has recorded."""
    if manifest is not None:
        fence = layout.offset_file(manifest.facts.batch + 1)
        return [path for path in find_others(files, manifest.files) if path != fence]
    begun = read_begun(files)
    metadata = (layout.METADATA, *layout.checksum_files(layout.METADATA))
    others = find_others(files, begun[1] if begun is not None else {})
    return [path for path in others if path not in metadata and path.split("/")[0] not in layout.CONTENT]


def _remove_folder(files: Directory, backup: FoundBackup) -> None:
    """Remove what is left of an unfinished copy: its fences, and last its record, so that the next run finds the rest.

    An attempt for a later batch may have left a fence, too. The newest file in the log of offsets is always a fence.
    """
    for path in (UNFINISHED, BEGUN):
        _remove_all(files, posixpath.dirname(path), but=(posixpath.basename(path),))
    for info in sorted(files.list(layout.OFFSETS), key=lambda info: layout.number_of_log(info.name)):
        files.remove(f"{layout.OFFSETS}/{info.name}")
    files.remove_tree(layout.OFFSETS)
    folder, _, name = backup.place.rpartition("/")
    open_directory(folder).remove_tree(name)


def _remove_all(files: Directory, path: str, but: tuple[str, ...]) -> None:
    """Remove what is in the folder ``path``. No link in it is followed to the outside."""
    for info in files.list(path):
        if info.name not in but:
            (files.remove_tree if info.is_dir else files.remove)(f"{path}/{info.name}".lstrip("/"))
