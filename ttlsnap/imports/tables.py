"""The table whose rows become the entries of a state: the columns it must have, and its rows as the state keeps them.

The columns are those of an export (see ``ttlsnap.reading.state_table``):

    key        the columns of the key, a struct
    value      the columns of the value, a struct
    map_key    of a map: the key within the map, a struct
    matched    of a join: whether the row has joined (formats 2 and later)
    time       of a timer: when it fires

In place of a struct, its fields can be columns: ``key.user``. The other columns of an export are ignored. Every value
must be exactly what the state can hold; see ``Conforming``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import UsageError
from ttlsnap.imports.conforming import Conforming, as_struct
from ttlsnap.operators import aggregation, join, session_window
from ttlsnap.operators.links import Link
from ttlsnap.operators.transform_with_state import Timers
from ttlsnap.schema.fields import as_nullable
from ttlsnap.schema.types import BooleanType, DataType, NullType, StructType, TimestampType, physical
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.gather import Int64s
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import null_rows

IGNORED = ("table", "partition", "batch", "timestamp", "age_seconds")
"""Columns of an export that say nothing about an entry."""

_MS = 1000  # microseconds
_NORMAL = (*aggregation.NAMES, session_window.NAME, join.NAME)
"""The operators before which Spark replaces -0.0 by 0.0, and every NaN by the same one, in keys."""


@dataclass(frozen=True)
class RequiredColumn:
    """A column that a table must have."""

    name: str
    type: DataType


@dataclass(frozen=True)
class ImportTable:
    """A state that a table fills. ``link`` describes what Spark keeps beside it, None for nothing.

    ``has_matched``: the last column of a join's row says whether it has joined.
    """

    name: str
    state: StateDescriptor
    link: Link | None = None
    has_matched: bool = False

    @property
    def is_list(self) -> bool:
        """Whether several rows may have the same key."""
        return self.state.kind in ("row", "list")

    @cached_property
    def identity(self) -> StateDescriptor:
        """The state with the keys by which rows are placed and found: of a join, without their number or time."""
        if self.state.kind != "row":
            return self.state
        return replace(
            self.state, key_schema=StructType(self.state.key_schema.fields[:-1]), grouping_without_last=False
        )

    @cached_property
    def columns(self) -> tuple[RequiredColumn, ...]:
        """The columns that the table must have."""
        state, keys = self.state, self.identity.key_schema
        if isinstance(self.link, Timers):
            columns = [RequiredColumn("key", keys.fields[0].type), RequiredColumn("time", TimestampType())]
        elif state.kind == "map" and len(keys) == 2:
            columns = [RequiredColumn("key", keys.fields[0].type), RequiredColumn("map_key", keys.fields[1].type)]
            columns.append(RequiredColumn("value", state.value_schema))
        else:
            columns = [RequiredColumn("key", keys), RequiredColumn("value", self._own_values)]
        if self.has_matched:
            columns.append(RequiredColumn(join.MATCHED, BooleanType()))
        return tuple(column for column in columns if _holds_something(column.type))

    @property
    def _own_values(self) -> StructType:
        schema = self.state.value_schema
        return StructType(schema.fields[:-1]) if self.has_matched else schema

    def require_columns(self, schema: pa.Schema, where: str) -> None:
        """Raise UsageError if a table with this schema lacks a column, has an unknown one, or one of a wrong type."""
        arrays = [pa.array([], field.type) for field in schema]
        self.rows(pa.RecordBatch.from_arrays(arrays, schema=schema), Conforming(where))

    def rows(self, batch: pa.RecordBatch, conforming: Conforming) -> tuple[Rows, Rows]:
        """Return the keys (of ``identity``) and the values of the rows that conform.

        Raise UsageError for a missing or unknown column, or one of a wrong type.
        """
        columns = self._columns(batch, conforming)
        key, value = columns.get("key"), columns.get("value")
        count = batch.num_rows
        if "map_key" in columns:
            key = _struct([columns["key"], columns["map_key"]], self.identity.key_schema)
        elif "time" in columns:
            moments = pc.fill_null(columns["time"].cast(pa.int64()), 0).to_numpy()
            conforming.mark(moments % _MS, "time", "is not a whole millisecond")
            key = _struct([columns["key"], pa.array(moments // _MS)], self.identity.key_schema)
        if self.has_matched:
            own_values = _children(value, count, self._own_values)
            value = _struct([*own_values, columns[join.MATCHED]], self.state.value_schema)
        conforming.show(columns)
        kept_rows = conforming.kept(count)
        keys = _encoded(key, self.identity.key_schema, kept_rows, count)
        values = _encoded(value, self.state.value_schema, kept_rows, count)
        return keys, values

    def _columns(self, batch: pa.RecordBatch, conforming: Conforming) -> dict[str, pa.Array]:
        """Return the required columns, in the types of the state."""
        where = conforming.where
        columns_left, columns = dict(zip(batch.schema.names, batch.columns, strict=True)), {}
        if len(columns_left) < batch.num_columns:
            raise UsageError(f"{where}: two columns have the same name")
        for column in self.columns:
            table_column = columns_left.pop(column.name, None)
            if table_column is None and isinstance(physical(column.type), StructType):
                field_names = [name for name in columns_left if name.startswith(f"{column.name}.")]
                if field_names:
                    table_column = as_struct(
                        {name.removeprefix(f"{column.name}."): columns_left.pop(name) for name in field_names}
                    )
            if table_column is None:
                raise UsageError(f"{where}: the table has no column {column.name}.\n{self.describe()}")
            is_key = column.name == "key" and self.state.operator_name in _NORMAL
            columns[column.name] = conforming.conform(table_column, column.type, column.name, normal=is_key)
            if table_column.null_count and not isinstance(physical(column.type), StructType):
                conforming.mark(table_column.is_null(), column.name, "is null")
        unknown = [name for name, column in columns_left.items() if name not in IGNORED and _has_values(column.type)]
        if unknown:
            raise UsageError(f"{where}: {self.state} has no place for the column {unknown[0]}.\n{self.describe()}")
        return columns

    def describe(self) -> str:
        """Return the columns that the table must have, for a message."""
        lines = [f"  {column.name} {column.type.simple_string}" for column in self.columns]
        return "\n".join([f"A table for {self.state} has the columns:", *lines])


def _holds_something(kind: DataType) -> bool:
    """Return whether a column has values. One of nothing but voids has none."""
    kind = physical(kind)
    if isinstance(kind, StructType):
        return any(_holds_something(field.type) for field in kind.fields)
    return not isinstance(kind, NullType)


def _has_values(kind: pa.DataType) -> bool:
    """Return whether a column of a table has values. One of nothing but nulls has none."""
    if pa.types.is_struct(kind):
        return any(_has_values(field.type) for field in kind)
    return not pa.types.is_null(kind)


def _struct(columns: Sequence[pa.Array], schema: StructType) -> pa.StructArray:
    return pa.StructArray.from_arrays(columns, names=schema.names)


def _children(value: pa.StructArray | None, count: int, schema: StructType) -> list[pa.Array]:
    if value is None:
        return [pa.nulls(count) for _ in schema.fields]
    return [value.field(number) for number in range(len(schema))]


def _encoded(structs: pa.StructArray | None, schema: StructType, kept_rows: Int64s | None, count: int) -> Rows:
    """Return the rows of some structs; of nothing but voids if there are none."""
    if structs is None:
        if [type(field.type) for field in schema.fields] == [NullType]:
            return null_rows(count if kept_rows is None else len(kept_rows))
        structs = _empty_structs(schema, count)
    if kept_rows is not None:
        structs = structs.take(pa.array(kept_rows))
    return encode(structs, as_nullable(schema))


def _empty_structs(schema: StructType, count: int) -> pa.StructArray:
    if not schema.fields:
        return pa.Array.from_buffers(pa.struct([]), count, [None], children=[])
    return _struct([pa.nulls(count) for _ in schema.fields], schema)
