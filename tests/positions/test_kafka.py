"""Queries on a real Kafka broker go on at the positions that ``set_positions`` gives them, with the state they have."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ttlsnap import Drop, EntryTransformerFactory, Keep, compact, migrate, rewind, set_positions, sources
from ttlsnap.errors import RefusedError, UsageError

from ..cli.running import Ttlsnap
from ..matrix import FULL
from ..publishing.idle import STOPPED
from ..publishing.trees import end_at_once, newest, tree
from .kafka import Queries, broker
from .kafka_queries import EVOLUTION

pytestmark = pytest.mark.wide
Begun = tuple[Path, str]
FIRST, SECOND, THIRD = ["a", "b", "a", "c"], ["b", "d", "e"], ["a", "e"]


@pytest.fixture(scope="module", params=["4.2", "3.5", "4.3"] if FULL else ["4.2"])
def kafka(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Queries]:
    folder = tmp_path_factory.mktemp("kafka")
    with broker(folder / "broker") as address:
        queries = Queries(address, folder, request.param)
        yield queries
        queries.close()


def counts(*keys: list[str]) -> dict[str, int]:
    """Return how often each key is in the lists."""
    return dict(Counter(key for some in keys for key in some))


@pytest.fixture
def begun(kafka: Queries, tmp_path: Path, request: pytest.FixtureRequest) -> Begun:
    """Return the checkpoint of a query that has read both partitions of a topic, and the topic."""
    topic, checkpoint = f"visits-{request.node.name.partition('[')[0][-20:]}", tmp_path / "checkpoint"
    kafka.create(topic, 2)
    kafka.put(topic, 0, FIRST)
    kafka.put(topic, 1, SECOND)
    assert kafka.run(checkpoint, topic) == counts(FIRST, SECOND)
    assert sources(str(checkpoint)).sources[0].position == {topic: {"0": len(FIRST), "1": len(SECOND)}}
    return checkpoint, topic


def place(checkpoint: Path, **position: Mapping[str, int | None]) -> None:
    """Give the only source another position."""
    set_positions(str(checkpoint), {"0": position}, stopped=True)


def test_a_topic_that_was_created_again_is_read_from_its_beginning(kafka: Queries, begun: Begun) -> None:
    checkpoint, topic = begun
    kafka.create(topic, 1)
    kafka.put(topic, 0, THIRD)
    assert "OnDataLoss" in kafka.refusal(checkpoint, topic)
    with pytest.raises(UsageError, match=r"topic .* without its partition 1"):
        place(checkpoint, **{topic: {"0": 0}})
    place(checkpoint, **{topic: {"0": 0, "1": None}})
    assert kafka.run(checkpoint, topic) == {"a": 3, "e": 2}
    kafka.put(topic, 0, FIRST)
    assert kafka.run(checkpoint, topic) == {"a": 5, "b": 3, "c": 2}


def test_another_topic_with_other_offsets(kafka: Queries, begun: Begun) -> None:
    checkpoint, topic = begun
    other = f"{topic}-2"
    kafka.create(other, 3)
    kafka.put(other, 0, ["x", "x", *FIRST])  # two messages that the mirror had before
    kafka.put(other, 1, SECOND)
    kafka.put(other, 2, THIRD)
    place(checkpoint, **{other: {"0": 6, "1": 3, "2": 0}})
    assert kafka.run(checkpoint, other) == {"a": 3, "e": 2}
    assert kafka.run(checkpoint, other) == {}


def test_a_partition_that_was_added_begins_where_the_user_says(kafka: Queries, begun: Begun) -> None:
    checkpoint, topic = begun
    kafka.add_partition(topic)
    kafka.put(topic, 2, THIRD)
    place(checkpoint, **{topic: {"0": 4, "1": 3, "2": 1}})
    assert kafka.run(checkpoint, topic) == {"e": 2}


def test_messages_that_are_read_again_are_counted_again_and_others_never(kafka: Queries, begun: Begun) -> None:
    checkpoint, topic = begun
    kafka.put(topic, 1, THIRD)
    report = set_positions(str(checkpoint), {"0": {topic: {"0": 2, "1": 4}}}, stopped=True)
    meaning = report.changes[0].meaning
    assert meaning == (f"{topic}: 2 offsets are read again", f"{topic}: 1 offset is never read")
    assert kafka.run(checkpoint, topic) == {"a": 3, "c": 2, "e": 2}


def test_an_idle_query_stops_before_it_writes_anything(kafka: Queries, begun: Begun) -> None:
    checkpoint, topic = begun
    kafka.put(topic, 0, THIRD)
    kafka.start(checkpoint, topic)
    place(checkpoint, **{topic: {"0": 4, "1": 3}})
    before = tree(checkpoint)
    kafka.put(topic, 1, ["z"])
    words = kafka.last_words()
    assert STOPPED.search(words), words
    assert tree(checkpoint) == before
    assert kafka.run(checkpoint, topic) == {"a": 4, "e": 3, "z": 1}


@pytest.mark.parametrize("has_state", [False, True])
def test_a_batch_that_cannot_run_any_more(kafka: Queries, begun: Begun, has_state: bool) -> None:
    """The topic was created again after a batch was begun. With state, its number must not be used again."""
    checkpoint, topic = begun
    kafka.put(topic, 0, THIRD)
    kafka.run(checkpoint, topic)
    batch = newest(checkpoint / "commits")
    for name in (str(batch), f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink()
    kafka.create(topic, 2)
    kafka.put(topic, 0, SECOND)
    assert kafka.refusal(checkpoint, topic)
    if has_state:
        with pytest.raises(RefusedError, match=f"ttlsnap rewind {checkpoint} --batch {batch - 1} --stopped"):
            place(checkpoint, **{topic: {"0": 0, "1": 0}})
        rewind(str(checkpoint), batch - 1, stopped=True)
    else:
        end_at_once(checkpoint)
    place(checkpoint, **{topic: {"0": 0, "1": 0}})
    assert kafka.run(checkpoint, topic) == {"b": 3, "d": 2, "e": 2}


def test_a_connection_shows_how_far_a_query_is_behind_and_what_is_lost(
    kafka: Queries, begun: Begun, ttlsnap: Ttlsnap
) -> None:
    checkpoint, topic = begun
    kafka.put(topic, 1, THIRD)
    kafka.add_partition(topic)
    kafka.put(topic, 2, FIRST)
    (source,) = sources(str(checkpoint), bootstrap_servers=kafka.address).sources
    assert source.partitions is not None
    assert [(one.position, one.first, one.end, one.behind, one.is_lost) for one in source.partitions] == [
        (4, 0, 4, 0, False),
        (3, 0, 5, 2, False),
        (None, 0, 4, 4, False),
    ]
    kafka.create(topic, 1)
    shown = ttlsnap("sources", checkpoint, "--bootstrap-servers", kafka.address).out
    assert f"{topic}: partition 0 has the offsets 0 to 0, and not 4" in shown
    assert f"{topic}: partition 1 does not exist, and not 3" in shown
    with pytest.raises(UsageError, match=r"partition 0 of .* has the offsets 0 to 0, and not 4"):
        set_positions(
            str(checkpoint), {"0": {topic: {"0": 4, "1": None}}}, bootstrap_servers=kafka.address, stopped=True
        )
    with pytest.raises(UsageError, match=f"source 0: {topic} has no partition 1"):
        set_positions(str(checkpoint), {"0": {topic: {"0": 0, "1": 0}}}, bootstrap_servers=kafka.address, stopped=True)


def test_earliest_latest_and_a_time(kafka: Queries, begun: Begun, ttlsnap: Ttlsnap) -> None:
    checkpoint, topic = begun
    connected = ("sources", checkpoint, "--bootstrap-servers", kafka.address, "--stopped", "--yes", "--set", "0")
    time.sleep(0.1)
    now = datetime.now(UTC).isoformat()
    kafka.put(topic, 1, THIRD)
    positions = []
    for word in ("latest", now, "earliest"):
        done = ttlsnap(*connected, "--to", word, "--format", "json")
        assert done.code == 0, done.err
        positions.append(done.json["changes"][0]["after"] if done.json["changes"] else None)
    assert positions == [{topic: {"0": 4, "1": 5}}, {topic: {"0": 4, "1": 3}}, {topic: {"0": 0, "1": 0}}]
    other = f"{topic}-2"
    missing = ttlsnap(*connected, "--topic", f"{topic}={other}", "--to", "earliest")
    assert (missing.code, f"has no topic {other}" in missing.err) == (2, True)
    assert "needs --bootstrap-servers" in ttlsnap("sources", checkpoint, "--set", "0", "--to", "earliest").err
    assert "does not read a topic x" in ttlsnap(*connected, "--topic", f"x={other}", "--to", "latest").err
    assert "no topic" in ttlsnap(*connected, "--topic", f"{topic}={other}", "--to", "latest").err  # still not created
    kafka.create(other, 1)
    kafka.put(other, 0, THIRD)
    assert ttlsnap(*connected, "--topic", f"{topic}={other}", "--to", "earliest").code == 0
    assert kafka.run(checkpoint, other) == {"a": 3, "e": 2}


def test_servers_that_do_not_answer_or_options_that_do_not_exist_change_nothing(begun: Begun, ttlsnap: Ttlsnap) -> None:
    checkpoint, _ = begun
    before = tree(checkpoint)
    silent = ttlsnap("sources", checkpoint, "--bootstrap-servers", "127.0.0.1:1")
    assert (silent.code, "Kafka at 127.0.0.1:1 does not answer" in silent.err) == (5, True)
    for options in (["--kafka-option", "x=y"], ["--kafka-option", "x"], ["--kafka-option", "security.protocol=x"]):
        ended = ttlsnap("sources", checkpoint, "--bootstrap-servers", "127.0.0.1:1", *options)
        assert (ended.code, "--kafka-option" in ended.err) == (2, True), ended.err
    assert ttlsnap("sources", checkpoint, "--kafka-option", "x=y").code == 2
    assert tree(checkpoint) == before


def test_a_source_of_kafka_gets_a_name(kafka: Queries, begun: Begun) -> None:
    if kafka.version == "3.5":
        pytest.skip("sources have names from Spark 4.2 on")
    checkpoint, topic = begun
    set_positions(str(checkpoint), new_names={"0": "visits"}, stopped=True)
    kafka.put(topic, 1, THIRD)
    assert kafka.run(checkpoint, topic, **{EVOLUTION: "true"}) == {"a": 3, "e": 2}
    (source,) = sources(str(checkpoint)).sources
    assert (source.name, source.position) == ("visits", {topic: {"0": 4, "1": 5}})
    set_positions(str(checkpoint), new_names={"visits": "0"}, stopped=True)
    kafka.put(topic, 0, ["z"])
    assert kafka.run(checkpoint, topic) == {"z": 1}


ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.mark.parametrize("options", [{}, {"spark.sql.streaming.stateStore.providerClass": ROCKSDB}])
def test_a_compaction_and_a_migration_of_a_query_on_kafka(
    kafka: Queries, begun: Begun, options: dict[str, str]
) -> None:
    checkpoint, topic = begun
    keeps_b = EntryTransformerFactory(lambda key, value: Keep() if key["key"] == "b" else Drop())
    assert compact(str(checkpoint), [keeps_b], stopped=True, max_drop=1.0).totals.dropped == 4
    kafka.put(topic, 0, ["a", "b"])
    assert kafka.run(checkpoint, topic, **options) == {"a": 1, "b": 3}
    migrate(str(checkpoint), partitions=3, stopped=True)
    kafka.put(topic, 1, ["a", "b", "z"])
    assert kafka.run(checkpoint, topic) == {"a": 2, "b": 4, "z": 1}
