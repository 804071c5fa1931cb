"""``dropDuplicates`` (``dedupe``) and ``dropDuplicatesWithinWatermark`` (``dedupeWithinWatermark``).

All entries are primary: one for each distinct key. ``dropDuplicates`` stores no value. Spark drops a key when the
watermark reaches the key's event-time column, if there is one among the columns. ``...WithinWatermark`` stores
``expiresAtMicros``, the event time from which Spark may drop the key. Both are on the event clock.

Whatever the schema says, a value of ``dropDuplicates`` is a row of one null, 16 bytes. Spark 3.1, 3.2.0, 3.2.1 and
3.3.0 record all columns of the incoming rows, including those of the key. Later versions keep such a schema, and record
one column of type ``void`` for a new query (SPARK-39650). Before Spark 4.0 the operator's name is not recorded, and the
values of an aggregation may have all columns of their keys, too. In that case the values themselves decide.
Source: Spark's ``StreamingDeduplicateExec`` and ``StreamingDeduplicateWithinWatermarkExec``.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ttlsnap.checkpoint import Checkpoint, Operator, Store
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.clock import TimeCharacteristic
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.operators import aggregation
from ttlsnap.operators.scala_order import ORDERED
from ttlsnap.operators.stored_time import StoredTime
from ttlsnap.schema.types import NullType, StructField, StructType
from ttlsnap.stores.open import open_state_store, partition_of

if TYPE_CHECKING:
    from ttlsnap.unsaferow.rows import Rows

NAME = "dedupe"
WITHIN_WATERMARK = "dedupeWithinWatermark"
NAMES = (NAME, WITHIN_WATERMARK)
NOTHING = StructType((StructField("__dummy__", NullType()),))
"""The schema of a value that holds nothing."""

WITHOUT_TIME = (
    "dropDuplicates without an event-time column stores no time. You can use --ttl with --timestamp @written (when a "
    "key was first seen, as far as that is known) or with a field of the key that is a time, write a --transformer "
    "that decides by the key, or start a new checkpoint with dropDuplicatesWithinWatermark"
)
"""The advice for a state of keys without any time."""

# An UnsafeRow of one null field: the null bits and the word, 8 bytes each.
_ONE_NULL = b"\1" + bytes(15)

# The same rule: the watermarked key column.
stored_time, unrecorded_times = aggregation.stored_time, aggregation.unrecorded_times


def stored_by_any(key: StructType, value: StructType) -> StoredTime | None:
    """Return what one of these operators or an aggregation stores, for an operator without a name."""
    return stored_limit(key, value) or stored_time(key, value)


def stored_limit(key: StructType, value: StructType) -> StoredTime | None:
    """Return ``expiresAtMicros``, the time of the event plus the delay of the watermark, in microseconds."""
    if any(field.name == "expiresAtMicros" for field in value.fields):
        # Spark stores a bigint and no timestamp, so the unit is not in the schema
        # (StreamingDeduplicateWithinWatermarkExec).
        return StoredTime("value.expiresAtMicros:us", TimeCharacteristic.EVENT, written_plus_ttl=True)
    return None


def is_deduplication(state: StateDescriptor) -> bool:
    """Return whether a state is that of one of these operators; without a recorded name, its values decide."""
    if state.operator_name is not None:
        return state.operator_name in NAMES
    return has_values_of_one(state.key_schema, state.value_schema)


def has_values_of_one(key: StructType, value: StructType) -> bool:
    """Return whether a state's values are those of one of these operators, which emit a row at once and never later."""
    # Without a name only the value remains: no other operator stores nothing, or this field.
    return value == NOTHING or stored_limit(key, value) is not None


def can_have_two_orders(state: StateDescriptor) -> bool:
    """Return whether Spark may have changed the order of the columns in the keys of a state (see ``key_order``)."""
    return is_deduplication(state) and len(state.key_schema.fields) > ORDERED


def as_stored(
    checkpoint: Checkpoint, operator: Operator, store: Store, family: ColumnFamilySchema
) -> ColumnFamilySchema:
    """Return the family with the real schema of its values if the recorded one is wrong.

    Values are read only if the recorded schema does not decide.
    """
    if family.value == NOTHING:
        return family
    if operator.name == NAME or (
        operator.name is None
        and len(operator.stores) == 1
        and _has_all_columns_of_the_key(family)
        and _stores_nothing(checkpoint, StateDescriptor.of(operator, store, family), store)
    ):
        return replace(family, value=NOTHING)
    return family


def _has_all_columns_of_the_key(family: ColumnFamilySchema) -> bool:
    columns = [(field.name, field.type) for field in family.value.fields]
    keys = [(field.name, field.type) for field in family.key.fields]
    return bool(keys) and all(key in columns for key in keys)


def _stores_nothing(checkpoint: Checkpoint, state: StateDescriptor, store: Store) -> bool:
    """Return whether the first values are rows of one null. Damaged partitions are skipped."""
    for partition in store.partitions:
        with contextlib.suppress(CorruptionError, UnsupportedError):
            state_store = open_state_store(checkpoint)
            store_partition = partition_of(checkpoint, state_store, store, partition)
            with (
                store_partition.open(checkpoint.files, None) as stored_partition,
                contextlib.closing(stored_partition.batches({state.state: state})) as batches,
            ):
                for batch in batches:
                    if len(batch):
                        return _are_one_null(batch.values)
    return False


def _are_one_null(values: Rows) -> bool:
    return bool((values.size == len(_ONE_NULL)).all()) and set(values.to_arrow().to_pylist()) == {_ONE_NULL}
