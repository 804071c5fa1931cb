"""``dropDuplicates`` (``dedupe``) and ``dropDuplicatesWithinWatermark`` (``dedupeWithinWatermark``).

All entries are primary: one per distinct key. ``dropDuplicates`` stores no value; Spark drops a key once the
watermark has reached the key's event-time column, if there is one among the columns. ``...WithinWatermark``
stores ``expiresAtMicros``, the event time from which the key may go. Both are on the event clock.
Source: Spark's ``StreamingDeduplicateExec`` and ``StreamingDeduplicateWithinWatermarkExec``.
"""

from __future__ import annotations

from ttlsnap.clock import TimeCharacteristic
from ttlsnap.operators import aggregation
from ttlsnap.schema.types import StructType

NAME = "dedupe"
WITHIN_WATERMARK = "dedupeWithinWatermark"

stored_timestamp = aggregation.stored_timestamp  # the same rule: the watermarked key column


def stored_anywhere(key: StructType, value: StructType) -> tuple[str, TimeCharacteristic] | None:
    """What one of these operators, or an aggregation, would have stored: for when the operator is not known."""
    return stored_limit(key, value) or stored_timestamp(key, value)


def stored_limit(key: StructType, value: StructType) -> tuple[str, TimeCharacteristic] | None:
    """``expiresAtMicros``, in microseconds."""
    if any(field.name == "expiresAtMicros" for field in value.fields):
        return "value.expiresAtMicros:us", TimeCharacteristic.EVENT
    return None
