"""Random tables with random types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]


class RandomTable:
    """A generator of Arrow values with a random schema, from a seed."""

    LEAVES = (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(),
        pa.binary(), pa.date32(), pa.timestamp("us", "UTC"), pa.duration("us"),
        pa.decimal128(9, 3), pa.decimal128(18, 2), pa.decimal128(19, 4), pa.decimal128(38, 6),
    )  # fmt: skip

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def type(self, depth: int) -> Any:
        kind = self.rng.integers(0, 10)
        if depth == 0 or kind < 5:
            return self.LEAVES[self.rng.integers(0, len(self.LEAVES))]
        if kind < 7:
            return pa.list_(self.type(depth - 1))
        if kind < 8:
            keys = (pa.string(), pa.int32(), pa.int64())
            return pa.map_(keys[self.rng.integers(0, 3)], self.type(depth - 1))
        return pa.struct([(f"f{i}", self.type(depth - 1)) for i in range(self.rng.integers(1, 4))])

    def value(self, kind: Any, nullable: bool = True) -> Any:
        rng = self.rng
        if nullable and rng.random() < 0.25:
            return None
        if pa.types.is_list(kind):
            return [self.value(kind.value_type) for _ in range(rng.integers(0, 5))]
        if pa.types.is_map(kind):
            keys = {self.value(kind.key_type, nullable=False) for _ in range(rng.integers(0, 4))}
            return [(k, self.value(kind.item_type)) for k in keys]
        if pa.types.is_struct(kind):
            return {f.name: self.value(f.type) for f in kind}
        if pa.types.is_boolean(kind):
            return bool(rng.integers(0, 2))
        if pa.types.is_string(kind):
            return "".join(rng.choice(list("ab é€😀"), rng.integers(0, 20)))
        if pa.types.is_binary(kind):
            return rng.bytes(int(rng.integers(0, 20)))
        if pa.types.is_decimal(kind):
            digits = int(rng.integers(1, kind.precision + 1))
            unscaled = int("".join(rng.choice(list("0123456789"), digits))) * int(rng.choice([-1, 1]))
            return pa.scalar(unscaled, pa.decimal128(38, 0)).as_py().scaleb(-kind.scale)
        if pa.types.is_floating(kind):
            return float(np.float32(rng.normal() * 10.0 ** rng.integers(-5, 6)))
        if pa.types.is_integer(kind):
            bits = int(rng.integers(1, kind.bit_width))
            return int(rng.integers(-(1 << (bits - 1)), 1 << (bits - 1)))
        if pa.types.is_date(kind):
            return pa.scalar(int(rng.integers(-100_000, 100_000)), pa.int32()).cast(kind).as_py()
        return pa.scalar(int(rng.integers(-(1 << 50), 1 << 50)), pa.int64()).cast(kind).as_py()

    def table(self, rows: int) -> pa.Table:
        kinds = [self.type(3) for _ in range(self.rng.integers(3, 9))]
        columns = [pa.array([self.value(k) for _ in range(rows)], k) for k in kinds]
        return pa.table(columns, names=[f"c{i}" for i in range(len(kinds))])
