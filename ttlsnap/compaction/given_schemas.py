"""The check of schemas that the user gives for checkpoints that record none.

A wrong schema must not cause dropped entries. So every field of every key and value in the first batches
must match the schema, and to encode the decoded values must give the same bytes.
"""

from __future__ import annotations

import contextlib

from ttlsnap.checkpoint.checkpoint import Schemas
from ttlsnap.compaction.plan import Plan
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.schema.types import StructType
from ttlsnap.stores.protocols import StoredPartition
from ttlsnap.stores.scan import scan_partition
from ttlsnap.unsaferow.check import check_rows
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.rows import Rows

_LEAST_ENTRIES = 10_000


def check_given_schemas(plan: Plan, schemas: Schemas, scratch: str | None = None) -> None:
    """Raise UsageError if a given schema does not describe the state's bytes."""
    for store in plan.stores:
        if (store.operator, store.store) in schemas:
            (state_plan,) = store.states  # a given schema describes the whole store
            for partition in store.partitions:
                with partition.open(plan.checkpoint.files, scratch) as stored_partition:
                    check_partition(stored_partition, state_plan.state, partition.partition)


def check_partition(stored_partition: StoredPartition, state: StateDescriptor, partition: int) -> None:
    """Raise UsageError if the given schema of a state does not describe its first entries in a partition."""

    def check(descriptor: StateDescriptor, keys: Rows, values: Rows) -> None:
        for side, rows, schema in (("key", keys, descriptor.key_schema), ("value", values, descriptor.value_schema)):
            problem = _mismatch(rows, schema)
            if problem:
                raise UsageError(
                    f"--schema {state.operator}.{state.store}: the {side} schema does not describe the bytes of "
                    f"partition {partition}: {problem}"
                )

    entries_seen = 0
    with contextlib.closing(scan_partition(stored_partition, {state.state: state}, check=check)) as batches:
        for batch, _ in batches:
            entries_seen += len(batch)
            if entries_seen >= _LEAST_ENTRIES:
                break


def _mismatch(rows: Rows, schema: StructType) -> str | None:
    try:
        check_rows(rows, schema)
        encoded_rows = encode(decode(rows, schema), schema)
    except (CorruptionError, UsageError) as error:
        return str(error)
    if encoded_rows.to_arrow() != rows.to_arrow():
        return "encoding what was decoded gives other bytes"
    return None
