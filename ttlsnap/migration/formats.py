"""State formats of operators: ``--set aggregation-format=2``.

In format 1, a value of an aggregation has the grouping columns before the buffers, as its key has. Format 2 leaves
them out. Spark pins the format with a query's first batch. Source: Spark's ``StreamingAggregationStateManager``.
"""

from __future__ import annotations

from collections.abc import Mapping

from ttlsnap.checkpoint import Checkpoint
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.place import Place
from ttlsnap.errors import UnsupportedError
from ttlsnap.evolution.changes import StructChange, Take
from ttlsnap.evolution.model import NO_EVOLUTION, Evolution, StateEvolution, Step
from ttlsnap.migration.changes import AGGREGATION_FORMAT, SETTINGS
from ttlsnap.operators import aggregation
from ttlsnap.operators.deduplication import is_deduplication
from ttlsnap.operators.registry import describe
from ttlsnap.schema.types import StructType


def find_format_changes(checkpoint: Checkpoint, settings: Mapping[str, str]) -> Evolution:
    """Return how states change with the format of their operators.

    Raise UnsupportedError for a value that is not that of an aggregation in format 1.
    """
    before = checkpoint.batch.conf.get(SETTINGS[AGGREGATION_FORMAT][0])
    if AGGREGATION_FORMAT not in settings or before in (None, settings[AGGREGATION_FORMAT]):
        return NO_EVOLUTION
    states, steps = [], []
    for state in describe(checkpoint):
        if not _is_aggregation(state):
            continue
        keys = len(state.key_schema)
        if state.value_schema.names[:keys] != state.key_schema.names:
            raise UnsupportedError(
                f"{checkpoint.target}: {state}: its values do not begin with the columns of its key, as those of an "
                "aggregation in format 1 do"
            )
        change = StructChange(tuple(Take(ordinal) for ordinal in range(keys, len(state.value_schema))))
        value = StructType(state.value_schema.fields[keys:])
        place = Place(state.operator, state.store, state.state, "value", state.operator_name)
        steps.append(Step("reformat", place, "format 1", "format 2"))
        states.append(
            StateEvolution(state.operator, state.store, state.state, state.state, None, change, state.key_schema, value)
        )
    return Evolution(tuple(states), tuple(steps))


def _is_aggregation(state: StateDescriptor) -> bool:
    if state.operator_name is not None:
        return state.operator_name in aggregation.NAMES
    # Before Spark 4.0 no name is recorded.
    keys = len(state.key_schema)
    return state.value_schema.names[:keys] == state.key_schema.names and not is_deduplication(state)
