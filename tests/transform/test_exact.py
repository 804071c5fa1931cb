"""New values of a transformer are stored as they are, or refused."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ttlsnap.transform.exact import find_inexact

AWARE = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
EXACT = [
    (5, pa.int32()),
    (5.0, pa.int64()),
    (None, pa.int64()),
    (0.1, pa.float32()),
    (math.nan, pa.float64()),
    (math.inf, pa.float32()),
    (3, pa.float64()),
    (Decimal("1.5"), pa.decimal128(10, 2)),
    (3, pa.decimal128(10, 2)),
    (AWARE, pa.timestamp("us", "UTC")),
    (AWARE.replace(tzinfo=None), pa.timestamp("us", "UTC")),
    (AWARE.replace(tzinfo=None), pa.timestamp("us")),
    (date(2026, 1, 2), pa.date32()),
    (timedelta(seconds=5), pa.duration("us")),
    ("é", pa.string()),
    ("é", pa.binary()),
    (bytearray(b"a"), pa.binary()),
    ([1, None, 3], pa.list_(pa.int64())),
    (np.array([1, 2]), pa.list_(pa.int64())),
    ([("a", 1)], pa.map_(pa.string(), pa.int64())),
    ({"x": [{"y": 0.1}]}, pa.struct([("x", pa.list_(pa.struct([("y", pa.float32())])))])),
]
INEXACT = [
    (64.1, pa.int64(), "value is 64.1, and would be stored as 64"),
    (1e300, pa.float32(), "stored as inf"),
    (1.7e9, pa.timestamp("us", "UTC"), "stored as datetime"),
    (1_700_000_000, pa.timestamp("us", "UTC"), "stored as datetime"),
    (5, pa.date32(), r"stored as datetime.date\(1970"),
    (AWARE, pa.date32(), r"stored as datetime.date\(2026"),
    ([1, 2.5], pa.list_(pa.int64()), r"value\[1\] is 2.5"),
    ({"x": [{"y": 0.5}]}, pa.struct([("x", pa.list_(pa.struct([("y", pa.int8())])))]), r"value\.x\[0\]\.y is 0.5"),
]


@pytest.mark.parametrize(("given", "kind"), EXACT)
def test_exact_values_pass(given: Any, kind: pa.DataType) -> None:
    (stored,) = pa.array([given], kind).to_pylist()
    assert find_inexact(given, stored, "value") is None


@pytest.mark.parametrize(("given", "kind", "says"), INEXACT)
def test_other_values_are_named(given: Any, kind: pa.DataType, says: str) -> None:
    (stored,) = pa.array([given], kind).to_pylist()
    found = find_inexact(given, stored, "value")
    assert found is not None and re.search(says, found), found
