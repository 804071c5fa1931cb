"""The part of values that both sides have, if they store the same state in two formats.

Format 1 of an aggregation repeats the grouping columns in the value, and format 1 of a join has no flag that says
whether a row has joined. The query does not see such a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from ttlsnap.entries.batch import RowEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.json_text import json_texts
from ttlsnap.operators.join import MATCHED
from ttlsnap.reading.state_table import StateTable
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.fields import Field, all_fields
from ttlsnap.schema.types import StructField, StructType, physical
from ttlsnap.unsaferow.decode import decode_column
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.rows import Rows


@dataclass(frozen=True)
class View:
    """The columns from ``first`` to ``last`` (exclusive) of a table's values."""

    table: StateTable
    first: int
    last: int

    @property
    def is_whole(self) -> bool:
        return (self.first, self.last) == (0, len(self.table.state.value_schema))

    @property
    def schema(self) -> StructType:
        """The schema of these columns."""
        return StructType(self.table.state.value_schema.fields[self.first : self.last])

    def values(self, entries: RowEntries) -> Rows:
        """Return the values with only these columns."""
        columns = [entries.value_structs.field(place) for place in range(self.first, self.last)]
        kind = arrow_type(self.schema)
        if not columns:
            return encode(pa.array([{}] * len(entries), kind), self.schema)
        return encode(pa.StructArray.from_arrays(columns, fields=list(kind)), self.schema)

    def column(self, entries: RowEntries, path: tuple[int, ...]) -> pa.Array:
        """Return a field by its place in the schema."""
        return decode_column(entries.values, self.table.state.value_schema, (self.first + path[0], *path[1:]))


def views(old_table: StateTable, new_table: StateTable) -> tuple[View, View]:
    """Return what is compared of the values of two tables: all of it, unless only one has a part that is derived."""
    sizes = [
        _repeated(table.state, other_table.state)
        for table, other_table in ((old_table, new_table), (new_table, old_table))
    ]
    flags = [
        table.has_matched and not other_table.has_matched
        for table, other_table in ((old_table, new_table), (new_table, old_table))
    ]
    old_view, new_view = (
        View(table, size, len(table.state.value_schema) - flag)
        for table, size, flag in zip((old_table, new_table), sizes, flags, strict=True)
    )
    return old_view, new_view


def _repeated(state: StateDescriptor, other_state: StateDescriptor) -> int:
    """Return how many grouping columns the values of a state begin with, if those of the other one do not."""
    key, value = state.key_schema.fields, state.value_schema.fields
    if state.kind != "value" or not key or len(value) != len(key) + len(other_state.value_schema):
        return 0
    return len(key) if _columns(value[: len(key)]) == _columns(key) else 0


def _columns(fields: tuple[StructField, ...]) -> list[tuple[str, str]]:
    return [(field.name, physical(field.type).simple_string) for field in fields]


def changed_fields(old_entry: RowEntries, new_entry: RowEntries, old_view: View, new_view: View) -> Iterator[str]:
    """Yield the names of the fields that differ between two entries, as ``inspect`` spells them in the new one."""
    state = new_view.table.state
    differing_fields: list[Field] = []
    for field in all_fields(state.key_schema, state.value_schema):
        if field.side != "value" or not new_view.first <= field.path[0] < new_view.last:
            continue
        path = (field.path[0] - new_view.first, *field.path[1:])
        texts = [
            json_texts(view.column(entries, path)) for view, entries in ((old_view, old_entry), (new_view, new_entry))
        ]
        if texts[0] != texts[1]:
            differing_fields.append(field)
    for field in differing_fields:
        size = len(field.path)
        if any(inner_field.path[:size] == field.path and inner_field is not field for inner_field in differing_fields):
            continue  # the field within it says more
        is_flag = new_view.table.has_matched and field.path == (len(state.value_schema) - 1,)
        yield MATCHED if is_flag else field.name
