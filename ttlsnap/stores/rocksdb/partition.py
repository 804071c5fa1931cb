"""One partition of the RocksDB store: its entries, and the new snapshot that is made of them.

    key      [column family: int16 LE] 00 UnsafeRow
             [column family: int16 LE] size: i32 LE, 00 UnsafeRow, 00 UnsafeRow       the prefix columns, the others
             where the prefix is ordered, its row has one binary field: 01, or 00 before what is negative, i64 BE
    value    [CRC32C: u32 LE, size: i32 LE] 00 UnsafeRow        the checksum is that of the whole key and of the value

A state that is not of rows (a list, an index) is only copied. Each element of a list has a checksum of its own.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from rocksdict import Rdict, WriteBatch

from ttlsnap.checkpoint.state_schema import DEFAULT_FAMILY
from ttlsnap.errors import CorruptionError, StorageError
from ttlsnap.filesystem import Directory
from ttlsnap.state import StateDescriptor
from ttlsnap.stores import Rewrite, Staging
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.rocksdb import RocksDbStore, changelog
from ttlsnap.stores.rocksdb.archive import SnapshotMetadata
from ttlsnap.stores.rocksdb.database import (
    Settings,
    assemble,
    database,
    default_settings,
    live_tables,
    require_room,
    rocksdb_errors,
    scan,
    settings_of,
    storage_errors,
)
from ttlsnap.stores.rocksdb.writer import RocksDbWriter
from ttlsnap.stores.row_checksums import row_checksums
from ttlsnap.unsaferow.gather import at
from ttlsnap.unsaferow.project import side_by_side
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import long_rows

FAMILY_SIZE = 2
CHECKSUM_SIZE = 8  # with the size that follows it
ENCODING = 0  # the first byte of every row that is stored: the version of its encoding
_ORDERED_ROW, _ORDERED_AT, _ORDERED_WORD = 32, 16, 16 << 32 | 9
_UNPACKED = 10  # bytes of a scratch database for each byte of a changelog


@dataclass(frozen=True, eq=False)
class Batch:
    """Consecutive entries of one state, as RocksDB has them; ``rows`` are their keys and values, where asked for."""

    state: str
    raw_keys: Sequence[bytes]
    raw_values: Sequence[bytes]
    rows: tuple[Rows, Rows] | None = None

    def __len__(self) -> int:
        return len(self.raw_keys)

    @property
    def keys(self) -> Rows:
        return self.rows[0] if self.rows else Rows.of(self.raw_keys)

    @property
    def values(self) -> Rows:
        return self.rows[1] if self.rows else Rows.of(self.raw_values)


@contextlib.contextmanager
def opened(store: RocksDbStore, files: Directory, lineage: Lineage, scratch: str | None) -> Iterator[RocksDbPartition]:
    """Put a partition's database together in a folder of its own below ``scratch``, which goes when the block ends."""
    where = f"{files.root}/{lineage.new_snapshot.rpartition('/')[0]}, version {lineage.version}"
    with _folder(scratch) as folder, storage_errors(str(folder)):
        changes = sum(file.size for file in lineage.deltas)
        require_room(folder, _UNPACKED * (changes + (lineage.snapshot.size if lineage.snapshot else 0)))
        source = folder / "source"
        source.mkdir()
        metadata = assemble(files, lineage.snapshot.path, source, store.delimiter) if lineage.snapshot else None
        with rocksdb_errors(where):
            settings = settings_of(source) if metadata else default_settings(store.format_version)
        with database(source, settings, where, new=metadata is None) as base:
            if metadata is not None:
                _require_tables(base, metadata, f"{files.root}/{lineage.snapshot.path if lineage.snapshot else ''}")
            partition = RocksDbPartition(store, files, lineage, folder, base, settings, metadata, where)
            partition.replay()
            yield partition


@contextlib.contextmanager
def _folder(scratch: str | None) -> Iterator[Path]:
    try:
        if scratch is not None:
            Path(scratch).mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="ttlsnap-", dir=scratch))
    except OSError as error:
        raise StorageError(f"cannot make a scratch folder in {scratch or tempfile.gettempdir()}: {error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _require_tables(base: Rdict, metadata: SnapshotMetadata, where: str) -> None:
    """A manifest that was cut off makes a smaller database, which RocksDB does not notice."""
    found, listed = set(live_tables(base)), set(metadata.tables)
    if found != listed:
        odd = min(found ^ listed)
        raise CorruptionError(
            f"{where}: {odd} is {'listed, but the MANIFEST does not have it' if odd in listed else 'not listed'}"
        )


class RocksDbPartition:
    """See ``StoredPartition``."""

    def __init__(
        self,
        store: RocksDbStore,
        files: Directory,
        lineage: Lineage,
        folder: Path,
        base: Rdict,
        settings: Settings,
        metadata: SnapshotMetadata | None,
        where: str,
    ) -> None:
        self.store, self.files, self.lineage, self.folder = store, files, lineage, folder
        self.base, self.settings, self.metadata, self.where = base, settings, metadata, where
        # What a scan must find; None where there is nothing to count by.
        self.expected = metadata.entries if metadata else None

    @property
    def families(self) -> dict[int, str]:
        """Names of column families by their ids; empty where keys carry none."""
        return {number: name for name, number in self.metadata.families.items()} if self.metadata else {}

    def replay(self) -> None:
        """Do to the database what the changelogs say was done after its snapshot."""
        codec = self.store.codec
        if self.lineage.deltas and not self.families:
            path = self.lineage.deltas[0].path
            if changelog.has_families(self.files, path, codec):
                raise CorruptionError(
                    f"{self.files.root}/{path} has column families, whose ids only a zip before it can tell"
                )
        with rocksdb_errors(self.where):
            for delta in self.lineage.deltas:
                for changes in changelog.read_changes(self.files, delta.path, codec):
                    self._apply(changes, f"{self.files.root}/{delta.path}")

    def _apply(self, changes: changelog.Changes, where: str) -> None:
        keys = changes.keys
        if self.store.row_checksums:
            keys = _verified_keys(changes, where)
        if changelog.MERGE in changes.kinds:
            pending = self._merged(changes, keys)
        else:
            pending = {
                key: None if kind == changelog.DELETE else value
                for kind, key, value in zip(changes.kinds, keys, changes.values, strict=True)
            }
        if self.expected is not None:
            old: Any = self.base.get(list(pending))
            self.expected += sum(v is not None for v in pending.values()) - sum(v is not None for v in old)
        batch = WriteBatch(raw_mode=True)
        for key, value in pending.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        self.base.write(batch)

    def _merged(self, changes: changelog.Changes, keys: list[bytes]) -> dict[bytes, bytes | None]:
        """What each key holds in the end: a merge joins its value to what is there, as RocksDB's operator does."""
        pending: dict[bytes, list[bytes]] = {}
        for kind, key, value in zip(changes.kinds, keys, changes.values, strict=True):
            if kind == changelog.MERGE:
                if key not in pending:
                    old: Any = self.base.get(key)
                    pending[key] = [] if old is None else [old]
                pending[key].append(value)
            else:
                pending[key] = [] if kind == changelog.DELETE else [value]
        return {key: self.store.delimiter.join(parts) if parts else None for key, parts in pending.items()}

    def batches(self, states: Mapping[str, StateDescriptor]) -> Generator[Batch, None, None]:
        """See ``StoredPartition.batches``."""
        found = 0
        for raw_keys, raw_values in scan(self.base, self.where):
            found += len(raw_keys)
            yield from self._by_state(raw_keys, raw_values, states)
        if self.expected is not None and found != self.expected:
            raise CorruptionError(
                f"{self.where}: {found} entries were found, where its metadata promises {self.expected}. Restore the "
                "partition from a copy, or go back to an older batch"
            )

    def _by_state(
        self, raw_keys: Sequence[bytes], raw_values: Sequence[bytes], states: Mapping[str, StateDescriptor]
    ) -> Iterator[Batch]:
        families = self.families
        if not families:
            yield self._batch(DEFAULT_FAMILY, raw_keys, raw_values, 0, states.get(DEFAULT_FAMILY))
            return
        for start, end in pairwise(self._bounds(raw_keys)):
            number = int.from_bytes(raw_keys[start][:FAMILY_SIZE], "little", signed=True)
            name = families.get(number)
            if name is None:
                raise CorruptionError(
                    f"{self.where}: the key {raw_keys[start].hex()} is of column family {number}, which its "
                    "metadata does not name"
                )
            yield self._batch(name, raw_keys[start:end], raw_values[start:end], FAMILY_SIZE, states.get(name))

    def _bounds(self, raw_keys: Sequence[bytes]) -> list[int]:
        """Where the keys of each column family begin, and where the last one's end.

        Keys come in their order: if two begin alike, so do all between them. Of most batches that is all to look at.
        """
        first, last = raw_keys[0][:FAMILY_SIZE], raw_keys[-1][:FAMILY_SIZE]
        if first == last and len(first) == FAMILY_SIZE:
            return [0, len(raw_keys)]
        short = next((key for key in raw_keys if len(key) < FAMILY_SIZE), None)
        if short is not None:
            raise CorruptionError(f"{self.where}: the key {short.hex()} is too short to name a column family")
        numbers = np.frombuffer(b"".join([key[:FAMILY_SIZE] for key in raw_keys]), "<i2")
        return [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]

    def _batch(
        self,
        name: str,
        raw_keys: Sequence[bytes],
        raw_values: Sequence[bytes],
        family: int,
        state: StateDescriptor | None,
    ) -> Batch:
        head = CHECKSUM_SIZE if self.store.row_checksums else 0
        if not head and state is None:
            return Batch(name, raw_keys, raw_values)
        keys, values = Rows.of(raw_keys), Rows.of(raw_values)
        if head:
            self._verify(keys, values, raw_keys, raw_values, single=state is not None)
        if state is None:
            return Batch(name, raw_keys, raw_values)
        rows = self._keys(keys, family, raw_keys, state), self._rows(values, head, raw_keys)
        return Batch(name, raw_keys, raw_values, rows)

    def _keys(self, raw: Rows, family: int, raw_keys: Sequence[bytes], state: StateDescriptor) -> Rows:
        """The rows of the keys, put together where their prefix is stored apart."""
        if not state.prefix_columns:
            return self._rows(raw, family, raw_keys)
        room = raw.size - family - 4
        short, size = room < 0, room
        if not short.any():
            size = at(raw.data, raw.start + family, "<i4").astype(np.int64)
            short = (size < 1) | (size >= room)
        if short.any():
            key = raw_keys[int(np.flatnonzero(short)[0])]
            raise CorruptionError(f"{self.where}: key {key.hex()}: no prefix and no rest of a key where they should be")
        prefix = self._rows(Rows(raw.data, raw.start + family + 4, size), 0, raw_keys)
        rest = self._rows(Rows(raw.data, raw.start + family + 4 + size, room - size), 0, raw_keys)
        if state.ordered_prefix:
            prefix = self._numbers(prefix)
        types = [field.type for field in state.key_schema.fields]
        return side_by_side(prefix, rest, types[: state.prefix_columns], types[state.prefix_columns :])

    def _numbers(self, ordered: Rows) -> Rows:
        """Rows of one long, from rows of one whose bytes are in order."""
        if not bool((ordered.size == _ORDERED_ROW).all()):
            raise CorruptionError(f"{self.where}: a key does not begin with a number in order")
        marker = at(ordered.data, ordered.start + _ORDERED_AT, "u1")
        numbers = at(ordered.data, ordered.start + _ORDERED_AT + 1, ">i8").astype(np.int64)
        word = at(ordered.data, ordered.start + 8, "<i8")
        if ((word != _ORDERED_WORD) | (marker != (numbers >= 0))).any():
            raise CorruptionError(f"{self.where}: a key does not begin with a number in order")
        return long_rows(numbers)

    def _rows(self, raw: Rows, head: int, raw_keys: Sequence[bytes]) -> Rows:
        """The rows behind ``head`` bytes and the one that tells their encoding."""
        short = raw.size <= head
        if not short.any():
            short = at(raw.data, raw.start + head, "u1") != ENCODING
        if short.any():
            key = raw_keys[int(np.flatnonzero(short)[0])]
            raise CorruptionError(f"{self.where}: key {key.hex()}: no row of a known encoding begins where it should")
        return Rows(raw.data, raw.start + head + 1, raw.size - head - 1)

    def _verify(
        self, keys: Rows, values: Rows, raw_keys: Sequence[bytes], raw_values: Sequence[bytes], single: bool
    ) -> None:
        """Every value's checksum, or those of its elements."""
        wrong = values.size < CHECKSUM_SIZE
        if not wrong.any():
            payload = Rows(values.data, values.start + CHECKSUM_SIZE, values.size - CHECKSUM_SIZE)
            whole = at(values.data, values.start + 4, "<i4") == payload.size
            if not whole.all() and not single:
                for i in np.flatnonzero(~whole).tolist():
                    wrong[i] = not _elements_match(raw_keys[i], raw_values[i], self.store.delimiter)
                keys, payload, values = keys.take(whole), payload.take(whole), values.take(whole)
                wrong[whole] = at(values.data, values.start, "<u4") != row_checksums(keys, payload)
            else:
                wrong = ~whole | (at(values.data, values.start, "<u4") != row_checksums(keys, payload))
        if wrong.any():
            key = raw_keys[int(np.flatnonzero(wrong)[0])].hex()
            raise CorruptionError(
                f"{self.where}: {int(wrong.sum())} of {len(wrong)} rows do not match their checksums; the first has "
                f"the key {key}"
            )

    def writer(self, staging: Staging | None, rewrite: Rewrite) -> RocksDbWriter:
        """See ``StoredPartition.writer``."""
        return RocksDbWriter(self, staging, rewrite)


def _elements_match(key: bytes, value: bytes, delimiter: bytes) -> bool:
    """Whether a value is elements with a checksum and a size each, the delimiter between them."""
    position, of_key = 0, google_crc32c.value(key)
    while True:
        start = position + CHECKSUM_SIZE
        size = int.from_bytes(value[position + 4 : start], "little", signed=True)
        end = start + size
        if size < 0 or end > len(value):
            return False
        if google_crc32c.extend(of_key, value[start:end]) != int.from_bytes(value[position : position + 4], "little"):
            return False
        if end == len(value):
            return True
        if value[end : end + len(delimiter)] != delimiter:
            return False
        position = end + len(delimiter)


def _verified_keys(changes: changelog.Changes, where: str) -> list[bytes]:
    """The keys of records with checksums: a delete's stands before its key, the others' before their values."""
    keys = []
    for kind, key, value in zip(changes.kinds, changes.keys, changes.values, strict=True):
        if kind == changelog.DELETE:
            key, stored, found = key[4:], key[:4], google_crc32c.value(key[4:])
        else:
            payload = value[CHECKSUM_SIZE:]
            stored, found = value[:4], google_crc32c.extend(google_crc32c.value(key), payload)
            if int.from_bytes(value[4:CHECKSUM_SIZE], "little", signed=True) != len(payload):
                raise CorruptionError(f"{where}: the value of key {key.hex()} is not as long as it says")
        if int.from_bytes(stored, "little") != found:
            raise CorruptionError(f"{where}: the row with key {key.hex()} does not match its checksum")
        keys.append(key)
    return keys
