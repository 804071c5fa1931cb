"""Schemas that a user gives for checkpoints which record none are checked against the bytes first.

A wrong schema must not turn into dropped entries: every key and value of the first batches has to fit it, down to
the last field, and be exactly what the schema would encode to.
"""

from __future__ import annotations

import contextlib

from ttlsnap.checkpoint.checkpoint import Schemas
from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.plan import Plan, StorePlan
from ttlsnap.schema.types import StructType
from ttlsnap.state import StateDescriptor
from ttlsnap.stores import StoredPartition
from ttlsnap.unsaferow.check import check_rows
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.rows import Rows

_LEAST_ENTRIES = 10_000


def check_given_schemas(plan: Plan, schemas: Schemas, scratch: str | None = None) -> None:
    """Raise UsageError when a given schema does not describe the state's bytes."""
    for store in plan.stores:
        if (store.operator, store.store) in schemas:
            _check(plan, store, scratch)


def _check(plan: Plan, store: StorePlan, scratch: str | None) -> None:
    (planned,) = store.states  # a schema that is given is one for the whole store
    for partition in store.partitions:
        with plan.state_store.open(plan.checkpoint.files, partition.lineage, scratch) as stored:
            _check_partition(stored, planned.state, partition.partition)


def _check_partition(stored: StoredPartition, state: StateDescriptor, partition: int) -> None:
    seen = 0
    with contextlib.closing(stored.batches({state.state: state})) as batches:
        for batch in batches:
            for side, rows, schema in (
                ("key", batch.keys, state.key_schema),
                ("value", batch.values, state.value_schema),
            ):
                problem = _mismatch(rows, schema)
                if problem:
                    raise UsageError(
                        f"--schema {state.operator}.{state.store}: the {side} schema does not describe the bytes of "
                        f"partition {partition}: {problem}"
                    )
            seen += len(batch.keys)
            if seen >= _LEAST_ENTRIES:
                break


def _mismatch(rows: Rows, schema: StructType) -> str | None:
    try:
        check_rows(rows, schema)
        again = encode(decode(rows, schema), schema)
    except (CorruptionError, UsageError) as error:
        return str(error)
    if again.to_arrow() != rows.to_arrow():
        return "encoding what was decoded gives other bytes"
    return None
