"""``--set join-format``: a join gets the state that Spark itself writes in the new format, and continues with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import compact, migrate, rollback
from ttlsnap.checkpoint import Checkpoint as Records
from ttlsnap.checkpoint import open_checkpoint
from ttlsnap.checkpoint.metadata import metadata_file
from ttlsnap.errors import (
    CorruptionError,
    NothingToMigrateError,
    TtlsnapError,
    UnsupportedError,
    UsageError,
)
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.stores.rocksdb.archive import read_metadata
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..compaction.stories import BATCHES, MORE_WHOLE, WHOLE, H, T, copies_of, rocksdb, settled
from ..diagnosis.asked import doctor, errors
from ..judge.processes import NEWEST
from ..judge.queries import Query, stamp
from ..judge.spark import Judge
from ..matrix import FULL
from ..operators.snapshots import rewrite
from ..publishing.trees import tree
from ..samples import sample
from .entries import entries_of
from .twins import emit_the_same

JOIN = rocksdb("join", changelog=True)
IDS = rocksdb("join", changelog=True, checkpoint_format=2)
OUTER = replace(rocksdb("join_parities", changelog=True), join_type="full_outer")


def to(number: int, **more: Any) -> dict[str, Any]:
    return {"settings": {"join-format": number}, "stopped": True, **more}


def read(path: Path) -> Records:
    return open_checkpoint(LocalDirectory(str(path.resolve())))


@pytest.mark.parametrize(
    ("query", "number"),
    [
        (OUTER, 4),
        (rocksdb("join_ignoring_case", changelog=False), 3),
        *([(OUTER, 3), (rocksdb("join_windows", changelog=True), 4)] if FULL else []),
    ],
    ids=str,
)
def test_the_state_is_what_spark_writes(inputs: Judge, query: Query, number: int) -> None:
    # In format 4, a row without a time has one from 1970, and Spark evicts it. In other formats it stays for ever.
    batches = [[event for event in events if event.ts is not None] for events in BATCHES]
    migrated = inputs.write(query, batches, layout="deltas" if query.changelog else "snapshot")
    wanted = inputs.write(replace(query, join_format=number), batches, layout="snapshot")
    settled(wanted.path)
    before = entries_of(migrated.path)
    report = migrate(str(migrated.path), **to(number))
    assert entries_of(migrated.path) == entries_of(wanted.path) != before
    assert report.entries == len(entries_of(wanted.path))
    assert {step["change"] for step in report.plan} == {"reformat"}
    found, spark = read(migrated.path), read(wanted.path)
    assert [_without_paths(found, o.id) for o in found.operators] == [
        _without_paths(spark, o.id) for o in spark.operators
    ]
    for mine, its in zip(found.operators, spark.operators, strict=True):
        for store, other in zip(mine.stores, its.stores, strict=True):
            assert store.families == other.families
            for partition in store.partitions:
                zips = [_newest_zip(at.path / store.directory(partition)) for at in (migrated, wanted)]
                assert _families(zips[0]) == _families(zips[1])


def _newest_zip(folder: Path) -> Path:
    return max(folder.glob("*.zip"), key=lambda path: int(path.stem.partition("_")[0]))


def _families(path: Path) -> tuple[Any, ...]:
    found = read_metadata(LocalDirectory(str(path.parent)), path.name)
    names = ("columnFamilyTypeMap", "maxColumnFamilyId", "numKeys", "numInternalKeys")
    return found.families, found.internal, *(found.document[name] for name in names)


def _without_paths(checkpoint: Records, operator: int) -> Any:
    path = metadata_file(checkpoint.files, operator, checkpoint.batch.id)
    assert path is not None
    head, body = Path(checkpoint.target, path).read_text().split("\n")
    document = json.loads(body)
    for store in document["stateStoreInfo"]:
        (file,) = store.pop("stateSchemaFilePaths")
        assert file.startswith(f"file:{checkpoint.target}/state/")
    return head, document


@pytest.mark.wide
def test_a_rollback_restores_every_byte(judge: Judge) -> None:
    _, (written, same) = copies_of(judge, judge.write(JOIN, WHOLE, layout="both"))
    before = tree(written.path)
    dry = migrate(str(written.path), **to(4, dry_run=True))
    assert tree(written.path) == before
    report = migrate(str(written.path), **to(4))
    assert dry.entries == report.entries
    assert not list(written.path.glob("state/0/*/left-*/*.*"))
    rollback(str(written.path), stopped=True)
    assert tree(written.path) == before
    assert emit_the_same(judge, same, written, MORE_WHOLE)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("query", "number"), [(IDS, 4), *([(IDS, 3), (replace(IDS, join_format=3), 4)] if FULL else [])], ids=str
)
def test_a_query_whose_files_have_ids_continues(judge: Judge, query: Query, number: int) -> None:
    _, (migrated, same) = copies_of(judge, judge.write(query, WHOLE, layout="both"))
    migrate(str(migrated.path), **to(number))
    assert not errors(migrated.path)
    migrated.query = replace(query, join_format=number)
    assert emit_the_same(judge, same, migrated, MORE_WHOLE)


@pytest.mark.parametrize(("first", "number"), [(3, 4), *([(2, 4), (2, 3)] if FULL else [])])
def test_a_query_continues_on_a_new_checkpoint(judge: Judge, first: int, number: int) -> None:
    written = judge.write(replace(OUTER, join_format=first, checkpoint_format=first - 1), WHOLE, layout="both")
    before = settled(written.path)
    copy = written.path.with_name(f"{written.path.name}-new")
    migrate(str(written.path), **to(number, output=str(copy)))
    assert settled(written.path) == before
    assert not [found for found in doctor(copy).document["problems"] if found["severity"] != "note"]
    on_copy = judge.at(written, copy)
    on_copy.query = replace(written.query, join_format=number)
    assert emit_the_same(judge, written, on_copy, MORE_WHOLE)


@pytest.mark.wide
def test_rows_can_be_dropped_in_the_same_run(judge: Judge) -> None:
    written = judge.write(JOIN, BATCHES, layout="both")
    _, (dropped, migrated) = copies_of(judge, written)
    rule = TtlTransformerFactory(StateTtlConfig(2 * 3_600_000_000))
    options: dict[str, Any] = {"transformers": [rule], "now": stamp(T + 5 * H)}
    both = migrate(str(dropped.path), **to(4), **options)
    assert both.compaction is not None
    assert sum(drop.dropped for drop in both.compaction.drops) > 0
    compact(str(migrated.path), [rule], now=options["now"], stopped=True)
    migrate(str(migrated.path), **to(4))
    assert entries_of(dropped.path) == entries_of(migrated.path)
    dropped.query = migrated.query = replace(JOIN, join_format=4)
    emit_the_same(judge, migrated, dropped, MORE_WHOLE)


@pytest.mark.wide
@pytest.mark.parametrize("number", [2, 3, 4] if FULL else [2, 4])
def test_a_query_in_format_1_continues(judge: Judge, number: int) -> None:
    """Only Spark 3.5 and older begin with this format, which later versions continue."""
    query = Query("join", provider="hdfs" if number == 2 else "rocksdb", join_format=1)
    written = judge.write(query, WHOLE, layout="snapshot", version="3.5")
    judge.restart(written, MORE_WHOLE[:1], version=NEWEST)
    settled(written.path)
    _, (migrated, same) = copies_of(judge, written)
    migrate(str(migrated.path), **to(number))
    migrated.version = same.version = NEWEST
    migrated.query = replace(query, join_format=number)
    assert emit_the_same(judge, same, migrated, MORE_WHOLE[1:])


def test_rows_that_their_count_contradicts_are_refused(tmp_path: Path) -> None:
    target = sample("join-4.2", tmp_path)
    rewrite(target, "left-keyToNumValues", lambda entries: entries[:-1])
    before = tree(target)
    with pytest.raises(CorruptionError, match="left side do not match"):
        migrate(str(target), provider="rocksdb", **to(4))
    assert tree(target) == before


@pytest.mark.parametrize(
    ("name", "asked", "error", "words"),
    [
        ("agg-deltas-lz4-4.2", to(2), NothingToMigrateError, "no stream-stream join"),
        ("join-4.2", to(3), UsageError, "only for RocksDB; change the provider, too"),
        ("join-format4-4.2", to(3), UnsupportedError, "have format 4, and cannot go back to 3"),
        ("join-format4-4.2", to(1), UsageError, "must be one of 2, 3, 4"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, name: str, asked: dict[str, Any], error: type[TtlsnapError], words: str
) -> None:
    target = sample(name, tmp_path)
    before = tree(target)
    with pytest.raises(error, match=words):
        migrate(str(target), **asked)
    assert tree(target) == before


def test_a_side_without_a_watermark_cannot_have_format_4(inputs: Judge) -> None:
    written = inputs.write(rocksdb("join_ignoring_case", changelog=True), WHOLE[:1])
    before = settled(written.path)
    with pytest.raises(UnsupportedError, match="the left side has no column with a watermark"):
        migrate(str(written.path), **to(4))
    assert settled(written.path) == before
