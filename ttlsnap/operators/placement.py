"""The partition of a key: the one that Spark's hash of its grouping columns gives, and the only one where Spark looks.

A key of the state can have more columns than those by which the query groups or joins: the index of a join's row, the
start of a session, a map's own key, the time of a timer. ``StateDescriptor`` says which columns are hashed. Their hash,
modulo the number of partitions, is the partition.

A key in another partition is never found again: Spark begins a new entry for it, without a message. That happens if
the folders of partitions are exchanged. Before 3.3, Spark could use the partitions of a query's own ``repartition`` by
some of the columns. A checkpoint from that time stays so, also with a later Spark. It is not one if it pins ``STRICT``.

Strings with a collation are not hashed: Spark refuses them as keys of state, except in joins, for which it stores a
binary key instead. A query without grouping columns has one partition.

Source: Spark's ``StatefulOperatorPartitioning``, ``HashPartitioning``, and SPARK-38204.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import UnsupportedError
from ttlsnap.operators import aggregation, deduplication, group_state, join, session_window, transform_with_state
from ttlsnap.operators.links import show_key
from ttlsnap.schema.types import DataType, NullType, StructType, physical
from ttlsnap.unsaferow.decode import decode_column
from ttlsnap.unsaferow.gather import Int64s
from ttlsnap.unsaferow.murmur3 import Hashes, first_seeds, has_two_hashes, hash_columns, partitions_of
from ttlsnap.unsaferow.rows import Rows

STRICT = "spark.sql.streaming.statefulOperator.useStrictDistribution"

_KNOWN = (
    None,  # before Spark 4.0 no name is recorded; the other operators have no keys of their own
    *aggregation.NAMES,
    *deduplication.NAMES,
    *group_state.NAMES,
    *transform_with_state.NAMES,
    session_window.NAME,
    join.NAME,
)


@dataclass(frozen=True)
class Misplaced:
    """Keys of a state in the wrong partition: their number, and one of them with its partition and the right one.

    ``interpreted`` is the number of keys that are also wrong where Spark before 4.3 does not generate code.
    """

    count: int
    example: Any
    partition: int
    belongs_to: int
    interpreted: int


class PlacementCheck:
    """A check of the keys of one partition; ``look`` gets them. ``partitions`` is the number of the operator's."""

    def __init__(self, state: StateDescriptor, partition: int, partitions: int) -> None:
        self._state, self._partition, self._partitions = state, partition, partitions
        self._misplaced: Misplaced | None = None
        self._two = not state.hashes_days and any(map(has_two_hashes, grouping_types(state)))
        self._interpreted = 0

    def look(self, keys: Rows) -> None:
        """Add a batch of keys."""
        try:
            partitions = find_partitions(self._state, keys, self._partitions)
        except UnsupportedError:
            return  # the hash of a type is not known, so nothing can be said of these keys
        wrong_rows = np.flatnonzero(partitions != self._partition)
        # Spark before 4.3 hashes a calendar interval in another way where it does not generate code. A key is misplaced
        # only if it is wrong for both ways.
        if self._two or len(wrong_rows):
            count = self._count_interpreted(keys) if self._two else len(wrong_rows)
            self._interpreted += count
        if len(wrong_rows):
            example = show_key([keys.take(wrong_rows[:1]).to_arrow()], 0, self._state.key_schema)
            misplaced = self._misplaced or Misplaced(0, example, self._partition, int(partitions[wrong_rows[0]]), 0)
            self._misplaced = replace(misplaced, count=misplaced.count + len(wrong_rows))

    def _count_interpreted(self, keys: Rows) -> int:
        partitions = partitions_of(hash_keys(replace(self._state, hashes_days=True), keys), self._partitions)
        return int(np.count_nonzero(partitions != self._partition))

    def result(self) -> Misplaced | None:
        """Return what was found; None if every key is where it belongs."""
        return None if self._misplaced is None else replace(self._misplaced, interpreted=self._interpreted)


def is_placed_by_hash(state: StateDescriptor) -> bool:
    """Return whether Spark places the keys of a state by their hash.

    It runs an operator without grouping columns, and a global limit, in one partition.
    """
    types = grouping_types(state)
    # Before Spark 4.0 no name is recorded, and a global limit has a void key, too.
    maybe_limit = state.operator_name is None and all(isinstance(physical(kind), NullType) for kind in types)
    return state.operator_name in _KNOWN and not state.opaque and bool(types) and not maybe_limit


def is_placed_by_interval(state: StateDescriptor) -> bool:
    """Return whether the partition of a key depends on a calendar interval."""
    return is_placed_by_hash(state) and any(map(has_two_hashes, grouping_types(state)))


def find_partitions(state: StateDescriptor, keys: Rows, partitions: int) -> Int64s:
    """Return the partition of each key, int64[n]; raises as ``hash_keys`` does."""
    return partitions_of(hash_keys(state, keys), partitions)


def find_partition(state: StateDescriptor, columns: Sequence[pa.Array], partitions: int) -> int:
    """Return the partition of one key, given as one value of each hashed column.

    Raise UnsupportedError for a type whose hash is not known.
    """
    hashes = hash_columns(columns, grouping_types(state), first_seeds(1), with_days=state.hashes_days)
    return int(partitions_of(hashes, partitions)[0])


def hash_keys(state: StateDescriptor, keys: Rows) -> Hashes:
    """Return the hash of each key, uint32[n].

    Raise UnsupportedError for a type whose hash is not known, and CorruptionError for a row that is not of this type.
    """
    types = grouping_types(state)
    paths = [(*state.grouping, place) for place in range(len(types))]
    columns = [decode_column(keys, state.key_schema, path) for path in paths]
    return hash_columns(columns, types, first_seeds(len(keys)), with_days=state.hashes_days)


def grouping_types(state: StateDescriptor) -> list[DataType]:
    """Return the types of the hashed columns."""
    schema: DataType = state.key_schema
    for place in state.grouping:
        assert isinstance(schema, StructType)
        schema = schema.fields[place].type
    assert isinstance(schema, StructType)
    # Only the grouping columns decide, in their order in the key (HashPartitioning.partitionIdExpression).
    types = [field.type for field in schema.fields]
    return types[:-1] if state.grouping_without_last else types
