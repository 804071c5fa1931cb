"""Data files of a table and their statistics, without Spark: which rows are too old, and which are deleted."""

from __future__ import annotations

import base64
import struct
import tracemalloc
import uuid
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from ttlsnap.delta.cutoff import ColumnPath, TableCutoff
from ttlsnap.delta.log import DataFile
from ttlsnap.delta.reading import read_rows
from ttlsnap.delta.vectors import MAGIC, TO_B85, deleted_rows
from ttlsnap.errors import CorruptionError
from ttlsnap.schema.types import LongType, StructField, TimestampType
from ttlsnap.storage.local import LocalDirectory

AT = ColumnPath(("at",), ("at",), TimestampType())
NOON = 1_767_268_800_000_000  # 2026-01-01 12:00 UTC


def data_file(least: str, most: str, nulls: int = 0, **more: Any) -> DataFile:
    stats = {"numRecords": 2, "minValues": {"at": least}, "maxValues": {"at": most}, "nullCount": {"at": nulls}}
    return DataFile("a.parquet", 1, {}, stats, **more)


@pytest.mark.parametrize(
    ("cutoff", "most", "nulls", "dropped"),
    [
        (NOON + 1000, "2026-01-01T12:00:00.000Z", 0, True),
        # The log cuts off microseconds: the newest row may be at 12:00:00.000999.
        (NOON + 998, "2026-01-01T12:00:00.000Z", 0, None),
        (NOON, "2026-01-01T12:00:00.000Z", 0, None),
        (NOON + 1000, "2026-01-01T12:00:00.000Z", 1, None),
        (NOON + 1000, "2026-01-01T12:00:00.000Z", 2, False),
        (NOON + 10**12, "2026-01-01T12:00:00", 0, None),
    ],
)
def test_statistics_drop_only_a_file_whose_rows_are_all_old(
    cutoff: int, most: str, nulls: int, dropped: bool | None
) -> None:
    found = TableCutoff(AT, cutoff).decide(data_file("2025-12-31T00:00:00.000Z", most, nulls))
    assert found is dropped


@pytest.mark.parametrize(("cutoff", "dropped"), [(NOON - 1, False), (NOON, None)])
def test_statistics_keep_a_file_whose_oldest_row_is_later(cutoff: int, dropped: bool | None) -> None:
    file = data_file("2026-01-01T12:00:00.000Z", "2026-01-02T00:00:00.000Z")
    assert TableCutoff(AT, cutoff).decide(file) is dropped


def test_a_name_stays_within_its_quotes() -> None:
    names = ("a`; DROP TABLE t; --", "b")
    assert ColumnPath(names, names, TimestampType()).sql == "`a``; DROP TABLE t; --`.`b`"


def vector(folder: Path, rows: Iterable[int]) -> Mapping[str, Any]:
    """Write a file with a deletion vector, and return its description in the log."""
    number, marked = uuid.uuid4(), BitMap64(rows)
    marked.run_optimize()
    data = struct.pack("<i", MAGIC) + marked.serialize()
    content = b"\1" + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    (folder / f"deletion_vector_{number}.bin").write_bytes(content)
    back = {new: old for old, new in TO_B85.items()}
    name = base64.b85encode(number.bytes).decode().translate(back)
    return {
        "storageType": "u",
        "pathOrInlineDv": name,
        "offset": 1,
        "sizeInBytes": len(data),
        "cardinality": len(marked),
    }


def test_rows_that_are_marked_as_deleted_are_not_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": list(range(10))}), tmp_path / "a.parquet")
    file = data_file("", "", vector=vector(tmp_path, [0, 3, 9]))
    rows = read_rows(LocalDirectory(str(tmp_path)), file, [StructField("n", LongType())], by_id=False)
    assert [n for batch in rows for n in batch.column(0).to_pylist()] == [1, 2, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("by_id", "there", "found"),
    [
        (False, {"c1": 7}, [1, 2]),
        (False, {"C1": 7}, [1, 2]),
        # Another program numbered its columns. Spark finds columns by ids only in the mode "id".
        (False, {"other": 4}, [None, None]),
        (True, {"other": 4}, [1, 2]),
        (True, {"c1": 7}, [None, None]),
        (True, {"c1": None}, [1, 2]),
    ],
)
def test_a_column_is_found_as_spark_finds_it(
    tmp_path: Path, by_id: bool, there: dict[str, int | None], found: list[int | None]
) -> None:
    fields = [
        pa.field(name, pa.int64(), metadata=None if number is None else {"PARQUET:field_id": str(number)})
        for name, number in there.items()
    ]
    pq.write_table(pa.table([[1, 2]], schema=pa.schema(fields)), tmp_path / "a.parquet")
    mapped = {"delta.columnMapping.id": 4, "delta.columnMapping.physicalName": "c1"}
    rows = read_rows(
        LocalDirectory(str(tmp_path)), data_file("", ""), [StructField("n", LongType(), metadata=mapped)], by_id=by_id
    )
    assert [n for batch in rows for n in batch.column(0).to_pylist()] == found


def test_a_vector_of_a_billion_rows_is_not_expanded(tmp_path: Path) -> None:
    made = vector(tmp_path, range(1, 1 << 30))
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size < 1 << 18
    tracemalloc.start()
    found = deleted_rows(LocalDirectory(str(tmp_path)), made)
    assert (len(found), found.last) == ((1 << 30) - 1, (1 << 30) - 1)
    assert found.kept(0, 1000).tolist() == [True] + [False] * 999
    assert found.kept((1 << 30) - 2, 4).tolist() == [False, False, True, True]
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_a_vector_that_marks_rows_beyond_its_file_is_damage(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": list(range(10))}), tmp_path / "a.parquet")
    file = data_file("", "", vector=vector(tmp_path, [3, 10]))
    with pytest.raises(CorruptionError, match=r"a\.parquet has 10 rows, but its deletion vector marks the row 10"):
        list(read_rows(LocalDirectory(str(tmp_path)), file, [StructField("n", LongType())], by_id=False))


def test_a_damaged_deletion_vector_is_an_error(tmp_path: Path) -> None:
    # Another set of as many rows, but with the checksum of the first one.
    made = vector(tmp_path, [1, 5])
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    at = data.index(struct.pack("<HH", 1, 5))
    data[at + 2] = 6
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=r"\.bin is damaged: its length or its checksum is wrong"):
        deleted_rows(LocalDirectory(str(tmp_path)), made)
