"""``diff``: the entries that were added, removed and changed between two states."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ttlsnap.checkpoint.checkpoint import Schemas
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.compaction.task import Progress
from ttlsnap.differences.compare import Differences, Side, compare, entry_at
from ttlsnap.differences.views import View, changed_fields, views
from ttlsnap.documents import MILLISECONDS, Document, json_property
from ttlsnap.engines.listener import SilentWorkListener
from ttlsnap.engines.local import read_all
from ttlsnap.engines.options import ReadOptions
from ttlsnap.entries.batch import RowEntries
from ttlsnap.entries.json_text import to_json_values
from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.exports.plan import ExportPlan, ExportTask, Wanted
from ttlsnap.exports.run import open_plan
from ttlsnap.exports.tables import StateTable
from ttlsnap.keywords import takes
from ttlsnap.operators.join import MATCHED
from ttlsnap.operators.registry import AnyOf, Selection, states_of
from ttlsnap.operators.showing import show_entry
from ttlsnap.operators.transform_with_state import UNUSED
from ttlsnap.publishing.reading import refuse_half_swapped
from ttlsnap.publishing.stale_snapshots import warn_of_doubtful_snapshots
from ttlsnap.schema.types import StructType, physical
from ttlsnap.storage.open import open_for_reading

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
class DiffReport(Document):
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
    old, new, schemas = request.old, request.new, request.schemas
    wanted = Wanted(request.selection or Selection())
    if request.old_batch is None and new is None:
        old_plan = _plan_before(old, request.new_batch, wanted, schemas)
    else:
        old_plan = open_plan(old, wanted, batch=request.old_batch, schemas=schemas)
    new_plan = open_plan(new or old, wanted, batch=request.new_batch, schemas=schemas)
    before, after = _only(request.tables, old_plan, new_plan)
    batches = before.checkpoint.batch.id, after.checkpoint.batch.id
    if before.checkpoint.target == after.checkpoint.target and batches[0] == batches[1]:
        raise UsageError(f"both sides are batch {batches[0]} of {old}. Name another checkpoint, or --old-batch")
    works = list(_works(before, after, request.examples))
    found = read_all(_Work.run, works, request.parallelism, request.listener or SilentWorkListener())
    states = _joined([state for states in found for state in states], request.examples)
    seconds = time.monotonic() - started
    left_out = tuple(dict.fromkeys(str(one) for one in (*before.left_out, *after.left_out)))
    excluded, derived = _unwanted((before, after), wanted.selection)
    targets = before.checkpoint.target, after.checkpoint.target
    warnings = tuple(dict.fromkeys(w for plan in (before, after) for w in warn_of_doubtful_snapshots(plan.checkpoint)))
    return DiffReport(*targets, *batches, tuple(states), seconds, left_out, excluded, derived, warnings)


def _plan_before(target: str, batch: int | None, wanted: Wanted, schemas: Schemas | None) -> ExportPlan:
    """Return the plan for the retained batch before a batch, or before the last one."""
    number = _batch_before(target, batch)
    try:
        plan = open_plan(target, wanted, batch=number, schemas=schemas)
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
    earlier = [number for number in commits if batch is None or number < batch]
    earlier = earlier[:-1] if batch is None else earlier
    if not earlier:
        retained = ", ".join(map(str, commits)) or "none"
        raise UsageError(
            f"{target} retains no batch before {'the last one' if batch is None else batch} (retained: {retained}). "
            "Name another checkpoint to compare with"
        )
    return earlier[-1]


def _only(names: Sequence[str], before: ExportPlan, after: ExportPlan) -> tuple[ExportPlan, ExportPlan]:
    """Return the plans with only the tables of these names. Raise UsageError for one that neither has."""
    found = dict.fromkeys(table.name for plan in (before, after) for table in plan.tables)
    if unknown := [name for name in names if name not in found]:
        raise UsageError(f"there is no table {unknown[0]}; there are {', '.join(found)}")
    if not names:
        return before, after
    return _narrowed(before, names, after), _narrowed(after, names, before)


def _narrowed(plan: ExportPlan, names: Sequence[str], other: ExportPlan) -> ExportPlan:
    """Return the plan with only the tables of these names, and what may be one of them, but cannot be read."""
    tables = tuple(table for table in plan.tables if table.name in names)
    missing = set(names) - {table.name for table in tables}
    lacked = [table.state for table in other.tables if table.name in missing]
    left_out = tuple(one for one in plan.left_out if any(map(one.may_be, lacked)))
    return replace(plan, tables=tables, left_out=left_out)


def _unwanted(plans: Sequence[ExportPlan], selection: Selection | AnyOf) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the states that the options exclude, and those that are only compared if they are named."""
    excluded: dict[str, None] = {}
    derived: dict[str, None] = {}
    for plan in plans:
        known: set[tuple[int, str, str | None]] = {(t.state.operator, *t.state.place) for t in plan.tables}
        known |= {(one.operator, one.store, one.state) for one in plan.left_out}
        for operator in plan.checkpoint.operators:
            for store in operator.stores:
                for state in states_of(plan.checkpoint, operator, store):
                    if state.kind != UNUSED and (operator.id, *state.place) not in known:
                        is_derived = state.role == "derived" and selection.includes(state)
                        (derived if is_derived else excluded)[str(state)] = None
    return tuple(excluded), tuple(derived)


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
        seen = [views(old or new or _none(), new or old or _none()) for old, new in self.pairs]
        sides = [
            self._read(tasks, {view.table.name: view for view in mine}, progress)
            for tasks, mine in zip((self.old, self.new), zip(*seen, strict=True), strict=True)
        ]
        return [self._state(*pair, *view, *sides) for pair, view in zip(self.pairs, seen, strict=True)]

    @staticmethod
    def _read(tasks: Sequence[ExportTask], seen: Mapping[str, View], progress: Progress) -> dict[str, Side]:
        found: dict[str, Side] = {}
        for task in tasks:
            for table, entries in task.entries():
                found.setdefault(table.name, Side()).add(entries, seen[table.name])
                progress(len(entries), 0)
        return found

    def _state(
        self,
        old: StateTable | None,
        new: StateTable | None,
        before_view: View,
        after_view: View,
        olds: Mapping[str, Side],
        news: Mapping[str, Side],
    ) -> StateDiff:
        table = old or new or _none()
        before, after = (side.get(table.name, Side()) for side in (olds, news))
        found = StateDiff(table.name, str(table.state), len(before), len(after))
        if table.name in self.unreadable and old is None:
            return replace(found.without_numbers(_UNREADABLE.format("old")), entries_old=None)
        if table.name in self.unreadable and new is None:
            return replace(found.without_numbers(_UNREADABLE.format("new")), entries_new=None)
        if old is None or new is None:
            return replace(found, added=len(after), removed=len(before), only_in="new" if old is None else "old")
        if (schemas := _schema_change(before_view, after_view)) is not None:
            return replace(found.without_numbers(f"the schemas differ: {schemas}"), schemas=schemas)
        differences = compare(before, after, self.examples)
        examples = tuple(_examples(differences, before, after, before_view, after_view))
        return replace(
            found,
            added=differences.added,
            removed=differences.removed,
            changed=differences.changed,
            examples=examples,
            fields_not_compared=(MATCHED,) if old.has_matched != new.has_matched else (),
        )


def _works(before: ExportPlan, after: ExportPlan, examples: int) -> Iterator[_Work]:
    """Yield the work: each partition alone, if an operator has the same number of them on both sides."""
    names = dict.fromkeys([table.name for plan in (before, after) for table in plan.tables])
    tables = [{table.name: table for table in plan.tables} for plan in (before, after)]
    stores: dict[tuple[Any, Any], list[str]] = {}
    for name in names:
        place = tuple(_store_of(side.get(name)) for side in tables)
        stores.setdefault((place[0], place[1]), []).append(name)
    for (old_store, new_store), mine in stores.items():
        pairs = [(tables[0].get(name), tables[1].get(name)) for name in mine]
        unreadable = frozenset(
            table.name
            for pair, plan in ((0, after), (1, before))
            for table in (each[pair] for each in pairs)
            if table is not None and any(one.may_be(table.state) for one in plan.left_out)
        )
        olds, news = _tasks(before, old_store, mine), _tasks(after, new_store, mine)
        if old_store is not None and new_store is not None and len(olds) == len(news):
            for old, new in zip(olds, news, strict=True):
                yield _Work((old,), (new,), pairs, unreadable, examples)
        else:
            yield _Work(tuple(olds), tuple(news), pairs, unreadable, examples)


def _store_of(table: StateTable | None) -> tuple[int, str] | None:
    return (table.state.operator, table.state.store) if table is not None else None


def _tasks(plan: ExportPlan, store: tuple[int, str] | None, names: Sequence[str]) -> list[ExportTask]:
    """Return the tasks of a store, with only some of its tables."""
    found = []
    for task in plan.tasks:
        tables = tuple(table for table in task.tables if table.name in names)
        if tables and _store_of(tables[0]) == store:
            found.append(replace(task, tables=tables))
    return found


def _none() -> StateTable:
    raise AssertionError("one of the sides has the table")


def _schema_change(old: View, new: View) -> str | None:
    """Return how the types of two states differ; None if their entries can be compared."""
    keys = [_types(view.table.state.key_schema) for view in (old, new)]
    if old.table.state.kind == new.table.state.kind == "row":
        keys = [types[:-1] for types in keys]
    for side, (was, now) in (("key", keys), ("value", [_types(old.schema), _types(new.schema)])):
        if was != now:
            return f"{side} old: {', '.join(was)}; {side} new: {', '.join(now)}"
    return None


def _types(schema: StructType) -> list[str]:
    return [physical(field.type).simple_string for field in schema.fields]


def _examples(found: Differences, before: Side, after: Side, old: View, new: View) -> Iterator[Mapping[str, Any]]:
    for was, now in found.examples:
        entries = [
            entry_at(side, view.table.state, place) if place is not None else None
            for side, view, place in ((before, old, was), (after, new, now))
        ]
        shown = [_show(entry) if entry is not None else None for entry in entries]
        change = "added" if was is None else "removed" if now is None else "changed"
        key = next(one["key"] for one in shown if one is not None)
        fields = list(changed_fields(entries[0], entries[1], old, new)) if entries[0] and entries[1] else []
        yield {"change": change, "key": key, "fields": fields, "old": shown[0], "new": shown[1]}


def _show(entries: RowEntries) -> dict[str, Any]:
    key, value = (to_json_values(structs)[0] for structs in (entries.key_structs, entries.value_structs))
    return show_entry(entries.state, key, value)


def _joined(parts: Sequence[StateDiff], examples: int) -> list[StateDiff]:
    """Return one result for each state from those of its partitions."""
    found: dict[str, StateDiff] = {}
    for part in parts:
        other = found.get(part.name)
        if other is None:
            found[part.name] = part
            continue
        pairs = {name: (getattr(other, name), getattr(part, name)) for name in _COUNTS}
        counts: dict[str, Any] = {name: None if None in pair else sum(pair) for name, pair in pairs.items()}
        found[part.name] = replace(other, **counts, examples=(*other.examples, *part.examples)[:examples])
    return [found[name] for name in sorted(found)]
