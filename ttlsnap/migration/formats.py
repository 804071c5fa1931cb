"""State formats of operators: ``--set aggregation-format=2`` and ``--set join-format=4``.

In format 1, a value of an aggregation has the grouping columns before the buffers, as its key has. Format 2 leaves
them out. The formats of joins are described in ``ttlsnap.operators.join``. Spark pins the formats with a query's first
batch. Source: Spark's ``StreamingAggregationStateManager`` and ``SymmetricHashJoinStateManager``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import uuid4

from ttlsnap.checkpoint import Checkpoint, Operator, Store, layout
from ttlsnap.checkpoint.layout import DEFAULT_STORE
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.place import Place
from ttlsnap.errors import NothingToMigrateError, UnsupportedError
from ttlsnap.migration.changes import AGGREGATION_FORMAT, FLOAT_KEYS, INTERVAL_KEYS, JOIN_FORMAT, SETTINGS
from ttlsnap.migration.evolution import FLOATS, HASHES, Evolution, NewStore, StateEvolution, Step
from ttlsnap.migration.struct_changes import Constant, StructChange, Take, normalizing
from ttlsnap.operators import aggregation, join
from ttlsnap.operators.deduplication import is_deduplication
from ttlsnap.operators.placement import is_placed_by_interval
from ttlsnap.operators.registry import describe, is_join
from ttlsnap.schema.types import StructType


def find_format_changes(checkpoint: Checkpoint, settings: Mapping[str, str]) -> Evolution:
    """Return how states change with the format of their operators.

    Raise UnsupportedError for a value that is not that of an aggregation in format 1, and for a join that cannot have
    the format. Raise NothingToMigrateError if there is no join.
    """
    states: list[StateEvolution] = []
    steps: list[Step] = []
    new_stores: dict[int, NewStore] = {}
    old_format = checkpoint.batch.conf.get(SETTINGS[AGGREGATION_FORMAT][0])
    if old_format is not None and settings.get(AGGREGATION_FORMAT, old_format) != old_format:
        for state in filter(_is_aggregation, describe(checkpoint)):
            states.append(_aggregation(checkpoint, state))
            steps.append(_step(state, old_format, settings[AGGREGATION_FORMAT]))
    if FLOAT_KEYS in settings:
        for state in filter(is_deduplication, describe(checkpoint)):
            if (evolution := with_normalized_keys(state)) is not None:
                states.append(evolution)
                place = Place(state.operator, state.store, state.state, "key", state.operator_name)
                steps.append(Step("normalize", place, *FLOATS))
        if not states:
            raise NothingToMigrateError(
                f"{checkpoint.target}: no deduplication of this query has a float or double in its key, so "
                f"{FLOAT_KEYS} has no effect. Nothing was changed. Leave it out"
            )
    if INTERVAL_KEYS in settings:
        hashes_days = settings[INTERVAL_KEYS] == "4.3"
        interval_states = [state for state in describe(checkpoint) if is_placed_by_interval(state)]
        if not interval_states:
            raise NothingToMigrateError(
                f"{checkpoint.target}: no key of this query has a calendar interval, so {INTERVAL_KEYS} has no effect. "
                "Nothing was changed. Leave it out"
            )
        for state in interval_states:
            if state.hashes_days != hashes_days:
                states.append(with_hash(state, hashes_days=hashes_days))
                steps.append(step_of_hash(state, hashes_days=hashes_days))
    if JOIN_FORMAT in settings:
        old_format, new_format = join.state_format(checkpoint), settings[JOIN_FORMAT]
        for operator in _changing_joins(checkpoint, old_format, new_format):
            descriptors = join.described_in(checkpoint, operator)
            if new_format > "2":
                new_stores[operator.id] = _new_store(checkpoint, operator, descriptors, old_format, new_format)
            for (side, kind), state in descriptors.items():
                if new_format > "2" or kind == join.VALUES:
                    states.append(_join_state(side, kind, state, old_format, new_format))
                if kind == join.VALUES:
                    steps.append(_step(state, old_format, new_format))
    return Evolution(tuple(states), tuple(steps), new_stores=new_stores)


def _step(state: StateDescriptor, old_format: str, new_format: str) -> Step:
    place = Place(state.operator, state.store, state.state, "value", state.operator_name)
    return Step("reformat", place, f"format {old_format}", f"format {new_format}")


def _aggregation(checkpoint: Checkpoint, state: StateDescriptor) -> StateEvolution:
    key_columns = len(state.key_schema)
    if state.value_schema.names[:key_columns] != state.key_schema.names:
        raise UnsupportedError(
            f"{checkpoint.target}: {state}: its values do not begin with the columns of its key, as those of an "
            "aggregation in format 1 do"
        )
    change = StructChange(tuple(Take(ordinal) for ordinal in range(key_columns, len(state.value_schema))))
    value = StructType(state.value_schema.fields[key_columns:])
    place = (state.operator, state.store, state.state, state.state)
    return StateEvolution(*place, None, change, state.key_schema, value)


def _is_aggregation(state: StateDescriptor) -> bool:
    if state.operator_name is not None:
        return state.operator_name in aggregation.NAMES
    # Before Spark 4.0 no name is recorded.
    key_columns = len(state.key_schema)
    return state.value_schema.names[:key_columns] == state.key_schema.names and not is_deduplication(state)


def with_normalized_keys(state: StateDescriptor) -> StateEvolution | None:
    """Return the change of a deduplication to keys that Spark 4.2 finds; None without a float in its key."""
    change = normalizing(None, state.key_schema)
    if not isinstance(change, StructChange):
        return None
    place = (state.operator, state.store, state.state, state.state)
    return StateEvolution(*place, change, None, state.key_schema, state.value_schema, merges=True)


def with_hash(state: StateDescriptor, *, hashes_days: bool) -> StateEvolution:
    """Return the change of a state whose keys only move to other partitions."""
    place = (state.operator, state.store, state.state, state.state)
    unchanged_key = StructChange(tuple(map(Take, range(len(state.key_schema)))))
    return StateEvolution(*place, unchanged_key, None, state.key_schema, state.value_schema, hashes_days=hashes_days)


def step_of_hash(state: StateDescriptor, *, hashes_days: bool) -> Step:
    place = Place(state.operator, state.store, state.state, "key", state.operator_name)
    return Step("rehash", place, *(HASHES if hashes_days else HASHES[::-1]))


def _changing_joins(checkpoint: Checkpoint, old_format: str, new_format: str) -> list[Operator]:
    """Return the joins whose format changes."""
    joins = [operator for operator in checkpoint.operators if is_join(operator)]
    if not joins:
        raise NothingToMigrateError(
            f"{checkpoint.target}: this query has no stream-stream join, so {JOIN_FORMAT} has no effect. Nothing was "
            "changed. Leave it out"
        )
    for operator in joins:
        if not join.links(checkpoint, operator):
            raise UnsupportedError(f"{checkpoint.target}: operator {operator.id}: a join of an unknown format")
    if new_format < old_format:
        raise UnsupportedError(
            f"{checkpoint.target}: its joins have format {old_format}, and cannot go back to {new_format}"
        )
    return joins if new_format > old_format else []


def _new_store(
    checkpoint: Checkpoint,
    operator: Operator,
    descriptors: Mapping[tuple[str, str], StateDescriptor],
    old_format: str,
    new_format: str,
) -> NewStore:
    if operator.name is None:
        raise UnsupportedError(
            f"{checkpoint.target}: operator {operator.id} has no metadata, which join format {new_format} needs. Run "
            "the query for a batch with Spark 4.1 or later, and repeat the command"
        )
    if join.is_timed(new_format):
        for (side, kind), state in descriptors.items():
            if kind == join.VALUES and state.stored_timestamp is None:
                raise UnsupportedError(
                    f"{checkpoint.target}: operator {operator.id} ({operator.name}): the {side} side has no column "
                    f"with a watermark, which join format {new_format} needs"
                )
    families = join.families_of(new_format, descriptors, has_matched=old_format != "1")
    old_store = operator.stores[0]
    schema_file = old_store.schema_file
    if len(operator.stores) > 1:
        schema_file = f"{layout.state_schema_directory(operator.id, DEFAULT_STORE)}/{checkpoint.batch.id}_{uuid4()}"
    internal_names = {family.name for family in families if not join.has_rows(family.name)}
    store = Store(operator.id, DEFAULT_STORE, old_store.partitions, tuple(families), 0, schema_file)
    return NewStore(store, frozenset(internal_names))


def _join_state(side: str, kind: str, state: StateDescriptor, old_format: str, new_format: str) -> StateEvolution:
    """Return the change of one state of a join. The flag of format 2 is of no use to an inner join."""
    value, change = state.value_schema, None
    if old_format == "1" and kind == join.VALUES:
        columns = tuple(Take(ordinal) for ordinal in range(len(value)))
        value, change = join.with_matched(value), StructChange((*columns, Constant(False)))
    evolution = StateEvolution(
        state.operator, state.store, state.state, state.state, None, change, state.key_schema, value
    )
    if new_format <= "2":
        return evolution
    if not join.is_timed(new_format):
        return replace(evolution, new_store=DEFAULT_STORE, new_name=f"{side}-{kind}")
    evolution = replace(evolution, new_store=DEFAULT_STORE)
    if kind == join.COUNTS:
        return replace(evolution, derived=(state.state,))
    index_name = f"{side}-{join.TIMES}"
    return replace(evolution, timed=True, new_name=f"{side}-{join.TIMED_VALUES}", made=(index_name,))
