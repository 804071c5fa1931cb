"""Tables that ttlsnap wrote, in older versions: doctor finds sound ones sound, and names every damaged one."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.protocols import Rewrite
from ttlsnap.stores.rocksdb.archive import read_metadata

from ..compaction.stories import BATCHES, MORE, ROCKSDB_CONF, H, T, drop_expired, rocksdb, settled, unwanted
from ..judge.queries import Event, Query
from ..judge.spark import Checkpoint, Events, Judge
from ..matrix import FULL
from ..stores.zips import edit_zip
from .asked import doctor

LATER: list[Events] = [[Event(f"k{i}", T + 6 * H + i, batch) for i in range(batch, 24, 4)] for batch in range(4)]
# Then versions share no tables, so that doctor reads the tables of each version.
COMPACTING = ((ROCKSDB_CONF + "compactOnCommit", "true"),)
QUERIES = {
    "plain": rocksdb("agg_update", False),
    "compacting": replace(rocksdb("agg_update", False), conf=COMPACTING),
    "changelog": replace(rocksdb("agg_update", True), conf=COMPACTING),
    "ids": replace(rocksdb("agg_update", True, 2), conf=COMPACTING),
}
CASES = [
    ("full", "compacting"),
    ("tombstones", "plain"),
    *(product(("full", "tombstones"), ("plain", "changelog", "ids")) if FULL else []),
]


def _went_on(judge: Judge, query: Query, rewrite: Rewrite) -> Checkpoint:
    """Return a checkpoint that ttlsnap compacted, and to which Spark added snapshots of four more batches."""
    written = judge.write(query, BATCHES, layout="both" if query.changelog else "snapshot")
    settled(written.path)
    report = drop_expired(written.path, query, rewrite=rewrite)
    assert report.totals.dropped == written.expected.drop(unwanted(query)) > 0
    for events in LATER:
        assert judge.restart(written, [events], snapshot=True) == written.expected.run([events])
    settled(written.path)
    return written


@pytest.mark.parametrize(("rewrite", "query"), CASES)
def test_a_table_that_ttlsnap_wrote_is_sound(judge: Judge, rewrite: Rewrite, query: str) -> None:
    found = doctor(_went_on(judge, QUERIES[query], rewrite).path)
    assert (found.code, found.document["problems"]) == (0, [])
    assert set(found.restorable.values()) == {True}


def _tables(target: Path) -> dict[Path, set[int]]:
    """Return the tables of partition 0, and the versions that need each."""
    found: dict[Path, set[int]] = {}
    for path in target.glob("state/0/0/*.zip"):
        for table in read_metadata(open_directory(str(target)), f"state/0/0/{path.name}").tables.values():
            found.setdefault(target / table.path, set()).add(int(path.stem))
    return found


def _filter(table: bytes) -> range:
    """Return the place of a table's bloom filter, from its entry in the metaindex."""
    name = b"fullfilter.rocksdb.BuiltinBloomFilter"
    place = table.rindex(name) + len(name)
    numbers, value, shift = [], 0, 0
    for byte in table[place : place + 8]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    return range(numbers[0], numbers[0] + numbers[1])


def _flips(table: bytes) -> Iterator[bytes]:
    """Yield the table with one byte changed: in its entries, its index, its properties, and its footer."""
    for place in (3, _filter(table).stop + 8, table.index(b"rocksdb."), len(table) - 3):
        yield table[:place] + bytes([table[place] ^ 4]) + table[place + 1 :]


@pytest.fixture(scope="module")
def mixed(judge: Judge) -> Checkpoint:
    """Return a checkpoint with tables of all kinds, from flushes and compactions of Spark and both ways of ttlsnap."""
    written = _went_on(judge, QUERIES["plain"], "tombstones")
    assert drop_expired(written.path, written.query, rewrite="full").totals.dropped == 0
    return written


@pytest.mark.wide
def test_each_damaged_table_is_named(mixed: Checkpoint, tmp_path: Path) -> None:
    target = tmp_path / "checkpoint"
    shutil.copytree(mixed.path, target)
    tables = _tables(target)
    newest = max(version for versions in tables.values() for version in versions)
    assert len(tables) >= 6
    for path, versions in tables.items():
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        whole = path.read_bytes()
        for damaged in _flips(whole):
            path.write_bytes(damaged)
            found = doctor(target)
            named = {problem["where"] for problem in found.document["problems"] if problem["code"] == "damaged-file"}
            assert named == {str(path.relative_to(target))}
            assert {version for version, can in found.restorable.items() if not can} == versions
            assert ("last-batch-lost" in found.codes) == (newest in versions)
        path.write_bytes(whole)
    assert doctor(target).code == 0


def test_each_table_is_read_once(mixed: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    provided: Counter[str] = Counter()
    make_local = LocalDirectory.make_local

    def count(files: LocalDirectory, path: str, place: Path) -> None:
        provided[path] += 1
        make_local(files, path, place)

    monkeypatch.setattr(LocalDirectory, "make_local", count)
    assert doctor(mixed.path).code == 0
    assert {str(path.relative_to(mixed.path)) for path in _tables(mixed.path)} <= provided.keys()
    assert set(provided.values()) == {1}


def test_all_of_several_damaged_tables_are_named(mixed: Checkpoint, tmp_path: Path) -> None:
    target = tmp_path / "checkpoint"
    shutil.copytree(mixed.path, target)
    tables = _tables(target)
    for path in tables:
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        path.write_bytes(next(_flips(path.read_bytes())))
    found = doctor(target)
    named = {problem["where"] for problem in found.document["problems"] if problem["code"] == "damaged-file"}
    assert named == {str(path.relative_to(target)) for path in tables}


def _forget_tables(members: dict[str, bytes]) -> None:
    """Cut the MANIFEST to its beginning, so that the database has no table."""
    (name,) = (name for name in members if name.startswith("MANIFEST"))
    members[name] = members[name][:64]


def test_tables_of_a_damaged_snapshot_are_read_with_another_snapshot(mixed: Checkpoint, tmp_path: Path) -> None:
    target = tmp_path / "checkpoint"
    shutil.copytree(mixed.path, target)
    shared, versions = max(_tables(target).items(), key=lambda item: len(item[1]))
    assert len(versions) > 1
    shared.with_name(f".{shared.name}.crc").unlink(missing_ok=True)
    edit_zip(target / f"state/0/0/{max(versions)}.zip", _forget_tables)
    shared.write_bytes(next(_flips(shared.read_bytes())))
    found = doctor(target)
    assert {version for version, can in found.restorable.items() if not can} == versions
    assert str(shared.relative_to(target)) in {problem["where"] for problem in found.document["problems"]}


def test_a_damaged_filter_is_ignored_by_spark_and_doctor(judge: Judge, mixed: Checkpoint) -> None:
    damaged = judge.copy(mixed)
    for path in damaged.path.glob("state/0/*/SSTs/*.sst"):
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        data = bytearray(path.read_bytes())
        for place in _filter(bytes(data)):
            data[place] ^= 0x55
        path.write_bytes(data)
    assert doctor(damaged.path).code == 0
    assert judge.restart(damaged, MORE, fresh=True) == damaged.expected.run(MORE)
