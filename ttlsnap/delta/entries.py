"""The rows of a table as entries: columns of Arrow batches, cast when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.entries.batch import Int64, Mask, StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.fields import Field
from ttlsnap.schema.types import StructType

_LONG_DIGITS = 18
_LONG = (pa.types.is_timestamp, pa.types.is_duration, pa.types.is_time64, pa.types.is_float64)


@dataclass(frozen=True, eq=False)
class TableEntries(StateEntries):
    """Rows of a table.

    ``batch`` has all columns of all rows of the batch, by name. ``index`` has the positions of these rows in it. The
    new value of entry i, if it is ``rewritten``, is ``new[source[i]]``.
    """

    batch: pa.RecordBatch
    new: pa.StructArray
    source: Int64

    @classmethod
    def of_batch(cls, state: StateDescriptor, batch: pa.RecordBatch) -> TableEntries:
        """Return a batch as a table gives it."""
        size = batch.num_rows
        new_rows = pa.array([], arrow_type(state.value_schema))
        return cls(state, np.arange(size), np.zeros(size, np.bool_), batch, new_rows, np.zeros(size, np.int64))

    def are_of(self, received: StateEntries) -> bool:
        return isinstance(received, TableEntries) and self.batch is received.batch

    def column(self, name: str | Field) -> pa.Array:
        field = self._field(name)
        first_name, *inner_names = field.path
        schema = self._schema(field.side)
        column = self._column(schema, first_name)
        if field.side == "value" and self.rewritten.any():
            old_and_new = pa.concat_arrays([column, self.new.field(first_name)])
            column = old_and_new.take(pa.array(np.where(self.rewritten, len(column) + self.source, self.index)))
        elif len(self.index) != len(column):
            column = column.take(pa.array(self.index))
        return pc.struct_field(column, inner_names) if inner_names else column

    def words(self, name: str | Field) -> tuple[Int64, Mask]:
        column = self.column(name)
        nulls: Mask = np.asarray(column.is_null())
        return _words(column), nulls

    @cached_property
    def key_structs(self) -> pa.StructArray:
        return self._structs("key")

    @cached_property
    def value_structs(self) -> pa.StructArray:
        return self._structs("value")

    @property
    def new_values(self) -> pa.StructArray:
        """Return the new values of the rewritten entries, one struct each."""
        return self.new.take(pa.array(self.source[self.rewritten]))

    def _take(self, kept_places: Int64) -> TableEntries:
        return replace(
            self, index=self.index[kept_places], rewritten=self.rewritten[kept_places], source=self.source[kept_places]
        )

    def _replace(self, values: pa.StructArray, mask: Mask) -> TableEntries:
        schema = self.state.value_schema
        try:
            # By their places: the names may be any, as for a state store.
            columns = [_cast(values.field(place), arrow_type(field.type)) for place, field in enumerate(schema)]
        except (pa.ArrowException, IndexError, TypeError, ValueError) as error:
            raise UsageError(f"replace_values: {values.type} is not {schema.simple_string}: {error}") from error
        if values.type.num_fields != len(schema) or values.null_count:
            raise UsageError(f"replace_values needs structs of {len(schema)} fields, none of them null")
        for column, field in zip(columns, schema, strict=True):
            if column.null_count and not field.nullable:
                raise UsageError(f"replace_values: {field.name} cannot be null")
        new_rows = pa.StructArray.from_arrays(columns, fields=list(arrow_type(schema)))
        source = self.source.copy()
        source[mask] = len(self.new) + np.arange(len(new_rows))
        return replace(self, rewritten=self.rewritten | mask, new=pa.concat_arrays([self.new, new_rows]), source=source)

    def _structs(self, side: str) -> pa.StructArray:
        schema = self._schema(side)
        columns = [self.column(Field(side, (place,), field.name, field.type)) for place, field in enumerate(schema)]  # type: ignore[arg-type]
        return _struct(columns, schema, len(self))

    def _schema(self, side: str) -> StructType:
        return self.state.key_schema if side == "key" else self.state.value_schema

    def _column(self, schema: StructType, place: int) -> pa.Array:
        field = schema.fields[place]
        return _cast(self.batch.column(field.name), arrow_type(field.type))


def _struct(columns: Sequence[pa.Array], schema: StructType, size: int) -> pa.StructArray:
    if not columns:
        return pa.array([{}] * size, pa.struct([]))
    return pa.StructArray.from_arrays(columns, fields=list(arrow_type(schema)))


def _cast(column: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column if column.type == kind else column.cast(kind)


def _words(column: pa.Array) -> Int64:
    """Return the numbers that the words of an UnsafeRow would have; 0 for null."""
    kind = column.type
    if pa.types.is_decimal(kind) and kind.precision <= _LONG_DIGITS:
        low_words = np.frombuffer(column.buffers()[1], "<i8")[::2]
        return low_words[column.offset : column.offset + len(column)]
    if pa.types.is_date32(kind) or pa.types.is_float32(kind):
        column = column.view(pa.int32())
    elif any(is_kind(kind) for is_kind in _LONG):
        column = column.view(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise UnsupportedError(f"{kind} has no fixed width")
    return np.asarray(column.cast(pa.int64()).fill_null(0))
