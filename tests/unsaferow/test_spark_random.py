"""``encode`` gives the same bytes as Spark for random tables of random types."""

from __future__ import annotations

from typing import Any

import pytest

from ttlsnap.schema.arrow import arrow_type
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.encode import encode

from .random_tables import RandomTable


@pytest.mark.parametrize("seed", range(8))
def test_random_tables_have_sparks_bytes(seed: int, spark: Any, collect: Any, lay_out: Any, payloads_of: Any) -> None:
    table = RandomTable(seed).table(25)
    made = collect(spark.createDataFrame(table))
    values = table.to_struct_array().combine_chunks()

    encoded = encode(values, made.schema)
    decoded = decode(lay_out(made.payloads), made.schema)

    assert [p.hex(" ", 8) for p in payloads_of(encoded)] == [p.hex(" ", 8) for p in made.payloads]
    assert decoded.type == arrow_type(made.schema)
    assert repr(decoded.to_pylist()) == repr(values.to_pylist())
