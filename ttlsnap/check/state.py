"""The state of the old checkpoint itself, as far as a contract cannot show it: keys in two orders of their columns."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ttlsnap.check.findings import Finding, StateFindings
from ttlsnap.check.outcomes import TWO_KEY_ORDERS
from ttlsnap.check.targets import is_folder
from ttlsnap.checkpoint import Checkpoint, Operator, Store, open_checkpoint
from ttlsnap.delta import is_table
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.place import Place
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.operators.deduplication import can_have_two_orders
from ttlsnap.operators.registry import states_of
from ttlsnap.storage.open import open_directory, open_for_reading
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.open import lineages_of, open_state_store
from ttlsnap.stores.protocols import StateStore

if TYPE_CHECKING:
    from ttlsnap.operators.key_order import TwoOrders

_MOST_BYTES = 256 << 20
"""The largest state that a check reads, as it is on disk: a few seconds."""


def examine_state(target: str) -> StateFindings:
    """Examine the state of the checkpoint ``target``. A contract in a file and a Delta table have none.

    Raise the errors of ``open_checkpoint``.
    """
    if not is_folder(target) or is_table(open_directory(target)):
        return StateFindings()
    checkpoint = open_checkpoint(open_for_reading(target))
    findings: list[Finding] = []
    unseen: list[str] = []
    for operator, store, state in _states(checkpoint):
        what = f"whether operator {operator.id} has keys in two orders of their columns"
        try:
            state_store = open_state_store(checkpoint)
            lineages = lineages_of(checkpoint, state_store, store)
            if sum(lineage.size for lineage in lineages) > _MOST_BYTES:
                unseen.append(f"{what}: its state is large; run ttlsnap doctor")
                continue
            orders = _find_orders(checkpoint, state_store, lineages, state)
        except (CorruptionError, UnsupportedError) as error:
            unseen.append(f"{what}: its state cannot be read; run ttlsnap doctor ({error})")
            continue
        if orders is not None and not orders.certain:
            unseen.append(f"{what}: its rows may come in both directions; run ttlsnap doctor")
        elif orders is not None:
            place = Place(operator.id, store.name, state.state, "key", operator.name)
            row = TWO_KEY_ORDERS.fill({"orders": orders})
            findings.append(Finding(row.code, row.verdict, place, str(orders), None, row.message, row.spark, row.fix))
    return StateFindings(tuple(findings), tuple(unseen))


def _states(checkpoint: Checkpoint) -> Iterator[tuple[Operator, Store, StateDescriptor]]:
    for operator in checkpoint.operators:
        for store in operator.stores:
            for state in states_of(checkpoint, operator, store) if store.families else ():
                if can_have_two_orders(state):
                    yield operator, store, state


def _find_orders(
    checkpoint: Checkpoint, state_store: StateStore, lineages: Sequence[Lineage], state: StateDescriptor
) -> TwoOrders | None:
    from ttlsnap.operators.key_order import KeySampling, find_two_orders
    from ttlsnap.stores.scan import scan_partition

    samples = []
    for lineage in lineages:
        sampling = KeySampling(state.key_schema, len(lineages))
        with (
            tempfile.TemporaryDirectory(prefix="ttlsnap-") as scratch,
            state_store.open(checkpoint.files, lineage, scratch) as stored,
        ):
            for batch, found in scan_partition(stored, {state.state: state}):
                if found is not None:
                    sampling.look(batch.keys)
        samples.append(sampling.result())
    return find_two_orders(state.key_schema.names, samples)
