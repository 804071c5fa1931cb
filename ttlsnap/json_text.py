"""Arrow values as JSON text, whole columns at a time: nothing here is done value by value but what is rare.

Numbers as they are; decimals, dates, times and intervals as text; timestamps in UTC, ``2026-01-31 12:00:00.500000``;
binary as hex; NaN and the infinities as text; maps as lists of ``{"key", "value"}``, since JSON's keys are text only.
A struct's fields of one name are numbered, as ``inspect`` has them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.fields import distinct_names

_SPECIAL = r'["\\\x00-\x1f]'


def json_texts(array: pa.Array) -> pa.LargeStringArray:
    """The JSON of each value, ``null`` where it is null."""
    kind = array.type
    if pa.types.is_null(kind):
        return pa.repeat(_text("null"), len(array))
    return pc.fill_null(_texts(array).cast(pa.large_string()), "null")


def _texts(array: pa.Array) -> pa.Array:
    """The same, null where it is null."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _structs(array)
    if pa.types.is_map(kind):
        pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        return _lists(array, array.offsets, json_texts(pairs))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(array, array.offsets, json_texts(array.values))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return array.cast(pa.large_string())
    if pa.types.is_floating(kind):
        texts = array.cast(pa.large_string())
        return pc.if_else(pc.is_finite(array), texts, _quoted(texts))
    if pa.types.is_timestamp(kind):
        return _quoted(array.cast(pa.timestamp(kind.unit)).cast(pa.large_string()))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _quoted(pa.array([None if v is None else v.hex() for v in array.to_pylist()], pa.large_string()))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _escaped(array.cast(pa.large_string()))
    if pa.types.is_decimal(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return _quoted(array.cast(pa.large_string()))
    return _escaped(pa.array([None if v is None else str(v) for v in array.to_pylist()], pa.large_string()))


def _structs(array: pa.StructArray) -> pa.Array:
    names = distinct_names([field.name for field in array.type])
    parts: list[Any] = [_text("{")]
    for place, (name, column) in enumerate(zip(names, array.flatten(), strict=True)):
        head = f"{json.dumps(name, ensure_ascii=False)}: "
        parts += [_text(f", {head}" if place else head), json_texts(column)]
    texts = pc.binary_join_element_wise(*parts, _text("}"), _text(""))
    return pc.if_else(array.is_valid(), texts, _text(None))


def _lists(array: pa.Array, offsets: pa.Array, texts: pa.Array) -> pa.Array:
    """Each list's texts put together; ``offsets`` are where they begin and end in all ``texts``."""
    ends = np.asarray(offsets).astype(np.int64)
    lists = pa.ListArray.from_arrays(
        pa.array((ends - ends[0]).astype(np.int32)), texts.slice(int(ends[0]), int(ends[-1] - ends[0]))
    )
    return pc.if_else(array.is_valid(), _around("[", pc.binary_join(lists, _text(", ")), "]"), _text(None))


def _escaped(texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, _SPECIAL)).as_py():
        for raw in ("\\", '"', *map(chr, range(32))):
            texts = pc.replace_substring(texts, raw, json.dumps(raw)[1:-1])
    return _quoted(texts)


def _quoted(texts: pa.Array) -> pa.Array:
    return _around('"', texts, '"')


def _around(before: str, texts: pa.Array, behind: str) -> pa.Array:
    return pc.binary_join_element_wise(_text(before), texts, _text(behind), _text(""))


def _text(text: str | None) -> Any:
    return pa.scalar(text, pa.large_string())
