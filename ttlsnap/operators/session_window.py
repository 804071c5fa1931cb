"""Session windows (``sessionWindowStateStoreSaveExec``).

All entries are primary: one per session. The key has the grouping columns and when the session began; the value the
aggregation's buffers and the session itself, ``session_window``, which grows while events come. With a watermark Spark
drops a session once the watermark has reached its end, so that is the timestamp Spark stores, on the event clock; the
watermark shows as metadata on the struct. In RocksDB the grouping columns are the keys' prefix. Source: Spark's
``StreamingSessionWindowStateManager`` and ``SessionWindowStateStoreSaveExec``.
"""

from __future__ import annotations

from ttlsnap.clock import TimeCharacteristic
from ttlsnap.operators.aggregation import watermarked_column
from ttlsnap.schema.types import StructType

NAME = "sessionWindowStateStoreSaveExec"
SESSION = "session_window"


def stored_timestamp(key: StructType, value: StructType) -> tuple[str, TimeCharacteristic] | None:
    """The session's end, where there is a watermark."""
    name = watermarked_column(key, value, "value")
    return (name, TimeCharacteristic.EVENT) if name else None


def is_session(value: StructType) -> bool:
    """Whether the values are sessions, which before Spark 4.0 is all there is to know them by."""
    return any(field.name == SESSION for field in value.fields)


def prefix_columns(key: StructType) -> int:
    """How many of the key's columns are its prefix in RocksDB: all but the session's start."""
    return len(key.fields) - 1
