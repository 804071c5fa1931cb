"""Snapshots of a batch that was withdrawn and then ran again.

To withdraw bad input, people delete the logs of the last batches, correct the input, and start the query. Spark runs
the batches again and replaces their deltas (or changelogs). It does not replace a snapshot of such a version. The query
is correct until it restarts, and then loads the withdrawn snapshot: Spark prefers a snapshot to a delta.

Spark writes a snapshot after the delta of its version. So a snapshot that is older than this delta is *doubtful*. It
may also be right: a batch ran again after a crash, or a copy of the checkpoint did not keep the times of files. The
content decides. A doubtful snapshot is *stale* if the older files and the deltas give another state.

In one case Spark writes a zip just before the changelog: when a column family is new. So a zip is doubtful only if it
is also older than the offsets of its batch, which Spark writes first, or older than the changelog by a minute.

Snapshots with an id in their names (checkpoint format 2) are never stale, because the commit log names the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ttlsnap.checkpoint import layout
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.storage.directory import Directory, FileInfo, hide_files

if TYPE_CHECKING:
    from ttlsnap.stores.protocols import StateStore

# The most time between the zip and the changelog of one commit, when the zip comes first.
_SAME_COMMIT_NS = 60 * 10**9


@dataclass(frozen=True)
class DoubtfulSnapshot:
    """A snapshot of ``version`` in a partition's ``folder``, and the ``delta`` of this version, which is newer."""

    folder: str
    version: int
    path: str
    delta: str

    def __str__(self) -> str:
        return f"{self.path} is older than {self.delta.rpartition('/')[2]}"

    def explain(self) -> str:
        """Return the sentence about a stale snapshot."""
        return (
            f"{self}, and has another state than the older files and the {self.delta.rpartition('.')[2]}s: batch "
            f"{self.version - 1} was withdrawn and ran again. Spark loads the withdrawn state when the query restarts"
        )


@dataclass(frozen=True)
class DoubtfulSnapshots:
    """The doubtful snapshots of a partition, newest first.

    ``stale`` and ``right`` ones were compared. For ``unknown`` ones, the older files are incomplete.
    """

    stale: tuple[DoubtfulSnapshot, ...] = ()
    right: tuple[DoubtfulSnapshot, ...] = ()
    unknown: tuple[DoubtfulSnapshot, ...] = ()


def find_doubtful(listing: Mapping[str, FileInfo], version: int) -> list[DoubtfulSnapshot]:
    """Return the doubtful snapshots in a listing from which Spark would load ``version``, one for each folder at most.

    ``listing`` has files by their paths, such as those of ``list_activity``: state files and offsets.
    """
    newest: dict[str, tuple[int, str]] = {}
    for path, number in _snapshots(listing):
        if number <= version:
            folder = path.rpartition("/")[0]
            newest[folder] = max(newest.get(folder, (0, "")), (number, path))
    judged_snapshots = (_doubtful(listing, path, number) for _, (number, path) in sorted(newest.items()))
    return [doubtful for doubtful in judged_snapshots if doubtful is not None]


def find_early(listing: Mapping[str, FileInfo], begun: int) -> list[str]:
    """Return the snapshots of versions after that of the newest batch that has ``begun``.

    When a batch is withdrawn, they remain. Spark does not replace them when the batch runs again, and later loads them.
    """
    return [path for path, version in _snapshots(listing) if version > begun + 1]


def has_doubtful(files: Directory, folder: str) -> bool:
    """Return whether a partition's folder has a doubtful snapshot of any version."""
    listing = _list(files, folder)
    return any(_doubtful(listing, *snapshot) for snapshot in _snapshots(listing))


def _list(files: Directory, folder: str) -> Mapping[str, FileInfo]:
    return {
        f"{folder_listed}/{info.name}": info
        for folder_listed in (folder, layout.OFFSETS)
        for info in files.list(folder_listed)
    }


def _snapshots(listing: Mapping[str, FileInfo]) -> Iterator[tuple[str, int]]:
    """Yield the paths and versions of snapshots without an id."""
    for path in listing:
        name = layout.parse_state_file(path.rpartition("/")[2]) if path.startswith(f"{layout.STATE}/") else None
        if name is not None and name.kind in layout.SNAPSHOTS and name.unique_id is None:
            yield path, name.version


def _doubtful(listing: Mapping[str, FileInfo], path: str, version: int) -> DoubtfulSnapshot | None:
    delta = layout.delta_beside(path)
    if delta is None or delta not in listing:
        return None
    offsets = listing.get(layout.offset_file(version - 1))
    if not _is_doubtful(listing[path], listing[delta], offsets):
        return None
    return DoubtfulSnapshot(path.rpartition("/")[0], version, path, delta)


def _is_doubtful(snapshot: FileInfo, delta: FileInfo, offsets: FileInfo | None) -> bool:
    delay_ns = delta.mtime_ns - snapshot.mtime_ns
    # Spark writes a snapshot from a state that has its delta already (HDFSBackedStateStoreProvider.doSnapshot and
    # commitUpdates), so an older snapshot is from an earlier run of the batch.
    if delay_ns <= 0 or delta.name.endswith(".delta"):
        return delay_ns > 0
    return delay_ns > _SAME_COMMIT_NS or (offsets is not None and offsets.mtime_ns > snapshot.mtime_ns)


def judge_snapshots(
    files: Directory,
    state_store: StateStore,
    folder: str,
    version: int,
    trusted: Collection[str] = (),
    scratch: str | None = None,
) -> DoubtfulSnapshots:
    """Return what is known of the doubtful snapshots from which Spark would load ``version`` of a partition.

    The second is the one that Spark would load without the first, and so on. ``trusted`` are paths of snapshots that
    are not doubtful, although the deltas beside them have another state. Only doubtful snapshots are read.

    Raise CorruptionError or UnsupportedError if a doubtful snapshot itself cannot be read.
    """
    listing = _list(files, folder)
    doubtful_snapshots: list[DoubtfulSnapshot] = []
    while newest_doubtful := find_doubtful(listing, version):
        (doubtful,) = newest_doubtful
        if doubtful.path in trusted:
            break
        doubtful_snapshots.append(doubtful)
        version = doubtful.version - 1
    # The oldest one is first: a newer one is compared with what the older files give without the stale ones.
    verdict = DoubtfulSnapshots()
    for doubtful in reversed(doubtful_snapshots):
        stale_paths = {stale_snapshot.path for stale_snapshot in verdict.stale}
        is_same = _is_same(files, state_store, doubtful, stale_paths, scratch)
        if is_same:
            verdict = DoubtfulSnapshots(right=(doubtful,))  # Spark loads this one, and none of the older ones
        elif is_same is None or verdict.unknown:
            verdict = replace(verdict, unknown=(doubtful, *verdict.unknown))
        else:
            verdict = replace(verdict, stale=(doubtful, *verdict.stale))
    return verdict


def _is_same(
    files: Directory,
    state_store: StateStore,
    doubtful: DoubtfulSnapshot,
    stale_paths: Collection[str],
    scratch: str | None,
) -> bool | None:
    """Return whether a snapshot has the state that older files and deltas give; None if these are incomplete."""
    from ttlsnap.stores.digest import digest_of_state  # it needs NumPy, which a look at the files does not

    lineage_with = state_store.find(files, doubtful.folder, doubtful.version)
    digest = digest_of_state(files, state_store, lineage_with, scratch)
    files_without = hide_files(files, {doubtful.path, *stale_paths})
    with contextlib.suppress(CorruptionError, UnsupportedError):
        lineage_without = state_store.find(files_without, doubtful.folder, doubtful.version)
        return digest_of_state(files_without, state_store, lineage_without, scratch) == digest
    return None
