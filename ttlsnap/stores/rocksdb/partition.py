"""One partition of the RocksDB store: its entries, as they are stored and as rows (see ``encoding``)."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Generator, Iterator, Mapping
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from rocksdict import Rdict, WriteBatch

from ttlsnap.amounts import quantity
from ttlsnap.checkpoint.state_schema import DEFAULT_FAMILY
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError, CountError
from ttlsnap.quoting import quote
from ttlsnap.storage.directory import Directory
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import Renumbering
from ttlsnap.stores.rocksdb import changelog
from ttlsnap.stores.rocksdb.archive import SnapshotMetadata
from ttlsnap.stores.rocksdb.batch import RocksDbBatch
from ttlsnap.stores.rocksdb.database import (
    EntrySource,
    Pairs,
    Settings,
    rocksdb_errors,
    scan,
)
from ttlsnap.stores.rocksdb.encoding import (
    CHECKSUM_SIZE,
    ENCODING,
    FAMILY_SIZE,
    ORDERED_AT,
    read_keys,
    read_values,
    verify_values,
    with_checksums,
)
from ttlsnap.stores.rocksdb.format import RocksDbFormat
from ttlsnap.stores.rocksdb.lists import SIZE, join, split
from ttlsnap.stores.rocksdb.spark_library import SparkDatabase, SparkTable, spark_database, spark_table
from ttlsnap.unsaferow.gather import Int64s, Mask, read_at
from ttlsnap.unsaferow.rows import Rows

SOURCE = "source"  # the folder of the database in the scratch folder

_NUMBER_AT = FAMILY_SIZE + 4 + 1 + ORDERED_AT  # after the size of the prefix and the byte for its encoding
_AVRO_NUMBER_AT, _AVRO_BETWEEN = FAMILY_SIZE + 4 + 1 + 2, b"\x02\x10"  # see ``ttlsnap.avro.keys``
KEPT_BYTES = 128 << 20  # entries that are kept in memory rather than read again
_ARRAYS = 32  # bytes of an entry's positions and sizes
_MOVED = 16384  # entries


class RocksDbPartition:
    """See ``StoredPartition``. ``base`` is the database, and ``source`` is what reads its entries.

    ``size`` is the size of its tables in bytes, as far as it is known.
    """

    def __init__(
        self,
        store: RocksDbFormat,
        files: Directory,
        lineage: Lineage,
        folder: Path,
        base: Rdict,
        settings: Settings,
        metadata: SnapshotMetadata | None,
        where: str,
        keep_in_memory: bool,
    ) -> None:
        self.store, self.files, self.lineage, self.folder = store, files, lineage, folder
        self.base, self.settings, self.metadata, self.where = base, settings, metadata, where
        self.source: Rdict | EntrySource = base
        # The number of entries that a scan must find; None if it is not recorded.
        self.expected = metadata.entries if metadata else None
        self.size = sum(file.size for file in lineage.shared)
        self._keep_in_memory = keep_in_memory
        self._kept_pairs: list[Pairs] | None = None

    def spark_database(
        self, folder: Path, opened_database: Rdict | None = None
    ) -> contextlib.AbstractContextManager[SparkDatabase | None]:
        """See ``spark_library.spark_database``."""
        return spark_database(folder, self.size, self.store.delimiter, opened_database)

    def spark_table(self, path: Path) -> SparkTable | None:
        """See ``spark_library.spark_table``."""
        return spark_table(self.folder / SOURCE, path, self.size, self.store.delimiter)

    @property
    def families(self) -> dict[int, str]:
        """Names of column families by their ids; empty if keys carry no ids."""
        return {number: name for name, number in self.metadata.families.items()} if self.metadata else {}

    def replay(self) -> None:
        """Apply the changelogs after the snapshot to the database; raises CorruptionError if one is damaged."""
        codec = self.store.codec
        if self.lineage.deltas and not self.families:
            path = self.lineage.deltas[0].path
            if changelog.has_families(self.files, path, codec):
                raise CorruptionError(
                    f"{self.files.root}/{path} uses column families, but the zip that maps their ids is missing"
                )
        with rocksdb_errors(self.where):
            for delta in self.lineage.deltas:
                for changes in changelog.read_changes(self.files, delta.path, codec):
                    self._apply(changes, f"{self.files.root}/{delta.path}")

    def _apply(self, changes: changelog.ChangelogRecords, where: str) -> None:
        keys = changes.keys
        if self.store.row_checksums:
            keys = verify_keys(changes, self.store.delimiter, where)
        if changelog.MERGE in changes.kinds:
            pending_changes = self._merge(changes, keys)
        else:
            pending_changes = {
                key: None if kind == changelog.DELETE else value
                for kind, key, value in zip(changes.kinds, keys, changes.values, strict=True)
            }
        if self.expected is not None:
            old_values: Any = self.base.get(list(pending_changes))
            # The zip counts its own entries, and a changelog has no count.
            self.expected += sum(stored_value is not None for stored_value in pending_changes.values()) - sum(
                stored_value is not None for stored_value in old_values
            )
        batch = WriteBatch(raw_mode=True)
        for key, value in pending_changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        self.base.write(batch)

    def _merge(self, changes: changelog.ChangelogRecords, keys: list[bytes]) -> dict[bytes, bytes | None]:
        """Return the final value of each key, or None for a deleted one.

        A merge joins its value to the existing one, as RocksDB's operator does.
        """
        pending_values: dict[bytes, list[bytes]] = {}
        for kind, key, value in zip(changes.kinds, keys, changes.values, strict=True):
            if kind == changelog.MERGE:
                if key not in pending_values:
                    old_value: Any = self.base.get(key)
                    pending_values[key] = [] if old_value is None else [old_value]
                pending_values[key].append(value)
            else:
                # A merge after a delete begins a new list: the next value has no delimiter before it.
                pending_values[key] = [] if kind == changelog.DELETE else [value]
        return {
            key: self.store.delimiter.join(merged_values) if merged_values else None
            for key, merged_values in pending_values.items()
        }

    def batches(
        self, states: Mapping[str, StateDescriptor], only: str | None = None
    ) -> Generator[RocksDbBatch, None, None]:
        """See ``StoredPartition.batches``."""
        entries_found = 0
        number = next((number for number, name in self.families.items() if name == only), None)
        family = None if number is None else struct.pack("<h", number)
        for raw_keys, raw_values in self._pairs(family):
            entries_found += len(raw_keys)
            yield from self._by_state(raw_keys, raw_values, states)
        if self.expected is not None and family is None and entries_found != self.expected:
            raise CountError(
                f"{self.where}: {quantity(entries_found, 'entry was', 'entries were')} found; its metadata says "
                f"{self.expected}. Restore the "
                "partition from a copy, or go back to an older batch"
            )

    def _pairs(self, family: bytes | None) -> Iterator[Pairs]:
        """Yield all entries; with ``family``, those of others may be omitted."""
        if self._kept_pairs is not None:
            for keys, values in self._kept_pairs:
                if family is None or keys.piece(0)[:FAMILY_SIZE] <= family <= keys.piece(-1)[:FAMILY_SIZE]:
                    yield keys, values
            return
        kept_pairs, bytes_left = [], KEPT_BYTES if self._keep_in_memory and family is None else 0
        for keys, values in scan(self.source, self.where, family):
            if bytes_left > 0:
                bytes_left -= int(keys.size.sum() + values.size.sum()) + _ARRAYS * len(keys)
                kept_pairs.append((keys, values))
            if bytes_left <= 0:
                kept_pairs.clear()
            yield keys, values
        self._kept_pairs = kept_pairs if bytes_left > 0 else None

    def _by_state(
        self, raw_keys: Rows, raw_values: Rows, states: Mapping[str, StateDescriptor]
    ) -> Iterator[RocksDbBatch]:
        families = self.families
        if not families:
            yield self._batch(DEFAULT_FAMILY, raw_keys, raw_values, 0, states.get(DEFAULT_FAMILY))
            return
        for start, end in pairwise(self._bounds(raw_keys)):
            keys, values = (raw.take(slice(start, end)) for raw in (raw_keys, raw_values))
            number = int.from_bytes(keys.piece(0)[:FAMILY_SIZE], "little", signed=True)
            name = families.get(number)
            if name is None:
                raise CorruptionError(
                    f"{self.where}: the key "
                    + quote(keys.piece(0).hex())
                    + f" belongs to column family {number}, which the metadata does not name"
                )
            yield self._batch(name, keys, values, FAMILY_SIZE, states.get(name))

    def _bounds(self, raw_keys: Rows) -> list[int]:
        """Return where the keys of each column family begin, and where the last family's keys end."""
        short_keys = np.flatnonzero(raw_keys.size < FAMILY_SIZE)
        if len(short_keys):
            key = quote(raw_keys.piece(int(short_keys[0])).hex())
            raise CorruptionError(f"{self.where}: the key " + key + " is too short to name a column family")
        numbers = read_at(raw_keys.data, raw_keys.start, "<i2")
        return [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]

    def _batch(
        self,
        name: str,
        raw_keys: Rows,
        raw_values: Rows,
        family: int,
        state: StateDescriptor | None,
    ) -> RocksDbBatch:
        checksum_size = CHECKSUM_SIZE if self.store.row_checksums else 0
        if not checksum_size and state is None:
            return RocksDbBatch(name, raw_keys, raw_values)
        if checksum_size:
            is_list = state is None or state.lists
            verify_values(raw_keys, raw_values, self.store.delimiter if is_list else None, self.where)
        if state is None:
            return RocksDbBatch(name, raw_keys, raw_values)
        if state.lists:
            return self._list_batch(name, raw_keys, raw_values, read_keys(raw_keys, family, state, self.where), state)
        rows = (
            read_keys(raw_keys, family, state, self.where),
            read_values(raw_values, checksum_size, raw_keys, state, self.where),
        )
        return RocksDbBatch(name, raw_keys, raw_values, rows)

    def _list_batch(
        self,
        name: str,
        raw_keys: Rows,
        raw_values: Rows,
        keys: Rows,
        state: StateDescriptor,
    ) -> RocksDbBatch:
        checksum_size = CHECKSUM_SIZE if self.store.row_checksums else 0
        elements, is_wrong = split(raw_values, checksum_size - SIZE if checksum_size else 0, self.store.delimiter)
        pieces = elements.pieces
        if checksum_size and not is_wrong.any():
            # After the checksum is the size of the rest, and the rest begins with the row's own size.
            is_short = pieces.size < checksum_size + SIZE
            size = read_at(pieces.data, np.where(is_short, 0, pieces.start + checksum_size), "<i4")
            is_wrong[elements.owner[is_short | (size != pieces.size - checksum_size - SIZE)]] = True
        if is_wrong.any():
            key = raw_keys.piece(int(np.flatnonzero(is_wrong)[0]))
            problem = ": its value is not a list of rows with their sizes"
            raise CorruptionError(f"{self.where}: key " + quote(key.hex()) + problem)
        rows = (
            keys.take(elements.owner),
            read_values(pieces, checksum_size + SIZE, raw_keys, state, self.where, elements.owner),
        )
        return RocksDbBatch(name, raw_keys, raw_values, rows, elements)

    def change(
        self, batch: RocksDbBatch, state: StateDescriptor, kept: Int64s, rewritten: Mask, values: Rows
    ) -> RocksDbBatch:
        """See ``StoredPartition.change``."""
        kept, rewritten, new_values = self.stored_change(batch, state, kept, rewritten, values)
        keys = batch.raw_keys.take(kept)
        return self._batch_of(state, keys, batch.raw_values.take(kept).replace(rewritten, Rows.of(new_values)))

    def stored_change(
        self, batch: RocksDbBatch, state: StateDescriptor, kept: Int64s, rewritten: Mask, values: Rows
    ) -> tuple[Int64s, Mask, list[bytes]]:
        """Return which stored keys of a batch are kept, which of those have a new value, and the new values.

        The arguments are those of ``SnapshotWriter.change``; a state of lists has a stored key for each list.
        """
        if batch.elements is None:
            return kept, rewritten, self._new_values(batch, state, kept[rewritten], values.take(rewritten))
        owner, count = batch.elements.owner, len(batch.raw_keys)
        elements_left = np.bincount(owner[kept], minlength=count)
        is_touched = elements_left != np.bincount(owner, minlength=count)
        is_touched[owner[kept[rewritten]]] = True
        is_in_touched_list = is_touched[owner[kept]]
        kept_here, new_here = kept[is_in_touched_list], rewritten[is_in_touched_list]
        new_values = Rows.of(self._new_values(batch, state, kept[rewritten], values.take(rewritten)))
        pieces = batch.elements.pieces.take(kept_here).replace(new_here, new_values)
        kept_lists = np.flatnonzero(elements_left)
        return kept_lists, is_touched[kept_lists], join(pieces, owner[kept_here], self.store.delimiter)

    def _new_values(
        self, batch: RocksDbBatch, state: StateDescriptor, entry_numbers: Int64s, rows: Rows
    ) -> list[bytes]:
        """Return new rows as they are stored, with checksums if the store has them."""
        if not len(rows):
            return []
        encoding_byte = bytes([ENCODING]) if state.avro is None else b""
        if state.avro is not None:
            rows = state.avro.stored_values(rows)
        data, starts, sizes = rows.data.tobytes(), rows.start.tolist(), rows.size.tolist()
        payload = [encoding_byte + data[start : start + size] for start, size in zip(starts, sizes, strict=True)]
        if batch.elements is not None:
            payload = [struct.pack("<i", len(row)) + row for row in payload]
            entry_numbers = batch.elements.owner[entry_numbers]
        return self.stored_values(batch.raw_keys.take(entry_numbers), payload)

    def moved(self, states: Mapping[str, StateDescriptor], moves: Mapping[str, Renumbering]) -> Iterator[RocksDbBatch]:
        """See ``StoredPartition.moved``."""
        for name, renumbering in moves.items():
            pairs = self.move(states[name], renumbering)
            while chunk := list(islice(pairs, _MOVED)):
                keys, values = zip(*chunk, strict=True)
                yield self._batch_of(states[name], Rows.of(keys), Rows.of(values))

    def _batch_of(self, state: StateDescriptor, raw_keys: Rows, raw_values: Rows) -> RocksDbBatch:
        """Return entries of a state that are stored like this; raises CorruptionError if they cannot be read."""
        # New values are behind all others in their buffer, and lists must be in it in their order.
        values = Rows.concat([raw_values])
        return self._batch(state.state, raw_keys, values, FAMILY_SIZE if self.families else 0, state)

    def move(self, state: StateDescriptor, moves: Renumbering) -> Iterator[tuple[bytes, bytes]]:
        """Yield entries as they are to be stored, with another ordered number at the start of their keys."""
        checksum_size = CHECKSUM_SIZE if self.store.row_checksums else 0
        place, infix = (_NUMBER_AT, b"") if state.avro is None else (_AVRO_NUMBER_AT, _AVRO_BETWEEN)
        position, numbers_used = 0, 0
        for batch in self.batches({}, only=state.state):
            if batch.state != state.state:
                continue
            moved_rows = np.flatnonzero(moves.which[position : position + len(batch)]).tolist()
            position += len(batch)
            numbers = moves.numbers[numbers_used : numbers_used + len(moved_rows)]
            numbers_used += len(moved_rows)
            marker = (numbers >= 0).astype("u1").tobytes()
            number_bytes = numbers.astype(">i8").tobytes()
            keys, values = [], []
            for position_in_batch, row in enumerate(moved_rows):
                key = batch.raw_keys.piece(row)
                number = (
                    marker[position_in_batch : position_in_batch + 1]
                    + infix
                    + number_bytes[8 * position_in_batch : 8 * position_in_batch + 8]
                )
                keys.append(key[:place] + number + key[place + len(number) :])
                values.append(batch.raw_values.piece(row)[checksum_size:])
            yield from zip(keys, self.stored_values(Rows.of(keys), values), strict=True)

    def stored_values(self, raw_keys: Rows, payload: list[bytes]) -> list[bytes]:
        """Return values as they are stored, with checksums if the store has them."""
        if not self.store.row_checksums or not payload:
            return payload
        return with_checksums(raw_keys, Rows.of(payload)).to_list()


def verify_keys(changes: changelog.ChangelogRecords, delimiter: bytes, where: str) -> list[bytes]:
    """Return the keys of records with checksums; raises CorruptionError if a checksum does not match.

    A delete has its checksum before its key, other records before their values.
    """
    deletes = [number for number, kind in enumerate(changes.kinds) if kind == changelog.DELETE]
    keys = list(changes.keys)
    for number in deletes:
        stored_checksum, keys[number] = keys[number][:4], keys[number][4:]
        if int.from_bytes(stored_checksum, "little") != google_crc32c.value(keys[number]):
            key = quote(keys[number].hex())
            raise CorruptionError(f"{where}: the delete of key " + key + " does not match its checksum")
    puts = sorted(set(range(len(keys))) - set(deletes))
    verify_values(
        Rows.of([keys[number] for number in puts]),
        Rows.of([changes.values[number] for number in puts]),
        delimiter,
        where,
    )
    return keys
