"""Session windows (``sessionWindowStateStoreSaveExec``).

All entries are primary: one for each session. The key has the grouping columns and the start of the session. The value
has the aggregates' buffers and the session itself, ``session_window``, which grows while events arrive. With a
watermark, Spark drops a session when the watermark reaches its end. So that is the timestamp that Spark stores, on the
event clock. The metadata of the struct shows the watermark. In RocksDB the grouping columns are the keys' prefix.
Source: Spark's ``StreamingSessionWindowStateManager`` and ``SessionWindowStateStoreSaveExec``.
"""

from __future__ import annotations

from ttlsnap.clock import TimeCharacteristic
from ttlsnap.operators.aggregation import times_of, watermarked_column
from ttlsnap.operators.stored_time import StoredTime
from ttlsnap.schema.types import StructType

NAME = "sessionWindowStateStoreSaveExec"
EMITS_ON_CLOSE = True
SESSION = "session_window"


def stored_time(key: StructType, value: StructType) -> StoredTime | None:
    """Return the session's end, if there is a watermark."""
    name = watermarked_column(key, value, "value")
    return StoredTime(name, TimeCharacteristic.EVENT) if name else None


def unrecorded_times(key: StructType, value: StructType) -> tuple[str, ...]:
    """Return the session's end, which may have a watermark, although the schema does not record it."""
    # Only the session itself is an event time here: the aggregates may have other timestamps.
    sessions = StructType(tuple(field for field in value.fields if field.name == SESSION))
    return times_of(key, sessions, "value")


def is_session(value: StructType) -> bool:
    """Return whether the values are sessions: before Spark 4.0, only the values show that."""
    return any(field.name == SESSION for field in value.fields)


def prefix_columns(key: StructType) -> int:
    """Return how many of the key's columns are its prefix in RocksDB: all but the session's start."""
    return len(key.fields) - 1
