"""The plan of an import: the states that tables fill, and everything that is checked before a row is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ttlsnap.checkpoint import Checkpoint, Operator
from ttlsnap.checkpoint.listing import Listing, list_activity
from ttlsnap.clock import clock_at
from ttlsnap.compaction.plan import Plan, StatePlan, StorePlan
from ttlsnap.errors import RefusedError, UnsupportedError, UsageError
from ttlsnap.imports.sources import TableFile, find_files, find_tables
from ttlsnap.imports.tables import ImportTable
from ttlsnap.operators import join
from ttlsnap.operators.placement import STRICT, is_placed_by_hash
from ttlsnap.operators.registry import AnyOf, Selection, describe, is_join, links_of
from ttlsnap.publishing.preflight import refuse_unsettled
from ttlsnap.publishing.runs import Runs, new_run_id
from ttlsnap.reading.export_plan import names_of
from ttlsnap.stores.open import open_state_store, partitions_of
from ttlsnap.suggestions import did_you_mean
from ttlsnap.written.history import history_to_keep


@dataclass(frozen=True)
class FilledState:
    """A state that is filled, and the files of its table in order."""

    table: ImportTable
    files: tuple[TableFile, ...]


@dataclass(frozen=True)
class ImportPlan:
    """The states that tables fill, and the stores that get new files."""

    filled: tuple[FilledState, ...]
    plan: Plan

    @property
    def checkpoint(self) -> Checkpoint:
        return self.plan.checkpoint

    def of(self, operator: int) -> list[FilledState]:
        """Return the states of an operator."""
        return [filled for filled in self.filled if filled.table.state.operator == operator]

    @property
    def operators(self) -> list[Operator]:
        """The operators with states that are filled."""
        return [operator for operator in self.checkpoint.operators if self.of(operator.id)]


def plan_import(
    checkpoint: Checkpoint, runs: Runs, source: str, selection: Selection | AnyOf, names: Sequence[str]
) -> ImportPlan:
    """Return the plan of an import from ``source``: a table, or a folder that ``export`` wrote.

    ``names`` are the tables to import, () for all. Raise UsageError if a table does not fit its state, if there is
    none, or if it is not clear for which state it is. Raise UnsupportedError for an unknown state, and RefusedError if
    Spark may look for keys elsewhere than ttlsnap puts them.
    """
    listing = list_activity(checkpoint.files)
    refuse_unsettled(checkpoint, listing, runs)
    tables = _tables(checkpoint, selection)
    unknown = [name for name in names if name not in tables]
    if unknown:
        hint = did_you_mean(unknown[0], tables)
        raise UsageError(
            f"{checkpoint.target} has no state for the table {unknown[0]}{hint}; it has {', '.join(tables)}"
        )
    chosen_tables = {name: table for name, table in tables.items() if not names or name in names}
    filled = tuple(_filled(checkpoint, source, chosen_tables, are_named=bool(names) or selection != Selection()))
    for state in filled:
        _require_known_placement(checkpoint, state.table)
        for file in state.files:
            state.table.require_columns(file.schema, file.where)
    return ImportPlan(filled, _plan(checkpoint, runs, listing, [state.table for state in filled]))


def _tables(checkpoint: Checkpoint, selection: Selection | AnyOf) -> dict[str, ImportTable]:
    """Return what tables can fill, by name; those of all states have the names that ``export`` gives them."""
    states = [state for state in describe(checkpoint) if state.role == "primary" and not state.opaque]
    links = {
        (operator.id, place): link
        for operator in checkpoint.operators
        for link in links_of(checkpoint, operator)
        for place in link.places
    }
    joins = {operator.id for operator in checkpoint.operators if is_join(operator)}
    has_matched = join.state_format(checkpoint) != "1"
    tables = {}
    for name, state in zip(names_of(states), states, strict=True):
        link = links.get((state.operator, state.place))
        tables[name] = ImportTable(name, state, link, state.operator in joins and has_matched)
    if selection != Selection():
        describe(checkpoint, selection)  # names what is wrong with the selection
    selected_tables = {name: table for name, table in tables.items() if selection.includes(table.state)}
    if not selected_tables:
        raise UnsupportedError(f"{checkpoint.target}: ttlsnap cannot read the selected states, so it cannot fill them")
    return selected_tables


def _filled(
    checkpoint: Checkpoint, source: str, tables: dict[str, ImportTable], *, are_named: bool
) -> Iterator[FilledState]:
    """Yield the tables with their files."""
    table_sources = find_tables(source)
    if not table_sources:
        if len(tables) > 1:
            raise UsageError(f"--from {source} is one table. Choose its state with --table: {', '.join(tables)}")
        (table,) = tables.values()
        yield FilledState(table, tuple(find_files(source)))
        return
    missing = [name for name in tables if name not in table_sources]
    if missing and (are_named or len(missing) == len(tables)):
        raise UsageError(f"--from {source} has no table {missing[0]}; it has {', '.join(table_sources)}")
    unknown = [name for name in table_sources if name not in tables]
    if unknown and not are_named:
        raise UsageError(
            f"--from {source} has the table {unknown[0]}, but {checkpoint.target} has no such state; it has "
            f"{', '.join(tables)}. Choose tables with --table"
        )
    for name, table in tables.items():
        if name in table_sources:
            yield FilledState(table, tuple(find_files(table_sources[name])))


def _require_known_placement(checkpoint: Checkpoint, table: ImportTable) -> None:
    """Raise an error unless ttlsnap knows the partition in which Spark looks for each key."""
    state = table.state
    (partitions,) = (
        store.partitions
        for operator in checkpoint.operators
        if operator.id == state.operator
        for store in operator.stores
        if store.name == state.store
    )
    if partitions != tuple(range(len(partitions))):
        raise UnsupportedError(f"{checkpoint.target}: {state}: the folders of some partitions are missing")
    if len(partitions) == 1:
        return
    if not is_placed_by_hash(table.identity):
        raise UnsupportedError(f"{checkpoint.target}: {state}: ttlsnap does not know how Spark places its keys")
    if checkpoint.batch.conf.get(STRICT) != "true":
        raise RefusedError(
            f"{checkpoint.target}: {state}: the query was started before Spark 3.3, which may place keys by only some "
            "of their columns, so ttlsnap does not know where Spark would look for new ones. Nothing was changed. "
            "Start the query with a new checkpoint and a later version of Spark, and fill that one"
        )


def _plan(checkpoint: Checkpoint, runs: Runs, listing: Listing, tables: Sequence[ImportTable]) -> Plan:
    """Return the plan with the stores that get new files."""
    state_store = open_state_store(checkpoint)
    stores = []
    for operator in checkpoint.operators:
        tables_of_operator = [table for table in tables if table.state.operator == operator.id]
        for store in operator.stores:
            states = [
                state
                for table in tables_of_operator
                for state in (table.link.places.values() if table.link is not None else (table.state,))
                if state.store == store.name
            ]
            if states:
                partitions = partitions_of(checkpoint, state_store, store)
                plans = tuple(StatePlan(state, None) for state in states)
                stores.append(StorePlan(operator.id, store.name, plans, tuple(partitions), follows=True))
    return Plan(
        run=new_run_id(),
        checkpoint=checkpoint,
        listing=listing,
        clock=clock_at("checkpoint", checkpoint.batch),
        state_store=state_store,
        factories=(),
        stores=tuple(stores),
        history=history_to_keep(checkpoint, runs, is_asked=False),
    )
