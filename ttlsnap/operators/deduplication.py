"""``dropDuplicates`` (``dedupe``) and ``dropDuplicatesWithinWatermark`` (``dedupeWithinWatermark``).

All entries are primary: one per distinct key. ``dropDuplicates`` stores no value; Spark drops a key once the
watermark has reached the key's event-time column, if there is one among the columns. ``...WithinWatermark``
stores ``expiresAtMicros``, the event time from which the key may go. Both are on the event clock.

Whatever the schema says, a value of ``dropDuplicates`` is a row of one null, 16 bytes. Spark 3.1, 3.2.0, 3.2.1 and
3.3.0 record all columns of the rows that come in, those of the key among them. Later versions leave such a schema as it
is, and record one column of type ``void`` for a new query (SPARK-39650). Before Spark 4.0 the operator's name is not
recorded, and the values of an aggregation may have all columns of their keys, too: there the values themselves decide.
Source: Spark's ``StreamingDeduplicateExec`` and ``StreamingDeduplicateWithinWatermarkExec``.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ttlsnap.checkpoint import Checkpoint, Operator, Store
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.clock import TimeCharacteristic
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.operators import aggregation
from ttlsnap.schema.types import NullType, StructField, StructType
from ttlsnap.state import StateDescriptor
from ttlsnap.stores import lineage_of, state_store

if TYPE_CHECKING:
    from ttlsnap.unsaferow.rows import Rows

NAME = "dedupe"
WITHIN_WATERMARK = "dedupeWithinWatermark"
NOTHING = StructType((StructField("__dummy__", NullType()),))
"""The schema of a value that holds nothing."""

_ONE_NULL = b"\1" + bytes(15)

stored_timestamp = aggregation.stored_timestamp  # the same rule: the watermarked key column


def stored_anywhere(key: StructType, value: StructType) -> tuple[str, TimeCharacteristic] | None:
    """What one of these operators, or an aggregation, would have stored: for when the operator is not known."""
    return stored_limit(key, value) or stored_timestamp(key, value)


def stored_limit(key: StructType, value: StructType) -> tuple[str, TimeCharacteristic] | None:
    """``expiresAtMicros``, in microseconds."""
    if any(field.name == "expiresAtMicros" for field in value.fields):
        return "value.expiresAtMicros:us", TimeCharacteristic.EVENT
    return None


def as_stored(
    checkpoint: Checkpoint, operator: Operator, store: Store, family: ColumnFamilySchema
) -> ColumnFamilySchema:
    """Return the family with the schema that its values have, where the recorded one is wrong.

    Only where the recorded schema leaves it open, some values are read.
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
    """Whether all values that come first are rows of one null. Partitions that are damaged are passed over."""
    for partition in store.partitions:
        with contextlib.suppress(CorruptionError, UnsupportedError):
            files = state_store(checkpoint)
            lineage = lineage_of(checkpoint, files, store, partition)
            with (
                files.open(checkpoint.files, lineage, None) as stored,
                contextlib.closing(stored.batches({state.state: state})) as batches,
            ):
                for batch in batches:
                    if len(batch):
                        return _are_one_null(batch.values)
    return False


def _are_one_null(values: Rows) -> bool:
    return bool((values.size == len(_ONE_NULL)).all()) and set(values.to_arrow().to_pylist()) == {_ONE_NULL}
