"""Keys that are equal to Spark have one hash, so that they are in one partition."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.unsaferow.murmur3 import first_seeds, hash_columns, partitions_of

from ..both_ways import both_ways  # noqa: F401  a fixture

NAN, OTHER_NAN = struct.unpack("<2d", struct.pack("<2Q", 0x7FF8000000000000, 0xFFF8000000000001))


def hashes(ddl: str, values: list[Any], kind: pa.DataType) -> list[int]:
    """Return the hash of each value."""
    types = [field.type for field in parse_ddl(f"k {ddl}")]
    found: list[int] = hash_columns([pa.array(values, kind)], types, first_seeds(len(values))).tolist()
    return found


@pytest.mark.parametrize(("ddl", "kind"), [("DOUBLE", pa.float64()), ("FLOAT", pa.float32())])
def test_both_zeros_and_all_nans_have_one_hash(ddl: str, kind: pa.DataType) -> None:
    zero, negative, one = hashes(ddl, [0.0, -0.0, 1.0], kind)
    assert zero == negative != one
    first, second, infinite = hashes(ddl, [NAN, OTHER_NAN, np.inf], kind)
    assert first == second != infinite


def test_zeros_within_a_struct_have_one_hash() -> None:
    kind = pa.struct([("a", pa.float64()), ("b", pa.large_list(pa.float64()))])
    rows = [{"a": 0.0, "b": [-0.0]}, {"a": -0.0, "b": [0.0]}]
    one, other = hashes("STRUCT<a: DOUBLE, b: ARRAY<DOUBLE>>", rows, kind)
    assert one == other


def test_partitions_are_never_negative() -> None:
    found = partitions_of(np.array([0, 1, 2**31, 2**32 - 1, 2**32 - 5], np.uint32), 5)
    assert found.tolist() == [0, 1, 2, 4, 0]


def test_a_null_leaves_the_hash_of_the_columns_before_it() -> None:
    columns = [pa.array(["a", "a", "b"]), pa.array([None, 1, None], pa.int64())]
    types = [field.type for field in parse_ddl("s STRING, n BIGINT")]
    found = hash_columns(columns, types, first_seeds(3)).tolist()
    alone = hash_columns(columns[:1], types[:1], first_seeds(3)).tolist()
    assert (found[0], found[2]) == (alone[0], alone[2])
    assert found[1] != alone[1]
