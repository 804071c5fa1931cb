"""Decoded entries as JSON values, the way Spark shows them.

Timestamps in UTC as ``2026-01-31 12:00:00.5``, without the zone; decimals and intervals as text; binary as hex; maps
as lists of ``{"key", "value"}``, since JSON's keys are text only; NaN and the infinities as text.
"""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pyarrow as pa

from ttlsnap.clock import iso
from ttlsnap.fields import distinct_names

_LAST_DAY = 2_932_896  # 9999-12-31


def to_json_values(array: pa.Array) -> list[Any]:
    """One JSON value for each value of an Arrow array."""
    kind = array.type
    if pa.types.is_struct(kind):
        names = distinct_names([field.name for field in kind])
        columns = [to_json_values(array.field(i)) for i in range(kind.num_fields)]
        rows: list[Any] = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        rows = rows or [{}] * len(array)
        return _with_nulls(array, rows)
    if pa.types.is_map(kind):
        return [_map(array, i) for i in range(len(array))]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [to_json_values(array[i].values) if array[i].is_valid else None for i in range(len(array))]
    if pa.types.is_timestamp(kind):
        moments = array.cast(pa.int64()).to_pylist()
        return [None if m is None else (iso(m) or "").replace("T", " ").removesuffix("Z") for m in moments]
    if pa.types.is_date32(kind):
        return [_date(days) for days in array.cast(pa.int32()).to_pylist()]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [None if value is None else value.hex() for value in array.to_pylist()]
    if pa.types.is_floating(kind):
        return [v if v is None or math.isfinite(v) else str(v) for v in array.to_pylist()]
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind) or _is_text(kind):
        return list(array.to_pylist())
    return [None if value is None else str(value) for value in array.to_pylist()]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _map(array: pa.MapArray, i: int) -> list[dict[str, Any]] | None:
    if not array[i].is_valid:
        return None
    pairs = array[i].values
    keys, values = to_json_values(pairs.field(0)), to_json_values(pairs.field(1))
    return [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]


def _date(days: int | None) -> str | None:
    if days is None:
        return None
    if not -719_162 <= days <= _LAST_DAY:
        return f"{days} days since 1970-01-01"
    return date.fromordinal(days + 719_163).isoformat()


def _with_nulls(array: pa.Array, values: list[Any]) -> list[Any]:
    if not array.null_count:
        return values
    return [None if null else value for value, null in zip(values, array.is_null().to_pylist(), strict=True)]
