"""Spark counts the rows of a state with its own ``statestore`` source. This module runs in a server of the judge."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

_EVENT_TIME = "__event_time"  # of a join of format 4; the query does not join by it


def count_rows(spark: Any, checkpoint: str, options: dict[str, str]) -> list[list[Any]]:
    """Return the number of rows of each key in each partition: the partition, the key as JSON, the number."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.streaming.join.stateFormatV4.enabled", "true")
    _ = session.streams.active  # starts the coordinator that the source needs
    plain = sys.modules["tests_judge.runs"].plain
    state = session.read.format("statestore").options(**options).load(checkpoint).select("partition_id", "key")
    found: Counter[tuple[int, str]] = Counter()
    for row in state.collect():
        values = plain(row)
        key = {name: value for name, value in values["key"].items() if name != _EVENT_TIME}
        found[values["partition_id"], json.dumps(key, sort_keys=True)] += 1
    return [[partition, key, count] for (partition, key), count in found.items()]
