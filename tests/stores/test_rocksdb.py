"""Reading and writing RocksDB partitions: damage is reported, and known pitfalls are avoided."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ttlsnap import LocalEngine, clock_at, compact, inspect, open_checkpoint, plan_compaction
from ttlsnap.clock import Clock
from ttlsnap.entries.batch import StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError, StorageError, TtlsnapError, UnsupportedError, UsageError
from ttlsnap.operators import registry as operators
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.rocksdb import changelog, database, partition, spark_library, writer
from ttlsnap.stores.rocksdb.archive import read_metadata
from ttlsnap.stores.rocksdb.batch import RocksDbBatch
from ttlsnap.stores.rocksdb.changelog import DELETE, MERGE, PUT
from ttlsnap.stores.rocksdb.store import RocksDbStore
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory
from ttlsnap.unsaferow.rows import Rows

from ..matrix import FULL
from ..samples import COMPACTABLE, ROCKSDB, bytes_of, sample
from .zips import Edit, edit_zip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAR = "2090-01-01T00:00:00Z"


def drop_all(target: Path, name: str = "rocksdb-4.2", **options: Any) -> Any:
    """Compact a target so that no entry is left."""
    factory = TtlTransformerFactory(StateTtlConfig(1_000_000), COMPACTABLE[name])
    return compact(str(target), [factory], now=FAR, engine=LocalEngine(1), stopped=True, max_drop=1.0, **options)


def is_damage(target: Path, match: str, kind: type[TtlsnapError] = CorruptionError) -> None:
    """Assert that ``compact`` and ``inspect`` raise this error, and leave every byte unchanged."""
    before = bytes_of(target)
    with pytest.raises(kind, match=match):
        drop_all(target)
    with pytest.raises(kind, match=match):
        inspect(str(target), entries=100)
    assert {path: found for path, found in bytes_of(target).items() if not path.startswith("_ttlsnap")} == before
    assert not list(target.glob("_ttlsnap/runs/*"))


def newest_zip(target: Path) -> Path:
    return max(target.glob("state/0/0/*.zip"))


def metadata_edit(edit: Callable[[dict[str, Any]], None]) -> Edit:
    def change(members: dict[str, bytes]) -> None:
        document = json.loads(members["metadata"].partition(b"\n")[2])
        edit(document)
        members["metadata"] = b"v1\n" + json.dumps(document).encode()

    return change


# Damage.


def test_a_truncated_zip_is_damage(tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    path = newest_zip(target)
    for checksum in path.parent.glob(f".{path.name}.crc"):
        checksum.unlink()
    path.write_bytes(path.read_bytes()[:-30])
    is_damage(target, r"2\.zip is damaged or truncated")


def test_a_stale_checksum_of_a_zip_is_damage(tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    path = newest_zip(target)
    path.write_bytes(path.read_bytes() + b" ")
    is_damage(target, r"\.2\.zip\.crc")


def test_a_missing_table_and_a_wrong_length_are_damage(tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    table = open_directory(str(target))
    path = target / read_metadata(table, "state/0/0/2.zip").files[0].path
    data = path.read_bytes()
    path.unlink()
    is_damage(target, rf"{path.name} is missing: state/0/0/2\.zip needs it")
    path.write_bytes(data + b"x")
    is_damage(target, rf"{path.name} is {len(data) + 1} bytes long; state/0/0/2\.zip says {len(data)}")


@pytest.mark.parametrize("name", ["../2.zip", "/etc/passwd", "SSTs/x", "a\\b", "C:\\x"])
def test_a_zip_entry_with_a_path_is_damage(tmp_path: Path, name: str) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    edit_zip(newest_zip(target), lambda members: members.update({name: b"x"}))
    is_damage(target, "has a path; Spark writes zips without folders")


@pytest.mark.parametrize("name", ["LOCK", "MANIFEST", "x.sst", "rocksdict-config.json"])
def test_an_unknown_zip_entry_is_refused(tmp_path: Path, name: str) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    edit_zip(newest_zip(target), lambda members: members.update({name: b"x"}))
    is_damage(target, f"{name}' is not a known file of a RocksDB snapshot", UnsupportedError)


def test_a_duplicate_zip_entry_is_damage(tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    path = newest_zip(target)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("CURRENT", b"MANIFEST-000001\n")
    path.with_name(f".{path.name}.crc").unlink()
    is_damage(target, "it contains CURRENT twice")


@pytest.mark.parametrize("claim", [1, 1 << 20, (1 << 32) - 2])
def test_a_zip_entry_with_a_wrong_size_is_damage(tmp_path: Path, claim: int) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    path = newest_zip(target)
    path.with_name(f".{path.name}.crc").unlink()
    data = bytearray(path.read_bytes())
    at = 0
    while (at := data.find(b"PK\x01\x02", at)) >= 0:  # the size in each entry of the central directory
        data[at + 24 : at + 28] = struct.pack("<I", claim)
        at += 1
    path.write_bytes(bytes(data))
    is_damage(target, r"2\.zip.*(damaged|decompresses)")


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda d: d.update(numKeys=d["numKeys"] + 1), "entries were found; its metadata says"),
        (lambda d: d.update(numInternalKeys=3), "entries were found; its metadata says"),
        (lambda d: d["sstFiles"][0].update(dfsSstFileName="../../x.sst"), "contains a path"),
        (lambda d: d["sstFiles"][0].update(localFileName="../000008.sst"), "contains a path"),
        (lambda d: d["sstFiles"][0].update(localFileName="CURRENT"), "contains a path"),
        (lambda d: d["sstFiles"][0].update(sizeBytes=-1), "bytes long; "),
        (lambda d: d["sstFiles"].append(d["sstFiles"][0]), "names a file twice"),
        (lambda d: d.update(sstFiles=7), "is not what Spark writes"),
        (lambda d: d.update(columnFamilyMapping={"a": 1, "b": 1}), "two column families have the same id"),
        (lambda d: d.update(columnFamilyMapping={"a": 1 << 40}), "has the id"),
        (lambda d: d.update(columnFamilyMapping={"default": 9}), "belongs to column family 0"),
        (lambda d: d.update(numKeys=10**400), "its number of entries is impossible"),
        (lambda d: d.update(numKeys=1.5), "is not what Spark writes"),
        (lambda d: d.update(sstFiles=d["sstFiles"][1:]), "RocksDB says.*No such file"),
    ],
)
def test_impossible_metadata_is_damage(tmp_path: Path, edit: Callable[[dict[str, Any]], None], match: str) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    edit_zip(newest_zip(target), metadata_edit(edit))
    is_damage(target, match)


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-", "OPTIONS-", "metadata"])
def test_a_zip_that_lacks_a_file_is_damage(tmp_path: Path, name: str) -> None:
    target = sample("rocksdb-4.2", tmp_path)

    def leave_out(members: dict[str, bytes]) -> None:
        for member in [member for member in members if member.startswith(name)]:
            del members[member]

    edit_zip(newest_zip(target), leave_out)
    is_damage(target, f"it lacks {name.removesuffix('-')}")


@pytest.mark.parametrize("size", [150, 250, 330, 400])
def test_a_truncated_manifest_is_damage_even_without_counts(tmp_path: Path, size: int) -> None:
    # RocksDB reads the truncated MANIFEST as a smaller database.
    target = sample("rocksdb-4.2", tmp_path)

    def cut(members: dict[str, bytes]) -> None:
        (name,) = (name for name in members if name.startswith("MANIFEST"))
        assert len(members[name]) > size
        members[name] = members[name][:size]
        metadata_edit(lambda d: d.update(numKeys=-1))(members)

    edit_zip(newest_zip(target), cut)
    is_damage(target, "listed, but the MANIFEST does not have it|RocksDB says")


@pytest.mark.slow
def test_a_zip_bomb_is_damage(tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    path = newest_zip(target)
    for checksum in path.parent.glob(f"*{path.name}.crc*"):
        checksum.unlink()
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(101, 109):
            archive.writestr(f"{number:06}.log", bytes(150 << 20))
    is_damage(target, r"2\.zip: 000101\.log decompresses from .* to 157,286,400 bytes, which Spark never writes")


def test_unreadable_options_are_refused(tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)

    def garble(members: dict[str, bytes]) -> None:
        (name,) = (name for name in members if name.startswith("OPTIONS"))
        members[name] = members[name].replace(b"leveldb.Bytewise", b"\xff\xfe.Bytewise")

    edit_zip(newest_zip(target), garble)
    is_damage(target, "orders keys with", UnsupportedError)


@pytest.mark.parametrize("lineage", ['[{"version":1e400,"checkpointUniqueId":"x"}]', '[{"version":1.7}]', "{}", "[1]"])
def test_an_impossible_lineage_is_damage(tmp_path: Path, lineage: str) -> None:
    data = struct.pack(">H", len(lineage)) + lineage.encode()
    (tmp_path / "1.changelog").write_bytes(b"\0\2v3" + data + struct.pack(">i", -1))
    with pytest.raises(CorruptionError, match="its lineage is not what Spark writes"):
        changelog.read_lineage(open_directory(str(tmp_path)), "1.changelog", "none")


def test_an_unknown_metadata_version_is_refused(tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    edit_zip(newest_zip(target), lambda members: members.update(metadata=b"v3\n{}"))
    is_damage(target, "begins with b'v3'", UnsupportedError)


def test_metadata_without_counts_is_accepted(tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    edit_zip(newest_zip(target), metadata_edit(lambda d: d.update(numKeys=-1)))
    assert drop_all(target).totals.dropped == 9
    assert read_metadata(open_directory(str(target)), "state/0/0/2.zip").document["numKeys"] == -1


def flips(data: bytes, most: int) -> Iterator[bytes]:
    """Yield the bytes with one flipped bit, for at most ``most`` places."""
    chance = random.Random(5)
    places = range(len(data)) if len(data) <= most else sorted(chance.sample(range(len(data)), most))
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << chance.randrange(8)
        yield bytes(changed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pattern", "at_least"),
    [
        ("rocksdb-4.2", "SSTs/*.sst", 0.8),
        ("rocksdb-4.2", "2.zip", 0.9),
        ("rocksdb-changelog-3.5", "2.changelog", 0.9),
        ("rocksdb-ids-4.2", "2_*.changelog", 0.9),
        ("visits-4.2", "4.changelog", 0.9),
    ],
)
def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path: Path, name: str, pattern: str, at_least: float) -> None:
    # Some bits have no effect: times in a zip, properties of a table, a level of compression.
    target = sample(name, tmp_path)
    wanted = inspect(str(target), entries=1000).samples
    path = max(target.glob(f"state/0/0/{pattern}"))
    for checksum in path.parent.glob(f"*{path.name}.crc*"):
        checksum.unlink()
    found = []
    for data in flips(path.read_bytes(), 150 if FULL else 40):
        path.write_bytes(data)
        try:
            assert inspect(str(target), entries=1000).samples == wanted
            found.append(False)
        except (CorruptionError, UnsupportedError):
            found.append(True)
    assert sum(found) >= at_least * len(found)


def test_a_flipped_bit_in_the_manifest_is_found_or_changes_nothing(tmp_path: Path) -> None:
    # The zip is packed again, so that its own checksum is correct.
    target = sample("rocksdb-4.2", tmp_path)
    wanted = inspect(str(target), entries=1000).samples
    path = newest_zip(target)
    good = path.read_bytes()

    def flip(place: int) -> Edit:
        def edit(members: dict[str, bytes]) -> None:
            (name,) = (name for name in members if name.startswith("MANIFEST"))
            data = bytearray(members[name])
            data[place % len(data)] ^= 4
            members[name] = bytes(data)

        return edit

    found = 0
    for place in range(0, 400, 9):
        path.write_bytes(good)
        edit_zip(path, flip(place))
        try:
            assert inspect(str(target), entries=1000).samples == wanted
        except CorruptionError:
            found += 1
    assert found > 40


def test_a_wrong_row_checksum_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sample("rocksdb-ids-4.2", tmp_path)
    real = database.scan

    def flipped(*arguments: Any, **options: Any) -> Iterator[Any]:
        for keys, values in real(*arguments, **options):
            first, *rest = values.to_list()
            yield keys, Rows.of([first[:-1] + bytes([first[-1] ^ 1]), *rest])

    monkeypatch.setattr(partition, "scan", flipped)
    with pytest.raises(CorruptionError, match=r"1 of \d rows do not match their checksums"):
        drop_all(target, "rocksdb-ids-4.2")


def test_staged_files_are_compared_byte_by_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    before = bytes_of(target)
    real = writer.Tables.put

    def flipped(self: Any, keys: Any, values: Any) -> None:
        real(self, keys, Rows.of([value[:-1] + bytes([value[-1] ^ 1]) for value in values.to_list()]))

    monkeypatch.setattr(writer.Tables, "put", flipped)
    factory = TtlTransformerFactory(StateTtlConfig(86_400_000_000), "value.max")
    with pytest.raises(CorruptionError, match="or their bytes differ"):
        compact(str(target), [factory], engine=LocalEngine(1), rewrite="full", stopped=True, max_drop=1.0)
    assert bytes_of(target) == before


def test_staged_tombstones_are_looked_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    before = bytes_of(target)
    real = writer.Tables.patch

    def forgotten(self: Any, keys: Any, values: Any) -> None:
        real(self, keys[:-1], values[:-1])

    monkeypatch.setattr(writer.Tables, "patch", forgotten)
    factory = TtlTransformerFactory(StateTtlConfig(2 * 86_400_000_000), "value.max")
    with pytest.raises(CorruptionError, match="the staged file lacks a change"):
        compact(str(target), [factory], engine=LocalEngine(1), rewrite="tombstones", stopped=True, max_drop=1.0)
    assert bytes_of(target) == before


def open_tables() -> set[str]:
    """Return the tables that were removed, and that this process still has open."""
    names = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one of this loop
            names.add(str(link.readlink()))
    return {name for name in names if name.endswith(".sst (deleted)")}


def test_an_error_between_two_entries_leaves_no_table_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    real = writer.Tables.put

    def failing(self: Any, keys: Any, values: Any) -> None:
        real(self, keys, values)
        raise CorruptionError("here")

    monkeypatch.setattr(writer.Tables, "put", failing)
    factory = TtlTransformerFactory(StateTtlConfig(86_400_000_000), "value.max")
    before = open_tables()  # of other tests
    with pytest.raises(CorruptionError, match="here"):
        compact(str(target), [factory], engine=LocalEngine(1), rewrite="full", stopped=True, max_drop=1.0)
    assert open_tables() <= before


@pytest.mark.parametrize("at", ["scan", "ingest", "new_table"])
def test_a_full_scratch_disk_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    before = bytes_of(target)

    def full(*arguments: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(partition if at == "scan" else writer, at, full)
    with pytest.raises(StorageError, match="No space left on device; name another folder with scratch"):
        drop_all(target)
    assert bytes_of(target) == before


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"", "the key is not split into a prefix"),
        (struct.pack("<i", 0), "the key is not split into a prefix"),
        (struct.pack("<i", -1) + bytes(40), "the key is not split into a prefix"),
        (struct.pack("<i", 41) + bytes(41), "the key is not split into a prefix"),
        (struct.pack("<i", 1 << 30) + bytes(41), "the key is not split into a prefix"),
        (struct.pack("<i", 17) + bytes(17) + b"\1" + bytes(16), "its row has an unknown encoding"),
        (struct.pack("<i", 17) + b"\1" + bytes(33), "its row has an unknown encoding"),
        (struct.pack("<i", 9) + bytes(34), "no room"),
    ],
)
def test_a_damaged_key_prefix_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, words: str
) -> None:
    # The keys have one prefix column and one other column, like those of session windows.
    target = sample("rocksdb-4.2", tmp_path)
    before = bytes_of(target)
    real, states_of = database.scan, operators.states_of

    def damaged(*arguments: Any, **options: Any) -> Iterator[Any]:
        for keys, values in real(*arguments, **options):
            yield Rows.of([head] * len(keys)), values

    def prefixed(*arguments: Any) -> list[StateDescriptor]:
        (state,) = states_of(*arguments)
        fields = (*state.key_schema.fields, *state.key_schema.fields)
        return [replace(state, key_schema=replace(state.key_schema, fields=fields), prefix_columns=1)]

    monkeypatch.setattr(partition, "scan", damaged)
    monkeypatch.setattr(operators, "states_of", prefixed)
    with pytest.raises(CorruptionError, match=words):
        drop_all(target)
    assert bytes_of(target) == before


@pytest.mark.parametrize(
    ("place", "key", "words"),
    [
        (0, b"", "the key  is too short to name a column family"),
        (1, b"\7", "the key 07 is too short to name a column family"),
        (-1, b"\7", "the key 07 is too short to name a column family"),
        (0, b"\0\x70", "to column family 28672, which the metadata does not name"),
        (1, b"\0\x70", "to column family 28672, which the metadata does not name"),
        (-1, b"\xff\xff", "to column family -1, which the metadata does not name"),
        (None, b"\7", "the key 07 is too short to name a column family"),
        (None, b"\0\x70", "to column family 28672, which the metadata does not name"),
    ],
)
def test_keys_without_a_known_column_family_are_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int | None, key: bytes, words: str
) -> None:
    # The damaged key is the first of a batch, the second, the last, or each.
    target = sample("visits-4.2", tmp_path)
    real = database.scan

    def damaged(*arguments: Any, **options: Any) -> Iterator[Any]:
        for keys, values in real(*arguments, **options):
            which = {place % len(keys)} if place is not None else range(len(keys))
            yield Rows.of([key if i in which else old for i, old in enumerate(keys.to_list())]), values

    monkeypatch.setattr(partition, "scan", damaged)
    with pytest.raises(CorruptionError, match=words):
        inspect(str(target), entries=1000)


@dataclass(frozen=True)
class SameAgainFactory:
    """A factory whose transformer returns new objects with the same entries."""

    def create(self, state: StateDescriptor, clock: Clock) -> SameAgainFactory:
        return self

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        return replace(entries)


def test_a_transformer_that_returns_a_copy_changes_nothing(tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    before = bytes_of(target)
    for rewrite in ("auto", "full", "tombstones"):
        report = compact(
            str(target),
            [SameAgainFactory()],
            engine=LocalEngine(1),
            rewrite=rewrite,
            stopped=True,
            max_drop=1.0,
        )
        assert not report.published
    assert bytes_of(target) == before


# Pitfalls.


def lists(target: Path) -> list[list[int]]:
    """Return the numbers of each key's list in ``visits-4.2``."""
    found: dict[str, list[int]] = {}
    for entry in inspect(str(target), entries=1000).samples or []:
        if entry["state"] == "numbers":
            found.setdefault(entry["key"]["key"], []).append(entry["value"]["number"])
    return list(found.values())


def test_merged_values_are_joined_as_spark_joins_them(tmp_path: Path) -> None:
    # The merges are in two tables, and in two changelogs after them.
    target = sample("visits-4.2", tmp_path)
    found = lists(target)
    assert sorted(found) == [[0, 10, 20, 30], [1, 11, 21, 31], [2, 12, 22], [3, 13, 23], [4, 14], [5, 15], [6], [7]]
    drop_all(target, "visits-4.2", rewrite="full")
    assert lists(target) == found


def test_options_that_name_folders_are_ignored(tmp_path: Path) -> None:
    # Spark 3.3 writes the executor's folders into the options, and RocksDB would create its logs there.
    target, elsewhere = sample("rocksdb-4.2", tmp_path), tmp_path / "elsewhere"

    def lead(members: dict[str, bytes]) -> None:
        (name,) = (name for name in members if name.startswith("OPTIONS"))
        lines = f"[DBOptions]\n  wal_dir={elsewhere}\n  db_log_dir={elsewhere}\n".encode()
        assert b"[DBOptions]\n" in members[name]
        members[name] = members[name].replace(b"[DBOptions]\n", lines)

    edit_zip(newest_zip(target), lead)
    assert drop_all(target).totals.dropped == 9
    assert not elsewhere.exists()


def test_keys_in_another_order_are_refused(tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)

    def reverse(members: dict[str, bytes]) -> None:
        (name,) = (name for name in members if name.startswith("OPTIONS"))
        members[name] = members[name].replace(b"leveldb.Bytewise", b"rocksdb.ReverseBytewise")

    edit_zip(newest_zip(target), reverse)
    is_damage(target, r"orders keys with rocksdb\.ReverseBytewise", UnsupportedError)


@pytest.mark.parametrize("guarded", [True, False])
def test_merged_values_are_joined_without_a_comma(
    tmp_path: Path, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the guard there is a comma, which shows that this test can fail.
    if not guarded:
        real = database.keep_harmless_options
        monkeypatch.setattr(database, "keep_harmless_options", lambda folder, _, where: real(folder, b",", where))
    target = sample("visits-4.2", tmp_path)
    if guarded:
        assert len(lists(target)) == 8
    else:
        with pytest.raises(CorruptionError, match="its value is not a list of rows"):
            lists(target)


def test_a_database_without_a_merge_operator_is_an_error(tmp_path: Path) -> None:
    target = sample("visits-4.2", tmp_path)

    def no_operator(members: dict[str, bytes]) -> None:
        (name,) = (name for name in members if name.startswith("OPTIONS"))
        members[name] = members[name].replace(b"merge_operator=StringAppendOperator", b"merge_operator=nullptr")

    for path in target.glob("state/0/*/*.zip"):
        edit_zip(path, no_operator)
    with pytest.raises(CorruptionError, match="RocksDB says"):
        inspect(str(target), entries=1000)


def test_a_scan_returns_exactly_the_requested_keys(tmp_path: Path) -> None:
    # A scan must not set a lower bound, because rocksdict sets the upper bound instead.
    keys = sorted(struct.pack("<h", number % 4 * 2) + b"%05d" % number for number in range(9000))
    with database.database(tmp_path / "new", database.default_settings(5), "here", new=True) as opened:
        for key in keys:
            opened[key] = b"value"

        def found(**options: bytes) -> list[bytes]:
            return [key for some, _ in database.scan(opened, "here", **options) for key in some.to_list()]

        assert found() == keys
        for family in (b"\0\0", b"\2\0", b"\6\0"):
            assert found(prefix=family) == [key for key in keys if key.startswith(family)]
        for family in (b"\1\0", b"\7\0"):
            assert found(prefix=family) == []
        assert found(before=keys[5000]) == keys[:5000]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("room", [0, 1_000, 1 << 26])
def test_entries_are_kept_for_the_second_scan_if_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool, room: int
) -> None:
    monkeypatch.setattr(partition, "KEPT_BYTES", room)
    monkeypatch.setattr(database, "BATCH_ENTRIES", 5)
    monkeypatch.setattr(spark_library, "BATCH_ENTRIES", 5)
    monkeypatch.setattr(database, "CHUNK", 5)
    target = sample("visits-4.2", tmp_path)
    checkpoint = open_checkpoint(open_directory(str(target)))
    factory = TtlTransformerFactory(StateTtlConfig(1_000_000), COMPACTABLE["visits-4.2"])
    plan = plan_compaction(checkpoint, [factory], clock_at(FAR, checkpoint.batch))
    lineage = max((p.lineage for store in plan.stores for p in store.partitions), key=lambda lineage: lineage.size)
    scans: list[bytes | None] = []

    def counted(opened: Any, where: str, family: bytes | None = None) -> Iterator[database.Pairs]:
        scans.append(family)
        yield from database.scan(opened, where, family)

    monkeypatch.setattr(partition, "scan", counted)
    with plan.state_store.open(checkpoint.files, lineage, None, keep_in_memory=again) as opened:
        assert isinstance(opened, partition.RocksDbPartition)
        first, second = ([_pairs(batch) for batch in opened.batches({})] for _ in range(2))
        assert first == second and len(first) >= 5 and sum(map(len, first)) > 10
        for name in opened.families.values():
            some = [_pairs(batch) for batch in opened.batches({}, only=name) if batch.state == name]
            assert [pair for batch in some for pair in batch] == [p for batch in first for p in batch if p[0] == name]
        assert len(scans) == (1 if again and room == 1 << 26 else 2 + len(opened.families))


def test_linked_entries_are_dropped_alike_if_kept_or_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compacted(room: int) -> tuple[int, Any]:
        monkeypatch.setattr(partition, "KEPT_BYTES", room)
        target = sample("alarms-4.2", tmp_path / str(room))
        # Some keys lose one of two values, and others lose all values.
        factory = TtlTransformerFactory(StateTtlConfig(0), "value.seen:s")
        report = compact(
            str(target), [factory], now="2026-11-20T00:00Z", engine=LocalEngine(1), stopped=True, max_drop=1.0
        )
        return report.totals.dropped, inspect(str(target), entries=1000).samples

    dropped, left = compacted(1 << 26)
    assert compacted(0) == (dropped, left) and dropped and left


def _pairs(batch: RocksDbBatch) -> list[tuple[str, bytes, bytes]]:
    return [(batch.state, *pair) for pair in zip(batch.raw_keys.to_list(), batch.raw_values.to_list(), strict=True)]


def test_a_new_zip_has_only_the_files_that_spark_writes(tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    drop_all(target)
    with zipfile.ZipFile(newest_zip(target)) as archive:
        kinds = sorted(name.partition("-")[0] for name in archive.namelist())
    assert kinds == ["CURRENT", "MANIFEST", "OPTIONS", "metadata"]


# Changelogs.


def record(kind: int, key: bytes, value: bytes, typed: bool) -> bytes:
    head = bytes([kind]) if typed else b""
    tail = struct.pack(">i", -1) if kind == DELETE else struct.pack(">i", len(value)) + value
    return head + struct.pack(">i", len(key)) + key + tail


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_changelog_version_is_read(tmp_path: Path, version: int) -> None:
    typed = version in (2, 4)
    changes = [(PUT, b"a", b"1"), (DELETE, b"b", b""), (PUT, b"", b""), (PUT, b"long", bytes(3 << 20))]
    changes += [(MERGE, b"a", b"2")] if typed else []
    lineage = json.dumps(
        [{"version": 2, "checkpointUniqueId": "y"}, {"version": 1, "checkpointUniqueId": "x"}]
    ).encode()
    head = b"" if version == 1 else b"\0\2v%d" % version
    head += struct.pack(">H", len(lineage)) + lineage if version > 2 else b""
    end = b"\0" if typed else struct.pack(">i", -1)
    path = tmp_path / "3.changelog"
    whole = head + b"".join(record(*change, typed) for change in changes) + end
    path.write_bytes(whole)
    files = open_directory(str(tmp_path))
    found = [
        change
        for part in changelog.read_changes(files, path.name, "none")
        for change in zip(part.kinds, part.keys, part.values, strict=True)
    ]
    assert found == changes
    assert changelog.has_families(files, path.name, "none") == typed
    if version > 2:
        assert changelog.read_lineage(files, path.name, "none") == [(1, "x"), (2, "y")]
    else:
        with pytest.raises(CorruptionError, match="no lineage"):
            changelog.read_lineage(files, path.name, "none")
    for wrong in (whole[:-1], whole[: len(head) + 9], whole + b"x"):
        path.write_bytes(wrong)
        with pytest.raises(CorruptionError, match=r"is truncated|follow the end"):
            list(changelog.read_changes(files, path.name, "none"))


def test_an_unknown_changelog_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.changelog").write_bytes(b"\0\2v5")
    with pytest.raises(UnsupportedError, match="changelog version b'v5' is unknown"):
        list(changelog.read_changes(open_directory(str(tmp_path)), "1.changelog", "none"))


# Scratch space.


@pytest.mark.parametrize("name", ROCKSDB)
def test_a_run_leaves_no_scratch_files(tmp_path: Path, name: str) -> None:
    target, scratch = sample(name, tmp_path), tmp_path / "scratch"
    scratch.mkdir()
    drop_all(target, name, scratch=str(scratch), dry_run=True)
    drop_all(target, name, scratch=str(scratch))
    assert not list(scratch.iterdir())
    assert not [path for path in target.rglob("*") if path.is_symlink() or "scratch" in path.name]


_AT_WORK = """
import signal, sys
from ttlsnap.transaction.scratch import claim_scratch
from ttlsnap.publishing.runs import new_run_id
from ttlsnap.storage.open import open_directory

print(claim_scratch(sys.argv[2], open_directory(sys.argv[1]).root, new_run_id()), flush=True)
signal.pause()
"""


def test_a_run_removes_only_the_scratch_folders_of_killed_runs(tmp_path: Path) -> None:
    # Other folders may belong to active runs, in a container or on another machine that shares the folder.
    target, scratch = sample("rocksdb-4.2", tmp_path), tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-c", _AT_WORK, str(target), str(scratch)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    killed, alive, elsewhere = [Path((run.stdout or io.StringIO()).readline().strip()) for run in runs]
    unknown = killed.with_name(f"{killed.name}0")
    unknown.mkdir()
    owner = json.loads((elsewhere / "owner.json").read_text())
    (elsewhere / "owner.json").write_text(json.dumps(owner | {"boot": "that of another machine"}))
    for number in (0, 2):
        runs[number].kill()
        runs[number].wait()
    drop_all(target, scratch=str(scratch))
    assert set(scratch.iterdir()) == {alive, elsewhere, unknown}
    runs[1].kill()
    for run in runs:
        run.communicate()


def test_an_unknown_rewrite_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rewrite is 'never'; use one of auto, full, tombstones"):
        drop_all(sample("rocksdb-4.2", tmp_path), rewrite="never")


def test_too_little_space_is_an_error_before_any_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100))
    is_damage(target, "only 100 are free. Nothing was changed. Name a folder with more room with scratch", StorageError)


def test_the_source_is_only_read(tmp_path: Path) -> None:
    # The tables in the scratch folder are links, so a write to one would change the source.
    target = sample("rocksdb-4.2", tmp_path)
    before = bytes_of(target / "state")
    with RocksDbStore("lz4", False, b"", 5).open(
        open_directory(str(target)),
        RocksDbStore("lz4", False, b"", 5).find(open_directory(str(target)), "state/0/0", 2),
        str(tmp_path / "scratch"),
    ) as opened:
        links = list((tmp_path / "scratch").rglob("*.sst"))
        assert links and all(path.is_symlink() for path in links)
        assert sum(len(batch.keys) for batch in opened.batches({})) > 0
    assert bytes_of(target / "state") == before
    assert os.listdir(tmp_path / "scratch") == []  # noqa: PTH208


def test_a_deleted_range_of_keys_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own writer writes the changelog, because no operator deletes a range."""
    jvm = spark._jvm.org.apache
    path = jvm.hadoop.fs.Path(str(tmp_path / "1.changelog"))
    manager = jvm.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    codec = jvm.spark.io.LZ4CompressionCodec(spark.sparkContext._jsc.sc().conf())
    files = manager.create(path.getParent(), spark._jsparkSession.sessionState().newHadoopConf())
    writer = jvm.spark.sql.execution.streaming.state.StateStoreChangelogWriterV2(files, path, codec)
    writer.put(b"a", b"1")
    writer.deleteRange(b"a", b"b")
    writer.commit()
    with pytest.raises(UnsupportedError, match=r"1\.changelog deletes a range of keys .*0x20, DELETE_RANGE"):
        list(changelog.read_changes(open_directory(str(tmp_path)), "1.changelog", "lz4"))
