"""The plan of an export: which states become tables, and the work on each partition, as plain data."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from ttlsnap.checkpoint import Checkpoint, Operator
from ttlsnap.clock import Clock, TimeCharacteristic
from ttlsnap.engines.local import PartitionReading
from ttlsnap.entries.batch import RowEntries, StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.timestamps import WrittenField, has_time, list_fields, split_unit, timestamp_field
from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.operators import join
from ttlsnap.operators.registry import (
    AnyOf,
    Selection,
    explain_missing_schema,
    is_join,
    no_match,
    require_matches,
    states_of,
)
from ttlsnap.operators.transform_with_state import UNUSED
from ttlsnap.publishing.runs import Runs
from ttlsnap.reading.conditions import Condition
from ttlsnap.reading.state_table import MissingColumnError, StateTable
from ttlsnap.storage.open import open_for_reading
from ttlsnap.stores.open import open_state_store, partitions_of
from ttlsnap.stores.protocols import StoredPartition
from ttlsnap.stores.scan import scan_partition
from ttlsnap.suggestions import did_you_mean
from ttlsnap.unsaferow.gather import Mask
from ttlsnap.written.history import History, WrittenTimes, history_of


@dataclass(frozen=True)
class TableChoice:
    """What a user wants: states, columns (None for all), conditions that must all hold, and the time of an entry.

    ``time`` is the clock that the ``timestamp`` is on. ``tables`` are the names of those to write; () for all.
    """

    selection: Selection | AnyOf = field(default_factory=Selection)
    columns: tuple[str, ...] | None = None
    conditions: tuple[Condition, ...] = ()
    timestamp: str | None = None
    time: TimeCharacteristic | None = None
    tables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise UsageError for a column without a name, or one that is named twice."""
        columns = self.columns or ()
        if "" in columns or self.columns == ():
            raise UsageError(f"--columns {','.join(columns)}: a name is empty")
        repeated = [name for name in columns if columns.count(name) > 1]
        if repeated:
            raise UsageError(f"--columns: {repeated[0]} is given twice")


@dataclass(frozen=True)
class ExportTask(PartitionReading):
    """The partition ``source``, whose entries become rows of ``tables``.

    ``history`` says when entries were written, if a table has that time.
    """

    tables: tuple[StateTable, ...]
    conditions: tuple[Condition, ...]
    history: History | None = None

    def read(
        self, scratch: str | None = None, *, in_order: bool = False
    ) -> Iterator[tuple[StateTable, pa.RecordBatch]]:
        """Yield the rows, a batch at a time; see ``entries``."""
        for table, entries in self.entries(scratch, in_order=in_order):
            with self.source.locate():
                rows = table.rows(entries, self.source.partition)
            yield table, rows

    def entries(self, scratch: str | None = None, *, in_order: bool = False) -> Iterator[tuple[StateTable, RowEntries]]:
        """Yield the entries for which the conditions hold, a batch at a time. Raise CorruptionError for damage.

        With ``in_order``, the tables come one after another. Several tables of one store then take longer.
        """
        several = in_order and len(self.tables) > 1
        with self.source.open(open_for_reading(self.root), scratch, keep_in_memory=several) as stored_partition:
            if not several:
                yield from self._scan(stored_partition, self.tables)
                return
            first_table, *other_tables = self.tables
            yield from self._scan(
                stored_partition, [first_table]
            )  # this scan also checks that no entry of any state is missing
            for table in other_tables:
                yield from self._scan(stored_partition, [table], only=table.state.state)

    def _scan(
        self, stored_partition: StoredPartition, tables: Sequence[StateTable], only: str | None = None
    ) -> Iterator[tuple[StateTable, RowEntries]]:
        by_state = {table.state.state: table for table in tables}
        filters = {name: [condition.of(table) for condition in self.conditions] for name, table in by_state.items()}
        states = {name: table.state for name, table in by_state.items()}
        times: dict[str, WrittenTimes] = {}
        if self.history is not None:
            source = self.source
            times = self.history.times(open_for_reading(self.root), source.state_store, source.lineage, states)
        with self.source.locate(), contextlib.closing(scan_partition(stored_partition, states, only=only)) as batches:
            for batch, state in batches:
                if state is None or not len(batch):
                    continue
                entries = StateEntries.of(state, batch.keys, batch.values, times.get(state.state))
                mask: Mask = np.ones(len(entries), np.bool_)
                for condition_filter in filters[batch.state]:
                    mask &= condition_filter(entries, self.source.partition)
                kept_entries = entries.filter(mask)
                if len(kept_entries):
                    yield by_state[batch.state], cast(RowEntries, kept_entries)


@dataclass(frozen=True)
class LeftOut:
    """A state that is not exported, and why, in words. ``state`` is None if the states of the store are unknown."""

    operator: int
    store: str
    state: str | None
    reason: str

    def may_be(self, descriptor: StateDescriptor) -> bool:
        """Return whether this can be a state that another checkpoint has."""
        if self.state is None:  # another format can have other stores for the same state
            return self.operator == descriptor.operator
        return (self.operator, self.store, self.state) == (descriptor.operator, *descriptor.place)

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True)
class ExportPlan:
    """The tables of an export, and the tasks that fill them.

    ``left_out`` are the states and tables that are not exported.
    """

    checkpoint: Checkpoint
    tables: tuple[StateTable, ...]
    conditions: tuple[Condition, ...]
    left_out: tuple[LeftOut, ...] = ()

    @cached_property
    def tasks(self) -> list[ExportTask]:
        """The partitions to read. Raise CorruptionError for one that is incomplete."""
        checkpoint = self.checkpoint
        state_store = open_state_store(checkpoint)
        uses_written = any(isinstance(table.timestamp, WrittenField) for table in self.tables)
        history = history_of(checkpoint, Runs.read(checkpoint.files)) if uses_written else None
        tasks: list[ExportTask] = []
        for operator in checkpoint.operators:
            for store in operator.stores:
                tables_of_store = tuple(
                    candidate
                    for candidate in self.tables
                    if (candidate.state.operator, candidate.state.store) == (operator.id, store.name)
                )
                if tables_of_store:
                    partitions = partitions_of(checkpoint, state_store, store)
                    tasks += [ExportTask(source, tables_of_store, self.conditions, history) for source in partitions]
        return tasks


def plan_export(checkpoint: Checkpoint, table_choice: TableChoice, clock: Clock) -> ExportPlan:
    """Return the plan of an export of the selected states; entries that Spark derives from others only on request.

    Of several tables, those without a wanted column, or without the column of a condition, are left out. Raise
    UsageError if nothing is selected, or if no table has the columns, fields or times. Raise UnsupportedError for a
    selected state that ttlsnap cannot read.
    """
    tables, left_out = _tables(checkpoint, table_choice, clock)
    if unknown_names := [name for name in table_choice.tables if name not in {table.name for table in tables}]:
        names = [table.name for table in tables]
        hint = did_you_mean(unknown_names[0], names)
        raise UsageError(f"{checkpoint.target} has no table {unknown_names[0]}{hint}; it has {', '.join(names)}")
    tables = [table for table in tables if not table_choice.tables or table.name in table_choice.tables]
    if not tables:
        reason = "; ".join(map(str, left_out)) or "the selected states are derived from others. Name them with --state"
        raise UnsupportedError(f"{checkpoint.target}: ttlsnap can read no state as a table: {reason}")
    name, states = split_unit(table_choice.timestamp or "")[0], [table.state for table in tables]
    if table_choice.timestamp is not None and not any(has_time(state, table_choice.timestamp) for state in states):
        raise UsageError(f"no state has the field {list_fields(name, states)}")
    complete_tables, errors = [], []
    for table in tables:
        try:
            _ = table.columns
            for condition in table_choice.conditions:
                condition.of(table)
            complete_tables.append(table)
        except MissingColumnError as error:
            errors.append(error)
            left_out.append(_left_out(table.state, f"table {table.name} ({table.state}) has no {error.column}"))
    if not complete_tables:
        raise errors[0]
    return ExportPlan(checkpoint, tuple(complete_tables), table_choice.conditions, tuple(left_out))


def _left_out(state: StateDescriptor, reason: str) -> LeftOut:
    return LeftOut(state.operator, *state.place, reason)


def _tables(checkpoint: Checkpoint, table_choice: TableChoice, clock: Clock) -> tuple[list[StateTable], list[LeftOut]]:
    """Return the tables of the selected states, and which states have none, and why."""
    require_matches(checkpoint, table_choice.selection)
    tables: list[StateTable] = []
    left_out: list[LeftOut] = []
    has_derived = False
    for operator in checkpoint.operators:
        for store in operator.stores:
            if not store.families and table_choice.selection.includes_store(operator.id, store.name):
                left_out.append(LeftOut(operator.id, store.name, None, explain_missing_schema(store)))
            for state in states_of(checkpoint, operator, store):
                if not table_choice.selection.includes(state):
                    continue
                if state.opaque and table_choice.selection.names(state):
                    raise UnsupportedError(f"{checkpoint.target}: {state}: {state.opaque}; it cannot be exported")
                if state.opaque and state.kind != UNUSED:
                    left_out.append(_left_out(state, f"{state}: {state.opaque}"))
                elif not state.opaque and (state.role == "primary" or table_choice.selection.names(state)):
                    tables.append(_table(checkpoint, operator, state, table_choice, clock))
                else:
                    has_derived = True
    if not tables and not left_out and not has_derived:
        raise no_match(checkpoint, table_choice.selection)
    names = names_of([table.state for table in tables])
    return [replace(table, name=name) for table, name in zip(tables, names, strict=True)], left_out


def _table(
    checkpoint: Checkpoint, operator: Operator, state: StateDescriptor, table_choice: TableChoice, clock: Clock
) -> StateTable:
    name = table_choice.timestamp
    if name is None or not has_time(state, name):
        name = state.stored_timestamp
    # As in a compaction: a field that the user names is on the processing clock, unless Spark stores it.
    time = table_choice.time or (state.stored_time if name == state.stored_timestamp else TimeCharacteristic.PROCESSING)
    return StateTable(
        name=state.table,
        state=state,
        batch=checkpoint.batch.id,
        timestamp=timestamp_field(state, name) if name is not None else None,
        now=_now(clock, TimeCharacteristic(time)) if time is not None else None,
        wanted=table_choice.columns,
        has_matched=is_join(operator) and join.state_format(checkpoint) != "1",
    )


def _now(clock: Clock, time: TimeCharacteristic) -> int | None:
    """Return the current time, or None for event time before the first watermark."""
    try:
        return clock.now(time)
    except UsageError:
        return None


def names_of(states: Sequence[StateDescriptor]) -> list[str]:
    """Return the names of the states' tables, each of them different."""
    names = [state.table for state in states]
    repeated = {name for name, count in Counter(names).items() if count > 1}
    return [
        f"{name}.{quote(state.state)}" if name in repeated else name for name, state in zip(names, states, strict=True)
    ]
