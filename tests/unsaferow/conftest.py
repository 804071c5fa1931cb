"""Fixtures with the bytes of real Spark's UnsafeRows, which are the judge of every layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest

from ttlsnap.schema.json import parse_struct
from ttlsnap.schema.types import StructType
from ttlsnap.unsaferow.rows import Rows

LayOut = Callable[..., Rows]


@dataclass(eq=False)
class SparkRows:
    """The result of a query in Spark: its schema, its rows as bytes, and the JVM's own row objects."""

    schema: StructType
    payloads: list[bytes]
    jvm_rows: list[Any]
    frame: Any

    @cached_property
    def values(self) -> Any:
        """Return the rows as Spark converts them to Arrow: one struct array."""
        # Table.to_struct_array() of PyArrow 18 fails without rows.
        table = self.frame.toArrow()
        columns = [column.combine_chunks() for column in table.columns]
        return pa.StructArray.from_arrays(columns, fields=list(table.schema))


def _lay_out(payloads: list[bytes], gap: int = 4, filler: int = 0xEE) -> Rows:
    data = b"".join(bytes([filler]) * gap + p for p in payloads) + bytes([filler]) * gap
    size = np.array([len(p) for p in payloads], np.int64)
    start = np.cumsum(size + gap) - size
    return Rows(np.frombuffer(data, np.uint8), start.astype(np.int64), size)


@pytest.fixture(scope="session")
def lay_out() -> LayOut:
    """Return a function that puts payloads into one buffer, with ``gap`` bytes of ``filler`` around each.

    In a file, lengths take the place of the filler.
    """
    return _lay_out


@pytest.fixture(scope="session")
def payloads_of() -> Callable[[Rows], list[bytes]]:
    """Return a function that returns the bytes of each row."""
    return lambda rows: [bytes(v) for v in rows.to_arrow().to_pylist()]


def _collect(frame: Any) -> SparkRows:
    jvm_rows = list(frame._jdf.queryExecution().executedPlan().executeCollect())
    payloads = [bytes(r.getBytes()) for r in jvm_rows]
    return SparkRows(parse_struct(frame._jdf.schema().json()), payloads, jvm_rows, frame)


@pytest.fixture(scope="session")
def collect() -> Callable[[Any], SparkRows]:
    """Return a function that returns the rows of a data frame as Spark stores them."""
    return _collect


@pytest.fixture(scope="session")
def run(spark: Any) -> Callable[[str], SparkRows]:
    """Return a function that runs a query once and returns its rows as Spark stores them."""
    return cache(lambda query: _collect(spark.sql(query)))
