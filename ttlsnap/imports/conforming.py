"""The values of a table in the types of a state: each becomes exactly its equal, or its row is refused.

Numbers fit if the new type has the same number. A time without a zone is taken as UTC, because Spark writes its
timestamps so into Parquet. A null is refused where the state has none. Nothing else is converted: a text does not
become a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.amounts import quantity
from ttlsnap.entries.json_text import json_texts
from ttlsnap.errors import UsageError
from ttlsnap.migration.struct_changes import exact_cast
from ttlsnap.quoting import quote
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.fields import distinct_names
from ttlsnap.unsaferow.gather import Int64s, Mask

EXAMPLES = 10
"""Rows that are shown of those that do not fit."""
HAS_KEY = "the state already has the key"


@dataclass
class Misfits:
    """Rows that a state cannot take: their numbers by reason, and the first of them, as text."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, reason: str, count: int, examples: list[str]) -> None:
        """Add rows with the same reason."""
        self.counts[reason] += count
        self.examples += examples[: EXAMPLES - len(self.examples)]

    def include(self, misfits: Misfits) -> None:
        """Add those of another part."""
        self.counts.update(misfits.counts)
        self.examples += misfits.examples[: EXAMPLES - len(self.examples)]

    def describe(self) -> str:
        """Return all reasons with their numbers, and the examples, for a message."""
        reasons_text = ", ".join(f"{reason} ({quantity(count, 'row')})" for reason, count in self.counts.items())
        return reasons_text + ". For example:" + quote("".join(f"\n  {example}" for example in self.examples))


class Conforming:
    """The check and conversion of one batch of a table; ``where`` is the table, for messages.

    ``misfits`` has the rows that do not fit.
    """

    def __init__(self, where: str) -> None:
        self.where, self.misfits = where, Misfits()
        self._refused_rows: list[tuple[Int64s, str, pa.Array | None]] = []

    def conform(
        self, values: Any, kind: T.DataType, place: str, *, normal: bool = False, rows: Int64s | None = None
    ) -> pa.Array:
        """Return a column in the type ``kind``. Rows with a value that does not fit are marked.

        ``normal``: floating-point numbers become those that Spark uses in keys. ``rows`` has the row of each value; by
        default they are the same. Raise UsageError if the types have nothing in common.
        """
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        rows = np.arange(len(values)) if rows is None else rows
        kind = T.physical(kind)
        match kind:
            case T.NullType() if values.null_count == len(values):
                return pa.nulls(len(values))
            case T.StructType() if pa.types.is_struct(values.type):
                return self._struct(values, kind, place, normal, rows)
            case T.ArrayType() if _is_list(values.type):
                return self._list(values, kind, place, normal, rows)
            case T.MapType() if pa.types.is_map(values.type):
                return self._map(values, kind, place, rows)
        return self._plain(values, kind, place, normal, rows)

    def mark(self, is_wrong: Any, place: str, reason: str, values: Any = None, rows: Int64s | None = None) -> None:
        """Mark the rows for which ``is_wrong`` is true."""
        positions = np.flatnonzero(np.asarray(is_wrong))
        if len(positions):
            refused_values = None if values is None else values.take(pa.array(positions))
            self._refused_rows.append(
                (positions if rows is None else rows[positions], f"{place} {reason}", refused_values)
            )

    def show(self, columns: Mapping[str, pa.Array]) -> None:
        """Put the marked rows into ``misfits``, with their keys."""
        key_columns = [name for name in ("key", "map_key") if name in columns]
        for row_numbers, reason, values in self._refused_rows:
            first_rows = row_numbers[:EXAMPLES]
            key_texts = [_texts(columns[name].take(pa.array(first_rows)), f"{name} ") for name in key_columns]
            keys_of_rows = [", ".join(texts) for texts in zip(*key_texts, strict=True)] or ["a row"] * len(first_rows)
            value_texts = [""] * len(first_rows) if values is None else _texts(values.slice(0, len(first_rows)), ": ")
            examples = [f"{row}: {reason}{text}" for row, text in zip(keys_of_rows, value_texts, strict=True)]
            self.misfits.add(reason, len(np.unique(row_numbers)), examples)

    def kept(self, count: int) -> Int64s | None:
        """Return the rows that were not marked; None for all."""
        if not self._refused_rows:
            return None
        is_kept: Mask = np.ones(count, np.bool_)
        for row_numbers, _, _ in self._refused_rows:
            is_kept[row_numbers] = False
        return np.flatnonzero(is_kept)

    def _struct(self, values: Any, kind: T.StructType, place: str, normal: bool, rows: Int64s) -> pa.Array:
        state_names = distinct_names([named_field.name for named_field in kind.fields])
        table_names = distinct_names([named_field.name for named_field in values.type])
        unknown = [name for name in table_names if name not in state_names]
        if unknown:
            raise UsageError(
                f"{self.where}: {place} has a field {unknown[0]}, which the state does not have. Its fields are "
                f"{', '.join(state_names)}"
            )
        children, table_columns = [], values.flatten()
        is_valid = np.asarray(values.is_valid())
        for name, struct_field in zip(state_names, kind.fields, strict=True):
            child_place = f"{place}.{name}"
            if name not in table_names and isinstance(T.physical(struct_field.type), T.NullType):
                children.append(pa.nulls(len(values)))
                continue
            if name not in table_names:
                raise UsageError(f"{self.where}: the table has no field {child_place}")
            child = table_columns[table_names.index(name)]
            converted = self.conform(child, struct_field.type, child_place, normal=normal, rows=rows)
            if not struct_field.nullable and child.null_count:
                self.mark(np.asarray(child.is_null()) & is_valid, child_place, "is null", rows=rows)
            children.append(converted)
        if not is_valid.all() and "." not in place:
            self.mark(~is_valid, place, "is null", rows=rows)
        mask = pa.array(~is_valid) if not is_valid.all() else None
        return pa.StructArray.from_arrays(children, fields=list(_with_names(kind, state_names)), mask=mask)

    def _list(self, values: Any, kind: T.ArrayType, place: str, normal: bool, rows: Int64s) -> pa.Array:
        values = values.cast(pa.large_list(values.type.value_field))
        element_place, elements, row_of_element = f"{place}.element", values.flatten(), _repeat(rows, values)
        converted = self.conform(elements, kind.element, element_place, normal=normal, rows=row_of_element)
        if not kind.contains_null and elements.null_count:
            self.mark(elements.is_null(), element_place, "is null", rows=row_of_element)
        mask = values.is_null() if values.null_count else None
        return pa.LargeListArray.from_arrays(_offsets(values, pa.int64()), converted, mask=mask)

    def _map(self, values: Any, kind: T.MapType, place: str, rows: Int64s) -> pa.Array:
        row_of_entry, offsets = _repeat(rows, values), _offsets(values, pa.int32())
        start = values.offsets[0].as_py() if len(values) else 0
        size = offsets[-1].as_py()
        if values.null_count and size != values.offsets[-1].as_py() - start:
            raise UsageError(f"{self.where}: {place}: a null has entries")
        keys = self.conform(values.keys.slice(start, size), kind.key, f"{place}.key", rows=row_of_entry)
        inner_values = values.items.slice(start, size)
        converted_values = self.conform(inner_values, kind.value, f"{place}.value", rows=row_of_entry)
        if not kind.value_contains_null and inner_values.null_count:
            self.mark(inner_values.is_null(), f"{place}.value", "is null", rows=row_of_entry)
        self._mark_duplicates(keys, row_of_entry, f"{place}.key")
        mask = values.is_null() if values.null_count else None
        return pa.MapArray.from_arrays(offsets, keys, converted_values, mask=mask)

    def _mark_duplicates(self, keys: Any, rows: Int64s, place: str) -> None:
        """Mark the rows whose maps have a key more than once. Keys are compared as JSON."""
        codes = np.asarray(json_texts(keys).dictionary_encode().indices)
        pairs, first_index = np.unique(rows * (len(keys) + 1) + codes, return_index=True)
        if len(pairs) < len(keys):
            is_repeated = np.ones(len(keys), np.bool_)
            is_repeated[first_index] = False
            self.mark(is_repeated, place, "occurs more than once", keys, rows)

    def _plain(self, values: Any, kind: T.DataType, place: str, normal: bool, rows: Int64s) -> pa.Array:
        target = arrow_type(kind)
        if pa.types.is_null(values.type):
            return pa.nulls(len(values), target)
        if not _have_equals(values.type, target):
            raise UsageError(
                f"{self.where}: {place} is {values.type} in the table, and {kind.simple_string} in the state"
            )
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            try:
                values.validate(full=True)
            except pa.ArrowInvalid:
                raise UsageError(f"{self.where}: {place} has a text that is not UTF-8. Nothing was changed") from None
        if values.type != target:
            converted = exact_cast(values, target)
            if converted.null_count > values.null_count:
                is_wrong = pc.and_(converted.is_null(), values.is_valid())
                self.mark(is_wrong, place, f"does not fit {kind.simple_string}", values, rows)
            values = converted
        if normal and pa.types.is_floating(target):
            # NaN + 0.0 may keep its bits, so it is replaced.
            normalized = pc.add(values, pa.scalar(0.0, target))
            values = pc.if_else(pc.is_nan(normalized), pa.scalar(float("nan"), target), normalized)
        return values


def _texts(values: Any, prefix: str) -> list[str]:
    return [f"{prefix}{text}" for text in json_texts(values).to_pylist()]


def as_struct(columns: Mapping[str, Any]) -> pa.StructArray:
    """Return columns as one column of structs."""
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def _with_names(kind: T.StructType, names: list[str]) -> Any:
    return [pa.field(name, arrow_type(column.type)) for name, column in zip(names, kind.fields, strict=True)]


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _repeat(rows: Int64s, lists: Any) -> Int64s:
    """Return the row of each element."""
    if _is_list(lists.type):
        sizes = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    else:
        sizes = np.where(np.asarray(lists.is_valid()), np.diff(np.asarray(lists.offsets)), 0)
    return np.repeat(rows, sizes)


def _offsets(lists: Any, kind: pa.DataType) -> pa.Array:
    """Return where the elements of each list begin among those of all lists that are not null."""
    if _is_list(lists.type):
        sizes = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    else:
        sizes = np.where(np.asarray(lists.is_valid()), np.diff(np.asarray(lists.offsets)), 0)
    return pa.array(np.concatenate([[0], np.cumsum(sizes)])).cast(kind)


def _have_equals(table_type: pa.DataType, state_type: pa.DataType) -> bool:
    """Return whether some values of one type have an equal in the other."""
    if pa.types.is_decimal256(table_type):
        return False
    groups = (
        (pa.types.is_integer, pa.types.is_floating),
        (pa.types.is_integer, pa.types.is_decimal),
        (pa.types.is_boolean,),
        (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view),
        (pa.types.is_date,),
        (pa.types.is_time,),
        (pa.types.is_duration,),
    )
    if pa.types.is_timestamp(state_type):
        # A time without a zone is one of UTC, but one with a zone is not a time without a zone.
        return bool(pa.types.is_timestamp(table_type) and (state_type.tz is not None or table_type.tz is None))
    in_both = (any(test(state_type) for test in group) and any(test(table_type) for test in group) for group in groups)
    return any(in_both) or bool(table_type == state_type)
