"""What a Kafka cluster has of the topics that a query reads. Only metadata is asked for, and no message is read."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ttlsnap.clock import to_micros
from ttlsnap.errors import StorageError, UsageError
from ttlsnap.extras import require_package
from ttlsnap.positions.kinds import find_kind
from ttlsnap.positions.report import PartitionRange
from ttlsnap.schema.literals import parse_literal
from ttlsnap.schema.types import TimestampType

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

EARLIEST, LATEST = "earliest", "latest"
_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class Kafka:
    """A connection to the cluster at ``servers``, with the ``options`` of its client, librdkafka."""

    servers: str
    options: Mapping[str, str]

    @cached_property
    def _client(self) -> AdminClient:
        require_package("confluent-kafka")
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        silent = logging.getLogger(__name__)
        silent.addHandler(logging.NullHandler())
        silent.propagate = False
        try:
            return AdminClient({**self.options, "bootstrap.servers": self.servers}, logger=silent)
        except (KafkaException, ValueError, TypeError) as error:
            raise UsageError(f"--kafka-option: the client of Kafka refuses its options ({_words(error)})") from error

    @cached_property
    def _partitions(self) -> Mapping[str, list[int]]:
        """The partitions of all topics. To ask for one topic could create it."""
        from confluent_kafka import KafkaException

        try:
            found = self._client.list_topics(timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise self._failed(error) from error
        return {name: sorted(topic.partitions) for name, topic in found.topics.items() if topic.error is None}

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic; none if it does not exist."""
        return self._partitions.get(topic, [])

    def offsets(self, topic: str, when: str) -> dict[str, int]:
        """Return the offset of each partition of a topic: ``earliest``, ``latest``, or the first one since a time.

        Raise UsageError if the topic does not exist, or for another word.
        """
        spec: Any = importlib.import_module("confluent_kafka.admin").OffsetSpec  # which has no types
        if not self.partitions(topic):
            raise UsageError(f"Kafka at {self.servers} has no topic {topic}")
        if when in (EARLIEST, LATEST):
            return self._ask(topic, spec.earliest() if when == EARLIEST else spec.latest())
        moment = parse_literal(when, TimestampType(), "--to", assume_utc=True)
        offsets = self._ask(topic, spec.for_timestamp(to_micros(moment) // 1000))
        latest = self._ask(topic, spec.latest())
        # A partition without a message since then has the offset -1.
        return {partition: offset if offset >= 0 else latest[partition] for partition, offset in offsets.items()}

    def ranges(self, positions: Mapping[str, Mapping[str, int]]) -> tuple[PartitionRange, ...]:
        """Return what the topics of these positions have, partition by partition."""
        return tuple(each for topic in positions for each in self._ranges(topic, positions[topic]))

    def _ranges(self, topic: str, offsets: Mapping[str, int]) -> Iterable[PartitionRange]:
        exists = bool(self.partitions(topic))
        first, end = (self.offsets(topic, when) if exists else {} for when in (EARLIEST, LATEST))
        for partition in sorted({*first, *offsets}, key=int):
            position = offsets.get(partition)
            yield PartitionRange(
                topic=topic,
                partition=int(partition),
                position=position,
                first=first.get(partition),
                end=end.get(partition),
            )

    def _ask(self, topic: str, spec: Any) -> dict[str, int]:
        from confluent_kafka import KafkaException, TopicPartition

        asked = {TopicPartition(topic, partition): spec for partition in self.partitions(topic)}
        try:
            answers = self._client.list_offsets(asked, request_timeout=_TIMEOUT_S)
            return {str(place.partition): answer.result(_TIMEOUT_S).offset for place, answer in answers.items()}
        except (KafkaException, TimeoutError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> StorageError:
        return StorageError(f"Kafka at {self.servers} does not answer ({_words(error)}). Nothing was changed")


def _words(error: Exception) -> str:
    """Return what the client says about an error, without its codes."""
    cause: Any = error.args[0] if error.args else error
    return str(cause.str()) if hasattr(cause, "str") else str(error)


def require_kafka(positions: Iterable[Any]) -> None:
    """Raise UsageError if none of these positions is one of Kafka."""
    if not any(find_kind(position) == "kafka" for position in positions):
        raise UsageError("--bootstrap-servers: the query has no source of Kafka")


def connect(servers: str | None, options: Mapping[str, str] | None) -> Kafka | None:
    """Return the connection; None without servers. Raise UsageError for options without servers."""
    if servers is None and options:
        raise UsageError("--kafka-option needs --bootstrap-servers")
    return Kafka(servers, options or {}) if servers is not None else None


def resolve(
    name: str, before: Mapping[str, Mapping[str, int]], wanted: str, topics: Mapping[str, str], kafka: Kafka | None
) -> dict[str, dict[str, int | None]]:
    """Return the offsets that a source of Kafka has ``earliest``, ``latest``, or since a time. ``topics`` are renamed.

    A partition that a topic has lost has no offset: None.
    """
    if wanted not in (EARLIEST, LATEST):
        parse_literal(wanted, TimestampType(), "--to", assume_utc=True)
    if kafka is None:
        raise UsageError(
            f"source {name}: --to {wanted} needs --bootstrap-servers. Without it, give every offset as JSON"
        )
    unknown = sorted(topics.keys() - before.keys())
    if unknown:
        raise UsageError(f"source {name} does not read a topic {unknown[0]}. Its topics: {', '.join(before)}")
    after: dict[str, dict[str, int | None]] = {}
    for topic, offsets in before.items():
        new_topic = topics.get(topic, topic)
        lost = dict.fromkeys(offsets) if new_topic == topic else {}
        after[new_topic] = {**lost, **kafka.offsets(new_topic, wanted)}
    return after


def require_existing(name: str, position: Mapping[str, Mapping[str, int]], kafka: Kafka) -> None:
    """Raise UsageError for an offset that a topic does not have any more, or not yet."""
    for one in kafka.ranges(position):
        if one.first is None or one.end is None:
            raise UsageError(f"source {name}: {one.topic} has no partition {one.partition}")
        if one.position is not None and one.is_lost:
            raise UsageError(
                f"source {name}: partition {one.partition} of {one.topic} has the offsets {one.first} to {one.end}, "
                f"and not {one.position}"
            )
