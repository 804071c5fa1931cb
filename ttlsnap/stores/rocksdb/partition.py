"""One partition of the RocksDB store: its entries, and the new snapshot that is made of them.

    key      [column family: int16 LE] 00 UnsafeRow
             [column family: int16 LE] size: i32 LE, 00 UnsafeRow, 00 UnsafeRow       the prefix columns, the others
             where the prefix is ordered, its row has one binary field: 01, or 00 before what is negative, i64 BE
             [column family: int16 LE] time, 00 UnsafeRow                             time: i64 BE, its sign bit flipped
             [column family: int16 LE] 00 UnsafeRow, time
    value    [CRC32C: u32 LE, size: i32 LE] 00 UnsafeRow        the checksum is that of the whole key and of the value
             or a list of such, see ``lists``

A state that is not of rows is only copied.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
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
from ttlsnap.errors import CorruptionError, CountError, StorageError
from ttlsnap.filesystem import Directory, is_local
from ttlsnap.state import StateDescriptor
from ttlsnap.stores import Moves, RewriteChoice, Staging
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.rocksdb import RocksDbStore, changelog
from ttlsnap.stores.rocksdb.archive import SnapshotMetadata
from ttlsnap.stores.rocksdb.database import (
    Pairs,
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
from ttlsnap.stores.rocksdb.lists import SIZE, Elements, split
from ttlsnap.stores.rocksdb.writer import RocksDbWriter
from ttlsnap.stores.row_checksums import row_checksums
from ttlsnap.unsaferow.gather import Int64s, at
from ttlsnap.unsaferow.project import side_by_side
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import long_rows

FAMILY_SIZE = 2
CHECKSUM_SIZE = 8  # with the size that follows it
TIME_SIZE = 8
ENCODING = 0  # the first byte of every row that is stored: the version of its encoding
_ORDERED_ROW, _ORDERED_AT, _ORDERED_WORD = 32, 16, 16 << 32 | 9
_NUMBER_AT = FAMILY_SIZE + 4 + 1 + _ORDERED_AT  # behind the size of the prefix and the byte for its encoding
_AVRO_NUMBER_AT, _AVRO_BETWEEN = FAMILY_SIZE + 4 + 1 + 2, b"\x02\x10"  # see ``ttlsnap.avro.keys``
_KEEP = 128 << 20  # bytes of entries that are kept rather than read again
_OBJECTS = 100  # bytes that Python takes for the two objects of an entry, beside what is in them
_UNPACKED = 10  # bytes of a scratch database for each byte of a changelog


@dataclass(frozen=True, eq=False)
class Batch:
    """What lies in RocksDB one after the other, of one state; ``rows`` are keys and values, where asked for.

    Of a state of lists each of the ``elements`` is an entry, and has the key of its list.
    """

    state: str
    raw_keys: Sequence[bytes]
    raw_values: Sequence[bytes]
    rows: tuple[Rows, Rows] | None = None
    elements: Elements | None = None

    def __len__(self) -> int:
        return len(self.raw_keys) if self.elements is None else len(self.elements.owner)

    @property
    def keys(self) -> Rows:
        return self.rows[0] if self.rows else Rows.of(self.raw_keys)

    @property
    def values(self) -> Rows:
        return self.rows[1] if self.rows else Rows.of(self.raw_values)


@contextlib.contextmanager
def opened(
    store: RocksDbStore, files: Directory, lineage: Lineage, scratch: str | None, again: bool
) -> Iterator[RocksDbPartition]:
    """Put a partition's database together in a folder of its own below ``scratch``, which goes when the block ends."""
    where = f"{files.root}/{lineage.new_snapshot.rpartition('/')[0]}, version {lineage.version}"
    with scratch_folder(scratch) as folder, storage_errors(str(folder)):
        changes = sum(file.size for file in lineage.deltas)
        # Tables that are not on this machine are copied down, and again with those that are staged, to be looked at.
        copied = 0 if is_local(files.root) else 2 * sum(file.size for file in lineage.shared)
        require_room(folder, copied + _UNPACKED * (changes + (lineage.snapshot.size if lineage.snapshot else 0)))
        source = folder / "source"
        source.mkdir()
        metadata = assemble(files, lineage.snapshot.path, source, store.delimiter) if lineage.snapshot else None
        with rocksdb_errors(where):
            settings = settings_of(source) if metadata else default_settings(store.format_version)
        with database(source, settings, where, new=metadata is None) as base:
            if metadata is not None:
                _require_tables(base, metadata, f"{files.root}/{lineage.snapshot.path if lineage.snapshot else ''}")
            partition = RocksDbPartition(store, files, lineage, folder, base, settings, metadata, where, again)
            partition.replay()
            yield partition


@contextlib.contextmanager
def scratch_folder(scratch: str | None) -> Iterator[Path]:
    """A folder of its own below ``scratch``, which goes when the block ends."""
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
        again: bool,
    ) -> None:
        self.store, self.files, self.lineage, self.folder = store, files, lineage, folder
        self.base, self.settings, self.metadata, self.where = base, settings, metadata, where
        # What a scan must find; None where there is nothing to count by.
        self.expected = metadata.entries if metadata else None
        self._again = again
        self._kept: list[Pairs] | None = None

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
            keys = verified_keys(changes, self.store.delimiter, where)
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

    def batches(self, states: Mapping[str, StateDescriptor], only: str | None = None) -> Generator[Batch, None, None]:
        """See ``StoredPartition.batches``."""
        found = 0
        number = next((number for number, name in self.families.items() if name == only), None)
        family = None if number is None else struct.pack("<h", number)
        for raw_keys, raw_values in self._pairs(family):
            found += len(raw_keys)
            yield from self._by_state(raw_keys, raw_values, states)
        if self.expected is not None and family is None and found != self.expected:
            raise CountError(
                f"{self.where}: {found} entries were found, where its metadata promises {self.expected}. Restore the "
                "partition from a copy, or go back to an older batch"
            )

    def _pairs(self, family: bytes | None) -> Iterator[Pairs]:
        """All entries; with ``family`` others may be left out."""
        if self._kept is not None:
            for keys, values in self._kept:
                if family is None or keys[0][:FAMILY_SIZE] <= family <= keys[-1][:FAMILY_SIZE]:
                    yield keys, values
            return
        kept, room = [], _KEEP if self._again and family is None else 0
        for keys, values in scan(self.base, self.where, family):
            if room > 0:
                room -= sum(map(len, keys)) + sum(map(len, values)) + _OBJECTS * len(keys)
                kept.append((keys, values))
            if room <= 0:
                kept.clear()
            yield keys, values
        self._kept = kept if room > 0 else None

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
            is_list = state is None or state.lists
            verify_values(raw_keys, values, self.store.delimiter if is_list else None, self.where)
        if state is None:
            return Batch(name, raw_keys, raw_values)
        if state.lists:
            lists = self._keys(keys, family, raw_keys, state)
            return self._list_batch(name, raw_keys, raw_values, lists, values, state)
        rows = self._keys(keys, family, raw_keys, state), self._values(values, head, raw_keys, state)
        return Batch(name, raw_keys, raw_values, rows)

    def _list_batch(
        self,
        name: str,
        raw_keys: Sequence[bytes],
        raw_values: Sequence[bytes],
        keys: Rows,
        values: Rows,
        state: StateDescriptor,
    ) -> Batch:
        head = CHECKSUM_SIZE if self.store.row_checksums else 0
        elements, wrong = split(values, head - SIZE if head else 0, self.store.delimiter)
        pieces = elements.pieces
        if head and not wrong.any():
            # Behind the checksum is the size of all that follows, which begins with the row's own.
            short = pieces.size < head + SIZE
            size = at(pieces.data, np.where(short, 0, pieces.start + head), "<i4")
            wrong[elements.owner[short | (size != pieces.size - head - SIZE)]] = True
        if wrong.any():
            key = raw_keys[int(np.flatnonzero(wrong)[0])]
            raise CorruptionError(f"{self.where}: key {key.hex()}: its value is no list of rows with their sizes")
        rows = keys.take(elements.owner), self._values(pieces, head + SIZE, raw_keys, state, elements.owner)
        return Batch(name, raw_keys, raw_values, rows, elements)

    def _keys(self, raw: Rows, family: int, raw_keys: Sequence[bytes], state: StateDescriptor) -> Rows:
        """The rows of the keys, put together where their prefix is stored apart."""
        if state.avro is not None:
            return state.avro.keys(Rows(raw.data, raw.start + family, raw.size - family))
        if state.key_time is not None:
            return self._keys_with_time(raw, family, raw_keys, state)
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

    def _values(
        self, raw: Rows, head: int, raw_keys: Sequence[bytes], state: StateDescriptor, owner: Int64s | None = None
    ) -> Rows:
        """The rows of the values, behind ``head`` bytes; ``owner`` says which key each is of."""
        if state.avro is None:
            return self._rows(raw, head, raw_keys, owner)
        return state.avro.values(Rows(raw.data, raw.start + head, raw.size - head))

    def _keys_with_time(self, raw: Rows, family: int, raw_keys: Sequence[bytes], state: StateDescriptor) -> Rows:
        """The rows of keys that have a time before or behind all other columns; in the schema it is the last."""
        size = raw.size - family - TIME_SIZE
        if (size < 0).any():
            key = raw_keys[int(np.flatnonzero(size < 0)[0])]
            raise CorruptionError(f"{self.where}: key {key.hex()} is too short to have a time")
        before = state.key_time == "before"
        row = raw.start + family + (TIME_SIZE if before else 0)
        time = at(raw.data, raw.start + family + (0 if before else size), ">u8") ^ np.uint64(1 << 63)
        rows = self._rows(Rows(raw.data, row, size), 0, raw_keys)
        types = [field.type for field in state.key_schema.fields]
        return side_by_side(rows, long_rows(time.astype(np.uint64).view(np.int64)), types[:-1], types[-1:])

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

    def _rows(self, raw: Rows, head: int, raw_keys: Sequence[bytes], owner: Int64s | None = None) -> Rows:
        """The rows behind ``head`` bytes and the one that tells their encoding; ``owner`` says which key each is of."""
        short = raw.size <= head
        if not short.any():
            short = at(raw.data, raw.start + head, "u1") != ENCODING
        if short.any():
            i = int(np.flatnonzero(short)[0])
            key = raw_keys[i if owner is None else int(owner[i])]
            raise CorruptionError(f"{self.where}: key {key.hex()}: no row of a known encoding begins where it should")
        return Rows(raw.data, raw.start + head + 1, raw.size - head - 1)

    def writer(
        self,
        staging: Staging | None,
        rewrite: RewriteChoice,
        states: Mapping[str, StateDescriptor],
        moves: Mapping[str, Moves],
        changes: int = 0,
    ) -> RocksDbWriter:
        """See ``StoredPartition.writer``."""
        moved = {name: list(self._moved(states[name], which)) for name, which in moves.items()}
        return RocksDbWriter(self, staging, rewrite, states, moved, changes)

    def _moved(self, state: StateDescriptor, moves: Moves) -> Iterator[tuple[bytes, bytes]]:
        """Entries as they are to be stored: the same but for the number in order that their keys begin with."""
        head = CHECKSUM_SIZE if self.store.row_checksums else 0
        place, between = (_NUMBER_AT, b"") if state.avro is None else (_AVRO_NUMBER_AT, _AVRO_BETWEEN)
        position, done = 0, 0
        for batch in self.batches({}, only=state.state):
            if batch.state != state.state:
                continue
            which = np.flatnonzero(moves.which[position : position + len(batch)]).tolist()
            position += len(batch)
            numbers = moves.numbers[done : done + len(which)]
            done += len(which)
            marker = (numbers >= 0).astype("u1").tobytes()
            ordered = numbers.astype(">i8").tobytes()
            keys, values = [], []
            for n, i in enumerate(which):
                key = batch.raw_keys[i]
                number = marker[n : n + 1] + between + ordered[8 * n : 8 * n + 8]
                keys.append(key[:place] + number + key[place + len(number) :])
                values.append(batch.raw_values[i][head:])
            yield from zip(keys, self.stored_values(keys, values), strict=True)

    def stored_values(self, raw_keys: Sequence[bytes], payload: list[bytes]) -> list[bytes]:
        """Values as they are stored, with their checksums where the store has them."""
        if not self.store.row_checksums or not payload:
            return payload
        sums = row_checksums(Rows.of(raw_keys), Rows.of(payload)).tolist()
        return [struct.pack("<Ii", c, len(value)) + value for c, value in zip(sums, payload, strict=True)]


def verified_keys(changes: changelog.Changes, delimiter: bytes, where: str) -> list[bytes]:
    """The keys of records with checksums: a delete's stands before its key, the others' before their values."""
    deletes = [i for i, kind in enumerate(changes.kinds) if kind == changelog.DELETE]
    keys = list(changes.keys)
    for i in deletes:
        stored, keys[i] = keys[i][:4], keys[i][4:]
        if int.from_bytes(stored, "little") != google_crc32c.value(keys[i]):
            raise CorruptionError(f"{where}: the delete of key {keys[i].hex()} does not match its checksum")
    puts = sorted(set(range(len(keys))) - set(deletes))
    verify_values([keys[i] for i in puts], Rows.of([changes.values[i] for i in puts]), delimiter, where)
    return keys


def verify_values(raw_keys: Sequence[bytes], values: Rows, delimiter: bytes | None, where: str) -> None:
    """Every value's checksum, or those of its elements: where there is no ``delimiter``, no value is a list."""
    keys = Rows.of(raw_keys)
    wrong = values.size < CHECKSUM_SIZE
    if not wrong.any():
        owner = np.arange(len(values))
        wrong = at(values.data, values.start + 4, "<i4") != values.size - CHECKSUM_SIZE
        if wrong.any() and delimiter is not None:
            elements, wrong = split(values, CHECKSUM_SIZE - SIZE, delimiter)
            owner, values = elements.owner, elements.pieces
        payload = Rows(values.data, values.start + CHECKSUM_SIZE, values.size - CHECKSUM_SIZE)
        wrong[owner[at(values.data, values.start, "<u4") != row_checksums(keys.take(owner), payload)]] = True
    if wrong.any():
        key = raw_keys[int(np.flatnonzero(wrong)[0])].hex()
        raise CorruptionError(
            f"{where}: {int(wrong.sum())} of {len(wrong)} rows do not match their checksums; the first has the key "
            f"{key}"
        )
