"""The RocksDB that PySpark brings reads and writes what rocksdict reads and writes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rocksdict import Rdict

from ttlsnap import native
from ttlsnap.errors import CorruptionError
from ttlsnap.stores.rocksdb import spark_library
from ttlsnap.stores.rocksdb.database import (
    EntrySource,
    Pairs,
    RocksDbError,
    database,
    default_settings,
    ingest,
    new_table,
    rocksdb_errors,
    scan,
    settings_of,
)
from ttlsnap.stores.rocksdb.spark_library import SparkDatabase, find_library, spark_database, spark_table
from ttlsnap.unsaferow.rows import Rows

pytestmark = pytest.mark.skipif(
    not native.is_available() or spark_library.find_jar() is None, reason="there is no library for this machine"
)
LARGE = 1 << 30
ENTRIES = {b"\0\0key-%06d" % (n * 7919 % 30_000): bytes(n % 200) for n in range(30_000)}
ENTRIES |= {b"\2\0large": bytes(3 << 20), b"\4\0": b"", b"\6\0last": b"value"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a database with tables that overlap, deletes, and entries in its memory."""
    folder = tmp_path / "database"
    settings = default_settings(5)
    keys = sorted(ENTRIES)
    with database(folder, settings, "here", new=True) as opened:
        for part in range(3):
            table = new_table(tmp_path / f"{part}.sst", settings)
            for key in keys[part::2]:
                table[key] = b"old" if part == 0 and key[-1:] in b"13579" else ENTRIES[key]
            table.finish()
            ingest(opened, [tmp_path / f"{part}.sst"])
        for key in keys:
            if key[-1:] in b"13579":
                opened[key] = ENTRIES[key]
        opened[b"\0\0gone"] = b"value"
        del opened[b"\0\0gone"]
        opened.flush()
    return folder


@contextlib.contextmanager
def both(folder: Path) -> Iterator[tuple[Rdict, SparkDatabase]]:
    with (
        database(folder, settings_of(folder), "here") as opened,
        spark_database(folder, LARGE, b"", opened) as faster,
    ):
        assert faster is not None
        yield opened, faster


def pairs(source: Rdict | EntrySource, prefix: bytes | None = None) -> list[tuple[bytes, bytes]]:
    found: list[Pairs] = list(scan(source, "here", prefix))
    return [pair for keys, values in found for pair in zip(keys.to_list(), values.to_list(), strict=True)]


@pytest.mark.parametrize("prefix", [None, b"\0\0", b"\1\0", b"\2\0", b"\4\0", b"\6\0", b"\7\0"])
def test_it_finds_what_rocksdict_finds(folder: Path, prefix: bytes | None) -> None:
    with both(folder) as (opened, faster):
        found = pairs(faster, prefix)
        assert found == pairs(opened, prefix)
    assert found == [(key, ENTRIES[key]) for key in sorted(ENTRIES) if key.startswith(prefix or b"")]


def test_it_sees_what_rocksdict_has_in_memory(folder: Path) -> None:
    with database(folder, settings_of(folder), "here") as opened:
        opened[b"\1\0new"] = b"value"
        with spark_database(folder, LARGE, b"", opened) as faster:
            assert faster is not None and pairs(faster, b"\1\0") == [(b"\1\0new", b"value")]


def test_rocksdict_reads_the_tables_that_it_writes(folder: Path, tmp_path: Path) -> None:
    with both(folder) as (_, faster):
        table = spark_table(folder, tmp_path / "new.sst", LARGE, b"")
        assert table is not None
        for keys, values in scan(faster, "here"):
            table.put(keys, values)
        size = table.file_size()
        table.finish()
    assert 0 < size <= (tmp_path / "new.sst").stat().st_size
    with database(tmp_path / "new", default_settings(5), "here", new=True) as opened:
        ingest(opened, [tmp_path / "new.sst"])
        assert pairs(opened) == sorted(ENTRIES.items())


def test_a_scan_may_outlive_its_database(folder: Path) -> None:
    # The traceback of an error keeps the generator.
    with both(folder) as (_, faster):
        kept, other = scan(faster, "here"), scan(faster, "here")
        assert len(next(kept)[0]) and len(next(other)[0])
    kept.close()
    with pytest.raises(RocksDbError, match="the database was closed during a scan"):
        next(other)


def test_keys_in_the_wrong_order_are_an_error(folder: Path, tmp_path: Path) -> None:
    table = spark_table(folder, tmp_path / "new.sst", LARGE, b"")
    assert table is not None
    with pytest.raises(CorruptionError, match=r"here: RocksDB says: .*ascending order"), rocksdb_errors("here"):
        table.put(Rows.of([b"b", b"a"]), Rows.of([b"1", b"2"]))


def test_a_damaged_block_is_an_error(folder: Path) -> None:
    with both(folder) as (_, faster):
        (largest, *_) = sorted(folder.glob("*.sst"), key=lambda path: -path.stat().st_size)
        data = np.fromfile(largest, np.uint8)
        data[len(data) // 2] ^= 1
        largest.write_bytes(data.tobytes())
        with pytest.raises(CorruptionError, match=r"here: RocksDB says: .*checksum"):
            pairs(faster)


def test_a_database_that_it_cannot_open_is_left_to_rocksdict(folder: Path, tmp_path: Path) -> None:
    with database(folder, settings_of(folder), "here") as opened:
        other = tmp_path / "other"
        other.mkdir()
        (other / "OPTIONS-000007").write_bytes(b"nothing")
        with spark_database(other, LARGE, b"", opened) as faster:
            assert faster is None
        assert spark_table(other, tmp_path / "new.sst", LARGE, b"") is None


def test_it_is_not_loaded_for_small_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(native.SETTING)
    assert find_library(LARGE) is not None and find_library(1000) is None
