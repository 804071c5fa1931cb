"""Arrow values as JSON text, for whole columns at a time; only rare types are converted value by value.

* Numbers are numbers. Decimals, dates, times, intervals, NaN and the infinities are text.
* Timestamps are text in UTC: ``2026-01-31 12:00:00.500000``.
* Binary values are hexadecimal text.
* Maps are lists of ``{"key", "value"}``, because keys in JSON can only be text.
* Fields of one name in a struct are numbered, as in ``inspect``.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.schema.fields import distinct_names

_SPECIAL = r'["\\\x00-\x1f]'


def json_texts(array: pa.Array) -> pa.LargeStringArray:
    """Return the JSON text of each value, ``null`` for a null."""
    kind = array.type
    if pa.types.is_null(kind):
        return pa.repeat(_text("null"), len(array))
    return pc.fill_null(_texts(array).cast(pa.large_string()), "null")


def to_json_values(array: pa.Array) -> list[Any]:
    """Return the values that the JSON texts contain."""
    return [json.loads(text) for text in json_texts(array).to_pylist()]


def _texts(array: pa.Array) -> pa.Array:
    """Return the JSON text of each value, and null for a null."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _structs(array)
    if pa.types.is_map(kind):
        map_entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        return _lists(array, array.offsets, json_texts(map_entries))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(array, array.offsets, json_texts(array.values))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return array.cast(pa.large_string())
    if pa.types.is_floating(kind):
        texts = array.cast(pa.large_string())
        return pc.if_else(pc.is_finite(array), texts, _quote(texts))
    if pa.types.is_timestamp(kind):
        return _quote(array.cast(pa.timestamp(kind.unit)).cast(pa.large_string()))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _quote(
            pa.array([None if value is None else value.hex() for value in array.to_pylist()], pa.large_string())
        )
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _escape(array.cast(pa.large_string()))
    if pa.types.is_decimal(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return _quote(array.cast(pa.large_string()))
    return _escape(pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.large_string()))


def _structs(array: pa.StructArray) -> pa.Array:
    names = distinct_names([field.name for field in array.type])
    all_texts: list[Any] = [_text("{")]
    for place, (name, column) in enumerate(zip(names, array.flatten(), strict=True)):
        name_text = f"{json.dumps(name, ensure_ascii=False)}: "
        all_texts += [_text(f", {name_text}" if place else name_text), json_texts(column)]
    texts = pc.binary_join_element_wise(*all_texts, _text("}"), _text(""))
    return pc.if_else(array.is_valid(), texts, _text(None))


def _lists(array: pa.Array, offsets: pa.Array, texts: pa.Array) -> pa.Array:
    """Return the texts of each list, joined; ``offsets`` are its limits in ``texts``."""
    list_offsets = np.asarray(offsets).astype(np.int64)
    lists = pa.ListArray.from_arrays(
        pa.array((list_offsets - list_offsets[0]).astype(np.int32)),
        texts.slice(int(list_offsets[0]), int(list_offsets[-1] - list_offsets[0])),
    )
    return pc.if_else(array.is_valid(), _around("[", pc.binary_join(lists, _text(", ")), "]"), _text(None))


def _escape(texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, _SPECIAL)).as_py():
        for raw in ("\\", '"', *map(chr, range(32))):
            texts = pc.replace_substring(texts, raw, json.dumps(raw)[1:-1])
    return _quote(texts)


def _quote(texts: pa.Array) -> pa.Array:
    return _around('"', texts, '"')


def _around(prefix: str, texts: pa.Array, suffix: str) -> pa.Array:
    return pc.binary_join_element_wise(_text(prefix), texts, _text(suffix), _text(""))


def _text(text: str | None) -> Any:
    return pa.scalar(text, pa.large_string())
