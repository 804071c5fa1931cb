"""State that Spark 3.1 and 3.2 wrote, from the samples: their schemas contain errors, and Spark 4.2 resumes from it.

``test_old_versions`` runs those versions themselves.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import LocalEngine, compact, inspect
from ttlsnap.clock import TimeCharacteristic
from ttlsnap.contract import contract_of_checkpoint
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..diagnosis.asked import doctor
from ..judge.layouts import last_batch
from ..judge.outcomes import canonical
from ..judge.queries import Event, Query, stamp, unstamp
from ..judge.spark import Checkpoint, Judge
from ..matrix import FULL
from ..samples import SAMPLES
from .stories import copy_all, digest

DAY = 86400
GROUPS_FORMAT_1 = (
    ("spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion", "1"),
    # With validation Spark does not restart such a query, because its rows do not fit its own schema.
    ("spark.sql.streaming.stateStore.formatValidation.enabled", "false"),
)
QUERIES = {
    "dedup-columns-3.1": Query("dedup", delay_s=4 * DAY),
    "dedup-columns-rocksdb-3.2": Query("dedup_plain", provider="rocksdb", partitions=1),
    "agg-namesake-3.1": Query("agg_namesake"),
    "groups-3.1": Query("groups_scala", delay_s=20 * DAY),
    "groups-format1-3.1": Query("groups_scala", delay_s=20 * DAY, conf=GROUPS_FORMAT_1),
    "join-outer-3.1": Query("join_parities", delay_s=20 * DAY, join_type="full_outer"),
    "sessions-rocksdb-3.2": Query("sessions", provider="rocksdb", partitions=1, delay_s=20 * DAY),
}
DEDUPLICATIONS = ("dedup-columns-3.1", "dedup-columns-rocksdb-3.2")


def entries_of(path: Path) -> list[dict[str, Any]]:
    """Return all entries of a checkpoint, as ``inspect`` shows them."""
    return inspect(str(path), entries=1000).samples or []


def events_of(path: Path) -> list[Event]:
    """Return the event behind each key of a deduplication by key and time."""
    keys = [entry["key"] for entry in entries_of(path)]
    return [Event(key["key"], None if key["at"] is None else unstamp(str(key["at"])), 0) for key in keys]


def value_fields(path: Path) -> list[tuple[str, str]]:
    """Return the names and types of the columns of a value."""
    (operator,) = inspect(str(path)).to_json()["operators"]
    schema = operator["stores"][0]["states"][0]["value_schema"]
    return [(field["name"], field["type"]) for field in schema["fields"]]


@pytest.mark.parametrize("name", DEDUPLICATIONS)
def test_values_of_a_deduplication_are_empty_despite_their_schema(name: str) -> None:
    recorded = (SAMPLES / name / "state/0/0/_metadata/schema").read_bytes()
    assert b'"name":"value","type":"long"' in recorded and b"__dummy__" not in recorded
    assert value_fields(SAMPLES / name) == [("__dummy__", "void")]
    found = entries_of(SAMPLES / name)
    assert len(found) > 5
    assert [entry["value"] for entry in found] == [{"__dummy__": None}] * len(found)
    (operator,) = contract_of_checkpoint(str(SAMPLES / name)).operators
    assert [field.name for field in (operator.stores[0].states or ())[0].value.fields] == ["__dummy__"]


def test_values_of_an_aggregation_with_the_names_of_its_keys_are_read() -> None:
    assert value_fields(SAMPLES / "agg-namesake-3.1") == [("max", "long"), ("count", "long")]
    assert all(entry["value"]["count"] > 0 for entry in entries_of(SAMPLES / "agg-namesake-3.1"))


def adopted(judge: Judge, name: str) -> Checkpoint:
    return judge.adopt(SAMPLES / name, QUERIES[name])


@pytest.mark.parametrize(
    ("name", "output"),
    [*product(DEDUPLICATIONS, (False, True))] if FULL else [*zip(DEDUPLICATIONS, (False, True), strict=True)],
)
def test_only_dropped_keys_are_new_to_the_newest_spark(judge: Judge, name: str, output: bool) -> None:
    checkpoint = adopted(judge, name)
    events = events_of(checkpoint.path)
    moments = sorted(event.ts for event in events if event.ts is not None)
    limit = moments[len(moments) // 2]
    dropped = [event for event in events if event.ts is not None and event.ts <= limit]
    factory = TtlTransformerFactory(StateTtlConfig(0), "key.at")
    options: dict[str, Any] = {"now": stamp(limit), "engine": LocalEngine(1), "stopped": True, "max_drop": 1.0}
    before = digest(checkpoint.path)
    planned = compact(str(checkpoint.path), [factory], dry_run=True, **options)
    assert digest(checkpoint.path) == before
    new = checkpoint.path.with_name(f"{checkpoint.path.name}-new")
    report = compact(str(checkpoint.path), [factory], output=str(new) if output else None, **options)
    made = judge.at(checkpoint, new) if output else checkpoint
    assert planned.totals.dropped == report.totals.dropped == len(dropped) > 0
    assert report.totals.kept == len(events) - len(dropped) > 0
    assert doctor(made.path).code == 0
    rows = [row for batch in judge.restart(made, [events]) for row in batch.rows]
    assert sorted(rows) == sorted(canonical(row_of(event) for event in dropped))
    # Spark 4 adds the operator's name, but does not change the schema.
    assert value_fields(made.path) == [("__dummy__", "void")]
    assert doctor(made.path).code == 0


def row_of(event: Event) -> dict[str, Any]:
    """Return the row that the query emits for an event with a new key."""
    assert event.ts is not None
    return {"key": event.key, "at": stamp(event.ts), "value": event.value}


@pytest.mark.parametrize("name", QUERIES if FULL else ("sessions-rocksdb-3.2",))
def test_the_newest_spark_resumes_from_rewritten_state(judge: Judge, name: str) -> None:
    written, untouched = adopted(judge, name), adopted(judge, name)
    report = copy_all(written.path)
    assert report.totals.entries == report.totals.rewritten > 0
    assert doctor(written.path).code == 0
    moment = 1_900_000_000  # later than the watermark of any sample
    later = [Event(f"key-{number}", moment + 60 * DAY, number) for number in (6, 7)]
    more = [[Event("key-1", moment, 4), Event("key-2", moment, 5)], later]
    wanted = judge.restart(untouched, more)
    planned, *found = judge.restart(written, more)
    assert (planned.batch, planned.rows) == (last_batch(SAMPLES / name) + 1, ())
    assert [batch.rows for batch in found] == [batch.rows for batch in wanted]
    assert any(batch.rows for batch in wanted)
    assert doctor(written.path).code == 0


def test_the_timeout_of_groups_of_format_1_is_in_milliseconds() -> None:
    path = SAMPLES / "groups-format1-3.1"
    assert b'"timeoutTimestamp","type":"integer"' in (path / "state/0/0/_metadata/schema").read_bytes()
    assert ("timeoutTimestamp", "long") in value_fields(path)
    for entry in entries_of(path):
        assert entry["value"]["timeoutTimestamp"] == (entry["value"]["seen"] + 3600) * 1000
    factory = TtlTransformerFactory(time=TimeCharacteristic.EVENT)
    report = compact(str(path), [factory], dry_run=True, engine=LocalEngine(1), stopped=True, max_drop=1.0)
    assert (report.totals.dropped, report.totals.kept) == (0, len(entries_of(path)))


def test_a_global_limit_is_never_touched() -> None:
    path = SAMPLES / "limit-3.1"
    report = compact(
        str(path), [TtlTransformerFactory()], dry_run=True, engine=LocalEngine(1), stopped=True, max_drop=1.0
    )
    assert report.states[0].left_alone == "the count of a global limit is never changed"
    assert [entry["value"] for entry in entries_of(path)] == [{"value": 5}]
