"""Streaming aggregation, state formats 1 and 2 (``stateStoreSave``).

All entries are primary: one per group. The key has the grouping columns; the value the aggregation buffers, and
in format 1 the grouping columns before them. With a watermark Spark drops a group once the watermark has
reached its ``window.end``, or its event-time column where that is grouped by itself, so that is the timestamp
Spark stores, on the event clock. Groups without a watermark have none. The watermark shows as the metadata
``spark.watermarkDelayMs`` on the key column; for a window it stands on the struct, beside ``spark.timeWindow``.
Source: Spark's ``StreamingAggregationStateManager`` and ``WatermarkSupport``.
"""

from __future__ import annotations

from ttlsnap.clock import TimeCharacteristic
from ttlsnap.fields import all_fields
from ttlsnap.schema.types import StructType

NAME = "stateStoreSave"
WATERMARK = "spark.watermarkDelayMs"


def stored_timestamp(key: StructType, value: StructType) -> tuple[str, TimeCharacteristic] | None:
    """The key's watermarked column, or the end of its watermarked window, on the event clock."""
    name = watermarked_column(key, value, "key")
    return (name, TimeCharacteristic.EVENT) if name else None


def watermarked_column(key: StructType, value: StructType, side: str) -> str | None:
    """The column with a watermark among those of a side, ``key`` or ``value``; of a window, its end."""
    fields = [field for field in all_fields(key, value) if field.side == side]
    for field in fields:
        if any(name == WATERMARK for name, _ in field.metadata):
            if not isinstance(field.type, StructType):
                return field.name
            for inner in fields:
                if inner.path[:-1] == field.path and field.type.fields[inner.path[-1]].name == "end":
                    return inner.name
    return None
