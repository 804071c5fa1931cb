"""Spark reads a checkpoint's state with its own ``statestore`` source, and the files of an export, for a comparison.

This module runs in a server of the judge.
"""

from __future__ import annotations

import json
import sys
from typing import Any

_PLAIN = {"partition_id": "partition", "list_element": "value", "user_map_key": "map_key", "user_map_value": "value"}
_EVENT_TIME = "__event_time"
_TIME = "expiration_timestamp_ms"


def read_both(
    spark: Any, checkpoint: str, exported: str, options: dict[str, str], checkpoint_format: int = 1
) -> list[list[str]]:
    """Return the rows that Spark reads of a state, and those of the exported table, as JSON, sorted.

    Columns that only one of them has are left out, and the names are those of the export.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructField, StructType

    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", str(checkpoint_format))
    session.conf.set("spark.sql.streaming.join.stateFormatV4.enabled", "true")
    _ = session.streams.active  # starts the coordinator that the source needs
    state = session.read.format("statestore").options(**options).load(checkpoint)
    for name, new in _PLAIN.items():
        if name in state.columns:
            state = state.withColumnRenamed(name, new)
    if _TIME in state.columns:
        state = state.withColumn("time", F.timestamp_millis(_TIME)).drop(_TIME)
    if "key" in state.columns and _EVENT_TIME in state.schema["key"].dataType.names:
        # Of a join of format 4. It is not the row's time: Spark reads the bytes of its ordered form as a number.
        state = state.withColumn("key", F.col("key").dropFields(_EVENT_TIME))
    table = session.read.parquet(exported)
    names = [name for name in state.columns if name in table.columns]
    assert "partition" in names, (state.columns, table.columns)
    assert len(names) > 1, (state.columns, table.columns)
    left = [name for name in state.columns if name not in names and _holds_something(state.schema[name].dataType)]
    assert not left, f"the export lacks {left}"
    for name in names:
        for inner in getattr(state.schema[name].dataType, "fields", ()):
            if inner.dataType.simpleString() == "void":
                state = state.withColumn(name, F.col(name).dropFields(inner.name))
    for name in names:
        kind = state.schema[name].dataType
        if len(set(getattr(kind, "names", ()))) < len(getattr(kind, "names", ())):
            # Two fields with one name: a row as a dictionary would lose one of them.
            numbered = table.schema[name].dataType.names
            fields = [StructField(new, field.dataType) for new, field in zip(numbered, kind.fields, strict=True)]
            state = state.withColumn(name, F.col(name).cast(StructType(fields)))
    plain = sys.modules["tests_judge.runs"].plain
    columns = [F.col(f"`{name}`") for name in names]
    return [
        sorted(json.dumps(plain(row), sort_keys=True) for row in frame.select(columns).collect())
        for frame in (state, table)
    ]


def _holds_something(kind: Any) -> bool:
    """Return whether a type is not a struct without fields, or only with some of the type void."""
    return not hasattr(kind, "fields") or any(field.dataType.simpleString() != "void" for field in kind.fields)


def read_state_and_files(spark: Any, checkpoint: str, exported: str, store: str) -> list[list[str]]:
    """Return the rows of ``ttlsnap.spark.read_state``, and those of the exported table, as JSON, sorted."""
    from ttlsnap.spark import read_state

    plain = sys.modules["tests_judge.runs"].plain
    frames = read_state(spark, checkpoint, store=store), spark.read.parquet(exported)
    return [sorted(json.dumps(plain(row), sort_keys=True) for row in frame.collect()) for frame in frames]
