"""What the offset of a source means.

No file of a checkpoint has the kind of a source. ttlsnap tells it by the form of its offset.

    files             {"logOffset":5}
    kafka             {"topic":{"0":17,"1":4}}                                       the next offset of each partition
    delta             {"sourceVersion":1,"reservoirId":"...","reservoirVersion":7,"index":-1,"isStartingVersion":false}
    kinesis           {"metadata":{"streamName":"...","batchId":"3"},"shardId-...":{"iteratorType":"...", ...}}
    iceberg           {"version":1,"snapshot_id":64,"position":2,"scan_all_files":false}
    pulsar            {"persistent://public/default/topic":[8,16,16,3]}             the id of a message of each topic
    rate-micro-batch  {"offset":20,"timestamp":2000}
    number            17                                                             rate, socket, memory

Source: Spark's ``FileStreamSourceOffset``, ``KafkaSourceOffset``, ``RatePerMicroBatchStreamOffset`` and ``LongOffset``;
Delta's ``DeltaSourceOffset``; ``KinesisSourceOffset`` of kinesis-sql and spark-sql-kinesis-connector; Iceberg's
``StreamingOffset``; ``SpecificPulsarOffset`` of pulsar-spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from ttlsnap.amounts import quantity
from ttlsnap.clock import iso
from ttlsnap.errors import UsageError
from ttlsnap.suggestions import did_you_mean

Kind = Literal["delta", "files", "iceberg", "kafka", "kinesis", "number", "other", "pulsar", "rate-micro-batch"]

TITLES: Mapping[Kind, str] = {
    "delta": "Delta table",
    "files": "files",
    "iceberg": "Iceberg table",
    "kafka": "Kafka, or Event Hubs",
    "kinesis": "Kinesis",
    "number": "a number (rate, socket or memory)",
    "other": "unknown",
    "pulsar": "Pulsar",
    "rate-micro-batch": "rate-micro-batch",
}

_FIELDS_OF_DELTA = {"sourceVersion", "reservoirId", "reservoirVersion", "index", "isStartingVersion"}
_PARTITION = re.compile("0|[1-9][0-9]{0,8}")
_TOPIC_OF_PULSAR = re.compile("(non-)?persistent://")
_MOST_NAMED = 10
_MOST_BYTES = 64  # of the id of a message, which has about 10
# Delta's BASE_INDEX in both versions of its offsets, and the two at which it waits for a change of the schema.
BASES_OF_DELTA, _AT_SCHEMA_CHANGE = (-1, -100), (-20, -19)


def find_kind(position: Any) -> Kind:
    """Return the kind of source that has written an offset, which is JSON; ``other`` if none is known to."""
    if _is_count(position):
        return "number"
    if not isinstance(position, dict) or not position:
        return "other"
    return next((kind for kind, is_one in _TESTS.items() if is_one(position)), "other")


def describe(position: Any) -> list[str]:
    """Return what a position means, in one line for each topic, table or stream; nothing for an unknown kind."""
    describe_kind = _DESCRIPTIONS.get(find_kind(position))
    return list(describe_kind(position)) if describe_kind is not None else []


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_files(position: dict[str, Any]) -> bool:
    return position.keys() == {"logOffset"} and _is_count(position["logOffset"])


def _is_kafka(position: dict[str, Any]) -> bool:
    return all(
        isinstance(partitions, dict)
        and partitions
        and all(_PARTITION.fullmatch(name) and _is_count(offset) for name, offset in partitions.items())
        for partitions in position.values()
    )


def _is_delta(position: dict[str, Any]) -> bool:
    numbers = (position.get("reservoirVersion"), position.get("index"))
    return position.keys() >= _FIELDS_OF_DELTA and all(map(_is_count, numbers))


def _is_kinesis(position: dict[str, Any]) -> bool:
    metadata = position.get("metadata")
    shards = [shard for name, shard in position.items() if name != "metadata"]
    return (
        isinstance(metadata, dict)
        and isinstance(metadata.get("streamName"), str)
        and all(isinstance(shard, dict) and isinstance(shard.get("iteratorType"), str) for shard in shards)
    )


def _is_rate_micro_batch(position: dict[str, Any]) -> bool:
    return position.keys() == {"offset", "timestamp"} and all(map(_is_count, position.values()))


def _is_iceberg(position: dict[str, Any]) -> bool:
    places = [position[name] for name in ("position", "index") if name in position]  # the second in old releases
    numbers = [position.get("version"), position.get("snapshot_id"), *places]
    return len(places) == 1 and isinstance(position.get("scan_all_files"), bool) and all(map(_is_count, numbers))


def _is_pulsar(position: dict[str, Any]) -> bool:
    return all(
        _TOPIC_OF_PULSAR.match(topic) and isinstance(message, list) and all(map(_is_count, message))
        for topic, message in position.items()
    )


_TESTS: Mapping[Kind, Callable[[dict[str, Any]], bool]] = {
    "files": _is_files,
    "delta": _is_delta,
    "rate-micro-batch": _is_rate_micro_batch,
    "iceberg": _is_iceberg,
    "kinesis": _is_kinesis,
    "kafka": _is_kafka,
    "pulsar": _is_pulsar,
}


def _describe_files(position: dict[str, Any]) -> Iterator[str]:
    yield f"entry {position['logOffset']} of its log"


def _describe_kafka(position: dict[str, Any]) -> Iterator[str]:
    for topic, partitions in position.items():
        offsets = sorted((int(number), offset) for number, offset in partitions.items())
        if len(offsets) > _MOST_NAMED:
            next_offsets = [offset for _, offset in offsets]
            yield f"{topic}: {len(offsets)} partitions, next offsets from {min(next_offsets)} to {max(next_offsets)}"
        else:
            text = ", ".join(f"{offset} of partition {number}" for number, offset in offsets)
            yield f"{topic}: next offset {text}"


def _describe_delta(position: dict[str, Any]) -> Iterator[str]:
    version, index = position["reservoirVersion"], position["index"]
    what = "version"
    if position["isStartingVersion"]:
        what = "the whole table as of version"
    if index in BASES_OF_DELTA:
        yield f"{what} {version}: nothing of it is read yet"
    elif index in _AT_SCHEMA_CHANGE:
        yield f"{what} {version}: it changes the schema of the table"
    else:
        yield f"{what} {version}: {quantity(index + 1, 'file is', 'files are')} read"
    yield f"table id {position['reservoirId']}"


def _describe_iceberg(position: dict[str, Any]) -> Iterator[str]:
    whole = "the whole table as of " if position["scan_all_files"] else ""
    place = position.get("position", position.get("index"))
    yield f"{whole}snapshot {position['snapshot_id']}: position {place} of its files"


def _describe_pulsar(position: dict[str, Any]) -> Iterator[str]:
    for topic, message in position.items():
        yield f"{topic}: message {bytes(byte & 255 for byte in message[:_MOST_BYTES]).hex()}"


def _describe_kinesis(position: dict[str, Any]) -> Iterator[str]:
    for name, shard in position.items():
        if name != "metadata":
            place = f"{shard['iteratorType']} {shard.get('iteratorPosition', '')}".rstrip()
            yield f"{position['metadata']['streamName']}, {name}: {place}"


def _describe_rate_micro_batch(position: dict[str, Any]) -> Iterator[str]:
    yield f"{quantity(position['offset'], 'row')} until {iso(position['timestamp'] * 1000)}"


def _describe_number(position: int) -> Iterator[str]:
    yield str(position)


_DESCRIPTIONS: Mapping[Kind, Callable[[Any], Iterator[str]]] = {
    "delta": _describe_delta,
    "files": _describe_files,
    "iceberg": _describe_iceberg,
    "kafka": _describe_kafka,
    "kinesis": _describe_kinesis,
    "pulsar": _describe_pulsar,
    "number": _describe_number,
    "rate-micro-batch": _describe_rate_micro_batch,
}


def require_source(name: str, positions: Mapping[str, Any]) -> None:
    """Raise UsageError if the query has no source of this name."""
    if name not in positions:
        hint = did_you_mean(name, list(positions))
        raise UsageError(f"the query has no source {name}{hint}. Its sources: {', '.join(positions)}")
