"""The work of a migration on samples: every entry is in the new partitions, exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import migrate, open_checkpoint
from ttlsnap.engines import proof, spill
from ttlsnap.engines.spill import Entries as Stored
from ttlsnap.errors import BusyError, CorruptionError, RefusedError, StorageError, UnsupportedError, UsageError
from ttlsnap.migration import run, task
from ttlsnap.operators.placement import STRICT
from ttlsnap.operators.registry import describe
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.stores.rocksdb import build, encoding
from ttlsnap.unsaferow.rows import Rows

from ..both_ways import both_ways  # noqa: F401
from ..matrix import narrow, rotating
from ..samples import bytes_of, sample
from .entries import entries_of, rows_of

SAMPLES = (
    "agg-deltas-lz4-4.2",
    "agg-rowchecksum-deletes-4.2",
    "dedup-columns-3.1",
    "join-4.2",
    "join-format4-4.2",
    "rocksdb-changelog-3.5",
    "rocksdb-ids-4.2",
    "visits-4.2",
    "lists-4.2",
    "alarms-4.2",
)


@pytest.mark.parametrize("name", rotating(SAMPLES, 2, "moves"))
def test_every_entry_moves_whatever_the_sizes_of_blocks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    target = sample(name, tmp_path)
    before = entries_of(target)
    assert before and set(before.values()) == {1}
    for number, block in ((5, 1), (3, 1 << 20), (1, 1)):
        monkeypatch.setattr(spill, "BLOCK_BYTES", block)
        monkeypatch.setattr(build, "RUN_BYTES", block)
        monkeypatch.setattr(build, "PUT_ENTRIES", 2)
        monkeypatch.setattr(run, "PROOF", 0)  # the old samples have few keys
        report = migrate(str(target), partitions=number, stopped=True)
        assert entries_of(target) == before
        assert report.entries == before.total()
        assert all(len(store.partitions) == number for store in report.stores)


OTHER = {"hdfs": "rocksdb", "rocksdb": "hdfs"}
CONVERTED = [
    *("agg-deltas-lz4-4.2", "agg-rowchecksum-deletes-4.2", "dedup-watermark-4.2", "join-4.2", "lzf-both-4.2"),
    *("sessions-rocksdb-3.2", "rocksdb-changelog-3.5", "rocksdb-4.2"),
]
CHECKSUMMED = ["lists-4.2", "alarms-4.2", "join-format4-4.2", "rocksdb-4.2", "agg-deltas-lz4-4.2"]


@pytest.mark.parametrize("name", rotating(CONVERTED, 4, "conversions"))
def test_every_row_is_the_same_in_the_other_store(tmp_path: Path, name: str) -> None:
    target = sample(name, tmp_path)
    before, provider = rows_of(target), open_checkpoint(LocalDirectory(str(target))).provider
    assert before
    for wanted in (OTHER[provider], provider):
        report = migrate(str(target), provider=wanted, stopped=True)
        assert (report.provider, report.entries) == (wanted, before.total())
        assert open_checkpoint(LocalDirectory(str(target))).provider == wanted
        assert rows_of(target) == before


@pytest.mark.parametrize("name", narrow(CHECKSUMMED, 0, 3))
def test_row_checksums_come_and_go(tmp_path: Path, name: str) -> None:
    target = sample(name, tmp_path)
    before, stored = rows_of(target), entries_of(target)
    assert before
    first = open_checkpoint(LocalDirectory(str(target))).row_checksums
    for wanted in (not first, first):
        migrate(str(target), settings={"row-checksums": str(wanted).lower()}, stopped=True)
        assert open_checkpoint(LocalDirectory(str(target))).row_checksums == wanted
        assert rows_of(target) == before
        assert (entries_of(target) == stored) == (wanted == first)


def with_wrong_byte(rows: Rows) -> Rows:
    """Return a copy of rows. The last byte of the first row is wrong."""
    copied = Rows.concat([rows])
    data = copied.data.copy()
    data[copied.start[0] + copied.size[0] - 1] ^= 1
    return replace(copied, data=data)


WRONG = [
    ("agg-deltas-lz4-4.2", "write_values", {"provider": "rocksdb"}),
    ("agg-deltas-lz4-4.2", "write_keys", {"provider": "rocksdb"}),
    ("lists-4.2", "with_checksums", {"settings": {"row-checksums": "true"}}),
]


@pytest.mark.parametrize(("name", "function", "change"), WRONG, ids=[function for _, function, _ in WRONG])
def test_a_wrong_conversion_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, function: str, change: dict[str, Any]
) -> None:
    target = sample(name, tmp_path)
    before, right = bytes_of(target), getattr(encoding, function)
    monkeypatch.setattr(encoding, function, lambda *args, **facts: with_wrong_byte(right(*args, **facts)))
    with pytest.raises(CorruptionError, match="as the new store has them do not read as before"):
        migrate(str(target), stopped=True, **change)
    assert bytes_of(target) == before


def lose(entries: list[Stored]) -> list[Stored]:
    """Return all entries but the first."""
    keys, values = entries[0]
    return [(keys.take(slice(1, None)), values.take(slice(1, None))), *entries[1:]]


def double(entries: list[Stored]) -> list[Stored]:
    """Return the entries, with the first in place of the second, so that their number is the same."""
    keys, values = entries[0]
    index = [0, 0, *range(2, len(keys))]
    return [(keys.take(index), values.take(index)), *entries[1:]]  # type: ignore[arg-type]


def exchange(entries: list[Stored]) -> list[Stored]:
    """Return the entries, of which the first two have exchanged their values."""
    keys, values = entries[0]
    index = [1, 0, *range(2, len(keys))]
    return [(keys, values.take(index)), *entries[1:]]  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [lose, double, exchange])
@pytest.mark.parametrize("name", ["agg-snapshot-zstd-4.1", "rocksdb-4.2"])
def test_lost_doubled_and_mixed_entries_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wrong: Any
) -> None:
    target = sample(name, tmp_path)
    before = bytes_of(target)

    real = spill.Spills.read

    def damaged(spills: spill.Spills, name: str, partition: int, partitions: int) -> Iterator[Stored]:
        found = list(real(spills, name, partition, partitions))
        yield from wrong(found) if found and len(found[0][0]) > 1 else found

    monkeypatch.setattr(spill.Spills, "read", damaged)
    with pytest.raises(CorruptionError, match=r"do not have the entries of the old ones|strict ascending order"):
        migrate(str(target), partitions=1, stopped=True)
    assert bytes_of(target) == before


def test_column_families_with_other_ids_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sample("visits-4.2", tmp_path)
    before = bytes_of(target)

    real = task.SplitTask.split

    def other(given: task.SplitTask, spills: spill.Spills, progress: Any) -> task.SplitResult:
        found = real(given, spills, progress)
        (split,) = found.splits
        ids = sorted(split.families)
        turned = dict(zip(ids, map(split.families.get, reversed(ids)), strict=True))
        return replace(found, splits=(replace(split, families=turned if split.partition else split.families),))  # type: ignore[arg-type]

    monkeypatch.setattr(task.SplitTask, "split", other)
    with pytest.raises(UnsupportedError, match="partitions 0 and 1 have different ids for their column families"):
        migrate(str(target), partitions=3, stopped=True)
    assert bytes_of(target) == before


@pytest.mark.parametrize("name", ["dedup-columns-3.1", "groups-3.1", "sessions-rocksdb-3.2"])
def test_few_keys_of_an_old_query_do_not_show_how_it_places_them(tmp_path: Path, name: str) -> None:
    target = sample(name, tmp_path)
    before = bytes_of(target)
    for output in (None, str(tmp_path / "new")):
        with pytest.raises(RefusedError, match=r"\d+ different keys in (1 partition|2 partitions) do not show"):
            migrate(str(target), partitions=3, stopped=True, output=output)
        assert bytes_of(target) == before
    migrate(str(target), settings={"codec": "zstd"}, stopped=True)  # every key stays in its partition


def test_one_partition_of_an_old_query_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sample("agg-format1-3.5", tmp_path)
    migrate(str(target), partitions=1, stopped=True)
    assert dict(open_checkpoint(LocalDirectory(str(target))).batch.conf)[STRICT] == "true"
    migrate(str(target), partitions=2, stopped=True)
    migrate(str(target), partitions=1, stopped=True)
    monkeypatch.setattr(run, "STRICT", "another setting")
    before = bytes_of(target)
    with pytest.raises(RefusedError, match="different keys in 1 partition do not show"):
        migrate(str(target), partitions=2, stopped=True)
    assert bytes_of(target) == before


def test_values_of_an_aggregation_in_format_2_have_no_grouping_columns(tmp_path: Path) -> None:
    one, two = (sample("agg-format1-3.5", tmp_path / name) for name in ("one", "two"))
    before = open_checkpoint(LocalDirectory(str(one.resolve())))
    keys = describe(before)[0].key_schema.names
    report = migrate(str(one), settings={"aggregation-format": "2"}, partitions=3, stopped=True)
    assert [step["change"] for step in report.plan] == ["reformat"]
    assert report.settings["spark.sql.streaming.aggregation.stateFormatVersion"] == "2"
    after = open_checkpoint(LocalDirectory(str(one.resolve())))
    assert describe(after)[0].value_schema.names == describe(before)[0].value_schema.names[len(keys) :]
    migrate(str(two), partitions=3, stopped=True)
    assert {key for _, _, key, _ in entries_of(one)} == {key for _, _, key, _ in entries_of(two)}
    assert not migrate(str(one), settings={"aggregation-format": "2"}, stopped=True).published


@pytest.mark.parametrize(("name", "place"), [("agg-deltas-lz4-4.2", "3"), ("join-4.2", "3/left-keyToNumValues")])
def test_a_file_in_place_of_a_new_folder_is_refused(tmp_path: Path, name: str, place: str) -> None:
    target = sample(name, tmp_path)
    file = target / "state/0" / place
    file.parent.mkdir(exist_ok=True)
    file.touch()
    before = bytes_of(target)
    with pytest.raises(RefusedError, match=rf"state/0/{place} is a file, and the folder of partition 3 belongs there"):
        migrate(str(target), partitions=4, stopped=True)
    assert bytes_of(target) == before
    assert migrate(str(target), partitions=3, stopped=True).published


def test_a_batch_that_is_committed_meanwhile_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sample("agg-snapshot-zstd-4.1", tmp_path)
    real = proof.require_all

    def late(*given: Any) -> None:
        real(*given)
        (target / "offsets/5").write_text("v1\n{}\n-")

    monkeypatch.setattr(run, "require_all", late)
    with pytest.raises(BusyError, match="offsets/5 already exists where the fence belongs"):
        migrate(str(target), partitions=3, stopped=True)
    assert not (target / "state/0/2").exists()


def test_a_running_query_is_refused(tmp_path: Path) -> None:
    target = sample("agg-snapshot-zstd-4.1", tmp_path)
    for path in (target / "offsets/4", target / "commits/4"):
        path.touch()
    with pytest.raises(BusyError, match="stopped=True"):
        migrate(str(target), partitions=3)


def test_the_same_number_changes_nothing(tmp_path: Path) -> None:
    target = sample("agg-snapshot-zstd-4.1", tmp_path)
    before = bytes_of(target)
    report = migrate(str(target), partitions=2, stopped=True)
    assert (report.published, report.stores, report.backup) == (False, (), None)
    assert bytes_of(target) == before


def test_impossible_numbers_and_folders_are_refused(tmp_path: Path) -> None:
    target = sample("agg-snapshot-zstd-4.1", tmp_path)
    before = bytes_of(target)
    with pytest.raises(UsageError, match="from 1 to"):
        migrate(str(target), partitions=1 << 30, stopped=True)
    with pytest.raises(UsageError, match="is not a folder"):
        migrate(str(target), partitions=3, stopped=True, scratch=str(tmp_path / "gone"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def write_elsewhere(spills: spill.Spills, name: str, partitions: int) -> spill.SpillWriter:
        return spill.SpillWriter(tmp_path / "gone" / name, partitions, spill.Room(0), [])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spill.Spills, "write", write_elsewhere)
        with pytest.raises(StorageError, match="name another folder with scratch"):
            migrate(str(target), partitions=3, stopped=True, scratch=str(scratch))
    assert not list(scratch.iterdir())
    assert bytes_of(target) == before
