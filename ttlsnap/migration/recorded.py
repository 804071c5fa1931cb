"""The schemas that a checkpoint records after an evolution."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from ttlsnap.checkpoint import Checkpoint, Operator, Store
from ttlsnap.checkpoint.checkpoint import ALWAYS_NULLABLE
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.migration.evolution import Evolution, StateEvolution
from ttlsnap.schema.fields import as_nullable


def with_schemas_of(checkpoint: Checkpoint, evolution: Evolution) -> Checkpoint:
    """Return the checkpoint with the new schemas of its states."""
    widens = checkpoint.batch.conf.get(ALWAYS_NULLABLE, "false").lower() == "true"

    def evolve_operator(operator: Operator) -> Operator:
        if operator.id in evolution.new_stores:
            return replace(operator, stores=(evolution.new_stores[operator.id].store,))
        stores = [
            replace(
                store,
                num_cols_prefix_key=evolution.prefixes.get((operator.id, store.name), store.num_cols_prefix_key),
                families=_families(operator, store, evolution, widens=widens),
                unused=_left_unused(store, evolution),
            )
            for store in operator.stores
        ]
        names, ttls = evolution.renamed(operator.id), evolution.switched(operator.id)
        removed = {name for store in operator.stores for name in evolution.removed.get((operator.id, store.name), ())}
        variables = (
            replace(variable, name=names.get(variable.name, variable.name), ttl=ttls.get(variable.name, variable.ttl))
            for variable in operator.variables
            if variable.name not in removed
        )
        time_mode, output_mode = evolution.modes.get(operator.id, (operator.time_mode, operator.output_mode))
        return replace(
            operator,
            stores=tuple(stores),
            variables=tuple(variables),
            time_mode=time_mode,
            output_mode=output_mode,
        )

    return replace(checkpoint, operators=tuple(map(evolve_operator, checkpoint.operators)))


def _families(
    operator: Operator, store: Store, evolution: Evolution, *, widens: bool
) -> tuple[ColumnFamilySchema, ...]:
    place = (operator.id, store.name)
    evolutions = {state.state: state for state in evolution.states if (state.operator, state.store) == place}
    removed, added = evolution.removed.get(place, ()), evolution.added.get(place, ())
    families = [
        _evolved(family, evolutions.get(family.name), widens=widens)
        for family in store.families
        if family.name not in removed
    ]
    if not removed and not added:
        return tuple(families)
    families += [
        replace(family, key=as_nullable(family.key), value=as_nullable(family.value)) if widens else family
        for family in added
    ]
    return tuple(sorted(families, key=attrgetter("name")))  # Spark's own order


def _left_unused(store: Store, evolution: Evolution) -> tuple[ColumnFamilySchema, ...]:
    removed = evolution.removed.get((store.operator, store.name), ())
    return tuple(family for family in store.unused if family.name not in removed)


def _evolved(family: ColumnFamilySchema, state: StateEvolution | None, *, widens: bool) -> ColumnFamilySchema:
    if state is None:
        return family
    key, value = state.new_key, state.new_value
    if widens:
        key, value = as_nullable(key), as_nullable(value)
    # Schema files of earlier versions have the old name. A migration writes all rows in the current schema.
    older = family.older if state.new_name == family.name else ()
    return replace(family, name=state.new_name, key=key, value=value, older=older)
