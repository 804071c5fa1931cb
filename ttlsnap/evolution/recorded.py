"""The schemas that a checkpoint records after an evolution."""

from __future__ import annotations

from dataclasses import replace

from ttlsnap.checkpoint import Checkpoint, Operator
from ttlsnap.checkpoint.checkpoint import ALWAYS_NULLABLE
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.evolution.model import Evolution, StateEvolution
from ttlsnap.schema.nullable import as_nullable


def with_schemas_of(checkpoint: Checkpoint, evolution: Evolution) -> Checkpoint:
    """Return the checkpoint with the new schemas of its states."""
    found = {(s.operator, s.store, s.state): s for s in evolution.states}
    widens = checkpoint.batch.conf.get(ALWAYS_NULLABLE, "false").lower() == "true"

    def evolved(operator: Operator) -> Operator:
        stores = [
            replace(
                store,
                num_cols_prefix_key=evolution.prefixes.get((operator.id, store.name), store.num_cols_prefix_key),
                families=tuple(
                    _evolved(family, found.get((operator.id, store.name, family.name)), widens=widens)
                    for family in store.families
                ),
            )
            for store in operator.stores
        ]
        names = evolution.renamed(operator.id)
        variables = (replace(variable, name=names.get(variable.name, variable.name)) for variable in operator.variables)
        return replace(operator, stores=tuple(stores), variables=tuple(variables))

    return replace(checkpoint, operators=tuple(map(evolved, checkpoint.operators)))


def _evolved(family: ColumnFamilySchema, state: StateEvolution | None, *, widens: bool) -> ColumnFamilySchema:
    if state is None:
        return family
    key, value = state.new_key, state.new_value
    if widens:
        key, value = as_nullable(key), as_nullable(value)
    older = tuple(replace(earlier, name=state.new_name) for earlier in family.older)
    return replace(family, name=state.new_name, key=key, value=value, older=older)
