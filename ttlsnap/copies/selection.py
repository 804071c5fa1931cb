"""The files of a checkpoint that a copy as of one batch consists of.

A copy has the logs up to the batch, the source logs up to what its offsets name, the state files that the version after
the batch needs, and everything in other folders. It has no newer files: Spark would take an entry of a source's log for
a file that was read already, and a newer snapshot or schema for the current one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from ttlsnap.checkpoint import Checkpoint, layout, open_checkpoint
from ttlsnap.checkpoint.listing import is_temporary, list_activity
from ttlsnap.checkpoint.logs import MicroBatch, batch_start, named_offsets, read_file_logs, read_logs, with_offsets
from ttlsnap.checkpoint.own_paths import own_paths
from ttlsnap.checkpoint.source_logs import (
    SourceLog,
    are_exact,
    check_source_log,
    describe_log_problem,
    describe_missing,
    find_sources,
    list_source_log,
    log_number,
)
from ttlsnap.errors import BusyError, CorruptionError, StorageError, UnsupportedError, UsageError
from ttlsnap.publishing.hidden_batches import refuse_hidden_batches
from ttlsnap.publishing.liveness import has_begun
from ttlsnap.publishing.reading import refuse_shared_folders
from ttlsnap.publishing.runs import Runs, refuse_if_interrupted
from ttlsnap.publishing.stale_snapshots import refuse_stale_snapshots
from ttlsnap.storage.directory import OWN, Directory, FileInfo, cache_listings, hide_files
from ttlsnap.storage.open import for_reading
from ttlsnap.storage.trees import stat_files
from ttlsnap.storage.uris import is_local
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.open import open_state_store, partitions_of
from ttlsnap.stores.partitions import StorePartition


@dataclass(frozen=True, slots=True)
class SelectedFile:
    """A file of the source. ``content`` is what the copy has in its place, if that is something else.

    ``parts`` are logs of a source whose entries it has, one after the other. ``checksums`` has Hadoop's
    checksum file of it in the source, if there is one. (Spark's can be stale without any damage.)
    """

    path: str
    info: FileInfo
    content: bytes | None = None
    parts: tuple[str, ...] = ()
    checksums: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selection:
    """The files of a copy as of the batch of ``checkpoint``. ``runs`` are the runs on the source until then.

    ``partitions`` are those of all stores, and ``query_id`` is the id that the copy has. ``warnings`` are about the
    state in the source.
    """

    checkpoint: Checkpoint
    runs: Runs
    partitions: tuple[StorePartition, ...]
    files: tuple[SelectedFile, ...]
    query_id: str | None
    warnings: tuple[str, ...] = ()

    @property
    def batch(self) -> int:
        """The batch that the copy continues from."""
        return self.checkpoint.batch.id

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.info.size if file.content is None else len(file.content) for file in self.files)


def select_files(files: Directory, batch: int | None, home: str, query_id: str | None = None) -> Selection:
    """Return the files of a copy at ``home`` as of ``batch``, or as of the last committed batch.

    With ``query_id``, the copy has this id.

    Raise UsageError if the batch cannot be restored and others can, FencedError if a run was interrupted, RefusedError
    if a snapshot has the state of a withdrawn batch, and CorruptionError if the checkpoint is damaged.
    """
    runs = refuse_if_interrupted(files)
    try:
        checkpoint, partitions = _open(files, batch)
    except (UsageError, CorruptionError) as error:
        only_earlier = home == files.root  # a checkpoint cannot go back to its last batch
        batches = _in_ranges(one.id for one in restorable_batches(runs, only_earlier)) if batch is not None else ()
        if not batches:
            raise
        others = ", ".join(f"{first} to {last}" if first < last else str(first) for first, last in batches)
        if isinstance(error, UsageError):
            message = f"batch {batch} is not retained in {files.root}. These can be restored: {others}"
        else:
            message = error.text + f". Batch {batch} cannot be restored; these can: {others}"
        raise UsageError(message) from error
    refuse_hidden_batches(runs, checkpoint.logs)
    warnings = refuse_stale_snapshots(checkpoint, list_activity(files), runs)
    stores = [store for operator in checkpoint.operators for store in operator.stores]
    refuse_shared_folders(files, [store.directory(partition) for store in stores for partition in store.partitions])
    state = _stat_state(files, [partition.lineage for partition in partitions])
    infos = {**_list_others(files, checkpoint), **_list_metadata(files, checkpoint), **state}
    contents = _offsets_before(files, runs, checkpoint.batch.id)
    infos |= dict.fromkeys(contents.keys() - infos, infos[layout.offset_file(checkpoint.batch.id)])
    selected = choose_files(files, infos, home, query_id, contents)
    query_id = query_id or checkpoint.query_id
    return Selection(checkpoint, runs, partitions, tuple(selected), query_id, tuple(warnings))


def _offsets_before(files: Directory, runs: Runs, batch: int) -> dict[str, bytes]:
    """Return new offsets of the batch before, if it is not retained, or ttlsnap has set the positions after ``batch``.

    A query that starts after a batch also reads the offsets before it, and a source of files fails if it goes back. In
    the checkpoint itself, a later batch follows. A copy does not have the state of the batch before, so it can have the
    positions after ``batch`` there, too.
    """
    if batch == 0:
        return {}
    path = layout.offset_file(batch - 1)
    is_retained = files.stat(path) is not None
    if is_retained and not runs.has_set_positions(batch):
        return {}
    text = batch_start(files, batch - 1 if is_retained else batch).text
    return {path: with_offsets(text, named_offsets(files, batch)).encode()}


def choose_files(
    files: Directory,
    infos: Mapping[str, FileInfo],
    home: str,
    query_id: str | None = None,
    contents: Mapping[str, bytes] = MappingProxyType({}),
) -> list[SelectedFile]:
    """Return those of the files that a copy at ``home`` has, with their content there if it is another one.

    ``contents`` has such a content of some files.

    A checksum that would not be read there, or not fit, is left out.
    """
    # Only Hadoop's local file system reads its checksum files.
    keeps_hidden_checksums = is_local(files.root) and is_local(home)
    selected: dict[str, SelectedFile] = {}
    for path, info in infos.items():
        if layout.strip_checksum(path) == path:
            checksums = tuple(name for name in layout.checksum_files(path)[:1] if name in infos)
            content = contents.get(path) or _content_for(files, path, home, query_id)
            selected[path] = SelectedFile(path, info, content, checksums=checksums)
    for path, info in infos.items():
        owner = selected.get(layout.strip_checksum(path))
        is_kept = owner is None or owner.content is None
        if path not in selected and is_kept and (keeps_hidden_checksums or not info.name.startswith(".")):
            selected[path] = SelectedFile(path, info)
    return list(selected.values())


def _open(files: Directory, batch: int | None) -> tuple[Checkpoint, tuple[StorePartition, ...]]:
    """Return a checkpoint as of a batch, and the partitions of its state. Raise CorruptionError for a missing file."""
    checkpoint = open_checkpoint(files, batch)
    state_store = open_state_store(checkpoint)
    stores = [store for operator in checkpoint.operators for store in operator.stores]
    return checkpoint, tuple(chain.from_iterable(partitions_of(checkpoint, state_store, store) for store in stores))


def restorable_batches(runs: Runs, only_earlier: bool) -> Iterator[MicroBatch]:
    """Yield the batches whose files are all there, oldest first.

    With ``only_earlier``, the last one is left out, unless Spark has begun a batch after it.
    """
    files = runs.files
    listed, logs = cache_listings(files), read_logs(files)
    has_more = not only_earlier or has_begun(runs, logs, list_activity(files))
    for batch in logs.commits if has_more else logs.commits[:-1]:
        with suppress(CorruptionError, UnsupportedError):
            checkpoint, _ = _open(files, batch)
            for _ in _find_logs(listed, batch):
                pass  # it raises if a file is missing
            yield checkpoint.batch


def _in_ranges(batches: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each run of batches."""
    ranges: list[tuple[int, int]] = []
    for batch in batches:
        first = ranges.pop()[0] if ranges and ranges[-1][1] == batch - 1 else batch
        ranges.append((first, batch))
    return ranges


def find_changed(source: Directory, selection: Selection) -> str | None:
    """Return the path of a file that was replaced in the source after it was chosen, or None.

    Files that were removed after they were copied do not matter, as long as the query goes on from the batch.
    """
    source = for_reading(source)
    runs, logs = Runs.read(source), read_logs(source)
    if logs.fence is not None or (runs.ids, runs.journals) != (selection.runs.ids, selection.runs.journals):
        return layout.RUNS
    if not logs.commits or logs.commits[-1] < selection.batch:
        return layout.commit_file(selection.batch)
    return find_replaced(source, selection)


def find_replaced(source: Directory, selection: Selection) -> str | None:
    """Return the path of a chosen file that is there, and was replaced; None if there is none."""
    infos = stat_files(source, [file.path for file in selection.files])
    return next(
        (
            file.path
            for file in selection.files
            if (info := infos.get(file.path)) is not None
            and (info.size, info.mtime_ns) != (file.info.size, file.info.mtime_ns)
        ),
        None,
    )


def _content_for(files: Directory, path: str, home: str, query_id: str | None) -> bytes | None:
    """Return what a copy has in the place of a file, if that is something else."""
    if path == layout.METADATA and query_id is not None:
        return json.dumps({"id": query_id}, separators=(",", ":")).encode()
    # Spark opens schema files by these absolute paths, which would lead to the source.
    file_with_paths = own_paths(path)
    return None if file_with_paths is None else file_with_paths.moved_to(files, home)


def _list_others(files: Directory, checkpoint: Checkpoint) -> dict[str, FileInfo]:
    """Return everything but state: the logs up to the batch, the source logs up to its offsets, and other files."""
    infos: dict[str, FileInfo] = {}
    for info in files.list(""):
        if not info.is_dir:
            infos[info.name] = info
        elif info.name == layout.SOURCES:
            infos |= _list_sources(files, checkpoint)
        elif info.name not in (OWN, layout.STATE):
            infos |= files.list_tree(info.name)
    return {path: info for path, info in infos.items() if _is_old_enough(path, checkpoint.batch.id)}


def _is_old_enough(path: str, batch: int) -> bool:
    """Return whether a file is complete, and not one that a later batch has written."""
    written_by = layout.batch_of(path)
    return not is_temporary(path) and (written_by is None or written_by <= batch)


def _list_sources(files: Directory, checkpoint: Checkpoint) -> dict[str, FileInfo]:
    """Return the files of all sources. Raise CorruptionError if a log is damaged or does not have all that was read."""
    infos = files.list_tree(layout.SOURCES)
    for log, newer_paths in _find_logs(files, checkpoint.batch.id):
        for path in newer_paths:
            infos.pop(path, None)
        for path in (f"{log.folder}/{name}" for name in log.read):
            # While a query changes a folder, a listing can lack a file.
            info = infos.get(path) or files.stat(path)
            if info is None:
                raise _gone(files, path)
            infos[path] = info
            try:
                check_source_log(files, path, info)
            except (CorruptionError, StorageError) as error:
                if files.stat(path) is None:
                    raise _gone(files, path) from error
                raise CorruptionError(describe_log_problem(path, error)) from error
    return infos


def _find_logs(files: Directory, batch: int) -> Iterator[tuple[SourceLog, list[str]]]:
    """Yield the logs of sources as of a batch, with the paths of newer files. Raise CorruptionError for a missing file.

    Spark records files before it plans the batch that reads them. With a newer entry, it would never read them.
    """
    positions = read_file_logs(files, batch, {})
    sources = find_sources(files, positions)
    is_exact = are_exact(sources, positions)
    for source, last_number in sources.items():
        folder = f"{layout.SOURCES}/{source}"
        # If only the least possible number is known, the largest counts. Without an entry of its offset, a query does
        # not start.
        limit = last_number if is_exact else max(positions.values())
        paths = [f"{folder}/{info.name}" for info in files.list(folder)]
        newer_paths = [path for path in paths if _log_number(path) > limit]
        log = list_source_log(hide_files(files, newer_paths), source, last_number)
        if (missing_file := describe_missing(files, log)) is not None:
            raise CorruptionError(missing_file[1])
        yield log, newer_paths


def _log_number(path: str) -> int:
    """Return the number of a file in the log of a source that reads files; -1 for another file."""
    number = log_number(layout.strip_checksum(path).rpartition("/")[2])
    return -1 if number is None else number


def _list_metadata(files: Directory, checkpoint: Checkpoint) -> dict[str, FileInfo]:
    """Return the metadata and the state schemas of all operators, up to the batch."""
    infos: dict[str, FileInfo] = {}
    for operator in checkpoint.operators:
        folder = layout.operator_directory(operator.id)
        for name in ("_metadata", "_stateSchema"):
            infos |= files.list_tree(f"{folder}/{name}")
        for store in operator.stores:
            infos |= files.list_tree(f"{store.directory(0)}/_metadata")
    return {path: info for path, info in infos.items() if _is_old_enough(path, checkpoint.batch.id)}


def _stat_state(files: Directory, lineages: Iterable[Lineage]) -> dict[str, FileInfo]:
    """Return the state files of the lineages, with their checksum files. Raise BusyError if one has changed."""
    state_files = {file.path: file for lineage in lineages for file in lineage.files}
    infos = stat_files(files, [path for file in state_files for path in (file, *layout.all_checksums(file))])
    for path, file in state_files.items():
        info = infos.get(path)
        if info is None or (info.size, info.mtime_ns) != (file.size, file.mtime_ns):
            raise _gone(files, path)
    return infos


def _gone(files: Directory, path: str) -> BusyError:
    return BusyError(f"{files.root}/{path} was removed or replaced while ttlsnap read the checkpoint")
