"""Real Spark, the judge of every layout: the bytes of its own UnsafeRows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest

from ttlsnap.schema.json import parse_struct
from ttlsnap.schema.types import StructType
from ttlsnap.unsaferow.rows import Rows

LayOut = Callable[..., Rows]


@dataclass(eq=False)
class SparkRows:
    """What Spark made of a query: its schema, its rows as bytes, and the JVM's own row objects."""

    schema: StructType
    payloads: list[bytes]
    jvm_rows: list[Any]
    frame: Any

    @cached_property
    def values(self) -> Any:
        """The rows as Spark itself gives them to Arrow: one struct array."""
        return self.frame.toArrow().combine_chunks().to_struct_array().combine_chunks()


def _lay_out(payloads: list[bytes], gap: int = 4, filler: int = 0xEE) -> Rows:
    data = b"".join(bytes([filler]) * gap + p for p in payloads) + bytes([filler]) * gap
    size = np.array([len(p) for p in payloads], np.int64)
    start = np.cumsum(size + gap) - size
    return Rows(np.frombuffer(data, np.uint8), start.astype(np.int64), size)


@pytest.fixture(scope="session")
def lay_out() -> LayOut:
    """Puts payloads into one buffer, ``gap`` bytes of ``filler`` around each, as lengths stand in a file."""
    return _lay_out


@pytest.fixture(scope="session")
def payloads_of() -> Callable[[Rows], list[bytes]]:
    """Each row's bytes."""
    return lambda rows: [bytes(v) for v in rows.to_arrow().to_pylist()]


def _collect(frame: Any) -> SparkRows:
    jvm_rows = list(frame._jdf.queryExecution().executedPlan().executeCollect())
    payloads = [bytes(r.getBytes()) for r in jvm_rows]
    return SparkRows(parse_struct(frame._jdf.schema().json()), payloads, jvm_rows, frame)


@pytest.fixture(scope="session")
def collect() -> Callable[[Any], SparkRows]:
    """The rows of a data frame as Spark holds them."""
    return _collect


@pytest.fixture(scope="session")
def run(spark: Any) -> Callable[[str], SparkRows]:
    """Runs a query, once, and gives its rows as Spark holds them."""
    return cache(lambda query: _collect(spark.sql(query)))
