"""What the state of the old checkpoint itself shows: keys in two orders of their columns, and keys with odd floats."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ttlsnap.check.findings import Finding, FloatKeys, StateFindings
from ttlsnap.check.outcomes import TWO_KEY_ORDERS
from ttlsnap.check.targets import is_folder
from ttlsnap.checkpoint import Checkpoint, Operator, Store
from ttlsnap.delta import is_table
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.place import Place
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.operators.deduplication import can_have_two_orders, is_deduplication
from ttlsnap.operators.registry import states_of
from ttlsnap.reading.opening import open_to_read
from ttlsnap.schema.types import DoubleType, FloatType, contains
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.open import open_state_store, partitions_of
from ttlsnap.stores.partitions import StorePartition

if TYPE_CHECKING:
    from ttlsnap.operators.key_order import TwoOrders
    from ttlsnap.unsaferow.rows import Rows

_MOST_BYTES = 256 << 20
"""The largest state that a check reads, as it is on disk: a few seconds."""


def examine_state(target: str) -> StateFindings:
    """Examine the state of the checkpoint ``target``. A contract in a file and a Delta table have none.

    Raise the errors of ``open_to_read``.
    """
    if not is_folder(target) or is_table(open_directory(target)):
        return StateFindings()
    checkpoint = open_to_read(target)
    findings: list[Finding] = []
    unseen: list[str] = []
    floats: dict[int, FloatKeys] = {}
    for operator, store, state in _states(checkpoint):
        may_have_orders, has_floats = can_have_two_orders(state), contains(state.key_schema, FloatType, DoubleType)
        properties = ["in two orders of their columns"] * may_have_orders + [
            "with floats that are not normalized"
        ] * has_floats
        if not properties:
            continue
        question = f"whether operator {operator.id} has keys {' or '.join(properties)}"
        try:
            state_store = open_state_store(checkpoint)
            partitions = partitions_of(checkpoint, state_store, store)
            if sum(partition.size for partition in partitions) > _MOST_BYTES:
                unseen.append(f"{question}: its state is large" + ("; run ttlsnap doctor" if may_have_orders else ""))
                continue
            if has_floats:
                floats[operator.id] = _find_floats(checkpoint, partitions, state)
            key_orders = _find_orders(checkpoint, partitions, state) if may_have_orders else None
        except (CorruptionError, UnsupportedError) as error:
            unseen.append(f"{question}: its state cannot be read; run ttlsnap doctor (" + error.text + ")")
            continue
        if key_orders is not None and not key_orders.certain:
            unseen.append(f"{question}: its rows may come in both directions; run ttlsnap doctor")
        elif key_orders is not None:
            place = Place(operator.id, store.name, state.state, "key", operator.name)
            row = TWO_KEY_ORDERS.fill({"orders": key_orders})
            findings.append(
                Finding(row.code, row.verdict, place, str(key_orders), None, row.message, row.spark, row.fix)
            )
    return StateFindings(tuple(findings), tuple(unseen), floats)


def _states(checkpoint: Checkpoint) -> Iterator[tuple[Operator, Store, StateDescriptor]]:
    for operator in checkpoint.operators:
        for store in operator.stores:
            for state in states_of(checkpoint, operator, store) if store.families else ():
                if is_deduplication(state):
                    yield operator, store, state


def _find_floats(checkpoint: Checkpoint, partitions: Sequence[StorePartition], state: StateDescriptor) -> FloatKeys:
    """Count the keys that have another form from Spark 4.2 on. Both forms are in one partition."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from ttlsnap.migration.evolving import evolve_keys
    from ttlsnap.migration.formats import with_normalized_keys

    evolution = with_normalized_keys(state)
    assert evolution is not None
    keys = in_both_forms = 0
    for partition in partitions:
        all_keys, changed = [], []
        for rows in _keys(checkpoint, partition, state):
            before = rows.to_arrow()
            after = evolve_keys(evolution, state.key_schema, rows, _nothing_misfits).to_arrow()
            all_keys.append(before)
            changed.append(after.filter(pc.not_equal(before, after)))
        changed_keys = pa.chunked_array(changed, pa.large_binary()).combine_chunks()
        keys += len(changed_keys)
        if len(changed_keys):
            in_both_forms += pc.sum(pc.is_in(changed_keys, pa.chunked_array(all_keys).combine_chunks())).as_py()
    return FloatKeys(keys, in_both_forms)


def _nothing_misfits(place: str, count: int) -> None:
    raise AssertionError(f"{place}: a normalized float has the same type")


def _keys(checkpoint: Checkpoint, partition: StorePartition, state: StateDescriptor) -> Iterator[Rows]:
    with (
        tempfile.TemporaryDirectory(prefix="ttlsnap-") as scratch,
        contextlib.closing(partition.scan(checkpoint.files, {state.state: state}, scratch=scratch)) as batches,
    ):
        for batch, descriptor in batches:
            if descriptor is not None:
                yield batch.keys


def _find_orders(
    checkpoint: Checkpoint, partitions: Sequence[StorePartition], state: StateDescriptor
) -> TwoOrders | None:
    from ttlsnap.operators.key_order import KeySampling, find_two_orders

    samples = []
    for partition in partitions:
        sampling = KeySampling(state.key_schema, len(partitions))
        for keys in _keys(checkpoint, partition, state):
            sampling.look(keys)
        samples.append(sampling.result())
    return find_two_orders(state.key_schema.names, samples)
