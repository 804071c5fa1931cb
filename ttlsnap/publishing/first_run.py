"""The first run of a query after ttlsnap has planned a batch, as far as the offsets of its sources show it.

With ``Trigger.AvailableNow``, Spark runs the planned batch, and then batches with data. But from Spark 4.0 on it ends
after one batch if a source does not support this trigger itself (``SupportsTriggerAvailableNow``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ttlsnap.checkpoint.logs import NO_OFFSET, named_offsets, read_logs
from ttlsnap.errors import TtlsnapError
from ttlsnap.publishing.runs import Runs
from ttlsnap.schema.strict_json import parse_json

SPENT = (
    "The next batch of the query has no data. If a source does not support Trigger.AvailableNow itself, Spark 4.0 and "
    "later end a run with this trigger after that batch. Then run the query twice"
)


def describe_first_run(runs: Runs) -> str | None:
    """Return what to expect of the first run, or None if there is no planned batch or all sources are known.

    This is called after publishing, so it raises no error of the storage.
    """
    try:
        logs = read_logs(runs.files)
        if runs.find_planning(logs) is None:
            return None
        return SPENT if may_be_spent(named_offsets(runs.files, logs.offsets[-1]).values()) else None
    except TtlsnapError:
        return None


def may_be_spent(offsets: Iterable[str]) -> bool:
    """Return whether a source may not support ``AvailableNow``. Spark's file source, Kafka and Delta do."""
    return not all(offset == NO_OFFSET or _is_known(offset) for offset in offsets)


def _is_known(offset: str) -> bool:
    try:
        document = parse_json(offset)
    except ValueError:
        return False
    if not isinstance(document, dict):
        return False
    field_names = set(document)
    # The offsets of Spark's file source, of ``rate-micro-batch``, and of Delta.
    return (
        field_names in ({"logOffset"}, {"offset", "timestamp"})
        or "reservoirId" in field_names
        or _is_of_kafka(document)
    )


def _is_of_kafka(document: dict[str, Any]) -> bool:
    """Return whether an offset has the form of Kafka's: topics, with a number for each partition."""
    return bool(document) and all(
        isinstance(partitions, dict)
        and all(partition.isdigit() and type(position) is int for partition, position in partitions.items())
        for partitions in document.values()
    )
