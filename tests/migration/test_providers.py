"""Another state store provider, and other settings of the store: a query continues as it would have without them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ttlsnap import migrate, rollback
from ttlsnap.errors import RefusedError, UnsupportedError, UsageError

from ..compaction.stories import MORE_WHOLE, WHOLE, T, copies_of, copy_all, rocksdb, settled
from ..diagnosis.asked import doctor, errors
from ..judge.processes import NEWEST, OLD_VERSIONS, VERSIONS
from ..judge.queries import ENDLESS, ONLY_ROCKSDB, OPERATORS, WITHOUT_KEYS, Event, Query
from ..judge.spark import Events, Judge
from ..matrix import FULL, narrow
from ..publishing.trees import tree
from .twins import A_ROUND, emit_the_same

TO_ROCKSDB, TO_HDFS = {"provider": "rocksdb"}, {"provider": "hdfs"}


@dataclass(frozen=True)
class Case:
    """A query, the version that writes and continues it, and the migrations between which it runs."""

    query: Query
    steps: tuple[dict[str, Any], ...] = (TO_ROCKSDB, {**TO_HDFS, "partitions": 3})
    version: str = NEWEST

    def __str__(self) -> str:
        words = [f"{name}={value}" for step in self.steps for name, value in _flat(step).items()]
        return "-".join([self.query.operator, self.version, *words])


def _flat(step: dict[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in step.items() if name != "settings"}, **step.get("settings", {})}


FIELDS = {
    "checkpoint-format": "checkpoint_format",
    "join-format": "join_format",
    "partitions": "partitions",
    "row-checksums": "row_checksum",
}
READ: dict[str, Callable[[Any], Any]] = {
    "checkpoint-format": int,
    "join-format": int,
    "row-checksums": "true".__eq__,
    "changelog": "true".__eq__,
}


def after(query: Query, step: dict[str, Any]) -> Query:
    """Return the query with the settings that a migration gives it."""
    facts = {
        FIELDS.get(name, name): READ[name](v) if name in READ else v
        for name, v in _flat(step).items()
        if name != "aggregation-format"  # which Spark takes from the checkpoint
    }
    return replace(query, **facts)


def setting(**settings: str) -> dict[str, Any]:
    return {"settings": {name.replace("_", "-"): value for name, value in settings.items()}}


FORMAT_1 = (("spark.sql.streaming.aggregation.stateFormatVersion", "1"),)
FORMAT_2 = {**TO_ROCKSDB, **setting(checkpoint_format="2", changelog="true")}
BACK = {**TO_HDFS, **setting(checkpoint_format="1", codec="zstd")}
SLICE = [
    Case(Query("agg_window_update", row_checksum=True), (FORMAT_2, setting(row_checksums="false"), BACK)),
    Case(Query("join_parities", join_type="left_outer"), (TO_ROCKSDB, setting(row_checksums="true"), TO_HDFS)),
    Case(rocksdb("lists", changelog=True), (setting(row_checksums="true"), setting(checkpoint_format="2"))),
    Case(Query("sessions"), ({**TO_ROCKSDB, **setting(changelog="true")}, TO_HDFS), "3.5"),
    Case(Query("dedup_first_rows")),
    Case(Query("agg_window_update", conf=FORMAT_1), ({**setting(aggregation_format="2"), "partitions": 3},)),
    Case(rocksdb("join", changelog=True), (setting(join_format="3"), {**setting(join_format="4"), "partitions": 3})),
]
FORMAT_4 = Case(Query("join_parities", join_type="left_outer"), ({**TO_ROCKSDB, **setting(join_format="4")},))
WITH_VERSIONS = [
    Case(query, steps, version)
    for version in VERSIONS
    for query in (Query("agg_update"), Query("sessions"), Query("join"), Query("groups"), Query("dedup"))
    for steps in (Case.steps, (FORMAT_2, BACK))
    if version >= ("4.1" if steps[0] is FORMAT_2 else "3.5")
]
OLDER = [
    Case(query, Case.steps, version)
    for version in OLD_VERSIONS
    for query in (Query("agg_update"), Query("dedup"), Query("join"))
    if version > "3.1"  # which does not know RocksDB
]
FORMATS_1 = [
    Case(replace(query, conf=FORMAT_1), (setting(aggregation_format="2"), steps), version)
    for version in ("3.5", NEWEST)
    for query, steps in ((Query("agg_update"), TO_ROCKSDB), (rocksdb("agg_append", changelog=True), {"partitions": 1}))
]
LISTS = [
    Case(rocksdb(operator, changelog=True), (setting(row_checksums="true"), setting(row_checksums="false"), FORMAT_2))
    for operator in ONLY_ROCKSDB
]
CODECS = [
    Case(Query("agg_update", codec=codec, row_checksum=checksums), (TO_ROCKSDB, {**TO_HDFS, **setting(codec=other)}))
    for codec, other in [("lz4", "lzf"), ("lzf", "snappy"), ("snappy", "zstd"), ("zstd", "lz4")]
    for checksums in (False, True)
]
EVERYTHING = [
    *SLICE,
    FORMAT_4,
    Case(Query("sessions", codec="snappy")),
    *(Case(Query(operator)) for operator in OPERATORS if operator not in ONLY_ROCKSDB),
    *WITH_VERSIONS,
    *OLDER,
    *FORMATS_1,
    *LISTS,
    *CODECS,
]


@pytest.mark.parametrize("case", EVERYTHING if FULL else narrow(SLICE), ids=str)
def test_a_query_continues(judge: Judge, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    query = case.query
    if case.version in OLD_VERSIONS:
        monkeypatch.setattr("ttlsnap.migration.run.PROOF", 0)  # the states have few keys
    batches = [WHOLE[0][:2]] if query.operator in WITHOUT_KEYS else WHOLE
    layout = "both" if query.operator in ENDLESS else "snapshot"
    written = judge.write(query, batches, layout=layout, version=case.version)
    settled(written.path)
    _, (migrated, same) = copies_of(judge, written)
    planned_batch = query.operator not in WITHOUT_KEYS
    emitted = 0
    for number, step in enumerate(case.steps):
        if not planned_batch:
            with pytest.raises((RefusedError, UsageError), match="global limit"):
                migrate(str(migrated.path), stopped=True, **step)
        report = migrate(str(migrated.path), stopped=True, planned_batch=planned_batch, **step)
        assert report.published
        assert report.entries > 0
        migrated.query = after(migrated.query, step)
        more = events_of(number, len(case.steps))
        emitted += emit_the_same(judge, same, migrated, more)
        settled(migrated.path)
        assert errors(migrated.path) == errors(same.path)
    assert emitted
    if planned_batch:
        copy_all(migrated.path)
        last: list[Events] = [[Event("k1", T + 50 * 3600 * 24, 1)]]
        emit_the_same(judge, same, migrated, last)


def events_of(step: int, steps: int) -> list[Events]:
    """Return the batches after a migration: twenty and more after all of them, and a late one that closes windows."""
    count = A_ROUND if A_ROUND == 2 else 21 // steps + 1
    first = T + 4 * 3600 + step * count * 900
    found: list[Events] = [
        [Event(f"k{(number * 5 + i) % 29}", first + number * 900 + i, i + 1) for i in range(9)]
        for number in range(count)
    ]
    return [*found, *MORE_WHOLE[1:]] if step == steps - 1 else found


@pytest.mark.parametrize(
    ("query", "step"),
    [
        (Query("agg_update"), FORMAT_2),
        (rocksdb("agg_update", changelog=True, checkpoint_format=2), BACK),
        *([(Query("agg_update"), TO_ROCKSDB), (Query("agg_update"), setting(codec="zstd"))] if FULL else []),
    ],
    ids=str,
)
def test_a_rollback_restores_every_byte(judge: Judge, query: Query, step: dict[str, Any]) -> None:
    written = judge.write(query, WHOLE, layout="both")
    settled(written.path)
    before = tree(written.path)
    assert migrate(str(written.path), dry_run=True, **step).published is False
    assert tree(written.path) == before
    migrate(str(written.path), stopped=True, **step)
    rollback(str(written.path), stopped=True)
    assert tree(written.path) == before
    assert judge.restart(written, MORE_WHOLE) == written.expected.run(MORE_WHOLE)


@pytest.mark.parametrize("step", [TO_ROCKSDB, FORMAT_2], ids=str)
def test_a_query_continues_on_a_new_checkpoint(judge: Judge, step: dict[str, Any]) -> None:
    written = judge.write(Query("agg_update"), WHOLE, layout="both")
    before = settled(written.path)
    copy = written.path.with_name(f"{written.path.name}-new")
    migrate(str(written.path), output=str(copy), stopped=True, **step)
    assert settled(written.path) == before
    assert not [found for found in doctor(copy).document["problems"] if found["severity"] != "note"]
    assert not list(copy.glob("state/0/*/*.delta"))
    on_copy = judge.at(written, copy)
    on_copy.query = after(written.query, step)
    assert emit_the_same(judge, written, on_copy, MORE_WHOLE)


@dataclass(frozen=True)
class Refusal:
    """A migration that is refused, and the words of the error."""

    query: Query
    words: str
    step: dict[str, Any] = field(default_factory=lambda: TO_HDFS)
    version: str = NEWEST
    error: type[Exception] = UnsupportedError


REFUSALS = [
    Refusal(rocksdb("lists", changelog=True), "needs RocksDB: the HDFS-backed store cannot hold its state variables"),
    Refusal(
        replace(rocksdb("join", changelog=False), join_format=3),
        "has state format 3, and the HDFS-backed store holds only 1 and 2",
    ),
    Refusal(
        rocksdb("agg_update", changelog=True, checkpoint_format=2),
        r"the HDFS-backed store cannot hold its checkpoint ids. To change to format 1, too, add: settings checkpoint-f",
    ),
    Refusal(Query("agg_update"), "a change of row checksums needs Spark 4.2", setting(row_checksums="true"), "3.5"),
    Refusal(Query("agg_update"), "checkpoint format 2 needs Spark 4.1", FORMAT_2, "3.5"),
    Refusal(Query("agg_update"), "is only for RocksDB", setting(checkpoint_format="2"), error=UsageError),
    Refusal(
        rocksdb("agg_update", changelog=False),
        "Spark does not record whether it writes changelogs",
        setting(changelog="true"),
        error=UsageError,
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.words[:30])
def test_what_the_store_cannot_hold_is_refused_by_name(judge: Judge, case: Refusal) -> None:
    written = judge.write(case.query, WHOLE[:1], layout="snapshot", version=case.version)
    before = settled(written.path)
    with pytest.raises(case.error, match=case.words):
        migrate(str(written.path), stopped=True, **case.step)
    assert settled(written.path) == before


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "there is nothing to migrate"),
        ({"provider": "leveldb"}, "must be one of hdfs, rocksdb"),
        ({"partitions": 0}, "must be a whole number from 1 to"),
        ({"partitions": "3"}, "must be a whole number"),
        (setting(codec="none"), "must be one of lz4, lzf, snappy, zstd"),
        (
            setting(size="3"),
            "unknown setting size; use one of aggregation-format, changelog, checkpoint-format, codec, float-keys, in",
        ),
    ],
)
def test_unknown_changes_are_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        migrate("sample_checkpoints/agg-deltas-lz4-4.2", **asked)


def test_what_is_there_already_changes_nothing(inputs: Judge) -> None:
    written = inputs.write(Query("agg_update"), WHOLE[:1])
    before = settled(written.path)
    report = migrate(str(written.path), provider="hdfs", settings={"codec": "lz4"}, partitions=2, stopped=True)
    assert not report.published
    assert settled(written.path) == before
