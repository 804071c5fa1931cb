"""Parquet files are read in batches of bounded memory, also if a few bytes give many rows."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ttlsnap.errors import UnsupportedError
from ttlsnap.storage import parquet
from ttlsnap.storage.expansion import EXPANSION
from ttlsnap.storage.parquet import MOST_BYTES, ParquetRows

from ..samples import bytes_of, sample

pytestmark = pytest.mark.slow

LONG = "x" * (36 << 10)
VALUE = ["max", "count", "sum"]


def written(table: pa.Table, *, codec: str = "zstd", **options: Any) -> io.BytesIO:
    made = io.BytesIO()
    pq.write_table(table, made, compression=codec, **options)
    return made


def opened(made: io.BytesIO) -> ParquetRows:
    return ParquetRows(made, made.getbuffer().nbytes, "table.parquet")


def repeated(rows: int, *, text: str = LONG) -> pa.Array:
    """Return one text for all rows, as a reference to a dictionary."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


TEXTS = pa.array(["a", None, "", "ab" * 100, "a"])
KINDS = {
    "texts": TEXTS,
    "bytes": TEXTS.cast(pa.binary()),
    "large texts": TEXTS.cast(pa.large_string()),
    "numbers": pa.array([1, None, 3, 4, 5]),
    "categories": TEXTS.dictionary_encode(),
    "structs": pa.StructArray.from_arrays(
        [TEXTS, pa.array([1, 2, 3, 4, None])], ["text", "n"], mask=pa.array([False, False, True, False, False])
    ),
    "lists": pa.array([["a", None], None, [], ["b"], ["a", "a"]]),
    "maps": pa.array(
        [[("a", "b")], None, [], [("b", None), ("c", "b")], [("a", "b")]], pa.map_(pa.string(), pa.string())
    ),
    "lists of structs": pa.array(
        [[{"a": "x", "b": [1]}], None, [None, {"a": None, "b": None}], [], [{"a": "y", "b": []}]]
    ),
}


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"row_group_size": 2}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_that_were_written(kind: str, options: dict[str, Any]) -> None:
    table = pa.table({"column": KINDS[kind]})
    rows = opened(written(table, **options))
    batches = list(rows.batches())
    assert [row for batch in batches for row in batch.to_pylist()] == table.to_pylist()
    assert {batch.schema.field(0).type for batch in batches} == {rows.schema.field(0).type}
    for batch in batches:
        batch.validate(full=True)


def test_texts_of_a_prefix_encoding_are_read() -> None:
    texts = [f"user-{n:06}" for n in range(5000)]
    made = written(pa.table({"t": texts}), use_dictionary=False, column_encoding={"t": "DELTA_BYTE_ARRAY"})
    assert [row["t"] for batch in opened(made).batches() for row in batch.to_pylist()] == texts


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "none", "lz4", "brotli"])
def test_a_batch_has_as_many_rows_as_the_texts_of_its_dictionary_allow(codec: str) -> None:
    made = written(pa.table({"t": repeated(10_000), "n": range(10_000)}), codec=codec, store_schema=False)
    batches = list(opened(made).batches())
    assert sum(batch.num_rows for batch in batches) == 10_000
    assert max(batch.nbytes for batch in batches) <= MOST_BYTES + (1 << 20)
    assert len(batches) < 10


def test_one_row_may_be_larger_than_a_batch() -> None:
    made = written(pa.table({"t": repeated(3, text="x" * (MOST_BYTES + 1))}), store_schema=False)
    assert [batch.num_rows for batch in opened(made).batches()] == [1, 1, 1]


LITTLE = 16 << 20


def lists(rows: int) -> pa.Table:
    """Return a table with one list."""
    values = pa.array(np.zeros(rows, np.int8))
    return pa.table({"t": pa.ListArray.from_arrays(pa.array([0, rows], pa.int32()), values)})


BOMBS: dict[str, Callable[[], io.BytesIO]] = {
    "a text of a dictionary": lambda: written(pa.table({"t": repeated(25_000)}), store_schema=False),
    "a category": lambda: written(pa.table({"t": repeated(25_000)})),
    "a text in a struct": lambda: written(
        pa.table({"t": pa.StructArray.from_arrays([repeated(25_000)], ["x"])}), store_schema=False
    ),
    "a text in a list": lambda: written(
        pa.table({"t": pa.ListArray.from_arrays(pa.array([0, 10_000], pa.int32()), repeated(10_000))})
    ),
    "rows": lambda: written(pa.table({"t": np.zeros(3_000_000, np.int8)})),
    "elements of a list": lambda: written(lists(3_000_000)),
    "a text without a dictionary": lambda: written(pa.table({"t": ["x" * (9 << 20)] * 2}), use_dictionary=False),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_what_a_few_bytes_stand_for_is_refused(monkeypatch: pytest.MonkeyPatch, bomb: str) -> None:
    monkeypatch.setattr(parquet, "FREE_BYTES", LITTLE)
    made = BOMBS[bomb]()
    assert made.getbuffer().nbytes < LITTLE // EXPANSION
    with pytest.raises(UnsupportedError, match=r"table\.parquet: its [\d,]+ bytes have .* of up to [\d,]+ bytes"):
        for _ in opened(made).batches():
            pass


IN_LITTLE_MEMORY = """
import resource, sys
from ttlsnap.cli.app import run
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
sys.exit(run(sys.argv[1:]))
"""


def test_an_import_of_a_bomb_is_refused_in_little_memory(tmp_path: Path) -> None:
    target, rows = sample("agg-deltas-lz4-4.2", tmp_path), 250_000
    table, before = tmp_path / "bomb.parquet", bytes_of(target)
    keys = pa.StructArray.from_arrays([repeated(rows)], ["key"])
    times = pa.nulls(rows, pa.timestamp("us", "UTC"))
    values = pa.StructArray.from_arrays([times, pa.nulls(rows, pa.int64()), pa.nulls(rows, pa.int64())], VALUE)
    table.write_bytes(written(pa.table({"key": keys, "value": values}), store_schema=False).getvalue())
    assert table.stat().st_size < 10_000
    words = ["import", str(target), "--from", str(table), "--mode", "merge", "--stopped", "--yes", "--parallelism", "1"]
    done = subprocess.run(
        [sys.executable, "-c", IN_LITTLE_MEMORY, *words], capture_output=True, text=True, timeout=180, check=False
    )
    assert (done.returncode, "ttlsnap reads at most 1,024 MiB" in " ".join(done.stderr.split())) == (3, True), done
    assert bytes_of(target) == before
