"""Streaming aggregation, state formats 1 and 2 (``stateStoreSave``; in real-time mode ``StatefulStreamlineAggregate``).

All entries are primary: one for each group. The key has the grouping columns. The value has the buffers of the
aggregates, and in format 1 the grouping columns before them. With a watermark, Spark drops a group when the watermark
reaches its ``window.end``, or its event-time column. So that is the timestamp that Spark stores, on the event clock.
Groups without a watermark have none. The metadata ``spark.watermarkDelayMs`` of a key column shows the watermark; for
a window it is at the struct, beside ``spark.timeWindow``.

Spark keeps the schema of the first run. So a watermark that was added to the query later is not in it, although Spark
evicts by it. The offset log shows that the query has a watermark, but it names no column. Any window or timestamp in
the key may have it.
Source: Spark's ``StreamingAggregationStateManager`` and ``WatermarkSupport``.
"""

from __future__ import annotations

from ttlsnap.checkpoint.checkpoint import REAL_TIME_AGGREGATION
from ttlsnap.clock import TimeCharacteristic
from ttlsnap.operators.stored_time import StoredTime
from ttlsnap.schema.fields import all_fields
from ttlsnap.schema.types import DataType, StructType, TimestampType

NAME = "stateStoreSave"
NAMES = (NAME, REAL_TIME_AGGREGATION)
EMITS_ON_CLOSE = True
"""In append mode Spark emits a group when it closes it."""

# The metadata that ``withWatermark`` gives a column (Spark's EventTimeWatermark.delayKey).
WATERMARK = "spark.watermarkDelayMs"


def stored_time(key: StructType, value: StructType) -> StoredTime | None:
    """Return the key's watermarked column, or the end of its watermarked window, on the event clock."""
    name = watermarked_column(key, value, "key")
    return StoredTime(name, TimeCharacteristic.EVENT) if name else None


def unrecorded_times(key: StructType, value: StructType) -> tuple[str, ...]:
    """Return the columns of the key that may have a watermark, although the schema does not record it."""
    return times_of(key, value, "key")


def times_of(key: StructType, value: StructType, side: str) -> tuple[str, ...]:
    """Return the timestamps among the columns of a side, ``key`` or ``value``, and the ends of windows among them."""
    names = []
    fields = [field for field in all_fields(key, value) if field.side == side]
    for field in fields:
        if len(field.path) == 1 and isinstance(field.type, TimestampType):
            names.append(field.name)
        elif len(field.path) == 1 and is_window(field.type):
            # Spark evicts a window by its end, which is its second field (WatermarkSupport).
            names += [inner_field.name for inner_field in fields if inner_field.path == (*field.path, 1)]
    return tuple(names)


def is_window(kind: DataType) -> bool:
    """Return whether a column has the type of Spark's windows."""
    return (
        isinstance(kind, StructType)
        and list(kind.names) == ["start", "end"]
        and all(isinstance(field.type, TimestampType) for field in kind.fields)
    )


def watermarked_column(key: StructType, value: StructType, side: str) -> str | None:
    """Return the column with a watermark of a side, ``key`` or ``value``; for a window, its end."""
    fields = [field for field in all_fields(key, value) if field.side == side]
    for field in fields:
        if any(name == WATERMARK for name, _ in field.metadata):
            if not isinstance(field.type, StructType):
                return field.name
            for inner_field in fields:
                if inner_field.path[:-1] == field.path and field.type.fields[inner_field.path[-1]].name == "end":
                    return inner_field.name
    return None
