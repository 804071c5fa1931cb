"""Writer of a RocksDB snapshot: in full, or as the changes over the existing tables.

``full``        writes the kept entries, in their order, into new tables, and these into a new database
``tombstones``  writes deletes and new values into one small table over the old ones, which the new snapshot shares

``auto`` begins with tombstones, unless it is known that too many entries will change. Tombstones are good for a limited
share of changes. If more entries have changed, the entries so far are read again with their changes, and the partition
is written in full.
"""

from __future__ import annotations

import contextlib
import math
import struct
import uuid
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import xxhash
from rocksdict import SstFileWriter

from ttlsnap.amounts import quantity
from ttlsnap.checkpoint import layout
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError, TtlsnapError
from ttlsnap.storage.directory import scratch_name
from ttlsnap.stores.protocols import Renumbering, Rewrite, RewriteChoice, StagedFile, Staging, Written
from ttlsnap.stores.rocksdb import archive
from ttlsnap.stores.rocksdb.batch import RocksDbBatch
from ttlsnap.stores.rocksdb.database import (
    assemble,
    database,
    ingest,
    live_tables,
    new_table,
    newest_options,
    require_room,
    rocksdb_errors,
    scan,
    settings_of,
)
from ttlsnap.stores.rocksdb.files import SPARK_4_0
from ttlsnap.stores.rocksdb.partition import SOURCE, RocksDbPartition
from ttlsnap.stores.rocksdb.spark_library import SparkTable
from ttlsnap.unsaferow.gather import Int64s, Mask, gather_ragged
from ttlsnap.unsaferow.rows import Rows

TOMBSTONE_SHARE = 0.1
_SHARES: dict[str, float] = {"auto": TOMBSTONE_SHARE, "full": 0, "tombstones": math.inf}
"""The share of changed entries in a partition up to which tombstones are cheaper (``docs/performance.md``)."""

_TABLE_BYTES = 64 << 20  # size at which Spark's databases split their tables
_VERIFY_AT_ONCE = 4096
_VERIFY_BYTES = 1 << 20
_PIECE = 1 << 20
_entry = struct.Struct("<ii")


class RocksDbWriter:
    """See ``ttlsnap.stores.protocols.SnapshotWriter``."""

    def __init__(
        self,
        partition: RocksDbPartition,
        staging: Staging | None,
        rewrite: RewriteChoice,
        states: Mapping[str, StateDescriptor],
        moved: Mapping[str, list[tuple[bytes, bytes]]],
        changes: int,
    ) -> None:
        self._foreseen = changes
        self._partition, self._staging, self._rewrite, self._states = partition, staging, rewrite, states
        self._counts = {state: len(pairs) for state, pairs in moved.items()}
        self._moved_entries, self._next_moved = sorted(chain(*moved.values()), key=itemgetter(0)), 0
        self._folder = partition.folder / "new"
        self._staged: list[StagedFile] = []
        self._is_finished = False

    def __enter__(self) -> Self:
        partition = self._partition
        self._folder.mkdir()
        self._files = contextlib.ExitStack()
        self._is_full = self._rewrite == "full" or partition.metadata is None or not partition.metadata.tables
        entries = partition.expected
        if entries is None:
            entries = partition.base.property_int_value("rocksdb.estimate-num-keys") or 0
        share = _SHARES[self._rewrite] if isinstance(self._rewrite, str) else self._rewrite
        self._limit = math.inf if share == math.inf else entries * share
        self._is_full = self._is_full or self._foreseen > self._limit
        if self._is_full:
            self.require_room()
        self._digest = _Digest()
        self._whole_tables = Tables(self._folder, "whole", partition)
        self._patch = Tables(self._folder, "patch", partition, deletes=True)
        self._changes = _Changes(self._files.enter_context((self._folder / "changes").open("w+b")))
        return self

    def __exit__(self, *error: Any) -> None:
        self._files.close()
        for tables in (self._whole_tables, self._patch):
            tables.discard()
        if self._staging is not None and not self._is_finished:
            for file in self._staged:
                self._staging.files.remove(file.path)

    def keep(self, batch: RocksDbBatch) -> None:
        """See ``SnapshotWriter.keep``."""
        self.count(batch.state, len(batch.raw_keys))
        if self._is_full:
            self.put(batch.raw_keys, batch.raw_values)

    def change(self, batch: RocksDbBatch, kept: Int64s, rewritten: Mask, values: Rows) -> None:
        """See ``SnapshotWriter.change``."""
        state = self._states[batch.state]
        kept, rewritten, new_values = self._partition.stored_change(batch, state, kept, rewritten, values)
        self.count(batch.state, len(kept))
        if self._is_full:
            self.put(batch.raw_keys.take(kept), batch.raw_values.take(kept).replace(rewritten, Rows.of(new_values)))
            return
        is_changed = np.ones(len(batch.raw_keys), np.bool_)
        is_changed[kept] = rewritten
        new_value_of_place: dict[int, bytes] = dict(zip(kept[rewritten].tolist(), new_values, strict=True))
        places = np.flatnonzero(is_changed)
        self._change(
            batch.raw_keys.take(places).to_list(), [new_value_of_place.get(place) for place in places.tolist()]
        )
        if self._changes.count > self._limit:
            self._write_whole(batch.raw_keys.piece(-1))

    def put(self, keys: Rows, values: Rows) -> None:
        """Write entries as they are stored, in the order of their keys."""
        if self._next_moved < len(self._moved_entries) and len(keys):
            keys, values = map(Rows.of, self._insert_moved(keys.to_list(), values.to_list()))
        self._whole_tables.put(keys, values)
        self._digest.update(keys, values)

    def _change(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        keys, values = self._insert_moved(keys, values)
        self._patch.patch(keys, values)
        self._changes.add(keys, values)

    def _insert_moved(self, keys: Sequence[bytes], values: Sequence[Any]) -> tuple[Sequence[bytes], Sequence[Any]]:
        """Return the next keys and values, together with the moved entries up to the last of these keys."""
        if (
            not keys
            or self._next_moved == len(self._moved_entries)
            or self._moved_entries[self._next_moved][0] > keys[-1]
        ):
            return keys, values
        end = bisect_right(self._moved_entries, keys[-1], self._next_moved, key=itemgetter(0))
        moved_entries, self._next_moved = self._moved_entries[self._next_moved : end], end
        merged_entries = {
            **dict(zip(keys, values, strict=True)),
            **dict(moved_entries),
        }  # a moved entry may replace a deleted one
        return tuple(zip(*sorted(merged_entries.items(), key=itemgetter(0)), strict=True))  # type: ignore[return-value]

    def count(self, state: str, entries: int) -> None:
        """Add entries to the number of a state's entries."""
        self._counts[state] = self._counts.get(state, 0) + entries

    def _write_whole(self, last_key: bytes) -> None:
        """Change from tombstones to writing in full, because too many entries have changed.

        The entries up to ``last_key`` are read again with their changes.
        """
        self._is_full = True
        self.require_room()
        source_database, where = self._partition.base, self._partition.where
        with rocksdb_errors(where):
            ingest(source_database, self._patch.close())
            # The least key after ``last_key``, because RocksDB excludes the bound.
            for keys, values in scan(source_database, where, before=last_key + b"\0"):
                self.put(keys, values)

    def require_room(self) -> None:
        """Raise StorageError unless there is room for a full snapshot.

        It is at most about as large as the old one.
        """
        size = self._partition.size
        require_room(self._folder, size + size // 4)

    def finish(self) -> Written:
        """See ``SnapshotWriter.finish``."""
        self._write_last_moved()
        with rocksdb_errors(self._partition.where):
            written = self._finish_whole() if self._is_full else self._finish_patch()
        self._is_finished = True
        return written

    def _write_last_moved(self) -> None:
        """Write the moved entries that come after all other entries."""
        entries_left = self._moved_entries[self._next_moved :]
        self._next_moved = len(self._moved_entries)
        if entries_left:
            keys, values = zip(*entries_left, strict=True)
            if self._is_full:
                self.put(Rows.of(keys), Rows.of(values))
            else:
                self._change(keys, values)

    def _finish_whole(self) -> Written:
        partition, folder = self._partition, self._folder / "database"
        with database(folder, partition.settings, partition.where, new=True) as new_database:
            tables = self._whole_tables.close()
            if tables:
                ingest(new_database, tables)
            local_tables = live_tables(new_database)
        written = self._stage(folder, local_tables, {})
        if self._staging is not None:
            self._verify_all(written)
        return written

    def _finish_patch(self) -> Written:
        partition = self._partition
        assert partition.metadata is not None
        ingest(partition.base, self._patch.close())
        partition.base.flush()
        local_tables = live_tables(partition.base)
        partition.base.close()
        written = self._stage(partition.folder / SOURCE, local_tables, partition.metadata.tables)
        if self._staging is not None:
            self._verify_changes(written)
        return written

    def _stage(self, folder: Path, local_tables: list[str], shared: dict[str, archive.SharedFile]) -> Written:
        """Stage the new tables of the closed database in ``folder``, and the zip that names all its tables."""
        partition = self._partition
        folder_of_snapshot = partition.lineage.new_snapshot.rpartition("/")[0]
        new_files, sizes = [], []
        listed_tables: list[dict[str, Any]] = []
        for name in local_tables:
            if name in shared:
                stored_name, size = shared[name].path.rpartition("/")[2], shared[name].size
            else:
                # Spark names tables like this, too (RocksDBFileManager.newDFSFileName). Local names repeat: another
                # version, or a failed task, may have a table of the same local name.
                stored_name, size = f"{name.removesuffix('.sst')}-{uuid.uuid4()}.sst", (folder / name).stat().st_size
                new_files.append((folder / name, f"{folder_of_snapshot}/{layout.SSTS}/{stored_name}"))
            sizes.append(size)
            listed_tables.append({"localFileName": name, "dfsSstFileName": stored_name, "sizeBytes": size})
        manifest_name = (folder / "CURRENT").read_text().strip()
        options = newest_options(folder).name
        document = self._document(listed_tables)
        snapshot = self._folder / "snapshot.zip"
        # Without a write-ahead log: the tables have every entry, and RocksDB opens a database that has no log.
        archive.write(snapshot, folder, [manifest_name, "CURRENT", options], document, self._version())
        size = snapshot.stat().st_size + sum(sizes)
        if self._staging is None:
            return Written((), size, self._how())
        for source, target in (*new_files, (snapshot, partition.lineage.new_snapshot)):
            self._staged.append(_move(source, self._staging, target))
        reused_paths = tuple(shared[name].path for name in local_tables if name in shared)
        return Written(
            files=tuple(self._staged),
            size=size,
            rewrite=self._how(),
            reused=reused_paths,
            superseded=() if shared else _find_superseded(partition),
        )

    def _version(self) -> str:
        return "v2" if self._partition.lineage.only_for == SPARK_4_0 else "v1"

    def _how(self) -> Rewrite:
        return "full" if self._is_full else "tombstones"

    def _document(self, listed_tables: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the new snapshot's metadata, with the facts of the old one."""
        metadata = self._partition.metadata
        if metadata is None:
            # A store without a zip has no column families. Later versions of Spark read these two fields of 3.5, too.
            return {"sstFiles": listed_tables, "numKeys": sum(self._counts.values())}
        document = {**metadata.document, "sstFiles": listed_tables}
        document.pop("logFiles", None)  # not needed by a database that has its tables
        if metadata.entries is not None:
            internal = sum(count for state, count in self._counts.items() if state in metadata.internal)
            document["numKeys"] = sum(self._counts.values()) - internal
            if "numInternalKeys" in document:
                document["numInternalKeys"] = internal
        return document

    def _verify_all(self, written: Written) -> None:
        """Open the staged files alone and read them; raise CorruptionError unless every byte is as written."""
        folder, where = self._assemble(written)
        digest_read = _Digest()
        with contextlib.ExitStack() as stack:
            fast_source = stack.enter_context(self._partition.spark_database(folder))
            new_database = fast_source or stack.enter_context(database(folder, settings_of(folder), where))
            for keys, values in scan(new_database, where):
                digest_read.update(keys, values)
        expected_count = sum(self._counts.values())
        if digest_read.count != expected_count or digest_read != self._digest:
            raise CorruptionError(
                f"{where}: {quantity(expected_count, 'entry was', 'entries were')} staged and {digest_read.count} "
                "read back, or their bytes "
                "differ. Nothing was published. Check the disk and the memory of this machine"
            )

    def _verify_changes(self, written: Written) -> None:
        """Open the staged files and look up every change; raise CorruptionError if one is missing."""
        folder, where = self._assemble(written)
        with database(folder, settings_of(folder), where) as new_database:
            for keys, values in self._changes.read():
                if new_database.get(list[Any](keys)) != values:
                    raise CorruptionError(
                        f"{where}: the staged file lacks a change. Nothing was published. Check the disk and the "
                        "memory of this machine"
                    )

    def _assemble(self, written: Written) -> tuple[Path, str]:
        """Return a folder with the database of the staged files, and its place for messages."""
        partition, staging = self._partition, self._staging
        assert staging is not None
        folder = self._folder / "check"
        folder.mkdir()
        *tables, snapshot = written.files
        where = f"{staging.files.root}/{snapshot.path}"
        places_of_files = {file.path: (partition.files, file.path) for file in partition.lineage.shared}
        places_of_files |= {file.target: (staging.files, file.path) for file in tables}
        assemble(
            staging.files,
            snapshot.path,
            folder,
            partition.store.delimiter,
            home=partition.lineage.new_snapshot,
            places_of_tables=places_of_files,
        )
        return folder, where


class _Digest:
    """A digest of entries in their order, whatever batches they come in."""

    def __init__(self) -> None:
        self.count = 0
        self._sizes, self._content = xxhash.xxh3_128(), xxhash.xxh3_128()

    def update(self, keys: Rows, values: Rows) -> None:
        """Add entries: the sizes of each key and value, and their bytes."""
        self.count += len(keys)
        entries = keys.zip(values)  # entries that were just read follow each other, and are not copied
        self._sizes.update(entries.size.data)
        self._content.update(gather_ragged(entries.data, entries.start, entries.size))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Digest) and self._both() == other._both()

    def _both(self) -> tuple[bytes, bytes]:
        return self._sizes.digest(), self._content.digest()


class Tables:
    """A sequence of sorted tables of bounded size. Only rocksdict can write ``deletes``."""

    def __init__(self, folder: Path, name: str, partition: RocksDbPartition, *, deletes: bool = False) -> None:
        self._folder, self._name, self._partition, self._deletes = folder, name, partition, deletes
        self._paths: list[Path] = []
        self._writer: SstFileWriter | SparkTable | None = None

    def put(self, keys: Rows, values: Rows) -> None:
        """Write entries, in the order of their keys."""
        if len(keys):  # RocksDB does not write a table without an entry
            with self._table() as writer:
                if isinstance(writer, SparkTable):
                    writer.put(keys, values)
                else:
                    deque(map(writer.__setitem__, keys.to_list(), values.to_list()), maxlen=0)

    def patch(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Write new values, or deletes where the value is None, in the order of their keys."""
        if keys:
            with self._table() as writer:
                assert isinstance(writer, SstFileWriter)
                for key, value in zip(keys, values, strict=True):
                    if value is None:
                        del writer[key]
                    else:
                        writer[key] = value

    @contextlib.contextmanager
    def _table(self) -> Iterator[SstFileWriter | SparkTable]:
        partition = self._partition
        with rocksdb_errors(partition.where):
            if self._writer is None:
                path = self._folder / f"{self._name}-{len(self._paths)}.sst"
                self._paths.append(path)
                spark_writer = None if self._deletes else partition.spark_table(path)
                self._writer = spark_writer or new_table(path, partition.settings)
            yield self._writer
            if self._writer.file_size() >= _TABLE_BYTES:
                self.close()

    def close(self) -> list[Path]:
        """Complete the tables and return their paths; a table without an entry is not written."""
        if self._writer is not None:
            self._writer.finish()
            self._writer = None
        return self._paths

    def discard(self) -> None:
        """Free the memory of a table that is not complete, after an error."""
        if isinstance(self._writer, SparkTable):
            self._writer.close()


class _Changes:
    """Every changed key with its new value or None, kept in a file until it is looked up again."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.count = 0

    def add(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self.count += len(keys)
        for key, value in zip(keys, values, strict=True):
            self._file.write(_entry.pack(len(key), -1 if value is None else len(value)) + key + (value or b""))

    def read(self) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
        self._file.seek(0)
        keys: list[bytes] = []
        values: list[bytes | None] = []
        size = 0
        while header := self._file.read(_entry.size):
            key_size, value_size = _entry.unpack(header)
            keys.append(self._file.read(key_size))
            values.append(None if value_size < 0 else self._file.read(value_size))
            size += key_size + max(value_size, 0)
            if len(keys) == _VERIFY_AT_ONCE or size > _VERIFY_BYTES:
                yield keys, values
                keys, values, size = [], [], 0
        if keys:
            yield keys, values


def _move(source: Path, staging: Staging, target: str) -> StagedFile:
    """Move a file from the scratch folder to its place in the staging folder."""
    path = scratch_name(staging.place(target))
    size, digest = source.stat().st_size, _digest_of(source)
    staging.files.mkdirs(path.rpartition("/")[0])
    staging.files.move_in(str(source), path)
    return StagedFile(path, target, size, digest)


def _digest_of(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _find_superseded(partition: RocksDbPartition) -> tuple[str, ...]:
    """Return the tables of the replaced snapshot that no older snapshot uses."""
    lineage, files = partition.lineage, partition.files
    if lineage.snapshot is None or lineage.snapshot.path != lineage.new_snapshot:
        return ()
    folder_of_snapshot = lineage.new_snapshot.rpartition("/")[0]
    tables = {file.path for file in lineage.shared}
    for info in files.list(folder_of_snapshot, (".zip",)):
        file_name = layout.parse_state_file(info.name)
        path = f"{folder_of_snapshot}/{info.name}"
        # Zips of later versions belong to no committed batch, and move to the backup.
        if file_name is None or path == lineage.new_snapshot or file_name.version > lineage.version:
            continue
        try:
            tables -= {file.path for file in archive.read_metadata(files, path).files}
        except TtlsnapError:
            return ()  # a damaged snapshot may use any of the tables, so none is superseded
    return tuple(sorted(tables))


class WritablePartition(RocksDbPartition):
    """A partition for which a new snapshot can be written."""

    def writer(
        self,
        staging: Staging | None,
        rewrite: RewriteChoice,
        states: Mapping[str, StateDescriptor],
        moves: Mapping[str, Renumbering],
        changes: int = 0,
    ) -> RocksDbWriter:
        """See ``StoredPartition.writer``."""
        moved = {name: list(self.move(states[name], renumbering)) for name, renumbering in moves.items()}
        return RocksDbWriter(self, staging, rewrite, states, moved, changes)
