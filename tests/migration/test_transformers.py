"""Transformers in the pass of a migration: the result is that of a compaction and a migration after it."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ttlsnap import (
    EntryTransformerFactory,
    LocalEngine,
    MigrationReport,
    Replace,
    SparkEngine,
    StateDescriptor,
    compact,
    migrate,
    recover,
    rollback,
)
from ttlsnap.clock import Clock
from ttlsnap.compaction import runner
from ttlsnap.engines import spill
from ttlsnap.engines.moving import MovingEngine
from ttlsnap.entries.batch import RowEntries
from ttlsnap.errors import RefusedError, StorageError, UsageError
from ttlsnap.migration.run import SilentListener
from ttlsnap.transform.protocols import StateSnapshotTransformerFactory

from ..cli.running import Ttlsnap
from ..compaction.stories import MORE_WHOLE, WHOLE, copies_of, rocksdb, settled
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL, narrow, rotating
from ..samples import bytes_of, sample
from .entries import entries_of, rows_of
from .twins import emit_the_same


class DropsSome:
    """A factory whose transformers drop every third entry or so, whatever its state."""

    def create(self, state: StateDescriptor, clock: Clock) -> Any:
        return self

    def filter_or_transform(self, entries: RowEntries) -> Any:
        keys = zip(entries.keys.to_list(), entries.values.to_list(), strict=True)
        return entries.filter(np.array([zlib.crc32(key + value) % 3 != 1 for key, value in keys], np.bool_))


@pytest.fixture(autouse=True)
def few_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the placement of few keys, which the old samples have."""
    monkeypatch.setattr("ttlsnap.migration.run.PROOF", 0)


DROPPED = [
    *("agg-deltas-lz4-4.2", "agg-rowchecksum-deletes-4.2", "dedup-columns-3.1", "groups-3.1"),
    *("join-4.2", "join-outer-3.1", "join-format4-4.2", "sessions-rocksdb-3.2", "rocksdb-changelog-3.5"),
    *("rocksdb-ids-4.2", "visits-4.2", "lists-4.2", "alarms-4.2"),
]
REWRITTEN = ["agg-rowchecksum-deletes-4.2", "lists-4.2", "rocksdb-4.2", "visits-4.2", "join-4.2"]
OPTIONS: dict[str, Any] = {"stopped": True, "max_drop": 1.0, "drop_unmatched": True}


def counts(totals: Any) -> dict[str, int]:
    return {name: count for name, count in asdict(totals).items() if not name.startswith("bytes")}


@pytest.mark.parametrize("name", narrow(DROPPED, 1, 4, 8, 10, 11))
def test_dropping_in_the_same_pass_is_dropping_before(tmp_path: Path, name: str) -> None:
    one, two = sample(name, tmp_path / "one"), sample(name, tmp_path / "two")
    before = entries_of(one)
    wanted = compact(str(one), [DropsSome()], engine=LocalEngine(1), **OPTIONS)
    assert wanted.totals.dropped
    migrate(str(one), partitions=3, stopped=True)
    found = migrate(str(two), partitions=3, transformers=[DropsSome()], engine=LocalEngine(2), **OPTIONS)
    assert entries_of(two) == entries_of(one) != before
    assert found.compaction is not None
    assert counts(found.compaction.totals) == counts(wanted.totals)
    assert found.entries == entries_of(two).total()
    assert found.totals.bytes_after == found.compaction.totals.bytes_after
    assert found.to_json()["compaction"]["totals"]["dropped"] == wanted.totals.dropped
    rollback(str(two), stopped=True)
    assert entries_of(two) == before


@pytest.mark.parametrize("name", ["agg-rowchecksum-deletes-4.2", "join-4.2"])
def test_dropping_works_with_another_store(tmp_path: Path, name: str) -> None:
    one, two = sample(name, tmp_path / "one"), sample(name, tmp_path / "two")
    compact(str(one), [DropsSome()], engine=LocalEngine(1), **OPTIONS)
    wanted = rows_of(one)
    migrate(str(two), provider="rocksdb", partitions=3, transformers=[DropsSome()], **OPTIONS)
    assert rows_of(two) == wanted


def add(key: Any, value: dict[str, Any]) -> Replace:
    """Change one number, or the text, of a value."""
    name = next(name for name, old in value.items() if isinstance(old, int | str) and not isinstance(old, bool))
    return Replace({**value, name: value[name] + (1 if isinstance(value[name], int) else "+")})


@pytest.mark.parametrize("name", narrow(REWRITTEN, 1, 2, 4))
@pytest.mark.parametrize("block", rotating([1, 64 << 20], 1, "blocks"))
def test_rewriting_in_the_same_pass_is_rewriting_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, block: int
) -> None:
    monkeypatch.setattr(spill, "BLOCK_BYTES", block)
    one, two = sample(name, tmp_path / "one"), sample(name, tmp_path / "two")
    before = entries_of(one)
    factories: list[StateSnapshotTransformerFactory] = [DropsSome(), EntryTransformerFactory(add)]
    wanted = compact(str(one), factories, engine=LocalEngine(1), **OPTIONS)
    assert wanted.totals.rewritten
    migrate(str(one), partitions=5, stopped=True)
    found = migrate(str(two), partitions=5, transformers=factories, **OPTIONS)
    assert entries_of(two) == entries_of(one) != before
    assert found.compaction is not None
    assert counts(found.compaction.totals) == counts(wanted.totals)


def test_dropped_entries_are_archived(tmp_path: Path) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "expired"
    before = entries_of(target)
    report = migrate(str(target), partitions=3, transformers=[DropsSome()], expired_to=str(archive), **OPTIONS)
    assert report.compaction is not None and not report.warnings
    rows = [row for file in archive.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert len(rows) == report.compaction.totals.dropped == before.total() - report.entries > 0
    assert {row["run"] for row in rows} == {report.run}
    rollback(str(target), stopped=True, expired_to=str(archive))
    assert entries_of(target) == before
    assert not list(archive.glob("*.parquet"))


def test_recover_archives_what_a_failed_delivery_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "expired"

    def fail(*args: Any) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "deliver", fail)
        report = migrate(str(target), partitions=3, transformers=[DropsSome()], expired_to=str(archive), **OPTIONS)
    assert report.published and "the disk is full" in report.warnings[0]
    assert not list(archive.glob("*.parquet"))
    recover(str(target), expired_to=str(archive))
    rows = [row for file in archive.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert len(rows) == report.totals.dropped > 0


def test_an_answer_of_no_changes_nothing(tmp_path: Path) -> None:
    target, new = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "new"
    before = bytes_of(target)

    class No(SilentListener):
        asks = True

        def confirm(self, report: MigrationReport) -> bool:
            return False

    for output in (None, str(new)):
        report = migrate(
            str(target), partitions=3, transformers=[DropsAll()], stopped=True, output=output, listener=No()
        )
        assert report.compaction is not None
        assert (report.published, report.compaction.published) == (False, False)
        assert (report.output, report.backup, report.compaction.output) == (None, None, None)
        assert bytes_of(target) == before
    assert not new.exists()


class DropsAll(DropsSome):
    """A factory whose transformers drop everything."""

    def filter_or_transform(self, entries: RowEntries) -> Any:
        return entries.filter(np.zeros(len(entries), np.bool_))


def test_dropping_everything_is_refused(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = bytes_of(target)
    for output in (None, str(tmp_path / "new")):
        with pytest.raises(RefusedError, match="every"):
            migrate(str(target), partitions=3, transformers=[DropsAll()], stopped=True, output=output)
        assert bytes_of(target) == before
    assert not (tmp_path / "new").exists()
    report = migrate(str(target), partitions=3, transformers=[DropsAll()], dry_run=True)
    assert any("every entry" in warning or "all" in warning for warning in report.warnings)
    migrate(str(target), partitions=3, transformers=[DropsAll()], stopped=True, max_drop=1.0)
    assert not entries_of(target)


def test_rows_of_a_join_that_have_not_matched_are_not_dropped(tmp_path: Path) -> None:
    target = sample("join-format4-4.2", tmp_path)
    before = bytes_of(target)
    with pytest.raises(RefusedError, match="drop_unmatched"):
        migrate(str(target), partitions=3, transformers=[DropsAll()], stopped=True, max_drop=1.0)
    assert bytes_of(target) == before


def test_a_new_checkpoint_has_the_dropped_entries_no_more(tmp_path: Path) -> None:
    target, new = sample("join-4.2", tmp_path), tmp_path / "new"
    twin = sample("join-4.2", tmp_path / "twin")
    before = bytes_of(target)
    archive = tmp_path / "expired"
    report = migrate(
        str(target), partitions=3, transformers=[DropsSome()], output=str(new), expired_to=str(archive), **OPTIONS
    )
    rows = [row for file in archive.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert len(rows) == report.totals.dropped > 0
    migrate(str(twin), partitions=3, transformers=[DropsSome()], **OPTIONS)
    assert entries_of(new) == entries_of(twin)
    assert bytes_of(target) == before
    assert report.compaction is not None and report.compaction.output == str(new)
    assert not list(new.glob("_ttlsnap/scratch*"))


def test_spark_drops_in_the_same_pass(spark: Any, tmp_path: Path) -> None:
    class Drops:  # here, so that Spark sends it to its workers
        def create(self, state: StateDescriptor, clock: Clock) -> Any:
            return self

        def filter_or_transform(self, entries: Any) -> Any:
            return entries.filter(np.arange(len(entries)) % 2 == 0)

    one, two = sample("join-4.2", tmp_path / "one"), sample("join-4.2", tmp_path / "two")
    engines: list[MovingEngine] = [LocalEngine(1), SparkEngine(session=spark)]
    for target, engine in zip((one, two), engines, strict=True):
        archive = tmp_path / f"expired-{engine.name}"
        report = migrate(
            str(target), partitions=3, transformers=[Drops()], engine=engine, expired_to=str(archive), **OPTIONS
        )
        assert report.compaction is not None
        rows = [row for file in archive.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
        assert len(rows) == report.compaction.totals.dropped > 0
    assert entries_of(one) == entries_of(two)


QUERIES: list[Query] = [
    Query("agg_update", row_checksum=True),
    Query("join", provider="rocksdb", join_format=4),
    rocksdb("alarms", changelog=True),
    *([Query("join"), rocksdb("visits", changelog=True), rocksdb("agg_update", changelog=False)] if FULL else []),
]


@pytest.mark.wide
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: f"{query.operator}-{query.provider}")
def test_a_query_continues_without_the_dropped_entries(judge: Judge, query: Query) -> None:
    written = judge.write(
        replace(query, partitions=2), WHOLE, layout="both" if query.provider == "hdfs" else "snapshot"
    )
    settled(written.path)
    _, (one, two) = copies_of(judge, written)
    compact(str(one.path), [DropsSome()], engine=LocalEngine(1), **OPTIONS)
    report = migrate(str(two.path), partitions=5, transformers=[DropsSome()], **OPTIONS)
    assert report.compaction is not None and report.compaction.totals.dropped
    assert emit_the_same(judge, one, two, MORE_WHOLE)


def test_the_command_line_drops_in_the_same_pass(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    words = ["migrate", target, "--partitions", "3", "--ttl", "2h", "--timestamp", "value.max", "--stopped"]
    shown = ttlsnap(*words, "--dry-run")
    assert "dropped" in shown.out and "Dry run" in shown.out
    done = json.loads(ttlsnap(*words, "--yes", "--max-drop", "100%", "--format", "json").out)
    assert done["compaction"]["totals"]["dropped"] > 0
    assert done["totals"]["kept"] == entries_of(target).total()
    assert done["totals"]["entries"] == done["totals"]["kept"] + done["totals"]["dropped"]
    assert done["rules"] == ["ttl 2h by value.max"]


WRONG: list[tuple[list[str], str]] = [
    (["--max-drop", "3%"], "--max-drop needs --ttl or --transformer"),
    (["--operator", "0"], "--operator needs --ttl or --transformer"),
    (["--set", "codec=zstd", "--set", "codec=lz4"], "--set codec is given twice"),
    (["--set", "codec"], "has no name or no value; write --set option=value"),
    (["--engine", "local", "--master", "local[1]"], "--master needs --engine spark or auto"),
]


def test_a_checkpoint_that_needs_no_migration_is_not_compacted(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = bytes_of(target)
    ended = ttlsnap("migrate", target, "--partitions", "2", "--ttl", "2h", "--timestamp", "value.max", "--stopped")
    assert ended.code == 0
    assert "already has these settings. Nothing was changed." in " ".join(ended.out.split())
    assert "ttlsnap compact, with the same options" in " ".join(ended.out.split())
    assert bytes_of(target) == before


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_options_that_do_not_fit_are_refused(ttlsnap: Ttlsnap, tmp_path: Path, words: list[str], message: str) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = bytes_of(target)
    ended = ttlsnap("migrate", target, "--partitions", "3", "--stopped", *words)
    assert ended.code == 2 and message in ended.err
    assert bytes_of(target) == before


def test_an_archive_needs_a_transformer(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    with pytest.raises(UsageError, match="needs a transformer"):
        migrate(str(target), partitions=3, expired_to=str(tmp_path / "expired"), stopped=True)
