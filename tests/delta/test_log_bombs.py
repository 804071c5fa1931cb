"""A checkpoint of a Delta log: each action needs memory, so a small file has a limited number of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ttlsnap.delta.log import live_files, read_table
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.storage.local import LocalDirectory

SCHEMA = json.dumps({"type": "struct", "fields": []})
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
METADATA = {"id": "x", "schemaString": SCHEMA, "partitionColumns": [], "configuration": {}}
CHECKPOINT = "00000000000000000000.checkpoint.parquet"


def table(folder: Path, rows: int, **columns: pa.Array) -> LocalDirectory:
    """Write a log whose checkpoint has an action for each row."""
    log = folder / "_delta_log"
    log.mkdir()
    lines = [{"protocol": PROTOCOL}, {"metaData": METADATA}]
    (log / f"{1:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    numbers = {name: pa.array([1] * rows, pa.int64()) for name in ("size", "modificationTime")}
    columns = {"path": texts([f"p{n}" for n in range(1000)], rows), **numbers, **columns}
    add = pa.StructArray.from_arrays(list(columns.values()), list(columns))
    pq.write_table(pa.table({"add": add}), log / CHECKPOINT, compression="zstd", store_schema=False)
    return LocalDirectory(str(folder))


def texts(values: list[str], rows: int, repeated: int = 1) -> pa.Array:
    """Return the values in turn, each ``repeated`` times, as references to a dictionary."""
    places = [row // repeated % len(values) for row in range(rows)]
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(values))


def vectors(rows: int, **more: pa.Array) -> pa.Array:
    """Return deletion vectors, so that each path occurs a thousand times, with another vector."""
    columns = {"storageType": texts(["u"], rows), "pathOrInlineDv": texts([f"v{n}" for n in range(1000)], rows, 1000)}
    columns |= more
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def test_many_actions_are_refused(tmp_path: Path) -> None:
    rows = 400_000
    count = pa.array([1] * rows, pa.int64())
    files = table(tmp_path, rows, deletionVector=vectors(rows, cardinality=count))
    assert (tmp_path / "_delta_log" / CHECKPOINT).stat().st_size < 100_000
    with pytest.raises(UnsupportedError, match=rf"{CHECKPOINT}: its [\d,]+ bytes have rows of up to [\d,]+ bytes"):
        live_files(files, read_table(files).version)


def test_long_statistics_are_refused(tmp_path: Path) -> None:
    rows = 10_000
    files = table(tmp_path, rows, stats=texts([json.dumps({"a": [[]] * 5000})], rows))
    with pytest.raises(UnsupportedError, match=r"at most 64 MiB, or 1,000 times the size of a Parquet file"):
        live_files(files, read_table(files).version)


def test_as_many_actions_as_files_have_are_read(tmp_path: Path) -> None:
    rows = 50_000
    files = table(tmp_path, rows, deletionVector=vectors(rows, cardinality=pa.array([1] * rows, pa.int64())))
    assert len(live_files(files, read_table(files).version)) == rows


@pytest.mark.parametrize("more", [{}, {"cardinality": pa.nulls(1, pa.int64())}], ids=["missing", "null"])
def test_a_vector_without_a_number_of_rows_is_damage(tmp_path: Path, more: dict[str, Any]) -> None:
    files = table(tmp_path, 1, deletionVector=vectors(1, **more))
    with pytest.raises(CorruptionError, match="the entry of a file has an unknown form"):
        live_files(files, read_table(files).version)
