"""A state as a table: its columns, and the rows of a batch of entries.

A row is an entry as the user's query has it: a group, an element of a list or a map, a buffered row of a join, a timer.

    partition                  int32
    batch                      int64: the state is the one after this batch
    key                        the columns of the key, a struct
    value                      the columns of the value, a struct; without those that only Spark needs, or hold nothing
    map_key                    of a map: the key within the map, a struct
    matched                    of a join: whether the row has joined (formats 2 and later)
    time                       of a timer: when it fires
    timestamp                  the time by which Spark drops the entry, or the one that the user named
    age_seconds                how much older that is than the current time, rounded down

A column that a state does not have is not in its table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.clock import MAX_INT64, MIN_INT64
from ttlsnap.entries.batch import StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.timestamps import TimestampField, list_fields
from ttlsnap.errors import UsageError
from ttlsnap.operators.join import MATCHED
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.fields import Field, as_nullable, distinct_names, find_field
from ttlsnap.schema.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    StructField,
    StructType,
    TimestampType,
)
from ttlsnap.suggestions import did_you_mean

AGE_SECONDS = "age_seconds"
_SECOND = 1_000_000  # microseconds
Build = Callable[[StateEntries, int], pa.Array]


class MissingColumnError(UsageError):
    """A table without a ``column`` that the user names."""

    def __init__(self, message: str, column: str) -> None:
        super().__init__(message)
        self.column = column


@dataclass(frozen=True)
class ExportColumn:
    """A column, and the function that makes it from entries and the number of their partition."""

    name: str
    type: DataType
    build: Build


@dataclass(frozen=True)
class StateTable:
    """The table of a state after ``batch``.

    ``name`` is the name of the table. ``timestamp`` is the field for the age, and ``now`` the current time in
    microseconds, None if it is not known. ``wanted`` are the columns to write, as ``key.user`` or ``age_seconds``;
    None for all. ``has_matched``: the last column of a join's row says whether it has joined.
    """

    name: str
    state: StateDescriptor
    batch: int
    timestamp: TimestampField | None
    now: int | None
    wanted: tuple[str, ...] | None = None
    has_matched: bool = False

    @cached_property
    def columns(self) -> tuple[ExportColumn, ...]:
        """The columns in order. Raise MissingColumnError for a wanted column that the state does not have."""
        return tuple(self._columns() if self.wanted is None else map(self.column, self.wanted))

    def column(self, name: str) -> ExportColumn:
        """Return a column, or a field of one, by the name that a user sees: ``matched``, ``key.user``, ``map_key.at``.

        Raise MissingColumnError if there is none.
        """
        by_name = {column.name: column for column in self._columns()}
        if name in by_name:
            return by_name[name]
        first_name = name.partition(".")[0]
        if first_name == name or first_name not in ("key", "value", "map_key"):
            hint = "; name a time with --timestamp" if name in ("timestamp", AGE_SECONDS) else ""
            near = did_you_mean(name, by_name)
            raise MissingColumnError(
                f"{self.state} has no column {name}{near}; it has {', '.join(by_name)}{hint}", name
            )
        field = self._field(name, first_name)
        if field is None or isinstance(field.type, NullType):
            raise MissingColumnError(f"{self.state} has no column {list_fields(name, [self.state])}", name)
        return ExportColumn(name, field.type, lambda entries, _: entries.column(field))

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the table."""
        return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in self.columns])

    @property
    def spark_schema(self) -> StructType:
        """The schema of the table in Spark's types; a null is possible everywhere, as in Arrow."""
        return as_nullable(StructType(tuple(StructField(column.name, column.type) for column in self.columns)))

    def rows(self, entries: StateEntries, partition: int) -> pa.RecordBatch:
        """Return the rows of a batch of entries."""
        arrays = [column.build(entries, partition) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _field(self, name: str, first_name: str) -> Field | None:
        """Return a field by its name in the table, or by the one that ``inspect`` prints."""
        if first_name in self._inner_places:
            place = self._inner_places[first_name]
            struct = self.state.key_schema.fields[place].type
            assert isinstance(struct, StructType)
            field = find_field(f"key{name.removeprefix(first_name)}", struct, StructType(()))
            if field is not None:
                return replace(field, name=name, path=(place, *field.path))
        return None if first_name == "map_key" else self.state.field(name)

    @property
    def _inner_places(self) -> dict[str, int]:
        """The places in the stored key of the columns that are structs within it."""
        state = self.state
        if state.kind == "map" and len(state.key_schema) == 2:
            return {"key": 0, "map_key": 1}
        if state.kind == "timer" or state.ordered_prefix:
            return {"key": 0 if state.state.endswith("keyToTimestamp") else 1}
        return {}

    def _columns(self) -> list[ExportColumn]:
        state = self.state
        key, value = range(len(state.key_schema)), range(len(state.value_schema))
        columns = [
            ExportColumn("partition", IntegerType(), lambda entries, count: _repeat(count, pa.int32(), entries)),
            ExportColumn("batch", LongType(), lambda entries, _: _repeat(self.batch, pa.int64(), entries)),
        ]
        if state.kind == "row":
            row = value[:-1] if self.has_matched else value
            columns += [self._part("key", key[:-1]), self._part("value", row)]
            if self.has_matched:
                columns.append(
                    ExportColumn(
                        MATCHED, BooleanType(), lambda table_entries, _: table_entries.value_structs.field(len(row))
                    )
                )
        elif "map_key" in self._inner_places:
            columns += [self._inner("key", 0), self._inner("map_key", 1), self._part("value", value)]
        elif self._inner_places:
            ordinal = self._inner_places["key"]
            columns += [
                self._inner("key", ordinal),
                ExportColumn("time", TimestampType(), lambda table_entries, _: _moments(table_entries, 1 - ordinal)),
            ]
        else:
            columns += [self._part("key", key), self._part("value", value)]
        if self.timestamp is not None:
            columns += [
                ExportColumn("timestamp", TimestampType(), lambda entries, _: self._times(entries)),
                ExportColumn(AGE_SECONDS, LongType(), lambda entries, _: self._ages(entries)),
            ]
        # A struct without columns says nothing, and Parquet cannot hold it.
        return [column for column in columns if not (isinstance(column.type, StructType) and not len(column.type))]

    def _part(self, side: Literal["key", "value"], ordinals: Sequence[int]) -> ExportColumn:
        """Return a struct of some columns of the key or the value, without those that hold nothing."""
        schema = self.state.key_schema if side == "key" else self.state.value_schema
        ordinals = [ordinal for ordinal in ordinals if not isinstance(schema.fields[ordinal].type, NullType)]
        names = distinct_names([schema.names[ordinal] for ordinal in ordinals])
        fields = (replace(schema.fields[ordinal], name=name) for ordinal, name in zip(ordinals, names, strict=True))
        kind = StructType(tuple(fields))

        def build(entries: StateEntries, _: int) -> pa.Array:
            structs = entries.key_structs if side == "key" else entries.value_structs
            return pa.StructArray.from_arrays(
                [structs.field(ordinal) for ordinal in ordinals], fields=list(arrow_type(kind))
            )

        return ExportColumn(side, kind, build)

    def _inner(self, name: str, ordinal: int) -> ExportColumn:
        """Return the struct that is one column of the key."""
        kind = self.state.key_schema.fields[ordinal].type
        return ExportColumn(name, kind, lambda entries, _: entries.key_structs.field(ordinal))

    def _times(self, entries: StateEntries) -> pa.Array:
        assert self.timestamp is not None
        moments, nulls = self.timestamp.read(entries)
        return pa.array(moments, mask=nulls).cast(arrow_type(TimestampType()))

    def _ages(self, entries: StateEntries) -> pa.Array:
        assert self.timestamp is not None
        moments, nulls = self.timestamp.read(entries)
        if self.now is None:
            return pa.nulls(len(entries), pa.int64())
        # The limit keeps the difference within int64.
        ages = self.now - np.clip(moments, self.now - (1 << 62), self.now + (1 << 62))
        return pa.array(ages // _SECOND, mask=nulls)


def _repeat(value: int, kind: pa.DataType, entries: StateEntries) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), len(entries))


def _moments(entries: StateEntries, ordinal: int) -> pa.Array:
    """Return a column of the key, in milliseconds, as times; one that is too late for microseconds as the latest."""
    milliseconds = pc.fill_null(entries.key_structs.field(ordinal), 0).to_numpy()
    moments = np.clip(milliseconds, MIN_INT64 // 1000 + 1, MAX_INT64 // 1000) * 1000
    return pa.array(moments).cast(arrow_type(TimestampType()))
