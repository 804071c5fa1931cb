"""Random values of random types, compared with the Avro of the plain writer."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest

from ttlsnap.avro.decode import decode
from ttlsnap.avro.encode import encode
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.unsaferow.rows import Rows

from . import plain

_LEAVES: tuple[T.DataType, ...] = (
    T.BooleanType(), T.IntegerType(), T.LongType(), T.FloatType(), T.DoubleType(), T.StringType(), T.BinaryType(),
    T.DecimalType(5, 2), T.DecimalType(18, 4), T.DecimalType(19, 0), T.DecimalType(38, 10),
)  # fmt: skip


class Random:
    """A generator of types and values from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def struct(self, depth: int) -> T.StructType:
        names = [f"f{i}" for i in range(self.rng.integers(1, 5))]
        return T.StructType(tuple(T.StructField(name, self.type(depth)) for name in names))

    def type(self, depth: int) -> T.DataType:
        kind = self.rng.integers(0, 9) if depth else 0
        if kind < 5:
            return _LEAVES[self.rng.integers(0, len(_LEAVES))]
        if kind < 7:
            return T.ArrayType(self.type(depth - 1))
        return self.struct(depth - 1) if kind == 7 else T.MapType(T.StringType(), self.type(depth - 1))

    def value(self, data_type: T.DataType, nullable: bool = True) -> Any:
        rng = self.rng
        if nullable and rng.random() < 0.2:
            return None
        match data_type:
            case T.StructType(fields):
                return {f.name: self.value(f.type) for f in fields}
            case T.ArrayType(element):
                return [self.value(element, isinstance(element, plain.NESTED)) for _ in range(self.count())]
            case T.MapType(_, item):
                return [(f"key {i}", self.value(item, isinstance(item, plain.NESTED))) for i in range(self.count())]
            case T.BooleanType():
                return bool(rng.integers(0, 2))
            case T.IntegerType():
                return int(rng.integers(-(2**31), 2**31)) >> int(rng.integers(0, 32))
            case T.LongType():
                return int(rng.integers(-(2**63), 2**63 - 1, endpoint=True)) >> int(rng.integers(0, 64))
            case T.FloatType() | T.DoubleType():
                return float(np.float32(rng.normal()))
            case T.DecimalType(precision, scale):
                digits = "".join(map(str, rng.integers(0, 10, rng.integers(1, precision + 1))))
                return Decimal((int(rng.integers(0, 2)), tuple(map(int, digits)), -scale))
            case T.StringType():
                return "é" * int(rng.integers(0, 90)) if rng.random() < 0.2 else "x" * int(rng.integers(0, 9))
        return rng.bytes(int(rng.integers(0, 70)))

    def count(self) -> int:
        """Return a number of elements: mostly small, sometimes too large for a varint of one byte."""
        return int(self.rng.integers(0, 5)) if self.rng.random() < 0.95 else int(self.rng.integers(60, 140))


@pytest.mark.usefixtures("walking")
@pytest.mark.parametrize("seed", range(60))
def test_encoding_and_decoding_agree_with_the_plain_writer(seed: int) -> None:
    random = Random(seed)
    schema = random.struct(3)
    values = [random.value(schema, nullable=False) for _ in range([0, 1, 5, 50, 100][seed % 5])]
    rows = [plain.row(value, schema) for value in values]
    array = pa.array(values, arrow_type(schema))

    encoded = encode(array, schema)
    decoded = decode(Rows.of(rows), schema)

    assert [bytes(row) for row in encoded.to_arrow().to_pylist()] == rows
    decoded.validate(full=True)
    assert decoded.equals(array)


def test_scattered_rows_in_any_order_are_decoded() -> None:
    random = Random(1)
    schema = random.struct(2)
    values = [random.value(schema, nullable=False) for _ in range(50)]
    rows = [plain.row(value, schema) for value in values]
    size = np.array(list(map(len, rows)), np.int64)
    start = np.cumsum(size + 3) - size
    apart = Rows(np.frombuffer(b"".join(b"\xff\xff\xff" + row for row in rows), np.uint8), start, size)
    order = random.rng.permutation(50)
    assert decode(apart.take(order), schema).equals(pa.array([values[i] for i in order], arrow_type(schema)))


@pytest.mark.parametrize("cut", [0, 7])
def test_slices_of_arrow_arrays_are_encoded(cut: int) -> None:
    random = Random(2)
    schema = T.StructType(tuple(T.StructField(f"f{i}", random.type(2)) for i in range(12)))
    values = [random.value(schema, nullable=False) for _ in range(60)]
    array = pa.array(values, arrow_type(schema)).slice(cut, 40)
    written = encode(array, schema).to_arrow().to_pylist()
    assert written == [plain.row(value, schema) for value in values[cut : cut + 40]]


@pytest.mark.parametrize("count", [1, 100_000])
def test_one_row_with_many_elements_among_short_ones_is_read_back(count: int) -> None:
    schema = T.StructType((T.StructField("a", T.ArrayType(T.StringType())), T.StructField("n", T.LongType())))
    values = [{"a": ["x"] * (i % 3), "n": i} for i in range(300)]
    values[20] = {"a": [str(i) for i in range(count)], "n": -1}
    array = pa.array(values, arrow_type(schema))
    assert decode(encode(array, schema), schema).equals(array)
