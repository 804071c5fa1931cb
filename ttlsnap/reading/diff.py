"""``diff``: the entries that were added, removed and changed between two states."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ttlsnap.checkpoint.checkpoint import Schemas
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.compaction.task import Progress
from ttlsnap.documents import MILLISECONDS, Document, Result, json_property
from ttlsnap.engines.local import read_all
from ttlsnap.engines.options import ReadOptions
from ttlsnap.engines.progress import SilentWorkListener
from ttlsnap.entries.batch import RowEntries
from ttlsnap.entries.json_text import to_json_values
from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.keywords import takes
from ttlsnap.operators.join import MATCHED
from ttlsnap.operators.registry import AnyOf, Selection, states_of
from ttlsnap.operators.showing import show_entry
from ttlsnap.operators.transform_with_state import UNUSED
from ttlsnap.publishing.reading import refuse_half_swapped
from ttlsnap.publishing.stale_snapshots import warn_of_doubtful_snapshots
from ttlsnap.reading.diff_entries import Differences, Side, compare, entry_at
from ttlsnap.reading.diff_views import View, changed_fields, views
from ttlsnap.reading.export import open_plan
from ttlsnap.reading.export_plan import ExportPlan, ExportTask, TableChoice
from ttlsnap.reading.state_table import StateTable
from ttlsnap.schema.types import StructType, physical
from ttlsnap.storage.open import open_for_reading
from ttlsnap.suggestions import did_you_mean

EXAMPLES = 10
_UNREADABLE = "{} has a state that ttlsnap cannot read, and that may be this one"
_COUNTS = ("entries_old", "entries_new", "added", "removed", "changed")


@dataclass(frozen=True)
class StateDiff(Document):
    """The differences of one state; ``only_in`` is ``old`` or ``new`` if the other side does not have it.

    ``not_compared`` says why entries were not compared. Then ``added``, ``removed`` and ``changed`` are None.
    ``schemas`` says how the schemas differ, if that is the reason. The number of entries is None on a side that cannot
    be read. Each of the ``examples`` has the ``change``, the key, the ``old`` and the ``new`` entry as JSON, and the
    names of the ``fields`` that changed. ``fields_not_compared`` are the fields that only one side records.
    """

    name: str
    state: str
    entries_old: int | None
    entries_new: int | None
    added: int | None = 0
    removed: int | None = 0
    changed: int | None = 0
    only_in: str | None = None
    schemas: str | None = None
    not_compared: str | None = None
    fields_not_compared: tuple[str, ...] = ()
    examples: tuple[Mapping[str, Any], ...] = ()

    @property
    def differs(self) -> bool | None:
        """Whether the state differs; None if that is unknown."""
        if self.added or self.removed or self.changed or self.only_in or self.schemas:
            return True
        return None if self.not_compared else False

    @property
    def differences(self) -> int:
        """The number of differences that were found."""
        return (self.added or 0) + (self.removed or 0) + (self.changed or 0)

    def without_numbers(self, reason: str) -> StateDiff:
        """Return the result for a state whose entries were not compared."""
        return replace(self, added=None, removed=None, changed=None, not_compared=reason)


@dataclass(frozen=True)
class DiffReport(Result):
    """The differences between the state ``old`` after a batch, and the state ``new``.

    ``left_out`` says which states are not compared, because ttlsnap cannot read them, and why. ``excluded`` are the
    states that the options exclude, and ``derived`` those that Spark derives from others; neither is compared.
    ``warnings`` doubt one of the states.
    """

    JSON_ORDER = "old new old_batch new_batch differs states left_out excluded derived warnings"

    old: str
    new: str
    old_batch: int
    new_batch: int
    states: tuple[StateDiff, ...]
    seconds: float = field(metadata=MILLISECONDS)
    left_out: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    @json_property()
    def differs(self) -> bool | None:
        """Whether there is a difference; None if none was found, but a state could not be compared."""
        if any(state.differs for state in self.states):
            return True
        return None if self.left_out or any(state.differs is None for state in self.states) else False


@dataclass(frozen=True, kw_only=True)
class DiffRequest(ReadOptions):
    """The arguments of ``diff``."""

    old: str = field(kw_only=False)
    new: str | None = field(default=None, kw_only=False)
    old_batch: int | None = None
    new_batch: int | None = None
    tables: Sequence[str] = ()
    examples: int = EXAMPLES


@takes(DiffRequest)
def diff(request: DiffRequest) -> DiffReport:
    """Compare the state of two checkpoints, or of two batches of one. A batch is by default the last committed one.

    Without ``new``, the ``old_batch`` is by default the retained one before the ``new_batch``. ``tables`` are the
    names of those to compare, by default all.

    The ``examples`` first differences of each state are in the report in full. If both sides have the same number of
    partitions, memory is bounded by a partition, and otherwise by a state.

    Raise UsageError if both sides are the same batch of one checkpoint, or another ``TtlsnapError``.
    """
    started = time.monotonic()
    old_target, new_target, schemas = request.old, request.new, request.schemas
    table_choice = TableChoice(request.selection or Selection())
    if request.old_batch is None and new_target is None:
        old_plan = _plan_before(old_target, request.new_batch, table_choice, schemas)
    else:
        old_plan = open_plan(old_target, table_choice, batch=request.old_batch, schemas=schemas)
    new_plan = open_plan(new_target or old_target, table_choice, batch=request.new_batch, schemas=schemas)
    old_plan, new_plan = _only(request.tables, old_plan, new_plan)
    batches = old_plan.checkpoint.batch.id, new_plan.checkpoint.batch.id
    if old_plan.checkpoint.target == new_plan.checkpoint.target and batches[0] == batches[1]:
        raise UsageError(f"both sides are batch {batches[0]} of {old_target}. Name another checkpoint, or --old-batch")
    all_work = list(_works(old_plan, new_plan, request.examples))
    results = read_all(_Work.run, all_work, request.parallelism, request.listener or SilentWorkListener())
    states = _joined([state for states in results for state in states], request.examples)
    seconds = time.monotonic() - started
    left_out = tuple(dict.fromkeys(str(state) for state in (*old_plan.left_out, *new_plan.left_out)))
    excluded_states, derived_states = _unwanted((old_plan, new_plan), table_choice.selection)
    targets = old_plan.checkpoint.target, new_plan.checkpoint.target
    warnings = tuple(
        dict.fromkeys(
            warning for plan in (old_plan, new_plan) for warning in warn_of_doubtful_snapshots(plan.checkpoint)
        )
    )
    return DiffReport(*targets, *batches, tuple(states), seconds, left_out, excluded_states, derived_states, warnings)


def _plan_before(target: str, batch: int | None, table_choice: TableChoice, schemas: Schemas | None) -> ExportPlan:
    """Return the plan for the retained batch before a batch, or before the last one."""
    number = _batch_before(target, batch)
    try:
        plan = open_plan(target, table_choice, batch=number, schemas=schemas)
        _ = plan.tasks  # fails if files are missing
    except CorruptionError as error:
        raise UsageError(
            f"{target}: the state after batch {number} is not complete: {error}\nA checkpoint that ttlsnap wrote to "
            "--output has only the last batch. ttlsnap doctor says whether files are lost. Name another checkpoint to "
            "compare with, or --old-batch"
        ) from error
    return plan


def _batch_before(target: str, batch: int | None) -> int:
    """Return the retained batch before a batch, or before the last one."""
    files = open_for_reading(target)
    refuse_half_swapped(files, batch)
    commits = read_logs(files).commits
    earlier_batches = [number for number in commits if batch is None or number < batch]
    earlier_batches = earlier_batches[:-1] if batch is None else earlier_batches
    if not earlier_batches:
        retained_text = ", ".join(map(str, commits)) or "none"
        raise UsageError(
            f"{target} retains no batch before {'the last one' if batch is None else batch} (retained: "
            f"{retained_text}). Name another checkpoint to compare with"
        )
    return earlier_batches[-1]


def _only(names: Sequence[str], old_plan: ExportPlan, new_plan: ExportPlan) -> tuple[ExportPlan, ExportPlan]:
    """Return the plans with only the tables of these names. Raise UsageError for one that neither has."""
    table_names = dict.fromkeys(table.name for plan in (old_plan, new_plan) for table in plan.tables)
    if unknown_names := [name for name in names if name not in table_names]:
        hint = did_you_mean(unknown_names[0], table_names)
        raise UsageError(f"there is no table {unknown_names[0]}{hint}; there are {', '.join(table_names)}")
    if not names:
        return old_plan, new_plan
    return _narrowed(old_plan, names, new_plan), _narrowed(new_plan, names, old_plan)


def _narrowed(plan: ExportPlan, names: Sequence[str], other_plan: ExportPlan) -> ExportPlan:
    """Return the plan with only the tables of these names, and what may be one of them, but cannot be read."""
    tables = tuple(table for table in plan.tables if table.name in names)
    missing_names = set(names) - {table.name for table in tables}
    missing_states = [table.state for table in other_plan.tables if table.name in missing_names]
    left_out = tuple(state for state in plan.left_out if any(map(state.may_be, missing_states)))
    return replace(plan, tables=tables, left_out=left_out)


def _unwanted(plans: Sequence[ExportPlan], selection: Selection | AnyOf) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the states that the options exclude, and those that are only compared if they are named."""
    excluded_states: dict[str, None] = {}
    derived_states: dict[str, None] = {}
    for plan in plans:
        known_states: set[tuple[int, str, str | None]] = {
            (table.state.operator, *table.state.place) for table in plan.tables
        }
        known_states |= {(state.operator, state.store, state.state) for state in plan.left_out}
        for operator in plan.checkpoint.operators:
            for store in operator.stores:
                for state in states_of(plan.checkpoint, operator, store):
                    if state.kind != UNUSED and (operator.id, *state.place) not in known_states:
                        is_derived = state.role == "derived" and selection.includes(state)
                        (derived_states if is_derived else excluded_states)[str(state)] = None
    return tuple(excluded_states), tuple(derived_states)


@dataclass(frozen=True)
class _Work:
    """Partitions of both sides that have the same keys. ``pairs`` are their tables on both sides, None if absent.

    Of the ``unreadable`` tables, one side has a state that may be the same, but cannot be read.
    """

    old: tuple[ExportTask, ...]
    new: tuple[ExportTask, ...]
    pairs: Sequence[tuple[StateTable | None, StateTable | None]]
    unreadable: frozenset[str]
    examples: int

    @property
    def root(self) -> str:
        """The old checkpoint, or the new one if only that has the states."""
        return (*self.old, *self.new)[0].root

    @property
    def size(self) -> int:
        """The size of the files, in bytes."""
        return sum(task.size for task in (*self.old, *self.new))

    def run(self, progress: Progress) -> list[StateDiff]:
        """Return the differences in these partitions, for each state."""
        # A table that only one side has is counted.
        views_of_tables = [
            views(old_table or new_table or _none(), new_table or old_table or _none())
            for old_table, new_table in self.pairs
        ]
        sides = [
            self._read(tasks, {view.table.name: view for view in views_of_side}, progress)
            for tasks, views_of_side in zip((self.old, self.new), zip(*views_of_tables, strict=True), strict=True)
        ]
        return [self._state(*pair, *view, *sides) for pair, view in zip(self.pairs, views_of_tables, strict=True)]

    @staticmethod
    def _read(tasks: Sequence[ExportTask], views_by_name: Mapping[str, View], progress: Progress) -> dict[str, Side]:
        sides: dict[str, Side] = {}
        for task in tasks:
            for table, entries in task.entries():
                sides.setdefault(table.name, Side()).add(entries, views_by_name[table.name])
                progress(len(entries), 0)
        return sides

    def _state(
        self,
        old_table: StateTable | None,
        new_table: StateTable | None,
        old_view: View,
        new_view: View,
        old_sides: Mapping[str, Side],
        new_sides: Mapping[str, Side],
    ) -> StateDiff:
        table = old_table or new_table or _none()
        old_side, new_side = (side.get(table.name, Side()) for side in (old_sides, new_sides))
        result = StateDiff(table.name, str(table.state), len(old_side), len(new_side))
        if table.name in self.unreadable and old_table is None:
            return replace(result.without_numbers(_UNREADABLE.format("old")), entries_old=None)
        if table.name in self.unreadable and new_table is None:
            return replace(result.without_numbers(_UNREADABLE.format("new")), entries_new=None)
        if old_table is None or new_table is None:
            return replace(
                result, added=len(new_side), removed=len(old_side), only_in="new" if old_table is None else "old"
            )
        if (schemas := _schema_change(old_view, new_view)) is not None:
            return replace(result.without_numbers(f"the schemas differ: {schemas}"), schemas=schemas)
        differences = compare(old_side, new_side, self.examples)
        examples = tuple(_examples(differences, old_side, new_side, old_view, new_view))
        return replace(
            result,
            added=differences.added,
            removed=differences.removed,
            changed=differences.changed,
            examples=examples,
            fields_not_compared=(MATCHED,) if old_table.has_matched != new_table.has_matched else (),
        )


def _works(old_plan: ExportPlan, new_plan: ExportPlan, examples: int) -> Iterator[_Work]:
    """Yield the work: each partition alone, if an operator has the same number of them on both sides."""
    names = dict.fromkeys([table.name for plan in (old_plan, new_plan) for table in plan.tables])
    tables = [{table.name: table for table in plan.tables} for plan in (old_plan, new_plan)]
    stores: dict[tuple[Any, Any], list[str]] = {}
    for name in names:
        place = tuple(_store_of(side.get(name)) for side in tables)
        stores.setdefault((place[0], place[1]), []).append(name)
    for (old_store, new_store), names_of_store in stores.items():
        table_pairs = [(tables[0].get(name), tables[1].get(name)) for name in names_of_store]
        unreadable = frozenset(
            table.name
            for side, plan in ((0, new_plan), (1, old_plan))
            for table in (table_pair[side] for table_pair in table_pairs)
            if table is not None and any(state.may_be(table.state) for state in plan.left_out)
        )
        old_tasks, new_tasks = _tasks(old_plan, old_store, names_of_store), _tasks(new_plan, new_store, names_of_store)
        if old_store is not None and new_store is not None and len(old_tasks) == len(new_tasks):
            for old_task, new_task in zip(old_tasks, new_tasks, strict=True):
                yield _Work((old_task,), (new_task,), table_pairs, unreadable, examples)
        else:
            yield _Work(tuple(old_tasks), tuple(new_tasks), table_pairs, unreadable, examples)


def _store_of(table: StateTable | None) -> tuple[int, str] | None:
    return (table.state.operator, table.state.store) if table is not None else None


def _tasks(plan: ExportPlan, store: tuple[int, str] | None, names: Sequence[str]) -> list[ExportTask]:
    """Return the tasks of a store, with only some of its tables."""
    tasks = []
    for task in plan.tasks:
        tables = tuple(table for table in task.tables if table.name in names)
        if tables and _store_of(tables[0]) == store:
            tasks.append(replace(task, tables=tables))
    return tasks


def _none() -> StateTable:
    raise AssertionError("one of the sides has the table")


def _schema_change(old_view: View, new_view: View) -> str | None:
    """Return how the types of two states differ; None if their entries can be compared."""
    keys = [_types(view.table.state.key_schema) for view in (old_view, new_view)]
    if old_view.table.state.kind == new_view.table.state.kind == "row":
        keys = [types[:-1] for types in keys]
    for side, (old_types, new_types) in (("key", keys), ("value", [_types(old_view.schema), _types(new_view.schema)])):
        if old_types != new_types:
            return f"{side} old: {', '.join(old_types)}; {side} new: {', '.join(new_types)}"
    return None


def _types(schema: StructType) -> list[str]:
    return [physical(field.type).simple_string for field in schema.fields]


def _examples(
    differences: Differences, old_side: Side, new_side: Side, old_view: View, new_view: View
) -> Iterator[Mapping[str, Any]]:
    for old_place, new_place in differences.examples:
        entries = [
            entry_at(side, view.table.state, place) if place is not None else None
            for side, view, place in ((old_side, old_view, old_place), (new_side, new_view, new_place))
        ]
        shown_entries = [_show(entry) if entry is not None else None for entry in entries]
        change = "added" if old_place is None else "removed" if new_place is None else "changed"
        key = next(entry["key"] for entry in shown_entries if entry is not None)
        fields = list(changed_fields(entries[0], entries[1], old_view, new_view)) if entries[0] and entries[1] else []
        yield {"change": change, "key": key, "fields": fields, "old": shown_entries[0], "new": shown_entries[1]}


def _show(entries: RowEntries) -> dict[str, Any]:
    key, value = (to_json_values(structs)[0] for structs in (entries.key_structs, entries.value_structs))
    return show_entry(entries.state, key, value)


def _joined(parts: Sequence[StateDiff], examples: int) -> list[StateDiff]:
    """Return one result for each state from those of its partitions."""
    results: dict[str, StateDiff] = {}
    for part in parts:
        result = results.get(part.name)
        if result is None:
            results[part.name] = part
            continue
        counts_of_parts = {name: (getattr(result, name), getattr(part, name)) for name in _COUNTS}
        counts: dict[str, Any] = {name: None if None in pair else sum(pair) for name, pair in counts_of_parts.items()}
        results[part.name] = replace(result, **counts, examples=(*result.examples, *part.examples)[:examples])
    return [results[name] for name in sorted(results)]
