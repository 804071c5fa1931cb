"""The keys with the most rows in a partition: of a join's rows, of the elements of a list or a map, of timers.

A row of the query can be one of many that have the same key: the columns by which the query groups or joins. Spark
places all rows of such a key in one partition, so the keys of a partition can be counted on their own.

Keys are counted by a hash of 64 bits, in 24 bytes for each. The bytes of a key are kept only while it is one of those
with the most rows. No key is missed: one that becomes such a key has a row among those that were just added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.schema.types import DataType, StructType
from ttlsnap.stores.hdfs.key_index import Hashes, hash_rows
from ttlsnap.unsaferow.gather import Int64s
from ttlsnap.unsaferow.project import without_last_field
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import struct_rows

ENOUGH = 1 << 18  # keys that are counted together, because each time costs a copy of all counts
_ENOUGH_BYTES = 64 << 20


@dataclass(frozen=True)
class KeyCount:
    """A key with its number of rows and their bytes as stored; ``key`` is the row of a key of one of these rows."""

    key: bytes
    rows: int
    bytes: int


def has_many_rows(state: StateDescriptor) -> bool:
    """Return whether several rows of a state can have one key."""
    several = bool(state.grouping) or state.grouping_without_last or state.lists
    return several and state.role == "primary" and not state.opaque


class RowsByKey:
    """The rows of a state in one partition, counted by key, and the ``most`` keys with the most rows."""

    def __init__(self, state: StateDescriptor, limit: int) -> None:
        self._state, self._limit = state, limit
        self._hashes: Hashes = np.zeros(0, np.uint64)
        self._counts: Int64s = np.zeros((2, 0), np.int64)  # the rows of each hash, and their bytes
        self._count_of_hash: dict[int, KeyCount] = {}
        self._waiting_rows: list[tuple[Rows, Int64s, Int64s]] = []
        self._units = self._bytes = 0

    def add(self, keys: Rows, rows: Int64s, sizes: Int64s) -> None:
        """Count stored keys, each with its number of rows and its bytes."""
        if not len(keys):
            return
        self._waiting_rows.append((keys, rows, sizes))
        self._units += len(keys)
        self._bytes += len(keys.data)
        if self._units >= ENOUGH or self._bytes >= _ENOUGH_BYTES:
            self._count()

    def result(self) -> list[KeyCount]:
        """Return the keys with the most rows, the one with the most first."""
        self._count()
        return sorted(
            self._count_of_hash.values(), key=lambda key_count: (-key_count.rows, -key_count.bytes, key_count.key)
        )

    def _count(self) -> None:
        waiting_rows, self._waiting_rows = self._waiting_rows, []
        self._units = self._bytes = 0
        if not waiting_rows:
            return
        hashes = np.concatenate([hash_rows(grouping_rows(self._state, keys)) for keys, *_ in waiting_rows])
        counts = np.stack([np.concatenate(parts) for parts in list(zip(*waiting_rows, strict=True))[1:]])
        order = np.argsort(hashes, kind="stable")
        ordered_hashes = hashes[order]
        first_places = np.flatnonzero(np.append(True, ordered_hashes[1:] != ordered_hashes[:-1]))
        new_hashes, added_counts, example = (
            ordered_hashes[first_places],
            np.add.reduceat(counts[:, order], first_places, axis=1),
            order[first_places],
        )
        slots = np.searchsorted(self._hashes, new_hashes)
        is_known = np.zeros(len(new_hashes), np.bool_)
        is_within = slots < len(self._hashes)
        is_known[is_within] = self._hashes[slots[is_within]] == new_hashes[is_within]
        self._counts[:, slots[is_known]] += added_counts[:, is_known]
        added_counts[:, is_known] = self._counts[:, slots[is_known]]
        self._hashes = np.insert(self._hashes, slots[~is_known], new_hashes[~is_known])
        self._counts = np.insert(self._counts, slots[~is_known], added_counts[:, ~is_known], axis=1)
        self._choose(waiting_rows, new_hashes, added_counts, example)

    def _choose(
        self, waiting_rows: list[tuple[Rows, Int64s, Int64s]], hashes: Hashes, counts: Int64s, example: Int64s
    ) -> None:
        """Choose the keys with the most rows among those that were chosen before and those just counted.

        ``example`` has the place of one of the keys with each hash.
        """
        row_ends = np.cumsum([len(keys) for keys, *_ in waiting_rows])
        best_numbers = (
            np.lexsort((-counts[1], -counts[0]))[: self._limit] if len(hashes) > self._limit else range(len(hashes))
        )
        refreshed = np.flatnonzero(np.isin(hashes, np.array(list(self._count_of_hash), np.uint64)))
        for number in {*map(int, best_numbers), *refreshed.tolist()}:
            name = int(hashes[number])
            place = int(example[number])
            part_number = int(np.searchsorted(row_ends, place, "right"))
            keys = waiting_rows[part_number][0]
            count_before = self._count_of_hash.get(name)
            key = count_before.key if count_before else keys.piece(place - int(row_ends[part_number]) + len(keys))
            self._count_of_hash[name] = KeyCount(key, int(counts[0, number]), int(counts[1, number]))
        ranked_counts = sorted(
            self._count_of_hash.items(), key=lambda pair: (-pair[1].rows, -pair[1].bytes, pair[1].key)
        )
        self._count_of_hash = dict(ranked_counts[: self._limit])


def grouping_rows(state: StateDescriptor, keys: Rows) -> Rows:
    """Return the columns of each key by which the query groups, as rows.

    Raise CorruptionError for a row that is too short.
    """
    schema: DataType = state.key_schema
    for place in state.grouping:
        assert isinstance(schema, StructType)
        keys = struct_rows(keys, len(schema.fields), place)
        schema = schema.fields[place].type
    assert isinstance(schema, StructType)
    if state.grouping_without_last:
        keys = without_last_field(keys, [field.type for field in schema.fields])
    return keys
