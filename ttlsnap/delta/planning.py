"""The plan of a run on a table: the rows as a state, the cutoffs, the files, and the parts.

If all transformers only drop rows older than a given time, Delta runs a ``DELETE``. Everything else is a scan
(``rewriting``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ttlsnap.clock import MICROS, Clock, Moment, moment_of
from ttlsnap.delta.committing import read_run_metadata
from ttlsnap.delta.cutoff import TableCutoff, column_at
from ttlsnap.delta.log import KEY, Commit, DataFile, TableState, changes_data, commits, live_files
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.timestamps import WRITTEN
from ttlsnap.errors import UsageError
from ttlsnap.schema import types as T
from ttlsnap.schema.types import StructType
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.transform.adapters import as_factory
from ttlsnap.transform.chain import create
from ttlsnap.transform.protocols import Cutoff, StateSnapshotTransformerFactory, TransformerFactory
from ttlsnap.transformers.ttl import OFF


@dataclass(frozen=True)
class Limits:
    """The limits of one commit: data files, and their bytes; None for no limit."""

    files: int | None = None
    bytes: int | None = None

    def __bool__(self) -> bool:
        return self.files is not None or self.bytes is not None

    def allow(self, files: int, size: int) -> bool:
        """Return whether so many files and bytes are within the limits."""
        return (self.files is None or files <= self.files) and (self.bytes is None or size <= self.bytes)


@dataclass(frozen=True)
class TablePlan:
    """The plan of a run.

    ``cutoffs`` has the cutoff of each transformer, in its form and in the table's. It is None if a transformer has to
    see the rows.
    """

    files: LocalDirectory
    table: TableState
    key: tuple[str, ...]
    state: StateDescriptor
    clock: Clock
    factories: tuple[TransformerFactory, ...]
    cutoffs: tuple[tuple[Cutoff, TableCutoff], ...] | None

    @cached_property
    def live(self) -> list[DataFile]:
        """The data files of the version."""
        return live_files(self.files, self.table.version)

    @cached_property
    def decided(self) -> list[bool | None]:
        """For each file: dropped completely (True), kept completely (False), or to be read (None)."""
        if self.cutoffs is None:
            return [None] * len(self.live)
        decisions = []
        for file in self.live:
            rule_decisions = [table.decide(file) for _, table in self.cutoffs]
            decisions.append(True if True in rule_decisions else None if None in rule_decisions else False)
        return decisions

    @property
    def remembered(self) -> bool:
        """Whether the table has recorded the key."""
        return self.table.metadata.key == self.key

    @property
    def sql(self) -> str:
        """The condition of the dropped rows, if the run only drops rows."""
        return " OR ".join(table.sql for _, table in self.cutoffs or ())

    @property
    def timestamp(self) -> str | None:
        """The names of the fields that decide about a row."""
        if self.cutoffs is None:
            return None
        return ", ".join(dict.fromkeys(cutoff.timestamp.field.name for cutoff, _ in self.cutoffs))


def plan_table(
    files: LocalDirectory,
    table: TableState,
    transformers: Sequence[StateSnapshotTransformerFactory],
    key: Sequence[str],
    now: Moment,
) -> TablePlan:
    """Return the plan. Raise UsageError for an unknown or missing key, and the errors of the transformers."""
    schema = table.metadata.schema
    key_names = table.metadata.key_of(key, files.root)
    if not key_names:
        raise UsageError(
            f"{files.root}: name the columns of the table's key with --key COLUMN. The table remembers them (property "
            f"{KEY}). Its columns are {', '.join(schema.names)}"
        )
    for field in schema:
        # Spark cannot compare maps, so a MERGE cannot match them.
        if field.name in key_names and _has_map(field.type):
            raise UsageError(f"{files.root}: {field.name} is a {field.type.simple_string}, which cannot be a key")
    state = describe(schema, key_names)
    clock = clock_of(files, now)
    factories: list[TransformerFactory] = []
    is_off = False
    for factory in map(as_factory, transformers):
        if factory.uses_written_times:
            raise UsageError(f"{WRITTEN} is for checkpoints: a table does not record when a row was last written")
        factory = factory.with_names(lambda name: in_columns(name, state))
        is_off |= OFF in factory.plan([state], clock)
        factories.append(factory)
    cutoffs: list[tuple[Cutoff, TableCutoff]] | None = []
    for factory in factories:
        cutoff = factory.cutoff(state, clock)
        if cutoff is None:
            if create(factory, state, clock) is not None:
                cutoffs = None
                break
            continue
        names = _names(state, cutoff.timestamp.field.side, cutoff.timestamp.field.path)
        assert cutoffs is not None
        cutoffs.append((cutoff, TableCutoff.of(cutoff, column_at(schema, names))))
    if cutoffs == [] and is_off:
        raise UsageError(f"{files.root}: there is nothing to do: {OFF}")
    if cutoffs == []:
        raise UsageError(f"{files.root} is a Delta table, for which Spark stores no times; use --ttl and --timestamp")
    return TablePlan(
        files,
        table,
        key_names,
        state,
        clock,
        tuple(factories),
        None if cutoffs is None else tuple(cutoffs),
    )


def describe(schema: StructType, key: Sequence[str]) -> StateDescriptor:
    """Return a table's rows as a state: the columns of the key, and all others."""
    return StateDescriptor(
        operator=0,
        operator_name="table",
        store="table",
        state="rows",
        partition=None,
        key_schema=StructType(tuple(field for field in schema if field.name in key)),
        value_schema=StructType(tuple(field for field in schema if field.name not in key)),
    )


def in_columns(name: str, state: StateDescriptor) -> str:
    """Return a column's name with its side, ``key`` or ``value``; a name that has a side stays as it is."""
    first_name = name.split(".", 1)[0].split(":", 1)[0].strip("`")
    if first_name in state.key_schema.names:
        return f"key.{name}"
    return (
        f"value.{name}" if first_name in state.value_schema.names or not name.startswith(("key.", "value.")) else name
    )


def clock_of(files: LocalDirectory, now: Moment) -> Clock:
    """Return the time that ``--now`` names; ``checkpoint`` is when rows were last written by anything but a run."""
    if now == "checkpoint":
        last_write = find_last_write(files)
        if last_write is None or last_write.timestamp_ms is None:
            raise UsageError(
                f"{files.root}: the log no longer records when rows were written; use --now wall, or --now with a time"
            )
        moment = last_write.timestamp_ms * MICROS
    else:
        moment = moment_of(now)
    source = str(now) if now in ("wall", "checkpoint") else "given"
    return Clock(moment, moment, source)


def find_last_write(files: LocalDirectory) -> Commit | None:
    """Return the newest commit that added or removed rows and is not of a run; maintenance continues without a stream.

    For a table that never had rows, return the newest commit of all.
    """
    newest_commit = None
    for table_commit in commits(files):
        newest_commit = newest_commit or table_commit
        # A RESTORE brings back rows that were written before.
        is_ours = read_run_metadata(table_commit) is not None or table_commit.operation == "RESTORE"
        if not is_ours and table_commit.timestamp_ms is not None and changes_data(files, table_commit):
            return table_commit
    return newest_commit if newest_commit is not None and not live_files(files, newest_commit.version) else None


def delete_parts(plan: TablePlan, limits: Limits) -> list[int] | None:
    """Return ascending cutoffs for ``DELETE``s that each change at most as many files as ``limits`` allow.

    They are in the column's unit; the last one is the plan's own. Return None if the times of the files overlap too
    much. A ``DELETE`` changes a file that has a row up to the cutoff. Files whose times overlap are in one part;
    otherwise they would be changed more than once.
    """
    assert plan.cutoffs is not None
    (_, cutoff), *other_cutoffs = plan.cutoffs
    if not limits:
        return [cutoff.most]
    if other_cutoffs:
        return None
    spans = []
    for file, decision in zip(plan.live, plan.decided, strict=True):
        if decision is not False:
            least, most = cutoff.bounds(file)
            spans.append((least, min(most, cutoff.most), file.size))
    spans.sort()
    part_bounds: list[int] = []
    files = size = 0  # of the part that is being filled
    place = 0
    while place < len(spans):
        stop, end = place, spans[place][1]
        while stop < len(spans) and spans[stop][0] <= end:
            end = max(end, spans[stop][1])
            stop += 1
        span_size = sum(span[2] for span in spans[place:stop])
        # A single file cannot be cut; more that overlap and are too many can not be told apart by time.
        if stop - place > 1 and not limits.allow(stop - place, span_size):
            return None
        if files and not limits.allow(files + stop - place, size + span_size):
            part_bounds.append(spans[place][0] - 1)
            files = size = 0
        files, size, place = files + stop - place, size + span_size, stop
    return [*part_bounds, cutoff.most]


def _names(state: StateDescriptor, side: str, path: Sequence[int]) -> list[str]:
    schema: Any = state.key_schema if side == "key" else state.value_schema
    names = []
    for place in path:
        names.append(schema.fields[place].name)
        schema = schema.fields[place].type
    return names


def _has_map(kind: T.DataType) -> bool:
    """Return whether values of this type cannot be compared."""
    match T.physical(kind):
        case T.MapType() | T.VariantType():
            return True
        case T.ArrayType(element):
            return _has_map(element)
        case T.StructType(fields):
            return any(_has_map(field.type) for field in fields)
    return False
